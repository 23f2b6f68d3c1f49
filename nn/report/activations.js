// What a step's modules read, make and keep: module by module, and what is silently replicated.
"use strict";

const isIn = (path, top) => top === "" || path === top || path.startsWith(top + ".");
const typesText = (list) => list.map((x) => x.type).join(", ");
const collectivesText = (list) =>
  list.map((c) => `${c.count} ${c.kind}${c.backward ? " back" : ""}, ${bytesText(c.bytes)}`).join("; ");
const lineOfWhole = (w) => `${w.file.split("/").pop()}:${w.line}`;

// The modules below `top` with none between.
function modulesIn(modules, top) {
  const below = modules.filter((m) => m.path !== top.path && isIn(m.path, top.path));
  return below.filter((m) => !below.some((other) => other !== m && isIn(m.path, other.path)));
}

class ModuleList {
  constructor({modules, whole}) {
    Object.assign(this, {modules, whole, top: modules[0]});
    this.trail = html("nav", {class: "trail", "aria-label": "Module"});
    this.list = html("ol", {class: "lines"});
    this.panel = panel("Point at a module, or choose it to see those in it.");
  }

  draw() {
    this.drawTrail();
    const inside = modulesIn(this.modules, this.top);
    const own = this.top.saved_bytes - sum(inside, (m) => m.saved_bytes);
    const most = Math.max(1, own, ...inside.map((m) => m.saved_bytes));
    const names = this.top.path ? this.top.path.length + 1 : 0;
    const lines = inside.map((m) => this.line(m, m.path.slice(names), m.saved_bytes, most));
    if (own > 0) lines.push(this.line(this.top, inside.length ? "between them" : "itself", own, most));
    this.list.replaceChildren(...lines);
    this.tell(this.top);
  }

  drawTrail() {
    const around = this.modules.filter((m) => isIn(this.top.path, m.path));
    around.sort((a, b) => a.path.length - b.path.length);
    this.trail.replaceChildren();
    around.forEach((m, i) => this.trail.append(
      i ? " › " : "", html("button", {type: "button", click: () => this.open(m)}, m.path || "the whole step")));
  }

  line(m, name, bytes, most) {
    const show = () => this.tell(m);
    const opens = m !== this.top && modulesIn(this.modules, m).length > 0;
    const marks = this.whole.filter((w) => (m === this.top ? w.module === m.path : isIn(w.module, m.path))).length;
    return html("li", {class: "line", pointerenter: show},
                html("button", {type: "button", focus: show, click: () => (opens ? this.open(m) : show())},
                     html("code", {}, name)),
                html("span", {class: "amount"}, bytesText(bytes)),
                html("div", {class: "track", "aria-hidden": "true"},
                     html("span", {class: "part division-0", style: `width:${(100 * bytes / most).toFixed(2)}%`})),
                html("span", {class: "hint"}, (marks ? `${marks} silently replicated; ` : "") + typesText(m.outputs)));
  }

  open(m) {
    this.top = m;
    this.draw();
  }

  tell(m) {
    this.panel.show(m.path || "the whole step", [
      ["type", m.module],
      ["in", html("code", {}, typesText(m.inputs))],
      ["out", html("code", {}, typesText(m.outputs))],
      ["saved for the backward pass", bytesText(m.saved_bytes)],
      ["operations", `${countText(m.forward_flops)} forward, ${countText(m.backward_flops)} backward`],
      ["collectives", collectivesText(m.collectives)],
    ]);
  }
}

function wholeItem(w) {
  return html("li", {}, html("code", {}, w.type),
              `${w.maker ? ` of ${w.maker}` : ""} is replicated over ${w.axes} for ${w.operation} at ` +
              `${lineOfWhole(w)}, ${bytesText(w.bytes_per_device)} on each device: ${w.reason}. `,
              html("code", {}, w.cure), w.cure ? " keeps it sharded; " : "", html("code", {}, w.as_it_is),
              " marks it as intentionally replicated.");
}

function activationFigures({modules, whole}) {
  const more = whole.length ? `${counted(whole.length, "activation")} silently replicated` : "activations of a device";
  return [figure("saved for the backward pass", bytesText(modules[0].saved_bytes), more)];
}

function drawActivations(section) {
  const {modules, whole} = report.activations;
  const list = new ModuleList(report.activations);
  section.append(html("p", {class: "lead"}, "What one device keeps of the forward pass until the backward pass needs " +
                      "it, by the module that made it, and what goes in and comes out."),
                 list.trail, list.list, list.panel.node);
  list.draw();
  if (whole.length)
    section.append(html("h3", {}, "Silently replicated"), html("ul", {}, ...whole.map(wholeItem)));
  section.append(asTable("All modules as a table",
    ["module", "type", "in", "out", "saved, bytes", "operations", "backward", "collectives"],
    () => modules.map((m) => [m.path || "all", m.module, typesText(m.inputs), typesText(m.outputs), m.saved_bytes,
                              m.forward_flops, m.backward_flops, collectivesText(m.collectives)])));
}
