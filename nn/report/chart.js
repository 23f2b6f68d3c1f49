// Training curves: lines over steps. The values at the pointer are shown.
"use strict";

const left = 54;  // of the plot

// The least of 1, 2, 5, 10, ... times a power of ten that divides `range` into at most `most`.
function roundStep(range, most) {
  const power = 10 ** Math.floor(Math.log10(range / most));
  return power * ([1, 2, 5].find((digit) => digit * power >= (range / most) * (1 - 1e-9)) || 10);
}

function scaleOf(from, to, tick, begin, end) {
  const at = (value) => begin + ((value - from) / (to - from)) * (end - begin);
  const ticks = [];
  for (let i = Math.ceil(from / tick - 1e-6); i * tick <= to + 1e-6 * tick; ++i) ticks.push(i * tick);
  return {at, ticks, tick, value: (place) => from + ((place - begin) / (end - begin)) * (to - from)};
}

const tickText = (value, tick) => {
  if (Math.abs(value) < tick / 1e6) return "0";
  if (tick >= 1000 || Math.abs(value) >= 1e4) return countText(value).replace(/\.?0+(?=[kMBT]$)/, "");
  const digits = Math.max(0, -Math.floor(Math.log10(tick) + 1e-9));
  return tick < 1e-3 ? String(Number(value.toPrecision(3))) : value.toFixed(digits);
};

// The point whose x is nearest.
function nearest(points, x) {
  let low = 0, high = points.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < x) low = middle + 1;
    else high = middle;
  }
  return low > 0 && x - points[low - 1][0] < points[low][0] - x ? points[low - 1] : points[low];
}

class Chart {
  constructor(chart) {
    this.chart = chart;
    this.shown = chart.series.filter((series) => series.points.length);
    this.read = (series) => (series.mean.length ? series.mean : series.points);
    this.figure = html("figure", {class: "chart"});
    this.legend = html("ul", {class: "legend row"});
    this.place = html("div", {class: "plot", tabindex: 0, role: "img", "aria-label": this.description(),
                              pointermove: (event) => this.point(event), pointerdown: (event) => this.point(event),
                              pointerleave: () => this.leave(), blur: () => this.leave(),
                              keydown: (event) => this.key(event)});
    this.where = html("span", {class: "hint"});
    const title = html("h3", {}, `${chart.title} `, this.where);
    this.figure.append(html("figcaption", {}, title),
                       this.legend, this.place,
                       asTable(`${chart.title} as a table`, [chart.x, ...this.shown.map((series) => series.name)],
                               () => this.table()));
    this.drawLegend();
  }

  // Of each series what is read, at most forty rows.
  table() {
    const placesOf = (series) => this.read(series).map(([x]) => x);
    const places = [...new Set(this.shown.flatMap(placesOf))].sort((a, b) => a - b);
    const dots = new Set(this.shown.filter((series) => series.look === "dots").flatMap(placesOf));
    const stride = Math.ceil(places.length / 40);
    const valueAt = (series, x) => {
      const point = this.read(series).find((p) => p[0] === x);
      return point ? valueText(point[1]) : "";
    };
    return places.filter((x, i) => i % stride === 0 || i === places.length - 1 || dots.has(x))
      .map((x) => [x, ...this.shown.map((series) => valueAt(series, x))]);
  }

  description() {
    const parts = this.shown.map((series) => {
      const points = this.read(series);
      return `${series.name} from ${valueText(points[0][1])} to ${valueText(points[points.length - 1][1])}`;
    });
    return `${this.chart.title} over ${this.chart.x}s: ${[...parts, ...this.chart.levels.map((level) =>
      `${level.name} ${valueText(level.y)}`)].join("; ")}. Left and right arrow keys read the values.`;
  }

  // The last values, or those at x.
  drawLegend(x) {
    const items = this.shown.map((series, i) => {
      const points = this.read(series);
      const [, y] = x === undefined ? points[points.length - 1] : nearest(points, x);
      return this.legendItem(series.look, i, series.name, y);
    });
    const levels = this.chart.levels.map((level, i) =>
      this.legendItem(`level-${i % 2}`, this.shown.length + i, level.name, level.y));
    const at = x === undefined ? "the end" : `${this.chart.x} ${valueText(x)}`;
    this.where.textContent = `${this.chart.y}, at ${at}`;
    this.legend.replaceChildren(...items, ...levels);
  }

  legendItem(look, i, name, y) {
    const mark = svg("svg", {class: `mark line-${i % 6}`, width: 26, height: 12, "aria-hidden": "true"},
                     svg("path", {class: `curve ${look}`, d: "M1 6H25"}),
                     ...(look === "dots" ? [svg("circle", {class: "dot", cx: 13, cy: 6, r: 4})] : []));
    return html("li", {}, mark, html("span", {}, `${name} `, html("b", {}, valueText(y))));
  }

  scales(width, height) {
    const points = this.shown.flatMap((series) => series.points.concat(series.mean));
    const ys = points.map(([, y]) => y);
    ys.push(...this.chart.levels.map((level) => level.y), ...(this.chart.from_zero ? [0] : []));
    let low = Infinity, high = -Infinity;
    for (const y of ys) [low, high] = [Math.min(low, y), Math.max(high, y)];
    const tick = roundStep(Math.max(high - low, Math.abs(high) * 1e-3, 1e-12), 6);
    const from = Math.floor(low / tick + 1e-6) * tick, to = Math.max(Math.ceil(high / tick - 1e-6) * tick, from + tick);
    const last = Math.max(this.chart.x_end, ...this.shown.map((series) => series.points[series.points.length - 1][0]));
    const first = Math.min(0, ...this.shown.map((series) => series.points[0][0]));
    const steps = Math.max(last - first, 1);
    this.x = scaleOf(first, first + steps, roundStep(steps, width < 480 ? 5 : 8), left, width - 12);
    this.y = scaleOf(from, to, tick, height - 26, 10);
  }

  draw(width) {
    const height = Math.round(Math.max(220, Math.min(340, width * 0.52)));
    this.scales(width, height);
    this.picture = svg("svg", {viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true"});
    this.drawGrid(width, height);
    this.chart.levels.forEach((level, i) =>
      this.picture.append(this.path([[this.x.value(left), level.y], [this.x.value(width - 12), level.y]],
                                    `curve level-${i % 2} line-${(this.shown.length + i) % 6}`)));
    this.shown.forEach((series, i) => this.drawSeries(series, `line-${i % 6}`));
    this.cursor = svg("g", {class: "cursor"});
    this.picture.append(this.cursor);
    this.place.replaceChildren(this.picture);
  }

  drawGrid(width, height) {
    for (const tick of this.y.ticks) {
      const y = this.y.at(tick);
      this.picture.append(svg("path", {class: "grid", d: `M${left} ${y.toFixed(1)}H${width - 12}`}),
                          svg("text", {x: left - 8, y: y + 4, "text-anchor": "end"}, tickText(tick, this.y.tick)));
    }
    for (const tick of this.x.ticks)
      this.picture.append(svg("text", {x: this.x.at(tick), y: height - 6, "text-anchor": "middle"},
                              tickText(tick, this.x.tick)));
    this.picture.append(svg("text", {x: left - 8, y: height - 6, "text-anchor": "end"}, this.chart.x));
  }

  path(points, look) {
    const d = points.map(([x, y]) => `${this.x.at(x).toFixed(1)} ${this.y.at(y).toFixed(1)}`).join("L");
    return svg("path", {class: look, d: `M${d}`});
  }

  drawSeries(series, color) {
    if (series.points.length > 1) this.picture.append(this.path(series.points, `curve ${series.look} ${color}`));
    if (series.mean.length > 1) this.picture.append(this.path(series.mean, `curve mean ${color}`));
    if (series.look === "dots" || series.points.length === 1)
      for (const [x, y] of series.points)
        this.picture.append(svg("circle", {class: `dot ${color}`, cx: this.x.at(x), cy: this.y.at(y), r: 4.5}));
  }

  // ---- reading values

  point(event) {
    this.readAt(this.x.value(event.clientX - this.place.getBoundingClientRect().left));
  }

  readAt(x) {
    const [at] = nearest(this.read(this.shown[0]), x);
    this.at = at;
    const place = this.x.at(at).toFixed(1);
    const dots = this.shown.map((series, i) => {
      const [px, py] = nearest(this.read(series), at);
      return svg("circle", {class: `dot line-${i % 6}`, cx: this.x.at(px), cy: this.y.at(py), r: 3.5});
    });
    this.cursor.replaceChildren(svg("path", {d: `M${place} 10V${this.y.at(this.y.ticks[0]).toFixed(1)}`}), ...dots);
    this.drawLegend(at);
  }

  leave() {
    this.at = undefined;
    this.cursor.replaceChildren();
    this.drawLegend();
  }

  key(event) {
    const points = this.read(this.shown[0]);
    const step = Math.max(1, Math.round(points.length / 50)) * ({ArrowRight: 1, ArrowLeft: -1}[event.key] || 0);
    if (step === 0) return;
    event.preventDefault();
    const now = this.at === undefined ? (step > 0 ? -1 : points.length) : points.findIndex(([x]) => x === this.at);
    this.readAt(points[Math.max(0, Math.min(points.length - 1, now + step))][0]);
  }
}

function drawCharts(section) {
  const place = section.querySelector(".charts");
  for (const chart of report.charts) {
    if (!chart.series.some((series) => series.points.length)) continue;
    const picture = new Chart(chart);
    place.append(picture.figure);
    redrawn(picture.place, (width) => picture.draw(width));
  }
}
