"""docs/results.md is what the ledger says, and says beside a figure what else was measured.

The commands that benchmarks give can be given; names of flags that changed are told. The cells for
a machine with a GPU fit into a call, and run on a CPU.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import cells, render, run
from benchmarks.lib import ledger
from benchmarks.lib.ledger import NAME, Cell, Results
from benchmarks.tables import presets
from colobus.cli.experiment_flags import resolve
from colobus.cli.train import Train
from helpers.launching import flags_of

ROOT = Path(__file__).resolve().parents[2]

MACHINE = {"processor": "Xeon(R)", "cores": 2, "memory_gib": 24.0, "commit": "abc"}


def line(
    what: str, settings: str, time: str, seed: int = 1, event: str = "finished", **result: Any
) -> dict[str, Any]:
    about = {"event": event, "what": what, "settings": settings, "seed": seed}
    ended = {"error": "disk full"} if event == "failed" else {"result": result}
    return {**about, "time": f"2026-01-{time}", "machine": MACHINE, **ended}


def timed(settings: str, time: str, seconds: float | None, seed: int = 1) -> dict[str, Any]:
    solved: dict[str, Any] = {
        "seconds_to_solved": seconds,
        "steps_to_solved": seconds and int(1000 * seconds),
    }
    return line("pong-time", settings, time, seed, **solved)


def test_the_committed_pages_are_what_the_command_writes() -> None:
    written = render.pages()
    assert [str(path) for path, text in written.items() if path.read_text("utf-8") != text] == []
    marks = [name for text in written.values() for _, name, _ in render.BLOCK.findall(text)]
    assert sorted(marks) == sorted(
        [*render.TABLES, "headlines", "earlier", "readme", "readme-games"]
    )


def test_the_front_page_is_short_and_has_every_headline() -> None:
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    front, _, _ = text.partition("## How to read")
    assert front.count("\n") <= 50
    assert front.count("](results/") == len(render.HEADLINES.strip().splitlines()) + len(
        list((ROOT / "docs" / "results").glob("*.md"))
    )


def test_every_frozen_page_names_its_data() -> None:
    for page in (ROOT / "docs" / "results").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        files = re.findall(r"\(\.\./\.\./(benchmarks/results/[\w.-]+\.jsonl?)\)", text)
        assert render.BLOCK.search(text) or files, page
        assert all((ROOT / file).exists() for file in files)


def test_earlier_and_failed_measurements_are_told_on_their_page() -> None:
    lines = [
        timed("old", "01", None),
        line("pong-time", "new", "02", event="failed"),
        timed("new", "03", 90.0),
        timed("new", "04", 10.0),  # a better one does not replace the first
        timed("old", "05", 20.0),  # settings are as new as their first result
    ]
    found = presets.figures(Results(lines), "pong")
    text = " ".join("\n".join(found.lines()).split())
    assert "| seconds to Pong | 90 |" in text
    assert "2026-01-03, commit `abc`" in text
    assert "not reached" not in text
    told = "\n".join(render.earlier({"pong": found}, {"pong": ("pong.md", "On Pong")}))
    assert told.startswith("[On Pong](pong.md#on-pong):")
    assert "seed 1: the score was not reached (2026-01-01, commit `abc`)" in told
    assert "a start that failed: disk full" in told


def test_every_variant_is_about_a_line_of_the_ledger() -> None:
    lines = ledger.Ledger().lines()
    assert set(ledger.VARIANTS) - {one["settings"] for one in lines} == set()


OWN = {
    *("--only", "--list", "--seeds", "--most"),  # of run.py
    *("--faults", "--dummy"),  # of lib/faults.py and lib/stubs.py
    *("--quiet", "--disable-pip-version-check"),  # of pip
    *("--algorithm", "--game", "--score"),  # of the scripts of other systems
}


def flags_in(text: str, before: str = "") -> set[str]:
    return set(re.findall(rf"{before}(--[a-z][\w-]*)", text))


@pytest.mark.slow
def test_every_flag_that_is_given_exists_and_old_names_are_on_the_page_of_results() -> None:
    benchmarks = ROOT / "benchmarks"
    known = flags_of("train") | flags_of("bench") | flags_of("suite")
    files = [benchmarks / "cells.py", *(benchmarks / "lib").glob("*.py")]
    files.append(benchmarks / "peers" / "matches.py")
    given = {file.name: flags_in(file.read_text(encoding="utf-8"), '"') for file in files}
    assert {name: wrong for name, flags in given.items() if (wrong := flags - known - OWN)} == {}
    assert flags_in(" ".join(plan.asked["words"] for plan in PLANS)) <= known

    docs = ROOT / "docs"
    told = " ".join((docs / "results.md").read_text(encoding="utf-8").split())
    tables = "".join(file.read_text(encoding="utf-8") for file in (docs / "results").glob("*.md"))
    commands = re.findall(rf"`({NAME} [^`]+)`", re.sub(r"\s+", " ", tables))
    assert len(commands) > 100
    old = flags_in(" ".join(commands)) - known
    assert {flag for flag in old if f"`{flag}` is " not in told} == set()


PLANS = list(cells.on_gpu())


def test_every_kind_on_a_gpu_takes_at_most_ten_minutes() -> None:
    kinds: dict[str, float] = {}
    for plan in PLANS:
        words = plan.asked["words"].split()
        seconds = plan.asked.get("seconds") or 60 * float(words[words.index("--minutes") + 1])
        beside = 40.0 if "seconds" in plan.asked else 10.0  # of its start and its end
        kinds[plan.what] = kinds.get(plan.what, 0.0) + len(plan.seeds) * (seconds + beside)
    assert kinds == {"gpu-speed": 500, "gpu-graphs": 560, "gpu-pong": 500, "gpu-breakout": 550}


def test_cells_for_a_gpu_are_measured_only_if_they_are_named() -> None:
    own = [cell for cell in cells.all_cells() if run.asked_for(cell, None)]
    assert not any(cell.what.startswith("gpu") for cell in own)
    assert len({cell.name for cell in own}) == len(own)
    named = [cell for cell in cells.all_cells() if run.asked_for(cell, "gpu")]
    assert len({cell.name for cell in named}) == len(named) == 5 + 8 + 5 + 1


@pytest.mark.slow
def test_what_is_trained_on_a_gpu_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colobus.cli.experiment_flags.usable_cores", lambda: 16)
    trained = [plan for plan in PLANS if "--minutes" in plan.asked["words"]]
    assert len(trained) == 2
    for plan in trained:
        wanted = resolve(Train, "train", [plan.preset, *plan.asked["words"].split()])
        assert wanted.experiment.shape.emulators == 16
        assert wanted.flags.devices.device == "cuda"


@pytest.mark.long
@pytest.mark.processes
def test_a_rehearsal_of_a_gpu_cell_on_a_cpu(tmp_path: Path) -> None:
    plan = next(plan for plan in PLANS if plan.what == "gpu-pong")
    words = plan.asked["words"].replace("cuda", "cpu").replace("--minutes 1.5", "--steps 30000")
    cell = Cell(plan.what, 1, {"procedure": {"words": words}}, plan.measure, plan.preset)
    result = cell.measure(cell, tmp_path, tmp_path)
    assert result["steps"] > 0
    assert result["seconds"] >= result["first_update_seconds"] > 0
