// The page: asks the server what has changed, and shows it. Nothing is written, nobody else is asked.

import { make, byId, show, problem, valueAt, words, palette, number, scoreOf } from "./util.js";
import { Chart, smoothed, zoom, zoomTo } from "./charts.js";
import * as panels from "./panels.js";

const WAIT = 400; // milliseconds between an answer and the next question
const GENTLE = 8; // times as long as the last answer took, if that is longer
const MOST = 200; // metrics that are asked for, as many as the server gives
const FEW = 12; // up to so many runs are drawn with all their charts from the start

const FIRST = ["policy_loss", "value_loss", "td_error", "entropy", "kl", "explained_variance", "gradient_norm", "learning_rate"];
const SPEED = ["steps_per_second", "lag_mean", "queue_depth", "waited_seconds", "active_workers"];
const HIDDEN = /^(steps|seconds|version|score|best|games|lag_min|lag_max|time_.*|moved_bytes|updates)$/;

const state = {
  now: 0,
  runs: new Map(),
  ids: [],
  groups: new Map(), // names by what settings a group has
  hidden: new Set(),
  columns: [],
  axis: stored("axis", "steps"),
  lines: stored("lines", "runs"),
  heights: stored("heights", "linear"),
  smooth: Number(stored("smooth", "0")) || 0,
  filter: "",
};
const charts = new Map();

function stored(name, otherwise) {
  try {
    return localStorage.getItem(`colobus-${name}`) ?? otherwise;
  } catch {
    return otherwise;
  }
}

function store(name, value) {
  try {
    localStorage.setItem(`colobus-${name}`, value);
  } catch {} // private windows have none
}

const all = () => state.ids.map((id) => state.runs.get(id)).filter(Boolean);
const picked = () => all().filter((run) => !state.hidden.has(run.id));
const byGroup = () => state.lines === "seeds";

// Each run and group keeps the colour that it got when it was first seen, whatever begins later.
const places = { runs: new Map(), groups: new Map() };

function placeOf(kind, id) {
  if (!places[kind].has(id)) places[kind].set(id, places[kind].size);
  return places[kind].get(id);
}

const colourOfGroup = (group) => palette(placeOf("groups", group));
const colourOf = (run) => (byGroup() || state.ids.length > 10 ? colourOfGroup(run.group) : palette(placeOf("runs", run.id)));

// Questions and answers

let timer = 0;

async function ask() {
  clearTimeout(timer);
  if (document.hidden) return; // asked again when it is seen
  const began = performance.now();
  try {
    const address = `look?after=${state.now}&columns=${state.columns.map(encodeURIComponent).join(",")}`;
    const answer = await fetch(address, { credentials: "same-origin" });
    if (!answer.ok) throw new Error(await answer.text());
    take(await answer.json());
    problem("");
  } catch (error) {
    problem(error instanceof TypeError ? "The page’s server has ended. Start colobus watch again and open the link that it prints." : String(error.message));
  }
  timer = setTimeout(ask, Math.max(WAIT, GENTLE * (performance.now() - began)));
}

function take(found) {
  const changed = found.runs.length || found.ids.join() !== state.ids.join();
  state.now = found.now;
  state.ids = found.ids;
  state.groups = new Map(found.groups);
  for (const [group] of found.groups) placeOf("groups", group);
  for (const id of found.ids) placeOf("runs", id);
  for (const run of found.runs) state.runs.set(run.id, { ...run, written: run.age === null ? null : Date.now() / 1000 - run.age });
  found.ids.forEach((id, i) => state.runs.has(id) && (state.runs.get(id).name = found.names[i]));
  for (const id of state.runs.keys()) if (!found.ids.includes(id)) state.runs.delete(id);
  if (changed || !charts.size) draw();
  document.body.dataset.ready = "yes";
}

// What is drawn

function draw() {
  const runs = picked();
  const learning = all().filter((run) => run.learning).length;
  show("empty", !state.ids.length);
  byId("state").replaceChildren(make("i", { class: learning ? "dot on" : "dot" }), learning ? `${learning} of ${state.ids.length} learning` : `${state.ids.length} ${state.ids.length === 1 ? "run" : "runs"}, none learning`);
  drawList();
  panels.cards(runs, colourOf);
  drawCharts(runs);
  panels.films(runs, colourOf);
  panels.nameButton();
  panels.stages(runs.slice(0, FEW), colourOf);
  panels.evaluations(runs, colourOf);
  panels.events(runs, colourOf);
  panels.settings(runs, state.groups, byId("all-settings").checked);
}

function drawList() {
  const runs = all();
  byId("filter").hidden = runs.length <= FEW;
  byId("picked").textContent = `${picked().length} of ${runs.length} shown`;
  const wanted = runs.filter((run) => `${run.name} ${run.folder} ${state.groups.get(run.group)}`.toLowerCase().includes(state.filter));
  const groups = Map.groupBy(wanted, (run) => run.group);
  byId("list").replaceChildren(...[...groups].map(([group, members]) => groupOf(group, members)));
}

function groupOf(group, members) {
  const shown = members.filter((run) => !state.hidden.has(run.id)).length;
  const box = make("input", { type: "checkbox", onchange: () => pick(members, box.checked) });
  box.checked = shown === members.length;
  box.indeterminate = shown > 0 && shown < members.length;
  const head = make("label", { class: "group" }, box, make("span", {}, state.groups.get(group) ?? ""), make("small", {}, members.length > 1 ? `${members.length} runs` : ""));
  return make("div", { class: "members" }, head, ...members.map(member));
}

function member(run) {
  const box = make("input", { type: "checkbox", onchange: () => pick([run], box.checked) });
  box.checked = !state.hidden.has(run.id);
  const name = make("span", { class: "name", title: run.folder }, run.name);
  return make("label", { class: "member" }, box, make("i", { class: run.learning ? "swatch on" : "swatch", colour: colourOf(run) }), name, make("b", {}, scoreOf(run.newest.score)));
}

function pick(runs, shown) {
  for (const run of runs) shown ? state.hidden.delete(run.id) : state.hidden.add(run.id);
  draw();
}

function linesOf(runs, column) {
  const line = (run) => ({ xs: run.curve[state.axis], ys: smoothed(run.curve[column] ?? [], state.smooth), raw: state.smooth > 0 ? run.curve[column] : null });
  const having = runs.filter((run) => run.curve[column]?.some((value) => value !== null));
  const thin = having.length > FEW;
  if (!byGroup()) return having.map((run) => ({ label: run.name, colour: colourOf(run), lines: [line(run)], thin }));
  const groups = Map.groupBy(having, (run) => run.group);
  return [...groups].map(([group, members]) => ({ label: state.groups.get(group), colour: colourOfGroup(group), lines: members.map(line) }));
}

function chart(key, parent, title, height) {
  if (!charts.has(key)) {
    const place = key === "score" ? make("div") : make("div", { class: "card" }, make("h3", {}, title));
    parent.append(place);
    charts.set(key, new Chart(place, height));
  }
  return charts.get(key);
}

function drawCharts(runs) {
  const drawn = drawScores(runs);
  byId("about-score").textContent = `training games, mean of the last 50${byGroup() ? "; line: mean of the seeds that came so far, band: lowest to highest" : ""}${runs.length <= FEW && runs.some((run) => run.evaluations.length) ? "; circles: evaluations with 95 % intervals" : ""}`;
  const there = new Set(runs.flatMap((run) => run.columns));
  const wanted = [...there].filter((name) => !HIDDEN.test(name));
  const asked = (state.ids.length <= FEW || openLearning ? wanted : wanted.filter((name) => SPEED.includes(name))).slice(0, MOST);
  const [speed, learning] = [["steps_per_second", ...SPEED.slice(1).filter((name) => there.has(name))], asked.filter((name) => !SPEED.includes(name))];
  learning.sort((a, b) => (FIRST.indexOf(a) + 1 || 99) - (FIRST.indexOf(b) + 1 || 99) || a.localeCompare(b));
  for (const [names, part] of [[speed, "speed"], [learning, "learning"]]) {
    for (const name of names) {
      const lines = linesOf(runs, name);
      if (!lines.length) continue;
      drawn.add(name);
      chart(name, byId(part), TITLES[name] ?? words(name), 190).update(lines, state.axis, { log: state.heights === "log" });
    }
  }
  for (const [key, old] of charts) {
    if (drawn.has(key)) continue;
    old.remove();
    charts.delete(key);
  }
  show("more", state.ids.length > FEW && !openLearning);
  show("speed-part", byId("speed").childElementCount);
  show("learning-part", !byId("more").hidden || byId("learning").childElementCount);
  if (asked.some((name) => !state.columns.includes(name))) {
    state.columns = asked;
    state.now = 0; // all runs again, with these columns
    clearTimeout(timer);
    timer = setTimeout(ask, 0);
  }
}

// One large chart, or with several games, whose scores have nothing in common, a small one for each.
function drawScores(runs) {
  const having = runs.filter((run) => run.evaluations.length || run.curve.score.some((value) => value !== null));
  const games = Map.groupBy(having, (run) => run.game);
  const several = games.size > 1;
  const drawn = new Set();
  for (const [game, own] of games) {
    const key = several ? `score of ${game}` : "score";
    const [lines, marks] = [linesOf(own, "score"), marksOf(own)];
    drawn.add(key);
    const place = byId(several ? "score-games" : "score-chart");
    const height = several ? 190 : innerWidth < 700 ? 280 : 380;
    chart(key, place, game, height).update(lines, state.axis, { marks, levels: levelsOf(own), log: state.heights === "log" });
  }
  show("no-score", runs.length && !drawn.size);
  return drawn;
}

const TITLES = { steps_per_second: "Steps a second", lag_mean: "Policy lag, in versions (mean)", queue_depth: "Kept in the replay: trajectories of a queue, steps of a buffer", waited_seconds: "Seconds a learner waits before an update" };

let openLearning = false;

function marksOf(runs) {
  if (runs.length > FEW) return [];
  return runs.flatMap((run) =>
    run.evaluations
      .map((one) => ({ x: state.axis === "steps" ? one.steps : (one.seconds ?? valueAt(run, "seconds", one.steps)), y: one.mean, error: 1.96 * (one.error ?? 0), colour: colourOf(run) }))
      .filter((mark) => mark.x !== null && (!zoom.range || (mark.x >= zoom.range[0] && mark.x <= zoom.range[1]))),
  );
}

function levelsOf(runs) {
  const human = runs[0].human; // of the one game of these runs
  return human ? [{ y: human.human, label: `human ${number(human.human)}` }, { y: human.random, label: `random play ${number(human.random)}` }] : [];
}

// Switches

function choose(name) {
  const buttons = [...byId(name).querySelectorAll("button")];
  const mark = () => buttons.forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.value === state[name])));
  for (const button of buttons) {
    button.addEventListener("click", () => {
      state[name] = button.dataset.value;
      store(name, state[name]);
      mark();
      zoomTo(null);
    });
  }
  mark();
}

function theme(next) {
  if (next) store("theme", next);
  const chosen = stored("theme", "auto");
  document.documentElement.dataset.theme = chosen;
  byId("theme").textContent = { auto: "Auto", light: "Light", dark: "Dark" }[chosen];
}

const THEMES = { auto: "light", light: "dark", dark: "auto" };

function begin() {
  history.replaceState(null, "", location.pathname); // the token is in a cookie now
  for (const name of ["axis", "lines", "heights"]) choose(name);
  byId("smooth").value = state.smooth;
  byId("smooth").addEventListener("input", (event) => ((state.smooth = Number(event.target.value)), store("smooth", state.smooth), draw()));
  theme();
  byId("theme").addEventListener("click", () => (theme(THEMES[stored("theme", "auto")]), draw()));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  byId("filter").addEventListener("input", (event) => ((state.filter = event.target.value.toLowerCase()), drawList()));
  byId("play").addEventListener("click", panels.playTogether);
  byId("films").addEventListener("ended", panels.nameButton, true);
  byId("all-settings").addEventListener("change", draw);
  byId("more").addEventListener("click", () => ((openLearning = true), draw()));
  byId("picker").open = innerWidth >= 1000;
  document.addEventListener("visibilitychange", () => document.hidden || ask());
  zoom.changed = () => (show("unzoom", zoom.range !== null), draw());
  byId("unzoom").addEventListener("click", () => zoomTo(null));
  setInterval(() => document.hidden || panels.cards(picked(), colourOf), 60000); // “2 s ago” gets older
  ask();
}

begin();
