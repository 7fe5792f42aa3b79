// A live game: asks for one picture after the other, and tells which keys are held down.

import { byId, show, problem, number, steps } from "./util.js";

const KEYS = {
  ArrowUp: "up", ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right",
  KeyW: "up", KeyS: "down", KeyA: "left", KeyD: "right", Space: "fire",
};
const AGAIN = 1000; // milliseconds after a failure

let newest = 0; // number of the picture that is shown
const pressed = new Set();
let person = false;
let told = Promise.resolve(); // keys are told one after the other

const wait = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
const seen = () => new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));

async function look() {
  for (;;) {
    if (document.hidden) await seen();
    try {
      const answer = await fetch(`picture?after=${newest}`, { credentials: "same-origin" });
      if (!answer.ok) throw new Error(await answer.text());
      if (answer.status === 200) draw(JSON.parse(answer.headers.get("x-facts")), await createImageBitmap(await answer.blob()));
      problem("");
    } catch (error) {
      problem(error instanceof TypeError ? "The game’s server has ended. Start colobus play again and open the link that it prints." : String(error.message));
      await wait(AGAIN);
    }
  }
}

function draw(facts, picture) {
  const screen = byId("screen");
  if (screen.width !== picture.width || screen.height !== picture.height) {
    [screen.width, screen.height] = [picture.width, picture.height];
    screen.style.aspectRatio = `${facts.size[1]} / ${facts.size[0]}`;
  }
  screen.getContext("2d").drawImage(picture, 0, 0);
  picture.close();
  screen.className = facts.over ? "card over" : "card";
  newest = facts.number;
  byId("score").textContent = number(facts.score);
  byId("steps").textContent = facts.steps;
  byId("games").textContent = facts.games;
  byId("action").textContent = facts.action ? facts.action.toLowerCase() : facts.person ? "–" : "agent";
  byId("scores").textContent = facts.scores.length ? `Scores so far: ${facts.scores.map((score) => number(score)).join(", ")}` : "";
  document.body.dataset.ready = "yes";
}

// Keys

function tell() {
  const body = JSON.stringify({ pressed: [...pressed], person });
  byId("agent").setAttribute("aria-pressed", String(!person));
  byId("person").setAttribute("aria-pressed", String(person));
  const send = () => fetch("keys", { method: "POST", credentials: "same-origin", body, headers: { "content-type": "application/json" } });
  told = told.then(send).catch(() => {}); // the next picture says what is wrong
}

const keyOf = (event) => KEYS[event.code] ?? (/^(Digit|Numpad)\d$/.test(event.code) ? event.code.slice(-1) : null);

function down(event) {
  const key = keyOf(event);
  if (!key || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  if (event.repeat || pressed.has(key)) return;
  pressed.add(key);
  person = true;
  tell();
}

function up(event) {
  const key = keyOf(event);
  if (!key) return;
  event.preventDefault();
  if (pressed.delete(key)) tell();
}

function choose(isPerson) {
  person = isPerson;
  pressed.clear();
  tell();
}

async function begin() {
  history.replaceState(null, "", location.pathname); // the token is in a cookie now
  const about = await (await fetch("about", { credentials: "same-origin" })).json();
  byId("game").textContent = about.game;
  byId("state").textContent = `learned from ${steps(about.steps)} steps, ${about.policy}`;
  if (show("who", about.human)) {
    show("help", true);
    tell(); // the page may have been loaded again while a person played
    addEventListener("keydown", down);
    addEventListener("keyup", up);
    addEventListener("blur", () => (pressed.size ? (pressed.clear(), tell()) : null));
    byId("agent").addEventListener("click", () => choose(false));
    byId("person").addEventListener("click", () => choose(true));
  }
  look();
}

begin();
