// Time of a step: measured work and collectives of each process, and the time by kind of work.
"use strict";

const partLooks = ["forward", "backward", "recomputation", "update", "collectives", "input", "device", "program"];
const rowsOfDepth = 5;
const wholePasses = ["gradients", "update"];

// One process's step: rows of slices by depth, then a lane for each set of mesh axes.
class ProfileTimeline {
  constructor(profile, step) {
    Object.assign(this, {profile, step});
    const text = (number) => profile.texts[number];
    const names = shortNames(profile.texts.filter((t) => t.includes("/")));
    this.slices = step.slices.map(([begin, seconds, depth, part, name, module, file, line]) => ({
      begin, seconds, row: Math.min(depth, rowsOfDepth - 1), look: partLooks[part], name: text(name),
      module: text(module), line: text(file) ? `${names.get(text(file)) ?? text(file)}:${line}` : "",
    }));
    this.lanes = [...new Set(step.transfers.map((transfer) => text(transfer[5])))];
    this.depth = Math.max(1, ...this.slices.map((slice) => slice.row + 1));
    this.transfers = step.transfers.map(([begin, seconds, waited, kind, label, axes, path, bytes]) => ({
      begin, seconds, waited, row: this.depth + this.lanes.indexOf(text(axes)), look: lookOfKind(text(kind)),
      name: text(label), axes: text(axes), path: text(path), bytes,
    }));
    const all = [...this.slices, ...this.transfers];
    const first = Math.min(...all.map((item) => item.begin)), last = Math.max(...all.map((i) => i.begin + i.seconds));
    this.whole = [Math.min(first, last), Math.max(last, first + step.seconds)];
    this.shown = this.whole;
    this.canvas = html("div", {class: "timeline measured", role: "group",
                               "aria-label": `The step of process ${step.process}, as measured`});
    this.panel = panel("Point at a part, or walk with the arrow keys; click it to see it larger.");
    this.back = html("button", {type: "button", class: "zoom", click: () => this.zoom(this.whole)},
                     "Show the whole step");
    this.node = html("div", {}, html("h3", {}, `Process ${step.process}: ${secondsText(step.seconds)}`), this.canvas,
                     this.back, this.panel.node);
    walkable(this.canvas, ".bar");
    redrawn(this.canvas, (width) => this.draw(width));
    const parts = all.filter((item) => !wholePasses.includes(item.name));
    if (parts.length > 0) this.tell(parts.reduce((a, b) => (b.seconds > a.seconds ? b : a)));
  }

  zoom(span) {
    this.shown = span;
    this.draw(this.width);
  }

  draw(width) {
    this.width = width;
    const left = width < 560 ? 0 : 156, rowHeight = 22, [from, to] = this.shown;
    const scale = (width - left) / (to - from);
    this.back.hidden = this.shown === this.whole;
    this.canvas.style.height = `${rowHeight * (this.depth + this.lanes.length) + 4}px`;
    this.canvas.replaceChildren();
    if (left > 0) this.drawLanes(rowHeight, left);
    const drawnUntil = new Map();  // by row: what is thinner than half a pixel is drawn once a pixel
    for (const item of [...this.slices, ...this.transfers]) {
      const begin = Math.max(item.begin, from), end = Math.min(item.begin + item.seconds, to);
      if (end < begin || item.begin > to) continue;
      const x = left + (begin - from) * scale, size = (end - begin) * scale;
      if (size < 0.5 && x < (drawnUntil.get(item.row) ?? -1) + 1) continue;
      drawnUntil.set(item.row, x + size);
      this.canvas.append(this.bar(item, {x, y: item.row * rowHeight, width: Math.max(size - 0.5, 0.5),
                                         height: rowHeight - 2}));
    }
    const bar = this.canvas.querySelector(".bar");
    if (bar) bar.tabIndex = 0;
  }

  drawLanes(rowHeight, left) {
    ["program", ...this.lanes.map((axes) => `over ${axes.split(",").join(" and ")}`)].forEach((lane, i) => {
      const top = i === 0 ? 0 : rowHeight * (this.depth + i - 1);
      this.canvas.append(html("div", {class: "lane", style: `top:${top}px;width:${left - 12}px`}, lane));
    });
  }

  bar(item, area) {
    const show = () => this.tell(item);
    const label = area.width > 14 + 7.5 * item.name.length ? html("span", {}, item.name) : "";
    const margin = item.seconds / 20;
    return html("button", {type: "button", class: `bar ${item.axes ? "" : "look-"}${item.look}`, style: boxOf(area),
                           tabindex: -1, "aria-label": `${item.name}, ${secondsText(item.seconds)}`,
                           pointerenter: show, focus: show,
                           click: () => this.zoom([item.begin - margin, item.begin + item.seconds + margin])}, label);
  }

  tell(item) {
    this.panel.show(item.name, [
      ["takes", secondsText(item.seconds)],
      ["from", secondsText(item.begin)],
      ["part", item.axes ? `a collective over ${item.axes}` : item.look],
      ["waited for it", item.axes ? secondsText(item.waited) : ""],
      ["bytes", item.axes ? bytesText(item.bytes) : ""],
      ["array", item.path ?? ""],
      ["module", html("code", {}, item.module ?? "")],
      ["line", html("code", {}, item.line ?? "")],
    ].filter(([, value]) => typeof value === "string" || value.textContent !== ""));
  }
}

// ---- where the time went

function partsOf({parts, seconds}) {
  const bar = html("div", {class: "shares", "aria-hidden": "true"}), list = html("ul", {class: "legend row"});
  parts.forEach(([name, , took], i) => {
    if (took === 0) return;
    bar.append(html("span", {class: `swatch look-${partLooks[i]}`, style: `flex-grow:${took / seconds}`}));
    list.append(html("li", {}, html("span", {class: `swatch look-${partLooks[i]}`}),
                     html("span", {}, `${name} `, html("span", {class: "hint"},
                          `${secondsText(took)}, ${percentText(took / seconds)}`))));
  });
  return [bar, list];
}

function timeTable(title, rows, seconds) {
  const sorted = [...rows].sort((a, b) => b[3] - a[3]);
  return asTable(title, ["", "calls in a step", "µs", "with inner, µs", "% of it"], () => sorted.map(
    ([name, calls, alone, whole]) => [name, calls, Math.round(1e6 * alone), Math.round(1e6 * whole),
                                      Number((100 * alone / seconds).toPrecision(3))]));
}

function profileFigures({seconds, mfu, steps}) {
  const time = figure("a step takes", secondsText(seconds), `mean of ${counted(steps, "measured step")}`);
  return mfu > 0 ? [time, figure("of the peak speed", percentText(mfu), "model flops utilization")] : [time];
}

function drawProfile(section) {
  const profile = report.profile;
  section.append(
    html("p", {class: "lead"}, `One step as measured, of ${counted(profile.steps, "step")}: each operation, with the ` +
         "operations that it calls below it, and the collectives on their way. All parts add up to the step; \"program\" is what no " +
         "operation and no wait accounts for."),
    ...partsOf(profile), ...profile.processes.map((step) => new ProfileTimeline(profile, step).node),
    timeTable("The time of each module", profile.modules, profile.seconds),
    timeTable("The time of each operation", profile.operations, profile.seconds),
    timeTable("The time of each line", profile.lines, profile.seconds));
}
