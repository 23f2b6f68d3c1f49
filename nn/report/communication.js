// Communication of a step: the collectives in order, and the lines of the program that caused them.
"use strict";

const kindsWithLook = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "all_reduce_max"];
const lookOfKind = (kind) => `kind-${kindsWithLook.includes(kind) ? kind : "other"}`;
const lineOf = (record, names) => (record.file ? `${names.get(record.file)}:${record.line}` : "an unknown line");

// ---- the timeline

// Widths in proportion to seconds, with a minimum width so that each bar can be seen and clicked. Bars and the gaps
// behind them fill `width`.
function barWidths(seconds, width) {
  const gap = Math.min(1, width / seconds.length / 4);
  const available = width - gap * seconds.length;
  const least = Math.min(3, available / seconds.length / 2);
  let low = 0, high = available / Math.max(sum(seconds, (s) => s), 1e-300);
  for (let i = 0; i < 60; ++i) {
    const scale = (low + high) / 2;
    if (sum(seconds, (s) => Math.max(least, s * scale)) > available) high = scale;
    else low = scale;
  }
  return {gap, widths: seconds.map((s) => Math.max(least, s * low))};
}

class Timeline {
  constructor(records, seconds, names) {
    Object.assign(this, {records, seconds, names});
    this.lanes = [...grouped(records, (record) => record.axes).keys()];
    this.canvas = html("div", {class: "timeline", role: "group", "aria-label": "Collectives of a step in their order"});
    this.panel = panel("Point at a collective, or walk with the arrow keys.");
    walkable(this.canvas, ".bar");
  }

  draw(width) {
    const narrow = width < 560;
    const left = narrow ? 0 : 156, laneHeight = narrow ? 54 : 38, top = 24;
    const {gap, widths} = barWidths(this.seconds, width - left);
    const height = top + laneHeight * this.lanes.length;
    const laneTop = (axes) => top + laneHeight * this.lanes.indexOf(axes) + (narrow ? 18 : 0);
    this.canvas.style.height = `${height}px`;
    this.canvas.replaceChildren();
    this.drawLanes(left, laneTop, narrow);
    let x = left;
    const ends = [];
    this.records.forEach((record, i) => {
      this.canvas.append(this.bar(i, {x, y: laneTop(record.axes) + 4, width: widths[i], height: 30}));
      x += widths[i] + gap;
      ends.push(x);
    });
    this.drawPasses(left, ends, height);
    this.canvas.querySelector(".bar").tabIndex = 0;
  }

  drawLanes(left, laneTop, narrow) {
    for (const axes of this.lanes) {
      const style = `top:${laneTop(axes) + (narrow ? -17 : 9)}px;width:${narrow ? "100%" : `${left - 12}px`}`;
      this.canvas.append(html("div", {class: "lane", style}, `over ${axes.split(",").join(" and ")}`));
    }
  }

  // A heading above each run of collectives of one pass, and a line where the next begins.
  drawPasses(left, ends, height) {
    let begin = 0;
    this.records.forEach((record, i) => {
      if (i + 1 < this.records.length && this.records[i + 1].pass === record.pass) return;
      const from = begin === 0 ? left : ends[begin - 1], to = ends[i];
      this.canvas.append(html("div", {class: `pass ${record.pass}`,
                                      style: boxOf({x: from, y: 0, width: to - from, height})},
                              to - from > 62 ? html("span", {}, record.pass) : ""));
      begin = i + 1;
    });
  }

  bar(i, area) {
    const record = this.records[i];
    const show = () => this.tell(i);
    const label = area.width > 14 + 7.5 * record.operation.length ? html("span", {}, record.operation) : "";
    return html("button", {type: "button", class: `bar ${lookOfKind(record.kind)}`, style: boxOf(area), tabindex: -1,
                           "aria-label": `${record.kind} over ${record.axes}, ${bytesText(record.bytes)}, for ` +
                                         `${record.operation}, ${record.pass}`,
                           pointerenter: show, focus: show, click: show}, label);
  }

  tell(i) {
    const record = this.records[i];
    this.panel.show(`${record.kind} over ${record.axes}, for ${record.operation}`, [
      ["number", `${i + 1} of ${this.records.length}, ${record.pass}`],
      ["bytes on each of", html("span", {}, `${counted(record.devices, "device")}: ${bytesText(record.bytes)}`)],
      ["takes", secondsText(this.seconds[i])],
      ["line", html("code", {}, lineOf(record, this.names))],
      ["array", record.path],
      ["from", html("code", {}, record.operand)],
      ["to", html("code", {}, record.result)],
      ["because", record.reason],
    ]);
  }
}

// ---- by line

function linesOf(records, names) {
  const lines = [...grouped(records, (record) => lineOf(record, names))].map(([name, of]) => ({
    name, of, bytes: sum(of, (record) => record.bytes),
    for: [...grouped(of, (record) => record.operation).keys()].join(", "),
  }));
  return lines.sort((a, b) => b.bytes - a.bytes || b.of.length - a.of.length);
}

function lineRow(line, most) {
  const bar = html("div", {class: "track", "aria-hidden": "true"});
  for (const [kind, of] of grouped(line.of, (record) => record.kind)) {
    const share = sum(of, (record) => record.bytes) / most;
    bar.append(html("span", {class: `part ${lookOfKind(kind)}`,
                             style: `width:max(2px, ${(100 * share).toFixed(3)}%)`}));
  }
  const kinds = [...grouped(line.of, (record) => record.kind)].map(([kind, of]) => `${of.length} ${kind}`).join(", ");
  return html("li", {class: "line"}, html("code", {}, line.name),
              html("span", {class: "amount"}, bytesText(line.bytes)), bar,
              html("span", {class: "hint"}, `${kinds} for ${line.for}`));
}

function kindLegend(records) {
  const list = html("ul", {class: "legend row"});
  for (const [kind, of] of grouped(records, (record) => record.kind))
    list.append(html("li", {}, html("span", {class: `swatch ${lookOfKind(kind)}`}),
                     html("span", {}, `${kind} `, html("span", {class: "hint"},
                          `${of.length}, ${bytesText(sum(of, (record) => record.bytes))}`))));
  return list;
}

function drawCommunication(section) {
  const {collectives: records, seconds, links} = report.communication;
  const names = shortNames(records.map((record) => record.file));
  const timeline = new Timeline(records, seconds, names);
  const lines = linesOf(records, names);
  section.append(
    html("p", {class: "lead"}, `${counted(records.length, "collective")} in the order of the step, ` +
         `${secondsText(sum(seconds, (s) => s))} one after another where ${links}; computation is not shown.`),
    kindLegend(records), timeline.canvas, timeline.panel.node,
    html("h3", {}, "By the line of the program that caused it"),
    html("ol", {class: "lines"}, ...lines.map((line) => lineRow(line, lines[0].bytes || 1))),
    asTable("All collectives as a table",
      ["", "kind", "over", "pass", "bytes", "for", "line", "array", "from", "to", "because"],
      () => records.map((r, i) => [i + 1, r.kind, r.axes, r.pass, r.bytes, r.operation, lineOf(r, names), r.path,
                                   r.operand, r.result, r.reason])));
  redrawn(timeline.canvas, (width) => timeline.draw(width));
  timeline.tell(seconds.indexOf(Math.max(...seconds)));
}
