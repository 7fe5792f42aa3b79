"""The pages of ``colobus watch`` and ``play`` in a real Chromium: updated, switched, and safe.

With COLOBUS_SCREENSHOTS set to a folder, pictures of the page are left there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from helpers.browsing import (
    click,
    complaints,
    count_of,
    open_page,
    opened,
    picture_of,
    screenshot,
    served,
    text_of,
    wait,
)
from helpers.made_runs import append, evaluate, make_run, rising, row
from helpers.players import BREAKOUT, write_run

pytestmark = pytest.mark.browser

NAME = "<img src=x onerror=document.title='broken'>"


def film(path: Path, red: int) -> None:
    """Write a film of twelve seconds whose square moves to the right."""
    path.parent.mkdir(exist_ok=True)
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 160, 210, "yuv420p"
        for number in range(120):
            picture = np.zeros((210, 160, 3), dtype=np.uint8)
            picture[90:120, number : number + 30] = (red, 200, 80)
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, 10)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def learning(seed: int, lr: float, count: int = 400) -> list[dict[str, Any]]:
    """Return rows that look like those of a run of Pong."""
    random = np.random.default_rng(seed)
    rows = []
    for i in range(1, count + 1):
        share = i / count
        score = -20.5 + 39 / (1 + np.exp(-(share - 0.45 - 0.03 * seed) * 14 * (lr / 0.002) ** 0.5))
        noise = random.normal(0, 0.35)
        rows.append(
            row(2000 * i, 0.55 * i, round(float(score + noise), 3))
            | {"best": round(float(score), 2), "lag_mean": 1.0, "lag_min": 0.0, "lag_max": 1.0}
            | {"policy_loss": float(random.normal(0, 0.02)), "entropy": 1.8 - 1.2 * share}
            | {"value_loss": float(0.05 * np.exp(-2 * share) + abs(random.normal(0, 0.004)))}
            | {"kl": float(abs(random.normal(0.02, 0.006))), "learning_rate": 0.002 * (1 - share)}
            | {"explained_variance": 0.4 + 0.5 * share, "gradient_norm": 1.0 + noise / 4}
            | {"time_actor_act": 0.34, "time_actor_emulate": 0.52}
            | {"time_actor_wait_for_parameters": 0.14, "time_learner_learn": 0.41}
            | {"time_learner_wait_for_experience": 0.55, "time_learner_report": 0.04}
        )
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    for number, (seed, lr) in enumerate(((1, 0.002), (2, 0.002), (3, 0.002), (1, 0.0005))):
        run = make_run(place / f"pong-{number + 1}", learning(seed, lr), seed=seed, lr=lr)
        evaluate(run, 800_000, [17.0 - number, 19.0 - number, 18.5, 16.0])
    film(place / "pong-1" / "videos" / "milestones.mp4", 200)
    for steps, red in ((20_000, 250), (400_000, 160), (800_000, 60)):
        film(place / "pong-1" / "videos" / f"{steps}.mp4", red)
        film(place / "pong-2" / "videos" / f"{steps}.mp4", red)
    lost = [
        {"seconds": 61.2, "event": "lost", "process": "worker-1", "host": "10.0.0.3"},
        {"seconds": 68.9, "event": "replaced", "process": "worker-1", "host": "10.0.0.4"},
    ]
    events = "".join(json.dumps(one) + "\n" for one in lost)
    (place / "pong-3" / "events.jsonl").write_text(events)
    return place


@pytest.fixture(scope="module")
def link(folder: Path) -> Iterator[str]:
    with served("watch", folder) as found:
        yield found


@pytest.fixture
def page(browser: Any, link: str) -> Iterator[None]:
    """The page of these runs is open, and has nothing to complain about."""
    open_page(browser, link)
    yield
    assert complaints(browser) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1600])
def test_it_opens_in_all_sizes_and_lights(browser: Any, link: str, width: int, theme: str) -> None:
    open_page(browser, link, width, theme)
    wait(lambda: text_of(browser, "#learning").count("loss") == 2)
    assert "18" in text_of(browser, "#cards")
    for part in ("#evaluations", "#events", "#settings", "#stages", "#films"):
        assert text_of(browser, part), part
    wide = browser.execute_script("return document.documentElement.scrollWidth")
    assert wide <= width
    dark = browser.execute_script(
        "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g)[0] < 100"
    )
    assert dark == (theme == "dark")
    assert complaints(browser) == []
    screenshot(browser, f"page-{width}-{theme}")


@pytest.mark.usefixtures("page")
def test_the_token_leaves_the_address_and_the_page_opens_again(browser: Any) -> None:
    assert "token" not in browser.current_url
    browser.refresh()
    wait(lambda: text_of(browser, "#cards"))
    from_elsewhere = browser.execute_script(
        "return performance.getEntriesByType('resource').map(e => e.name)"
        ".filter(name => !name.startsWith(location.origin) && !name.startsWith('data:'))"
    )
    assert from_elsewhere == []


def test_a_new_line_is_shown_without_opening_the_page_again(browser: Any, tmp_path: Path) -> None:
    run = make_run(tmp_path / "pong-1", rising(30))
    with opened(browser, "watch", tmp_path):
        browser.execute_script("window.opened = 'once'")
        before = picture_of(browser)
        append(run, row(31_000, 62.0, 1234.5, new_loss=3.25))
        began = time.monotonic()
        wait(lambda: "1,235" in text_of(browser, "#cards .big"))
        print(f"shown after {time.monotonic() - began:.2f} s")
        assert picture_of(browser) != before
        append(run, row(32_000, 64.0, 1.0, new_loss=3.5), row(33_000, 66.0, 1.0, new_loss=3.0))
        wait(lambda: "New loss" in text_of(browser, "#learning"))
        make_run(tmp_path / "pong-2", rising(30), seed=2)
        wait(lambda: "pong-2" in text_of(browser, "#cards"))
        evaluate(run, 30_000, [5.0, 6.0])
        wait(lambda: "5.5" in text_of(browser, "#evaluations"))
        assert browser.execute_script("return window.opened") == "once"
    wait(lambda: "has ended" in text_of(browser, "#problem"))


SHOWN = """
    const groups = [...document.querySelectorAll('#list .members')].map((group) => [
        group.querySelector('.group span').innerText,
        [...group.querySelectorAll('.member .name')].map((name) => name.innerText),
    ]);
    const colours = [...document.querySelectorAll('#list .member')].map((member) => [
        member.querySelector('.name').title,
        member.querySelector('.swatch').style.getPropertyValue('--colour'),
    ]);
    return [Object.fromEntries(groups), Object.fromEntries(colours)];
"""


@pytest.mark.parametrize("lines", ["runs", "seeds"])
def test_later_runs_stand_below_their_settings(browser: Any, tmp_path: Path, lines: str) -> None:
    """Their folders come before those of the runs that the page knows already."""
    for seed in (1, 2):
        make_run(tmp_path / f"m-{seed}", rising(30), seed=seed, lr=0.1)
        make_run(tmp_path / f"x-{seed}", rising(30, slope=0.3), seed=seed, lr=0.2)
    with opened(browser, "watch", tmp_path):
        click(browser, f"#lines [data-value={lines}]")
        before = browser.execute_script(SHOWN)[1]
        for seed in (1, 2):
            make_run(tmp_path / f"a-{seed}", rising(30, slope=0.2), seed=seed, lr=0.3)
        make_run(tmp_path / "n-3", rising(30), seed=3, lr=0.1)
        make_run(tmp_path / "b", rising(30), game="breakout")
        wait(lambda: "8 of 8" in text_of(browser, "#picked"))
        groups, colours = browser.execute_script(SHOWN)
        assert groups == {
            "pong · appo · lr 0.3": ["a-1", "a-2"],
            "breakout · appo": ["b"],
            "pong · appo · lr 0.1": ["m-1", "m-2", "n-3"],
            "pong · appo · lr 0.2": ["x-1", "x-2"],
        }
        assert before.items() <= colours.items()
        assert len(set(colours.values())) == (8 if lines == "runs" else 4)
        browser.refresh()
        wait(lambda: "8 of 8" in text_of(browser, "#picked"))
        assert browser.execute_script(SHOWN)[0] == groups
        browser.execute_script("localStorage.clear()")


def test_small_errors_and_early_films_are_told_as_such(browser: Any, tmp_path: Path) -> None:
    """A run whose only film was made half way; the standard errors are 0.002 and 0.02."""
    run = make_run(tmp_path / "run", rising(100))
    evaluate(run, 100_000, [0.93, 0.934])
    evaluate(run, 100_000, [499.95, 499.99], protocol="training")
    film(run / "videos" / "50000.mp4", 250)
    with opened(browser, "watch", tmp_path):
        wait(lambda: count_of(browser, "video") == 1)
        films, evaluations = (text_of(browser, f"#{part}") for part in ("films", "evaluations"))
        assert "half way" in films
        assert "after" not in films
        said = " ".join(evaluations.split())
        assert "run 0.9320 ± 0.0020 0.9281 to 0.9359 100 k sticky" in said
        assert "run 499.97 ± 0.02 499.93 to 500.01 100 k training" in said


def test_many_runs_have_no_evaluation_but_losses_if_asked_for(browser: Any, tmp_path: Path) -> None:
    for seed in range(13):
        run = make_run(tmp_path / f"pong-{seed}", rising(30, entropy=1.0), seed=seed)
        evaluate(run, 9_000, [1.0, 3.0])
    with opened(browser, "watch", tmp_path):
        wait(lambda: "mean of the last 50" in text_of(browser, "#about-score"))
        assert "circles" not in text_of(browser, "#about-score")
        assert count_of(browser, "#learning canvas") == 0
        click(browser, "#more")
        wait(lambda: "Entropy" in text_of(browser, "#learning"))


def test_without_values_there_is_no_chart(browser: Any, tmp_path: Path) -> None:
    run = make_run(tmp_path / "pong-1")
    with opened(browser, "watch", tmp_path):
        assert "No game has ended yet" in text_of(browser, "#score")
        assert count_of(browser, "canvas") == 0
        hidden = "return [...document.querySelectorAll('section[hidden]')].map((one) => one.id)"
        assert {"speed-part", "learning-part", "films-part"} <= {*browser.execute_script(hidden)}
        append(run, row(1000, 1.0, None, kl=0.5))
        wait(lambda: count_of(browser, "canvas") == 1)  # of the KL divergence, a point
        append(run, row(2000, 2.0, 1.0, kl=0.4))
        wait(lambda: count_of(browser, "canvas") == 3)
        assert "speed-part" not in browser.execute_script(hidden)
        assert browser.execute_script("return document.querySelector('#no-score').hidden")
        make_run(tmp_path / "breakout-1", game="breakout")
        wait(lambda: "breakout-1" in text_of(browser, "#cards"))
        assert count_of(browser, "canvas") == 3


BOXES = """return [...document.querySelectorAll(arguments[0])].map((one) => {
    const { left, right, top, bottom } = one.getBoundingClientRect();
    return [left, right, top, bottom];
})"""


@pytest.mark.parametrize("count", [2, 8])
def test_on_a_phone_scores_stand_beside_names(browser: Any, tmp_path: Path, count: int) -> None:
    for seed in range(count):
        name = f"a-run-with-a-name-that-is-long-enough-for-two-lines-{seed}"
        make_run(tmp_path / name, rising(30, slope=1.0), seed=seed)
    names, scores = (
        ("#cards h3", "#cards .big") if count == 2 else ("#cards tbody th", "#cards th + td")
    )
    with opened(browser, "watch", tmp_path, width=390):
        assert "30.00" in text_of(browser, scores)
        for name, score in zip(
            *(browser.execute_script(BOXES, one) for one in (names, scores)), strict=True
        ):
            assert 0 <= name[0] < name[1] <= score[0] < score[1] <= 390
            assert score[2] < (name[2] + name[3]) / 2 < score[3]
        screenshot(browser, f"phone-{count}")


@pytest.mark.usefixtures("page")
def test_what_charts_draw_is_computed_so(browser: Any) -> None:
    script = """
        const done = arguments[0];
        import('/assets/charts.js').then(({ smoothed, scaleFor, bandOf, resample }) => done([
            smoothed([4, null, 8, 0], 0.5),
            smoothed([4, null], 0),
            [[[1, 2], [null, 3]], [[1, 5]], [[0, 9]], [[-20, 3]], [[]]].map(scaleFor),
            bandOf([[1, null, 3, null], [3, 5, null, null]]),
            resample([0, 10, 20], [0, null, 40], [0, 5, 10, 15, 20, 25]),
        ]));
    """
    lines, raw, scales, band, line = browser.execute_async_script(script)
    # (4 + 2 * 8) / 3, then (4 + 2 * 8 + 4 * 0) / 7
    assert lines == pytest.approx([4, None, 20 / 3, 20 / 7])
    assert raw == [4, None]
    assert scales == [1, 3, 1, 4, 1]
    assert band == {"mean": [2, 5, 3, None], "low": [1, 5, 3, None], "high": [3, 5, 3, None]}
    assert line == [0, 10, 20, 30, 40, None]


@pytest.mark.usefixtures("page")
def test_each_part_shows_what_the_files_hold(browser: Any) -> None:
    wait(lambda: text_of(browser, "#learning").count("loss") == 2)
    cards = text_of(browser, "#cards").lower()
    for word in ("steps per s", "limited by", "emulate"):
        assert cards.count(word) == 4
    speed = text_of(browser, "#speed")
    assert "Steps a second" in speed
    assert "Policy lag, in versions (mean)" in speed
    titles = "return [...document.querySelectorAll('#stages [title]')].map(part => part.title)"
    shares = browser.execute_script(titles)
    assert {"emulate 52 %", "act 34 %", "wait for experience 55 %", "learn 41 %"} <= set(shares)
    bounds = "return [...document.querySelectorAll('#stages .bounds')].map(part => part.title)"
    assert browser.execute_script(bounds) == ["emulate 52 %"] * 4
    evaluations = " ".join(text_of(browser, "#evaluations").split())
    assert "pong-1 17.63 ± 0.69 16.28 to 18.97 800 k sticky 4 sampled" in evaluations
    assert "95 % intervals" in text_of(browser, "#about-score")
    events = " ".join(text_of(browser, "#events").split())
    assert "pong-3 1:01 Lost process worker-1 · host 10.0.0.3" in events
    assert "pong-3 1:09 Replaced" in events
    settings = " ".join(text_of(browser, "#settings").split())
    assert "algorithm.lr 0.002 0.0005" in settings
    assert "games.sticky" not in settings  # the same in all runs


@pytest.mark.usefixtures("page")
def test_switches_change_the_chart_and_are_remembered(browser: Any) -> None:
    wait(lambda: picture_of(browser))
    seen = {picture_of(browser)}
    for words in ("axis seconds", "lines seeds", "axis steps", "lines runs"):
        switch, value = words.split()
        click(browser, f"#{switch} [data-value={value}]")
        pressed = browser.execute_script(
            "return [...document.querySelectorAll('[aria-pressed=true]')].map(b => b.dataset.value)"
        )
        assert value in pressed
        seen.add(picture_of(browser))
        if (switch, value) == ("lines", "seeds"):
            screenshot(browser, "page-seeds")
    assert len(seen) >= 4
    before = len(seen)
    slide = """
        const slider = document.querySelector('#smooth');
        slider.value = arguments[0];
        slider.dispatchEvent(new Event('input'));
    """
    browser.execute_script(slide, "0.9")
    seen.add(picture_of(browser))
    click(browser, "#heights [data-value=log]")
    seen.add(picture_of(browser))
    assert len(seen) == before + 2
    click(browser, "nav .member input")
    assert "3 of 4" in text_of(browser, "#picked")
    assert picture_of(browser) not in seen
    browser.refresh()
    wait(lambda: picture_of(browser))
    assert browser.execute_script("return document.querySelector('#smooth').value") == "0.9"
    assert browser.execute_script("return localStorage.getItem('colobus-heights')") == "log"
    screenshot(browser, "page-log")
    browser.execute_script("localStorage.clear()")


def says(browser: Any, part: str, text: str) -> bool:
    return text in text_of(browser, part)


def test_a_name_is_only_ever_text(browser: Any, tmp_path: Path) -> None:
    name = NAME.replace("/", "")
    run = make_run(tmp_path / name, [*rising(30), row(20_500, 70.0, 1.0)], game=NAME, name=NAME)
    make_run(tmp_path / "other", rising(30), game=NAME, lr=0.5, name=NAME)
    evaluate(run, 30_000, [5.0, 6.0], protocol=NAME)
    (run / "events.jsonl").write_text(json.dumps({"event": NAME, "why": NAME, NAME: NAME}) + "\n")
    film(run / "videos" / "20000.mp4", 9)
    with opened(browser, "watch", tmp_path):
        for part in ("#cards", "#list", "#evaluations", "#events", "#films", "#settings"):
            wait(partial(says, browser, part, "<img src=x"))
        assert count_of(browser, "img") == 0
        assert browser.title == "Colobus"


@pytest.mark.usefixtures("page")
def test_films_stand_in_a_grid_below_milestones_and_play_together(browser: Any, link: str) -> None:
    wait(lambda: count_of(browser, "video") == 7)
    assert count_of(browser, ".film-cell .together + .strip") == 1
    assert "half way" in text_of(browser, "#films")
    click(browser, "#play")
    times = "return [...document.querySelectorAll('video')].map(v => v.currentTime)"

    def together() -> bool:
        found = browser.execute_script(times)
        return bool(min(found) > 0.5 and max(found) - min(found) < 3.0)  # some may drop pictures

    wait(together)
    assert text_of(browser, "#play") == "Stop"
    click(browser, "#play")
    playing = "return [...document.querySelectorAll('video')].filter(v => !v.paused).length"
    wait(lambda: browser.execute_script(playing) == 0)
    assert text_of(browser, "#play") == "Play together"
    one, other = browser.execute_script(BOXES, ".film-cell")
    assert one[1] <= other[0]
    assert one[2:] == other[2:]
    open_page(browser, link, 390)
    one, other = browser.execute_script(BOXES, ".film-cell")
    assert one[:2] == other[:2]
    assert one[3] <= other[2]


def test_several_games_have_a_chart_each(browser: Any, tmp_path: Path) -> None:
    for game in ("pong", "breakout", "seaquest"):
        make_run(tmp_path / game, rising(30), game=game)
    with opened(browser, "watch", tmp_path):
        wait(lambda: text_of(browser, "#score-games").split() == ["breakout", "pong", "seaquest"])
        assert count_of(browser, "#score-games canvas") == 3
        assert count_of(browser, "#score-chart canvas") == 0
        screenshot(browser, "page-games")
        for _ in range(2):
            click(browser, "nav .member input:checked")
        assert count_of(browser, "#score-games canvas") == 0
        wait(lambda: picture_of(browser))


@pytest.fixture(scope="module")
def breakout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs") / "breakout-1"
    write_run(place, BREAKOUT)
    return place


def key(browser: Any, kind: str, code: str) -> None:
    """Press a key (keydown) or release it (keyup)."""
    script = "dispatchEvent(new KeyboardEvent(arguments[0], {code: arguments[1], bubbles: true}))"
    browser.execute_script(script, kind, code)


@pytest.mark.parametrize("width", [390, 1600])
def test_the_game_is_shown_and_moves(browser: Any, breakout: Path, width: int) -> None:
    with opened(browser, "play", breakout, width=width):
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
        screenshot(browser, f"play-{width}")
    wait(lambda: "has ended" in text_of(browser, "#problem"))


def test_a_person_takes_over_and_hands_back(browser: Any, breakout: Path) -> None:
    with opened(browser, "play", breakout, "--human"):
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
