// Elements, numbers and colours. Names of runs are only ever set as text.

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "colour" || name === "share") element.style.setProperty(`--${name}`, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const byId = (id) => document.getElementById(id);

export function show(id, visible) {
  byId(id).hidden = !visible;
  return visible;
}

export function problem(text) {
  show("problem", Boolean(text));
  byId("problem").textContent = text;
}

// A value of a run at the newest row of at most so many steps; null before the first.
export function valueAt(run, column, most) {
  const at = run.curve.steps.findLastIndex((value) => value <= most);
  return at < 0 ? null : run.curve[column][at];
}

export function steps(value) {
  if (value === null || value === undefined) return "";
  if (Math.abs(value) >= 1e9) return `${trim(value / 1e9)} G`;
  if (Math.abs(value) >= 1e6) return `${trim(value / 1e6)} M`;
  return Math.abs(value) >= 1e3 ? `${trim(value / 1e3)} k` : trim(value);
}

export function clock(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const whole = Math.round(seconds);
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const two = (number) => String(number).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

export function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e6 || (size > 0 && size < 1e-3)) return value.toExponential(1).replace("e+", "e");
  if (size >= 1000) return value.toLocaleString("en", { maximumFractionDigits: 0 });
  return trim(value, size >= 100 ? 1 : size >= 1 ? 2 : 4);
}

// As digits_of in core/fields.py: the decimals of a number beside its standard error.
const digitsOf = (error) => (error >= 1e-6 && error < 0.01 ? 1 - Math.floor(Math.log10(error)) : 2);

// A score with its usual digits, or as many as its error needs that would be 0 with these.
export function scoreOf(value, error = null) {
  if (value === null || value === undefined) return "–";
  const usual = Math.abs(value) < 1000 ? 1 : 0;
  if (Math.abs(value) < 100 || (error >= 1e-6 && error < 0.5 / 10 ** usual)) return value.toFixed(digitsOf(error));
  return value.toLocaleString("en", { maximumFractionDigits: usual });
}

export function ago(seconds) {
  if (seconds === null || seconds === undefined) return "no metrics yet";
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  return seconds < 129600 ? `${Math.round(seconds / 3600)} h ago` : `${Math.round(seconds / 86400)} days ago`;
}

const trim = (value, digits = 2) => String(Number(value.toFixed(digits)));

export function words(name) {
  const said = name.replaceAll("_", " ");
  const short = { kl: "KL", q: "Q", lr: "learning rate", td: "TD" };
  const parts = said.split(" ").map((part) => short[part] ?? part);
  return parts.join(" ").replace(/^[a-z]/, (letter) => letter.toUpperCase());
}

const LIGHT = ["#c2410c", "#2563eb", "#15803d", "#9333ea", "#0891b2", "#be185d", "#a16207", "#4d7c0f", "#4338ca", "#57534e"];
const DARK = ["#fb923c", "#60a5fa", "#4ade80", "#c084fc", "#22d3ee", "#f472b6", "#fde047", "#a3e635", "#a5b4fc", "#d6d3d1"];

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen === "dark" || (chosen !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
}

export function palette(index) {
  const colours = isDark() ? DARK : LIGHT;
  if (index < colours.length) return colours[index];
  return `hsl(${Math.round(index * 137.5) % 360} 62% ${isDark() ? 68 : 42}%)`;
}

const probe = document.head.appendChild(make("i")); // an element that is never seen

// The colour that a variable of page.css has in the present light.
export function variable(name) {
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}
