// The parts of the page beside the charts: cards, films, stages, evaluations, events, settings.

import { make, byId, show, valueAt, number, scoreOf, steps, clock, ago, words, palette } from "./util.js";

const CARDS = 6; // more runs are a table

export function cards(runs, colourOf) {
  const place = byId("cards");
  const many = runs.length > CARDS;
  place.className = many ? "card scroll" : "cards";
  place.replaceChildren(...(many ? [overview(runs, colourOf)] : runs.map((run) => card(run, colourOf(run)))));
}

// Tables: rows of runs begin with the name beside its colour.
const head = (name, kind) => make("th", { class: kind }, name);
const cell = (value, kind) => make("td", { class: kind }, value);
const swatch = (run, colourOf) => make("i", { class: "swatch", colour: colourOf(run) });
const row = (run, colourOf, ...cells) => make("tr", {}, make("th", { scope: "row" }, swatch(run, colourOf), run.name), ...cells);
const table = (heads, rows, kind) => make("table", { class: kind }, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows));

function speedOf(run) {
  const speeds = run.curve.steps_per_second.filter((value) => value !== null).slice(-5);
  return speeds.length ? speeds.sort((a, b) => a - b)[speeds.length >> 1] : null;
}

function status(run) {
  return run.learning ? make("span", { class: "live" }, "learning") : make("span", { class: "quiet" }, ago(run.written === null ? null : Date.now() / 1000 - run.written));
}

function card(run, colour) {
  const facts = [
    ["best", scoreOf(run.newest.best)],
    ["games", number(run.newest.games)],
    ["steps", steps(run.newest.steps)],
    ["time", clock(run.newest.seconds)],
    ["steps per s", number(speedOf(run))],
    ["limited by", run.bound || "–"],
    ...(run.newest.cores_busy === undefined ? [] : [["cores busy", `${number(run.newest.cores_busy)} of ${run.machine.cores}`]]),
  ];
  return make(
    "article",
    { class: "card run", colour },
    make("div", { class: "title" }, make("h3", { title: run.folder }, run.name), status(run)),
    make("p", { class: "quiet" }, [run.game, run.algorithm, run.seed === null ? "" : `seed ${run.seed}`].filter(Boolean).join(" · ")),
    make("p", { class: "big" }, scoreOf(run.newest.score), make("small", {}, ` mean of ${Math.min(run.newest.games ?? 50, 50)} games`)),
    make("dl", {}, ...facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value)))),
  );
}

function overview(runs, colourOf) {
  const heads = ["run", "score", "best", "evaluated", "steps", "time", "steps/s", "lag", "limited by", "seed", ""];
  const rows = runs.map((run) => {
    const newest = run.newest;
    const numbers = [scoreOf(newest.score), scoreOf(newest.best), scoreOf(run.evaluations.at(-1)?.mean), steps(newest.steps), clock(newest.seconds), number(speedOf(run)), number(newest.lag_mean)];
    const rest = [run.bound || "–", run.seed ?? "", status(run)];
    return row(run, colourOf, ...numbers.map((value) => cell(value, "right")), ...rest.map((value) => cell(value)));
  });
  return table(heads.map((name, i) => head(name, i > 0 && i < 8 ? "right" : "")), rows, "side");
}

const kept = new Map(); // films by address, so that one that plays is not made again

export function films(runs, colourOf) {
  const having = runs.filter((run) => run.films.length || run.together);
  show("films-part", having.length);
  const signature = JSON.stringify(having.map((run) => [run.id, run.name, run.learning, run.films.map((film, i) => [film, when(run, film, i)]), run.together, colourOf(run)]));
  if (byId("films").dataset.shown === signature) return;
  byId("films").dataset.shown = signature;
  const used = new Set();
  const rows = having.map((run) => {
    const shown = run.films.map((film, i) => figure(run, film, i, used));
    const together = run.together ? make("figure", { class: "together" }, moving(run, run.together, used)) : null;
    return make("div", { class: "film-cell" }, make("h3", {}, swatch(run, colourOf), run.name), together, make("div", { class: "strip" }, ...shown));
  });
  byId("films").replaceChildren(...rows);
  for (const address of kept.keys()) if (!used.has(address)) kept.delete(address);
}

function moving(run, name, used) {
  const address = `films/${run.id}/${name}`;
  used.add(address);
  if (!kept.has(address)) {
    const film = name.endsWith(".gif")
      ? make("img", { src: address, alt: "" })
      : make("video", { src: address, muted: true, playsinline: true, preload: "metadata", tabindex: 0, onclick: toggle, onmouseenter: controls, onmouseleave: controls });
    film.muted = true;
    kept.set(address, film);
  }
  return kept.get(address);
}

function when(run, film, place) {
  const last = run.learning ? "now" : "after";
  const share = film.steps / Math.max(run.newest.steps ?? run.films.at(-1).steps, 1);
  const early = share <= 0.1 ? "before" : share >= 0.25 && share <= 0.75 ? "half way" : "";
  return place === run.films.length - 1 && share > 0.75 ? last : early;
}

function figure(run, film, place, used) {
  return make("figure", {}, moving(run, film.name, used), make("figcaption", {}, make("b", {}, when(run, film, place)), ` ${steps(film.steps)} steps`, score(run, film)));
}

function score(run, film) {
  const value = valueAt(run, "score", film.steps);
  return value === null || value === undefined ? null : make("span", { class: "quiet" }, `score ${scoreOf(value)}`);
}

export async function playTogether() {
  const videos = [...byId("films").querySelectorAll("video")];
  const playing = videos.some((video) => !video.paused && !video.ended);
  for (const video of videos) video.pause();
  if (!playing) {
    await Promise.all(videos.map(begun));
    await Promise.all(videos.map((video) => video.play().catch(() => {})));
  }
  nameButton();
}

function begun(video) {
  return new Promise((ready) => {
    const patience = setTimeout(ready, 3000);
    const done = () => (clearTimeout(patience), ready());
    video.addEventListener("seeked", done, { once: true });
    video.addEventListener("error", done, { once: true });
    if (video.currentTime === 0 && video.readyState >= 3) done();
    else video.currentTime = 0;
  });
}

export function nameButton() {
  const playing = [...byId("films").querySelectorAll("video")].some((video) => !video.paused && !video.ended);
  byId("play").textContent = playing ? "Stop" : "Play together";
}

export function stages(runs, colourOf) {
  const having = runs.filter((run) => Object.keys(run.stages).length);
  if (!show("stages-part", having.length)) return;
  byId("stages").replaceChildren(
    ...having.map((run) =>
      make(
        "div",
        { class: "stages-of" },
        make("h3", {}, swatch(run, colourOf), run.name, make("span", { class: "quiet" }, ` limited by ${run.bound}`)),
        ...Object.entries(run.stages).map(([role, shares]) => bar(role, shares, run.bound)),
      ),
    ),
  );
}

function bar(role, shares, bound) {
  const order = Object.entries(shares).sort(([a], [b]) => a.startsWith("wait") - b.startsWith("wait") || a.localeCompare(b));
  const parts = order
    .filter(([, share]) => share > 0.004)
    .map(([stage, share], i) => {
      const waits = stage.startsWith("wait");
      const said = `${stage} ${Math.round(100 * share)} %`;
      const kind = `part${waits ? " waits" : ""}${stage === bound ? " bounds" : ""}`;
      return make("span", { class: kind, share, colour: waits ? null : palette(i + 1), title: said }, make("em", {}, said));
    });
  return make("div", { class: "bar-row" }, make("span", { class: "role" }, role), make("div", { class: "bar" }, ...parts));
}

export function evaluations(runs, colourOf) {
  const rows = runs.flatMap((run) => run.evaluations.map((one) => ({ run, one }))).reverse();
  if (!show("evaluations-part", rows.length)) return;
  const heads = ["run", "mean", "95 % interval", "steps", "protocol", "games", "actions"];
  const shown = rows.slice(0, 200).map(({ run, one }) => {
    const wide = 1.96 * (one.error ?? NaN);
    const interval = one.error === null ? "–" : `${scoreOf(one.mean - wide, one.error)} to ${scoreOf(one.mean + wide, one.error)}`;
    const mean = `${scoreOf(one.mean, one.error)}${one.error === null ? "" : ` ± ${scoreOf(one.error, one.error)}`}`;
    const cells = [mean, interval, steps(one.steps), one.protocol, one.games, one.policy];
    return row(run, colourOf, ...cells.map((value) => cell(value)));
  });
  byId("evaluations").replaceChildren(table(heads.map((name) => head(name)), shown));
}

export function events(runs, colourOf) {
  const rows = runs.flatMap((run) => run.events.map((event) => ({ run, event })));
  rows.sort((a, b) => (b.event.seconds ?? Infinity) - (a.event.seconds ?? Infinity));
  if (!show("events-part", rows.length)) return;
  const shown = rows.slice(0, 200).map(({ run, event }) => {
    const { event: kind, seconds, ...rest } = event;
    const said = Object.entries(rest).map(([name, value]) => `${words(name).toLowerCase()} ${typeof value === "number" ? number(value) : value}`);
    const when = typeof seconds === "number" ? clock(seconds) : "";
    return row(run, colourOf, cell(when, "right"), cell(make("b", {}, words(String(kind)))), cell(said.join(" · "), "quiet wide"));
  });
  byId("events").replaceChildren(table([], shown));
}

// Columns are groups of seeds where there are several groups, else runs.
export function settings(runs, groups, all) {
  const byGroup = new Map(runs.map((run) => [run.group, run]));
  const several = byGroup.size > 1;
  const columns = several ? [...byGroup.values()] : runs.slice(0, 1);
  if (!show("settings-part", columns.length)) return;
  const names = [...new Set(columns.flatMap((run) => Object.keys(run.settings)))];
  const differs = (name) => columns.some((run) => run.settings[name] !== columns[0].settings[name]);
  if (!several && !all) {
    byId("settings").replaceChildren(make("p", { class: "quiet" }, runs.length > 1 ? "All these runs have the same settings, but for their seeds, when they end and what they write." : "There is one run, so nothing differs."));
    return;
  }
  const wanted = names.filter((name) => name !== "seed" && (all || differs(name)));
  const missing = (name) => columns.filter((run) => run.settings[name] === undefined).length;
  wanted.sort((a, b) => missing(a) - missing(b)); // what one lacks is often of another version
  const heads = columns.map((run) => (several ? groups.get(run.group) : runs.length > 1 ? "all runs" : run.name));
  const rows = wanted.map((name) => make("tr", { class: differs(name) ? "differs" : "" }, make("th", { scope: "row" }, name), ...columns.map((run) => cell(run.settings[name] ?? "–"))));
  byId("settings").replaceChildren(table(["", ...heads].map((name) => head(name)), rows));
}

// A film has its controls while a mouse is over it; without a mouse, a touch plays or stops it.
function controls(event) {
  event.target.controls = event.type === "mouseenter";
}

function toggle(event) {
  if (event.target.controls) return;
  event.target.paused ? event.target.play() : event.target.pause();
}
