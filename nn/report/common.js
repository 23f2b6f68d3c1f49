// What all pictures of a report are made with: elements, numbers in words, panels, and arrow keys.
"use strict";

// Says on the page itself that it could not be drawn.
window.addEventListener("error", (event) => {
  const problem = document.getElementById("problem");
  problem.textContent = `This page could not be drawn completely: ${event.message}`;
  problem.hidden = false;
});

const report = JSON.parse(document.getElementById("data").textContent);
const svgNamespace = document.getElementById("blank").namespaceURI;

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(key, value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

// Text is always a child, so that nothing in it is taken for markup.
const html = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes = {}, ...children) =>
  fill(document.createElementNS(svgNamespace, name), attributes, children);

// ---- numbers in words

function inUnits(value, units, factor) {
  let unit = 0;
  while (Math.abs(value) >= factor * 0.9995 && unit + 1 < units.length) {
    value /= factor;
    ++unit;
  }
  return [unit === 0 ? String(Math.round(value)) : value.toPrecision(3), units[unit]];
}

const bytesText = (bytes) => inUnits(bytes, ["bytes", "kB", "MB", "GB", "TB", "PB"], 1000).join(" ");
const countText = (count) => inUnits(count, ["", "k", "M", "B", "T"], 1000).join("");
const counted = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
const percentText = (part) => `${part > 0 && part < 0.01 ? "<1" : Math.round(100 * part)} %`;

function secondsText(seconds) {
  if (seconds >= 1) return `${seconds.toPrecision(3)} s`;
  if (seconds >= 1e-3) return `${(1e3 * seconds).toPrecision(3)} ms`;
  return seconds >= 1e-7 ? `${(1e6 * seconds).toPrecision(3)} µs` : `${(1e9 * seconds).toPrecision(2)} ns`;
}

function valueText(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e4) return countText(value);
  return size < 1e-3 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

const shapeText = (shape) => (shape.length ? shape.join(" × ") : "one number");
const sum = (items, of) => items.reduce((total, item) => total + of(item), 0);

// Items by what `key` says of them, in the order of their first.
function grouped(items, key) {
  const groups = new Map();
  for (const item of items) {
    const name = key(item);
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(item);
  }
  return groups;
}

// ---- parts of pages

// A panel below a picture that tells about the thing pointed at: rows of [name, value], values of text or an element.
function panel(hint) {
  const node = html("div", {class: "panel", "aria-live": "polite"});
  return {
    node,
    show(title, rows) {
      const list = html("dl");
      for (const [name, value] of rows) {
        if (value === "" || value === null) continue;
        list.append(html("div", {}, html("dt", {}, name), html("dd", {}, value)));
      }
      node.replaceChildren(html("p", {class: "path"}, title), list, html("p", {class: "hint"}, hint));
    },
  };
}

// All of a picture's numbers, folded away; made when it is opened.
function asTable(title, heads, rowsOf) {
  const details = html("details", {}, html("summary", {}, title));
  details.addEventListener("toggle", () => {
    if (details.childElementCount > 1) return;
    const head = html("tr", {}, ...heads.map((name) => html("th", {scope: "col"}, name)));
    const body = html("tbody");
    for (const row of rowsOf()) {
      const cells = row.map((cell) => html("td", typeof cell === "number" ? {class: "number"} : {},
                                           typeof cell === "number" ? cell.toLocaleString("en") : cell));
      body.append(html("tr", {}, ...cells));
    }
    details.append(html("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": title},
                        html("table", {}, html("thead", {}, head), body)));
  });
  return details;
}

// A picture that is drawn anew whenever its place changes its width.
function redrawn(place, draw) {
  let width = 0;
  const update = () => {
    const now = Math.floor(place.clientWidth);
    if (now === width || now === 0) return;
    width = now;
    draw(width);
  };
  new ResizeObserver(() => requestAnimationFrame(update)).observe(place);
  update();
}

// One stop of the tab key for all of `kind` in `place`; the arrow keys, Home and End go from one to the next.
function walkable(place, kind) {
  place.addEventListener("keydown", (event) => {
    const all = [...place.querySelectorAll(kind)];
    const at = all.indexOf(document.activeElement);
    const to = {ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0,
                End: all.length - 1}[event.key];
    if (at < 0 || to === undefined || !all[to]) return;
    event.preventDefault();
    all[at].tabIndex = -1;
    all[to].tabIndex = 0;
    all[to].focus();
  });
}

// "/src/a/model.cpp" by its last part, or by as many as tell it from the others.
function shortNames(files) {
  const names = new Map();
  for (const file of new Set(files)) {
    const parts = file.split("/");
    const others = [...new Set(files)].filter((other) => other !== file);
    let kept = 1;
    const tail = () => parts.slice(-kept).join("/");
    while (kept < parts.length && others.some((other) => other === tail() || other.endsWith("/" + tail()))) ++kept;
    names.set(file, tail());
  }
  return names;
}
