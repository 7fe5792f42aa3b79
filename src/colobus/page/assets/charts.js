// Charts by uPlot: lines, bands, marks with intervals and a tooltip. All charts share one zoom.

import { make, number, steps, clock, variable } from "./util.js";

const [POINTS, FEWER] = [500, 240]; // of a line, in a large and in a small chart
const MOST_IN_TOOLTIP = 8;
const shared = uPlot.sync("x");

export const zoom = { range: null, changed: () => {} };

export function zoomTo(range) {
  zoom.range = range;
  zoom.changed();
}

// Values of a line at the places of a grid, by linear interpolation; null outside of the line.
export function resample(xs, ys, grid) {
  const out = new Array(grid.length).fill(null);
  const places = [];
  for (let i = 0; i < xs.length; i++) if (xs[i] !== null && ys[i] !== null && ys[i] !== undefined) places.push(i);
  if (!places.length) return out;
  let k = 0;
  const [first, last] = [xs[places[0]], xs[places[places.length - 1]]];
  const wide = grid.length > 1 ? (grid[1] - grid[0]) / 2 : 0;
  for (let g = 0; g < grid.length; g++) {
    const x = grid[g];
    if (x < first - wide || x > last + wide) continue;
    while (k < places.length - 2 && xs[places[k + 1]] < x) k++;
    const [a, b] = [places[k], places[Math.min(k + 1, places.length - 1)]];
    const span = xs[b] - xs[a];
    const share = span > 0 ? Math.min(Math.max((x - xs[a]) / span, 0), 1) : 0;
    out[g] = ys[a] + share * (ys[b] - ys[a]);
  }
  return out;
}

// Mean, least and largest value of several resampled lines, where at least one is there.
export function bandOf(lines) {
  const count = lines[0].length;
  const [mean, low, high] = [0, 1, 2].map(() => new Array(count).fill(null));
  for (let i = 0; i < count; i++) {
    const there = lines.map((line) => line[i]).filter((value) => value !== null);
    if (!there.length) continue;
    mean[i] = there.reduce((sum, value) => sum + value, 0) / there.length;
    low[i] = Math.min(...there);
    high[i] = Math.max(...there);
  }
  return { mean, low, high };
}

// A moving average in which the newest value has the weight 1 - `weight`, and which begins at the
// first value, as TensorBoard's; null where there is no value.
export function smoothed(values, weight) {
  if (!(weight > 0)) return values;
  let [sum, all] = [0, 0];
  return values.map((value) => {
    if (value === null || value === undefined) return null;
    sum = weight * sum + (1 - weight) * value;
    all = weight * all + (1 - weight);
    return sum / all;
  });
}

const withAlpha = (colour, share) => `color-mix(in srgb, ${colour} ${Math.round(100 * share)}%, transparent)`;

export class Chart {
  // The chart is the last thing in its place, an element that is removed with it.
  constructor(place, height) {
    this.tip = make("div", { class: "tip", hidden: true });
    this.box = make("div", { class: "chart" }, this.tip);
    this.place = place;
    this.height = height;
    this.plot = null;
    this.signature = "";
    place.append(this.box);
    this.box.style.minHeight = `${height}px`;
    this.resized = new ResizeObserver(() => this.plot?.setSize(this.size()));
    this.resized.observe(this.box);
    this.seen = new IntersectionObserver(([entry]) => this.appear(entry.isIntersecting), { rootMargin: "100px" });
    this.seen.observe(this.box);
  }

  size() {
    return { width: Math.max(this.box.clientWidth, 120), height: this.height };
  }

  remove() {
    this.resized.disconnect();
    this.seen.disconnect();
    this.plot?.destroy();
    this.place.remove();
  }

  // groups: [{label, colour, lines: [{xs, ys, raw}]}]; a group of several lines is drawn as a band.
  // A chart that nobody sees is drawn when it is scrolled to.
  update(groups, axis, more = {}) {
    this.wanted = [groups, axis, more];
    if (this.visible) this.paint(...this.wanted);
  }

  appear(visible) {
    this.visible = visible;
    if (visible && this.wanted) this.paint(...this.wanted);
  }

  paint(groups, axis, { marks = [], levels = [], log = false }) {
    this.wanted = null;
    const ends = groups.flatMap((group) => group.lines.map((line) => line.xs[line.xs.length - 1] ?? 0));
    const range = zoom.range ?? [0, 1.015 * Math.max(...ends, ...marks.map((mark) => mark.x), 1)];
    const count = this.height < 250 ? FEWER : POINTS;
    const grid = Array.from({ length: count }, (_, i) => range[0] + ((range[1] - range[0]) * i) / (count - 1));
    const data = [grid];
    const series = [{}];
    const bands = [];
    for (const group of groups) {
      const lines = group.lines.map((line) => resample(line.xs, line.ys, grid));
      if (!lines.length) continue;
      const width = group.thin ? 1.2 : this.height < 250 ? 1.3 : 1.9;
      if (lines.length === 1) {
        const { xs, raw } = group.lines[0];
        if (raw) {
          series.push({ stroke: withAlpha(group.colour, 0.3), width: 1, points: { show: false }, edge: true });
          data.push(resample(xs, raw, grid));
        }
        const alone = lines[0].filter((value) => value !== null).length === 1; // no line yet
        series.push({ label: group.label, stroke: group.colour, width, points: { show: alone, size: 7, fill: group.colour } });
        data.push(lines[0]);
        continue;
      }
      const { mean, low, high } = bandOf(lines);
      const edge = { stroke: "transparent", width: 0, points: { show: false }, edge: true };
      series.push({ label: group.label, stroke: group.colour, width: 2.2, points: { show: false } }, { ...edge }, { ...edge });
      const at = series.length;
      bands.push({ series: [at - 1, at - 2], fill: withAlpha(group.colour, 0.22) });
      data.push(mean, low, high);
    }
    this.marks = marks;
    this.levels = levels;
    this.axis = axis;
    this.range = range;
    this.scale = log ? scaleFor(data.slice(1)) : LINEAR;
    const signature = JSON.stringify([series, bands, axis, this.scale, variable("--text")]);
    if (signature !== this.signature || !this.plot) {
      this.plot?.destroy();
      this.signature = signature;
      this.plot = new uPlot(this.options(series, bands), data, this.box);
    } else this.plot.setData(data);
  }

  options(series, bands) {
    const [text, grid] = [variable("--quiet"), variable("--grid")];
    const style = { stroke: text, font: "12px system-ui, sans-serif", ticks: { show: false } };
    const along = (_, values) => values.map((value) => (this.axis === "steps" ? steps(value) : clock(value)));
    return {
      ...this.size(),
      legend: { show: false },
      padding: [10, 28, 0, 0],
      cursor: { sync: { key: shared.key, setSeries: false }, drag: { x: true, y: false, setScale: false }, points: { size: 7 } },
      scales: { x: { time: false, range: () => this.range }, y: { distr: this.scale, range: (_, low, high) => this.heights(low, high) } },
      axes: [
        { ...style, grid: { show: false }, space: 70, size: 30, values: along, ...(this.axis === "seconds" ? { incrs: TIMES } : {}) },
        { ...style, grid: { stroke: grid, width: 1 }, size: 52, values: (_, values) => values.map((value) => this.heightLabel(value)) },
      ],
      series,
      bands,
      hooks: {
        draw: [(plot) => this.draw(plot)],
        setCursor: [(plot) => this.point(plot)],
        setSelect: [(plot) => this.select(plot)],
      },
      plugins: [{ hooks: { ready: (plot) => plot.over.addEventListener("dblclick", () => zoomTo(null)) } }],
    };
  }

  heights(low, high) {
    const values = this.marks.flatMap((mark) => [mark.y - mark.error, mark.y + mark.error]);
    const shown = this.levels.filter((level) => high !== null && level.y <= high + 0.6 * Math.max(high - low, 1e-9));
    const fits = (value) => value !== null && Number.isFinite(value) && (this.scale !== LOG || value > 0);
    const all = [low, high, ...values, ...shown.map((level) => level.y)].filter(fits);
    if (!all.length) return this.scale === LOG ? [1, 10] : [0, 1];
    const [least, most] = [Math.min(...all), Math.max(...all)];
    if (this.scale === LOG) return [least / 1.15, most * 1.15];
    const room = most - least > 1e-6 * Math.abs(most) ? 0.06 * (most - least) : Math.max(Math.abs(most) * 0.1, 0.5);
    return [least - (least === 0 ? 0 : room), most + room];
  }

  // On a logarithmic axis only 1, 2 and 5 times a power of ten are named.
  heightLabel(value) {
    if (value === null) return "";
    const first = Math.abs(value) / 10 ** Math.floor(Math.log10(Math.abs(value)) + 1e-9);
    return this.scale === LINEAR || value === 0 || [1, 2, 5].some((one) => Math.abs(first - one) < 1e-6) ? number(value) : "";
  }

  select(plot) {
    const { left, width } = plot.select;
    if (width < 6 || !plot.over.matches(":hover")) return; // the other charts follow
    plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    zoomTo([plot.posToVal(left, "x"), plot.posToVal(left + width, "x")]);
  }

  draw(plot) {
    const context = plot.ctx;
    const pixels = devicePixelRatio || 1;
    const { left, top, width, height } = plot.bbox;
    context.save();
    context.beginPath();
    context.rect(left, top, width, height);
    context.clip();
    for (const level of this.levels) {
      const y = plot.valToPos(level.y, "y", true);
      if (y < top || y > top + height) continue;
      context.strokeStyle = context.fillStyle = variable("--quiet");
      context.setLineDash([4 * pixels, 4 * pixels]);
      context.lineWidth = pixels;
      context.beginPath();
      context.moveTo(left, y);
      context.lineTo(left + width, y);
      context.stroke();
      context.font = `${11 * pixels}px system-ui, sans-serif`;
      context.textAlign = "left";
      context.textBaseline = "alphabetic";
      context.fillText(level.label, left + 4 * pixels, y - 5 * pixels);
    }
    context.setLineDash([]);
    for (const mark of this.marks) {
      const [x, y] = [plot.valToPos(mark.x, "x", true), plot.valToPos(mark.y, "y", true)];
      const [high, low] = [plot.valToPos(mark.y + mark.error, "y", true), plot.valToPos(Math.max(mark.y - mark.error, plot.scales.y.min), "y", true)];
      context.strokeStyle = mark.colour;
      context.fillStyle = variable("--card");
      context.lineWidth = 2 * pixels;
      context.beginPath();
      context.moveTo(x, low);
      context.lineTo(x, high);
      context.stroke();
      context.beginPath();
      context.arc(x, y, 4.5 * pixels, 0, 2 * Math.PI);
      context.fill();
      context.stroke();
    }
    context.restore();
  }

  point(plot) {
    const { idx, left, top } = plot.cursor;
    const inside = idx !== null && idx !== undefined && left >= 0 && plot.over.matches(":hover");
    if (!inside) {
      this.tip.hidden = true;
      return;
    }
    const rows = plot.series
      .map((series, i) => ({ series, value: plot.data[i][idx] }))
      .filter(({ series, value }, i) => i && !series.edge && value !== null && value !== undefined)
      .map((row) => ({ ...row, far: Math.abs(plot.valToPos(row.value, "y") - top) }))
      .sort((a, b) => a.far - b.far);
    const near = rows.slice(0, MOST_IN_TOOLTIP).sort((a, b) => b.value - a.value);
    const x = plot.data[0][idx];
    this.tip.replaceChildren(
      make("strong", {}, this.axis === "steps" ? `${steps(Math.round(x))} steps` : clock(x)),
      ...near.map(({ series, value }) =>
        make("span", { class: "row" }, make("i", { class: "swatch", colour: series.stroke() }), make("span", { class: "name" }, series.label), make("b", {}, number(value))),
      ),
      ...(rows.length > near.length ? [make("span", { class: "quiet" }, `and ${rows.length - near.length} more`)] : []),
    );
    this.tip.hidden = !near.length;
    const [wide, offset] = [this.tip.offsetWidth, plot.over.offsetLeft];
    const right = left + offset + 16 + wide < this.box.clientWidth;
    this.tip.style.left = `${right ? left + offset + 14 : Math.max(left + offset - wide - 14, 0)}px`;
    this.tip.style.top = `${Math.max(Math.min(top - 10, this.height - this.tip.offsetHeight - 30), 4)}px`;
  }
}

const [LINEAR, LOG, BOTH_SIGNS] = [1, 3, 4]; // uPlot's numbers; the last is the inverse sinh

// The scale of a chart when logarithms are wanted: linear where all values are of one size.
export function scaleFor(lines) {
  const values = lines.flat().filter((value) => value !== null);
  const [least, most] = values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
  if (least > 0) return most > 4 * least ? LOG : LINEAR;
  return Math.max(most, -least) > 10 ? BOTH_SIGNS : LINEAR;
}

const TIMES = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800];
