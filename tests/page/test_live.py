"""A live game: its pictures, its pace, a person who takes over, and who may see it."""

from __future__ import annotations

import io
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from colobus.cli.interrupts import Interrupted
from colobus.cli.watch import play
from colobus.core.errors import ColobusError
from colobus.core.seeding import game_seeds
from colobus.core.types import Bytes
from colobus.envs.ale import AleGame
from colobus.envs.api import GameSettings
from colobus.envs.make import action_names
from colobus.evaluation.start_states import read_starts
from colobus.page.live import ALONE, MOST_BYTES, PAUSE, LiveGame, action_of, make_play_app
from colobus.page.server import cookie_name
from helpers.launching import LONG, wait_until
from helpers.players import CATCH, Catcher, Scripted

TOKEN, PORT = "a-token-of-a-test", 4711
PONG = GameSettings(game="pong")
RIGHT = 3
"""Code of the action in `ale_py.Action`."""

Facts = dict[str, Any]


@contextmanager
def playing(game: LiveGame) -> Iterator[LiveGame]:
    game.start()
    try:
        yield game
    finally:
        game.close()
    wait_until(lambda: "game" not in {thread.name for thread in threading.enumerate()})


def looking_at(game: LiveGame) -> Iterator[tuple[bytes, Facts]]:
    """Give the pictures that somebody sees who asks as fast as possible, and their facts."""
    end, newest = time.monotonic() + LONG, 0
    while time.monotonic() < end:
        if answer := game.picture(newest):
            newest = answer[1]["number"]
            yield answer
    pytest.fail("it never came")


def pictures_of(game: LiveGame, count: int) -> list[tuple[Bytes, Facts]]:
    """Return the next pictures that somebody sees."""
    seen = itertools.islice(looking_at(game), count)
    return [(np.asarray(Image.open(io.BytesIO(image))), facts) for image, facts in seen]


def wait_for(game: LiveGame, holds: Callable[[Facts], bool]) -> Facts:
    """Return the facts of the first picture of which something holds."""
    return next(facts for _, facts in looking_at(game) if holds(facts))


@pytest.mark.slow
def test_the_pictures_are_those_of_the_game_at_its_own_speed() -> None:
    agent = Scripted(PONG)
    began = time.monotonic()
    with playing(LiveGame(agent)) as game:
        seen = pictures_of(game, 30)
    took = time.monotonic() - began
    last = seen[-1][1]["number"]
    assert took >= (last - 1) / 60 - 0.01  # never faster than the emulator's 60 a second
    by_hand = AleGame(PONG, int(game_seeds(1, "play", 1)[0]))
    shown: list[Bytes] = []
    by_hand.reset(shown.append)
    for actions in agent.done:
        by_hand.step(int(actions[0]), shown.append)
    for picture, facts in seen:
        np.testing.assert_array_equal(picture, shown[facts["number"] - 1])
    assert seen[-1][1]["size"] == (630, 640)
    assert {facts["games"] for _, facts in seen} == {1}


@pytest.mark.slow
def test_games_follow_one_another_and_their_scores_are_told() -> None:
    with playing(LiveGame(Catcher())) as game:
        facts = wait_for(game, lambda facts: facts["games"] >= 2 and not facts["over"])
    assert facts["scores"] == [1.0] * (facts["games"] - 1)
    assert facts["score"] == 0.0


def test_a_person_takes_over_and_hands_back() -> None:
    agent = Scripted(PONG)
    with playing(LiveGame(agent, human=True)) as game:
        pictures_of(game, 5)
        game.press(["up"], person=True)
        wait_for(game, lambda facts: facts["action"] == "RIGHT" and facts["person"])
        game.press([], person=True)
        wait_for(game, lambda facts: facts["action"] == "NOOP")
        before = len(agent.done)
        game.press([], person=False)
        wait_for(game, lambda facts: facts["action"] == "")
        assert len(agent.done) > before  # the agent has seen every step


@pytest.mark.slow
def test_what_a_person_plays_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colobus.evaluation.start_states.GAP", (1, 1))
    path = tmp_path / "mine.starts"
    sticky = replace(PONG, sticky=0.25)
    with playing(LiveGame(Scripted(sticky), human=True, keep=path)) as game:
        pictures_of(game, 200)
        assert not path.exists()  # the agent has played
        game.press(["up"], person=True)
        wait_for(game, lambda _: path.exists())
    found = read_starts(path, sticky)
    assert {RIGHT} == {*found.actions[0].tolist()}
    with pytest.raises(ColobusError, match="start states are for Atari games"):
        LiveGame(Scripted(CATCH), human=True, keep=tmp_path / "more.starts")


def test_what_was_kept_is_said_when_the_command_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*_: Any) -> None:
        raise Interrupted(130)

    monkeypatch.setattr("colobus.cli.watch.show", stopped)
    kept = tmp_path / "my own.starts"
    with pytest.raises(Interrupted):
        play(["zoo:pong", "--human", "--keep", str(kept)])
    assert capsys.readouterr().out == f"{kept}: no start states\n"


@pytest.mark.slow
def test_the_game_waits_while_nobody_looks() -> None:
    agent = Scripted(CATCH)
    with playing(LiveGame(agent)) as game:
        pictures_of(game, 2)
        time.sleep(ALONE)
        end, stopped = time.monotonic() + 60, -1
        while stopped != len(agent.done):
            assert time.monotonic() < end, "it never stopped"
            stopped = len(agent.done)
            time.sleep(PAUSE + 0.5)  # longer than between two games
        wait_for(game, lambda facts: len(agent.done) > stopped)


def test_an_error_of_the_game_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Catcher()
    monkeypatch.setattr(agent, "rule", lambda observations: 1 / 0)
    with playing(LiveGame(agent)) as game, pytest.raises(ColobusError, match="ZeroDivisionError"):
        pictures_of(game, 2)


def client(game: LiveGame, token: str = TOKEN, host: str = "127.0.0.1:4711") -> TestClient:
    cookies = {cookie_name(PORT): token} if token else {}
    return TestClient(make_play_app(game, TOKEN, PORT), base_url=f"http://{host}", cookies=cookies)


@pytest.mark.parametrize("address", ["/", "/about", "/picture", "/assets/play.js", "/keys"])
def test_nothing_is_shown_without_the_token(address: str) -> None:
    game = LiveGame(Catcher(), human=True)
    for token in ("", "wrong"):
        page = client(game, token=token)
        for answer in (page.get(address), page.post(address, content="{}")):
            assert answer.status_code == 403
            assert "catch" not in answer.text
    assert client(game, host="evil.example").get(address).status_code == 400


def test_the_page_its_files_and_what_it_is_about() -> None:
    page = client(LiveGame(Catcher(), human=True))
    home = page.get(f"/?token={TOKEN}")
    assert "samesite=strict" in home.headers["set-cookie"].lower()
    for name in ("play.js", "page.css", "util.js"):
        assert f"assets/{name}" in home.text or name == "util.js"
        assert page.get(f"/assets/{name}").status_code == 200
    for name in ("page.js", "index.html", "../live.py", "..%2flive.py"):
        assert page.get(f"/assets/{name}").status_code == 404
    about = page.get("/about").json()
    assert about == {
        "game": "catch",
        "steps": 1000,
        "policy": "sampled",
        "actions": ["LEFT", "STAY", "RIGHT"],
        "human": True,
    }


def next_picture(page: TestClient, after: int) -> Any:
    """Return the answer with a picture; each question waits a second for one."""
    answers = (page.get(f"/picture?after={after}") for _ in range(60))
    return next(answer for answer in answers if answer.status_code != 204)


@pytest.mark.slow
def test_a_picture_comes_with_its_facts() -> None:
    with playing(LiveGame(Catcher())) as game:
        page = client(game)
        answer = next_picture(page, 0)
        assert answer.headers["content-type"] == "image/png"
        facts = json.loads(answer.headers["x-facts"])
        assert facts["number"] >= 1
        assert Image.open(io.BytesIO(answer.content)).size == (40, 80)
        later = json.loads(next_picture(page, facts["number"]).headers["x-facts"])
        assert later["number"] > facts["number"]
        assert page.get("/picture?after=x").status_code == 400
        assert page.get(f"/picture?after={10**14}").status_code == 204


BAD = [
    b"",
    b"[]",
    b"{}",
    b'{"pressed": ["up"]}',
    b'{"pressed": ["up"], "person": 1}',
    b'{"pressed": ["jump"], "person": true}',
    b'{"pressed": 3, "person": true}',
    b"[" * 500,
    b'{"pressed": [' + b'"up",' * MOST_BYTES + b'"up"], "person": true}',
]


def test_keys_are_taken_from_the_page_alone() -> None:
    game = LiveGame(Catcher(), human=True)
    page = client(game)
    good = {"pressed": ["left"], "person": True}
    assert page.post("/keys", json=good).status_code == 204
    for body in BAD:
        assert page.post("/keys", content=body).status_code == 400, body[:40]
    assert page.get("/keys").status_code == 405
    assert client(LiveGame(Catcher())).post("/keys", json=good).status_code == 403


PRESSED = {
    action_names(GameSettings(game="pong")): {
        "": "NOOP",
        "up": "RIGHT",  # in a game without up and down
        "down": "LEFT",
        "right fire": "RIGHTFIRE",
        "fire": "FIRE",
        "left right": "NOOP",
        "up left": "NOOP",
    },
    action_names(GameSettings(game="seaquest")): {
        "": "NOOP",
        "up": "UP",
        "up right": "UPRIGHT",
        "down left fire": "DOWNLEFTFIRE",
        "up down left": "LEFT",
        "3": "NOOP",
    },
    ("NOOP", "UP", "RIGHT", "UPRIGHT"): {
        "up right fire": "UPRIGHT",  # what a game has not is left out
        "down right": "RIGHT",
        "fire": "NOOP",
    },
    ("LEFT", "STAY", "RIGHT"): {"": "STAY", "left": "LEFT", "right": "RIGHT"},
    ("0", "1", "2", "3"): {"": "0", "2": "2", "3": "3", "9": "0"},
}
"""What keys mean in games with these actions; all 18 of an Atari are those of Seaquest."""


@pytest.mark.parametrize("names", PRESSED, ids=len)
def test_the_action_of_the_keys_that_are_pressed(names: tuple[str, ...]) -> None:
    found = {keys: names[action_of(frozenset(keys.split()), names)] for keys in PRESSED[names]}
    assert found == PRESSED[names]
