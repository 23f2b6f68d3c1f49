// Memory of one device: a treemap of the arrays that a device of the mesh stores.
"use strict";

// ---- the tree of paths

// A node is {name, path, bytes, row} of an array or {name, path, bytes, children} of a module. A module of one part is
// drawn as that part, under both names; one that is almost only one array lends it its name and has no frame.
const mostly = 0.9;

function treeOf(rows) {
  const root = {name: "", path: "", parts: new Map()};
  for (const row of rows) {
    if (row.bytes_per_device === 0 || row.memory_kind) continue;
    let node = root;
    row.path.split(".").forEach((name, depth, names) => {
      const path = names.slice(0, depth + 1).join(".");
      if (!node.parts.has(name)) node.parts.set(name, {name, path, parts: new Map()});
      node = node.parts.get(name);
    });
    node.row = row;
  }
  return settled(root);
}

function settled(node) {
  if (node.parts.size === 0) return {name: node.name, path: node.path, row: node.row, bytes: node.row.bytes_per_device};
  const children = [...node.parts.values()].map(settled);
  if (children.length === 1 && node.name !== "")
    return {...children[0], name: `${node.name}.${children[0].name}`};
  for (const child of children)
    if (/^\d+(\.|$)/.test(child.name) && node.name) child.name = `${node.name.split(".").pop()}.${child.name}`;
  children.sort((a, b) => b.bytes - a.bytes);
  const bytes = sum(children, (child) => child.bytes);
  const bare = node.name !== "" && children[0].row !== undefined && children[0].bytes > mostly * bytes;
  if (bare) for (const child of children) child.name = `${node.name}.${child.name}`;
  return {name: node.name, path: node.path, children, bytes, bare};
}

// ---- squarified layout (Bruls, Huizing, van Wijk 2000)

// Gives each of the items, the largest first, a rectangle {x, y, width, height} of its share of `area`, as square as
// can be.
function squarified(items, area, place) {
  let {x, y, width, height} = area;
  let left = sum(items, (item) => item.bytes);
  for (let begin = 0; begin < items.length;) {
    const side = Math.min(width, height);
    const scale = (width * height) / left;
    let end = begin, total = 0, worst = Infinity;
    while (end < items.length) {
      const grown = total + items[end].bytes * scale;
      const ratio = Math.max((side * side * items[begin].bytes * scale) / (grown * grown),
                             (grown * grown) / (side * side * items[end].bytes * scale));
      if (ratio > worst) break;
      worst = ratio;
      total = grown;
      ++end;
    }
    const thickness = total / side;
    let offset = 0;
    for (; begin < end; ++begin) {
      const length = (items[begin].bytes * scale) / thickness;
      place(items[begin], width >= height ? {x, y: y + offset, width: thickness, height: length}
                                          : {x: x + offset, y, width: length, height: thickness});
      offset += length;
      left -= items[begin].bytes;
    }
    if (width >= height) [x, width] = [x + thickness, width - thickness];
    else [y, height] = [y + thickness, height - thickness];
  }
}

// ---- devices and their blocks

const axesOf = (row) => Object.keys(row.mesh);
const meshName = (row) => axesOf(row).map((axis) => `${axis}=${row.mesh[axis]}`).join(", ");

// P('data', None, ('data', 'model')) as a list with the mesh axes of every dim; nothing for what reads otherwise.
function axesOfDims(row) {
  const inside = /^P\((.*)\)$/.exec(row.spec);
  if (!inside || /=/.test(row.spec)) return row.shape.map(() => []);
  const entries = inside[1].match(/\([^)]*\)|'[^']*'|None/g) || [];
  return row.shape.map((_, dim) => (entries[dim] || "").match(/'[^']*'/g)?.map((axis) => axis.slice(1, -1)) || []);
}

// For every dim [begin, end) of the block that the device at these coordinates holds.
function blockOf(row, device) {
  return axesOfDims(row).map((axes, dim) => {
    const index = axes.reduce((number, axis) => number * (row.mesh[axis] || 1) + (device[axis] || 0), 0);
    const clamped = (end) => Math.min(end * row.shard_shape[dim], row.shape[dim]);  // the rest is padding
    return [clamped(index), clamped(index + 1)];
  });
}

function blockText(row, device) {
  const dims = blockOf(row, device).map(([begin, end], dim) =>
    end - begin === row.shape[dim] ? ":" : `${begin}:${end}`);
  return dims.length ? `[${dims.join(", ")}]` : "[]";
}

const deviceName = (device) => Object.entries(device).map(([axis, index]) => `${axis} ${index}`).join(", ");

function devicesOf(mesh) {
  return Object.entries(mesh).reduce(
    (devices, [axis, size]) =>
      devices.flatMap((device) => Array.from({length: size}, (_, index) => ({...device, [axis]: index}))), [{}]);
}

// A small picture of an array, its last two divided dims, with the block of this device filled.
function blockPicture(row, device) {
  const blocks = blockOf(row, device);
  const cut = row.shape.map((_, dim) => dim).filter((dim) => row.shape[dim] !== row.shard_shape[dim]).slice(-2);
  const alone = cut[0] === row.shape.length - 1 ? [null, cut[0]] : [cut[0], null];
  const [down, across] = cut.length === 2 ? cut : alone;
  const part = (dim, at) => (dim === null ? [0, 1] : blocks[dim].map((index) => index / row.shape[dim]))[at];
  const [left, right, top, bottom] = [part(across, 0), part(across, 1), part(down, 0), part(down, 1)];
  return svg("svg", {class: "block", viewBox: "0 0 20 14", width: 20, height: 14, "aria-hidden": "true"},
             svg("rect", {class: "outline", x: 0.5, y: 0.5, width: 19, height: 13, rx: 1.5}),
             svg("rect", {class: "own", x: 1 + 18 * left, y: 1 + 12 * top, width: 18 * (right - left),
                          height: 12 * (bottom - top)}));
}

// ---- how arrays are divided: the colors

const wholeEverywhere = "replicated";
const divisionOf = (row) =>
  axesOf(row).length === 0 ? "not on a mesh"
  : row.divided_over.length
    ? `sharded over ${axesOf(row).filter((axis) => row.divided_over.includes(axis)).join(" and ")}` : wholeEverywhere;

// The color of each division, the axes of the mesh in their order; what is whole is hatched besides.
function lookOfDivisions(rows) {
  const looks = new Map();
  let next = 0;
  const names = [...grouped(rows, divisionOf).keys()].sort((a, b) => a.length - b.length || (a < b ? -1 : 1));
  for (const name of names) {
    const undivided = name === wholeEverywhere ? "whole" : "nowhere";
    looks.set(name, name.startsWith("sharded") ? `division-${next++ % 6}` : undivided);
  }
  return looks;
}

// ---- the picture

class Treemap {
  constructor(rows) {
    this.rows = rows;
    this.mesh = rows[0].mesh;
    this.tree = treeOf(rows);
    this.top = this.tree;
    this.looks = lookOfDivisions(rows);
    this.devices = devicesOf(this.mesh);
    this.device = this.devices[0];
    this.canvas = html("div", {class: "treemap", role: "group"});
    this.trail = html("nav", {class: "trail", "aria-label": "Part of the tree"});
    this.map = html("div", {class: "mesh"});
    this.panel = panel("Point at an array, or walk with the arrow keys. The name of a module opens it. " +
                       "Framed devices hold the same block.");
  }

  draw() {
    walkable(this.canvas, ".tile");
    this.drawMesh();
    const node = html("div", {class: "placement"},
                      html("div", {class: "side"}, this.map, this.legend()),
                      html("div", {class: "picture"}, this.trail, this.canvas, this.panel.node));
    return node;
  }

  start() {
    redrawn(this.canvas, () => this.drawTiles());
    this.tell([...this.rows].sort((a, b) => b.bytes_per_device - a.bytes_per_device)[0]);
  }

  // The devices as the mesh lays them out: the last axis across, the others down.
  drawMesh() {
    const axes = Object.keys(this.mesh);
    this.map.append(html("h3", {}, axes.length ? "Device" : "One device"));
    if (axes.length === 0) return;
    if (this.devices.length > 128) return this.map.append(...axes.map((axis) => this.axisInput(axis)));
    const last = axes[axes.length - 1];
    const columns = this.mesh[last];
    const grid = html("div", {class: "devices", role: "group", "aria-label": "Devices of the mesh",
                              style: `--columns: ${Math.min(columns, 8)}`});
    this.buttons = this.devices.map((device) =>
      html("button", {type: "button", class: "device", "aria-label": `Device at ${deviceName(device)}`,
                      click: () => this.choose(device)}, Object.values(device).join(",")));
    grid.append(...this.buttons);
    const down = axes.slice(0, -1);
    const across = `${last} across`;
    this.map.append(grid, html("p", {class: "hint"}, down.length ? `${down.join(", ")} down, ${across}` : across));
    this.markDevices();
  }

  axisInput(axis) {
    const input = html("input", {type: "number", min: 0, max: this.mesh[axis] - 1, value: 0});
    input.addEventListener("input", () => {
      const index = Math.trunc(Number(input.value));
      if (index >= 0 && index < this.mesh[axis]) this.choose({...this.device, [axis]: index});
    });
    return html("label", {class: "axis"}, `${axis}, 0 to ${this.mesh[axis] - 1}`, input);
  }

  choose(device) {
    this.device = device;
    this.drawTiles();
    this.markDevices();
    if (this.row) this.tell(this.row);
  }

  // The chosen device, and those that hold the same block of `row`.
  markDevices(row) {
    this.devices.forEach((device, i) => {
      const button = this.buttons?.[i];
      if (!button) return;
      const same = row && row.divided_over.every((axis) => device[axis] === this.device[axis]);
      button.classList.toggle("same", Boolean(same));
      button.setAttribute("aria-pressed", String(device === this.device));
    });
  }

  legend() {
    const total = this.tree.bytes;
    const list = html("ul", {class: "legend"}), shares = html("div", {class: "shares", "aria-hidden": "true"});
    for (const [name, look] of this.looks) {
      const bytes = sum(this.rows.filter((row) => divisionOf(row) === name), (row) => row.bytes_per_device);
      shares.append(html("span", {class: `swatch ${look}`, style: `flex-grow:${bytes / total}`}));
      list.append(html("li", {}, html("span", {class: `swatch ${look}`}),
                       html("span", {}, name, html("br"), html("span", {class: "hint"},
                            `${bytesText(bytes)}, ${percentText(bytes / total)}`))));
    }
    return html("div", {}, html("h3", {}, "Its memory"), shares, list);
  }

  drawTrail() {
    const names = this.top.path ? this.top.path.split(".") : [];
    const all = html("button", {type: "button", click: () => this.open(this.tree)}, "everything");
    this.trail.replaceChildren(all);
    names.forEach((name, i) => {
      const node = nodeAt(this.tree, names.slice(0, i + 1).join("."));
      this.trail.append(" › ", node ? html("button", {type: "button", click: () => this.open(node)}, name) : name);
    });
    this.trail.append(html("span", {class: "hint"}, ` ${bytesText(this.top.bytes)} ${this.onDevice()}`));
  }

  onDevice() {
    return this.devices.length > 1 ? `on the device at ${deviceName(this.device)}` : "on the device";
  }

  open(node) {
    this.top = node;
    this.drawTiles();
  }

  drawTiles() {
    this.drawTrail();
    const width = this.canvas.clientWidth;
    const height = Math.round(Math.max(360, Math.min(620, width * 0.62)));
    this.canvas.style.height = `${height}px`;
    this.canvas.setAttribute("aria-label", `Arrays ${this.onDevice()}, by their bytes`);
    this.canvas.replaceChildren();
    this.drawParts(this.top, {x: 0, y: 0, width, height}, 0);
    const first = this.canvas.querySelector(".tile");
    if (first) first.tabIndex = 0;
  }

  drawNode(node, area, depth) {
    if (node.row) return this.drawTile(node, area);
    if (node.bare) return this.drawParts(node, area, depth);
    const {x, y, width, height} = area;
    const titled = width > 60 && height > 56;
    const gap = Math.min(width, height) > 24 ? 2 : 0;
    const title = titled ? 19 : gap;
    if (gap) {
      const frame = html("div", {class: `module depth-${Math.min(depth, 3)}`, style: boxOf(area)});
      if (titled)
        frame.append(html("button", {type: "button", tabindex: -1, title: `${node.path}: ${bytesText(node.bytes)}`,
                                     click: () => this.open(node)}, node.name,
                          html("span", {class: "hint"}, ` ${bytesText(node.bytes)}`)));
      this.canvas.append(frame);
    }
    this.drawParts(node, {x: x + gap, y: y + title, width: width - 2 * gap, height: height - title - gap}, depth + 1);
  }

  drawParts(node, area, depth) {
    squarified(node.row ? [node] : node.children, area, (child, place) => this.drawNode(child, place, depth));
  }

  drawTile(node, area) {
    const row = node.row;
    const show = () => this.tell(row);
    const thin = Math.min(area.width, area.height) < 5 ? " thin" : "";
    const tile = html("button", {type: "button", class: `tile ${this.looks.get(divisionOf(row))}${thin}`, tabindex: -1,
                                 style: boxOf(area),
                                 "aria-label": `${row.path}, ${bytesText(row.bytes_per_device)}, ${divisionOf(row)}`,
                                 pointerenter: show, focus: show, click: show});
    const {width, height} = area;
    const name = 7.2 * node.name.length < width - 10 ? node.name : node.name.split(".")[0];
    if (width > 20 && height > 19) tile.append(html("span", {class: "name"}, name));
    if (width > 50 && height > 36) tile.append(html("span", {class: "size"}, bytesText(row.bytes_per_device)));
    if (width > 32 && height > 54 && row.divided_over.length) tile.append(blockPicture(row, this.device));
    this.canvas.append(tile);
  }

  tell(row) {
    this.row = row;
    this.markDevices(row);
    const axes = row.axes ? row.axes.join(", ") : "";
    const others = row.replicas - 1;
    this.panel.show(row.path, [
      ["this device holds", html("code", {}, blockText(row, this.device))],
      ["of", `${shapeText(row.shape)} ${row.dtype}`],
      ["dims", axes],
      ["spec", html("code", {}, row.spec)],
      ["bytes", `${bytesText(row.bytes_per_device)} of ${bytesText(row.bytes)}`],
      ["the same block", others === 0 ? "nowhere else" : `on ${counted(others, "other device")}`],
    ]);
  }
}

const boxOf = ({x, y, width, height}) =>
  `left:${x.toFixed(2)}px;top:${y.toFixed(2)}px;width:${Math.max(0, width).toFixed(2)}px;` +
  `height:${Math.max(0, height).toFixed(2)}px`;

function nodeAt(node, path) {
  if (node.path === path) return node;
  for (const child of node.children || []) {
    const found = path.startsWith(child.path) || child.path.startsWith(path) ? nodeAt(child, path) : null;
    if (found) return found;
  }
  return null;
}

// One treemap for each mesh that the arrays are on.
function drawPlacement(section) {
  const rows = report.placement.rows;
  for (const [name, group] of grouped(rows, meshName)) {
    if (sum(group, (row) => row.bytes_per_device) === 0) continue;
    const treemap = new Treemap(group);
    section.append(html("p", {class: "lead"},
                        `${counted(group.length, "array")} on ${name ? `the mesh ${name}` : "no mesh"}. ` +
                        "An area is the memory that an array takes on the chosen device, its color the axes of " +
                        "the mesh over which it is sharded, its small picture the block that is stored there."),
                   treemap.draw());
    treemap.start();
  }
  section.append(asTable("All arrays as a table",
    ["array", "dims", "spec", "shape", "on a device", "type", "bytes on a device", "devices with the same"],
    () => rows.map((row) => [row.path, (row.axes || []).join(", "), row.spec, shapeText(row.shape),
                             shapeText(row.shard_shape), row.dtype, row.bytes_per_device, row.replicas])));
}
