"""``colobus play`` in a real Chromium: the game moves, and a person takes over by the keyboard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from colobus.envs.api import GameSettings
from helpers.browsing import (
    click,
    complaints,
    open_page,
    picture_of,
    screenshot,
    served,
    text_of,
    wait,
)
from helpers.players import write_run

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs") / "breakout-1"
    write_run(place, GameSettings(game="breakout"))
    return place


def key(browser: Any, kind: str, code: str) -> None:
    """Press a key (keydown) or release it (keyup)."""
    script = "dispatchEvent(new KeyboardEvent(arguments[0], {code: arguments[1], bubbles: true}))"
    browser.execute_script(script, kind, code)


@pytest.mark.parametrize("width", [390, 1600])
def test_the_game_is_shown_and_moves(browser: Any, folder: Path, width: int) -> None:
    with served("play", folder) as link:
        open_page(browser, link, width)
        assert text_of(browser, "#game") == "breakout"
        assert "token" not in browser.current_url
        seen = {picture_of(browser, "#screen")}
        for _ in range(3):
            wait(lambda: picture_of(browser, "#screen") not in seen)
            seen.add(picture_of(browser, "#screen"))
        wait(lambda: int(text_of(browser, "#steps")) > 5)
        shape = "const c = document.getElementById('screen'); return [c.width, c.height]"
        assert browser.execute_script(shape) == [160, 210]
        box = "const b = document.getElementById('screen').getBoundingClientRect();"
        wide, high = browser.execute_script(box + "return [b.width, b.height]")
        assert wide / high == pytest.approx(640 / 630, abs=0.02)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        assert browser.execute_script("return document.getElementById('who').hidden")
        key(browser, "keydown", "ArrowRight")  # without --human nobody takes over
        assert complaints(browser) == []
        screenshot(browser, f"play-{width}")
    wait(lambda: "has ended" in text_of(browser, "#problem"))


def test_a_person_takes_over_and_hands_back(browser: Any, folder: Path) -> None:
    with served("play", folder, "--human") as link:
        open_page(browser, link)
        assert text_of(browser, "#action") == "agent"
        key(browser, "keydown", "ArrowRight")
        wait(lambda: text_of(browser, "#action") == "right")
        key(browser, "keydown", "Space")
        wait(lambda: text_of(browser, "#action") in ("right", "fire"))
        key(browser, "keyup", "Space")
        key(browser, "keyup", "ArrowRight")
        wait(lambda: text_of(browser, "#action") == "noop")
        pressed = "return document.getElementById('person').getAttribute('aria-pressed')"
        assert browser.execute_script(pressed) == "true"
        screenshot(browser, "play-human")
        click(browser, "#agent")
        wait(lambda: text_of(browser, "#action") == "agent")
        assert browser.execute_script(pressed) == "false"
        assert complaints(browser) == []
