"""What the live page costs and how soon it shows things: python benchmarks/live_page.py

Needs Chromium and its driver (`make test-browser` installs them). Let nothing else run on the
machine meanwhile; it takes fifteen minutes. Writes results/live_page.json; docs/results.md has its
table.

* First view: fifty runs of 10,000,000 steps each, a line of metrics a second. From the request of
  the page to a drawn chart and a row of each run.
* Update: from a new line in the metrics of one of them to its score on the page.
* Cost: the speed of a training, alone and with its page, in turn; and the share of the machine's
  processor time that the server takes meanwhile, which varies less.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import psutil

import process
from gelada.core.files import read_lines
from gelada.runtime.system import describe_machine, usable_cores
from ledger import Line, steady_rate

RESULT = Path(__file__).parent / "results" / "live_page.json"

RUNS, STEPS, RATE = 50, 10_000_000, 3_700
"""Runs that are shown, and the steps and speed (a second) of each."""

VIEWS, UPDATES, TURNS = 5, 10, 5
MINUTES = "0.75"
PATIENCE = 60.0

LOSSES = ("policy_loss", "value_loss", "entropy", "kl", "clipped", "explained_variance")
OTHERS = ("gradient_norm", "learning_rate", "lag_min", "lag_mean", "lag_max", "throughput")
STAGES = ("actor_act", "actor_emulate", "actor_wait_for_parameters", "learner_learn")

POLL = """
import json, sys, time, urllib.request
opener, now = urllib.request.build_opener(urllib.request.ProxyHandler({})), 0
while True:
    link = sys.argv[1].replace("/?", f"/look?after={now}&")
    now = json.loads(opener.open(link).read())["now"]
    time.sleep(0.4)
"""
"""Asks as a page does that is open elsewhere, whose browser takes no time here."""


def make_run(folder: Path, seed: int, steps: int = STEPS) -> None:
    """Write the settings and metrics of a run of Pong."""
    folder.mkdir(parents=True)
    config = {
        "format": 2,
        "name": "pong",
        "actions": 6,
        "games": {"game": "pong", "frame_skip": 4},
        "algorithm": {"name": "appo", "lr": 0.001 * (1 + seed // 5)},
        "seed": seed % 5 + 1,
        "about": {},
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    numbers = random.Random(seed)
    with (folder / "metrics.jsonl").open("w", encoding="utf-8") as file:
        for second in range(1, steps // RATE + 1):
            row = line(second * RATE, float(second), numbers.uniform(-21, 21))
            row |= {name: round(numbers.random(), 6) for name in (*LOSSES, *OTHERS)}
            row |= {f"time_{name}": round(numbers.random(), 4) for name in STAGES}
            file.write(json.dumps(row) + "\n")


def line(steps: int, seconds: float, score: float) -> Line:
    """Return the main values of a line of metrics."""
    counted = {"steps": steps, "seconds": seconds, "version": steps // 2048}
    return counted | {"games": steps // 1000, "score": round(score, 3), "best": 21.0}


@contextmanager
def served(folder: Path, shares: list[float] | None = None) -> Iterator[str]:
    """Run ``gelada watch``; give the link that it prints.

    Args:
        folder: that it shows.
        shares: takes the server's share of the processor time of all cores in the end.
    """
    words = [process.GELADA, "watch", str(folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        began = time.monotonic()
        try:
            yield server.stdout.readline().strip()
            if shares is not None:
                spent = psutil.Process(server.pid).cpu_times()
                cores = (time.monotonic() - began) * usable_cores()
                shares.append(round((spent.user + spent.system) / cores, 5))
        finally:
            server.terminate()
            server.stdout.read()


@contextmanager
def chromium() -> Iterator[Any]:
    """Start a browser without a window."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--mute-audio"):
        options.add_argument(word)
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    try:
        driver.set_window_size(1600, 1000)
        yield driver
    finally:
        driver.quit()


def seconds_until(holds: Callable[[], object]) -> float:
    """Return how long it takes until something holds.

    Raises:
        TimeoutError: after `PATIENCE`.
    """
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > PATIENCE:
            raise TimeoutError(f"the page did not show it within {PATIENCE:g} s")
        time.sleep(0.01)
    return time.monotonic() - began


DRAWN = """
const canvas = document.querySelector("#score-chart canvas");
const rows = document.querySelectorAll("#cards tbody tr, #cards article").length;
return document.body.dataset.ready === "yes" && canvas !== null && rows >= arguments[0];
"""

SHOWN = "return document.querySelector('#cards').innerText.includes(arguments[0]);"


def view(browser: Any, link: str, runs: int) -> float:
    """Return the seconds from the request of the page until it has drawn so many runs."""
    browser.get("about:blank")
    began = time.monotonic()
    browser.get(link)
    seconds_until(lambda: browser.execute_script(DRAWN, runs))
    return time.monotonic() - began


def update(browser: Any, folder: Path, number: int) -> float:
    """Return the seconds from a new line of metrics until the page shows it."""
    score = 901.5 + number
    row = line(STEPS + RATE * number, STEPS / RATE + number, score)
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    return seconds_until(lambda: browser.execute_script(SHOWN, str(score)))


def speed(scratch: Path, name: str, watched: str, shares: list[float]) -> float:
    """Return the steps a second of a training, alone or with its page.

    Args:
        scratch: folder for runs.
        name: of this run.
        shares: takes the server's share of the processor time.
        watched: "alone"; "from elsewhere", with the server and something that asks it; or "here",
            with the server and a browser.
    """
    place = scratch / name
    place.mkdir()
    run = place / "run"
    words = ["train", "pong", "--out", str(run), "--minutes", MINUTES, "--no-finish"]
    with ExitStack() as stack:
        link = stack.enter_context(served(place, shares)) if watched != "alone" else ""
        if watched == "from elsewhere":
            polling = subprocess.Popen([sys.executable, "-c", POLL, link])
            stack.callback(polling.wait)
            stack.callback(polling.terminate)
        elif watched == "here":
            stack.enter_context(chromium()).get(link)
        process.run(words, place / "output.txt")
    return round(steady_rate(read_lines(run / "metrics.jsonl")), 1)


def main() -> None:
    """Measure, print and write down."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(RUNS):
            make_run(folder / f"pong-{number + 1}", number)
        with chromium() as browser, served(folder) as link:
            views = [round(view(browser, link, RUNS), 3) for _ in range(VIEWS)]
            print("first view, s:", views)
            run = folder / f"pong-{RUNS}"
            updates = [round(update(browser, run, number), 3) for number in range(UPDATES)]
            print("update, s:", updates)
    speeds: dict[str, list[float]] = {"alone": [], "from elsewhere": [], "here": []}
    shares: dict[str, list[float]] = {watched: [] for watched in speeds}
    with tempfile.TemporaryDirectory() as name:
        for turn in range(TURNS):
            for watched, found in speeds.items():
                own = f"{watched.replace(' ', '-')}-{turn}"
                found.append(speed(Path(name), own, watched, shares[watched]))
                print(watched, found[-1], shares[watched][-1:], flush=True)
    result = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "runs": RUNS,
        "steps": STEPS,
        "first_view_s": views,
        "update_s": updates,
        "steps_per_s": speeds,
        "server_share": {watched: own for watched, own in shares.items() if own},
        "cost": {
            watched: round(1 - median(own) / median(speeds["alone"]), 4)
            for watched, own in speeds.items()
            if watched != "alone"
        },
        "machine": describe_machine(),
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
