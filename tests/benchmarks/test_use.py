"""The scripts that measure the loaded agent and the live page, and what the page says of them."""

from __future__ import annotations

import json
from pathlib import Path

import act
import live_page
import sections_use
import targets
from gelada.runs.listing import Runs, find_runs
from ledger import Line

MACHINE = {"processor": "Xeon(R)", "cores": 2, "memory_gib": 24.0, "commit": "abc"}


def test_an_agent_is_timed_call_by_call() -> None:
    name, experiment = next(iter(act.experiments().items()))
    agent = act.untrained(experiment)
    assert name.startswith("84x84")
    assert agent.net.mean.shape == (84, 84)
    found = act.times(agent, calls=5, warm=1)
    assert len(found) == 5
    assert min(found) > 0


def test_the_runs_of_the_live_page_are_runs(tmp_path: Path) -> None:
    live_page.make_run(tmp_path / "pong-1", 0, steps=37_000)
    live_page.make_run(tmp_path / "pong-2", 1, steps=37_000)
    assert len(find_runs(tmp_path)) == 2
    runs = Runs([tmp_path])
    runs.look()
    for run in runs.all:
        assert run.refresh()
        assert run.curve.newest["steps"] == 37_000
        assert run.bound()
    assert {run.seed for run in runs.all} == {1, 2}


def test_the_tables_have_what_was_asked_for() -> None:
    about = {"time": "2026-01-02T03:04:05+00:00", "machine": MACHINE}
    agents = {name: {"median_ms": 0.812, "p95_ms": 1.5} for name in act.experiments()}
    acting = sections_use.acting({**about, "calls": 2000, "agents": agents})
    page = sections_use.live_page(
        {
            **about,
            "runs": live_page.RUNS,
            "steps": live_page.STEPS,
            "first_view_s": [0.5, 0.4, 0.6],
            "update_s": [0.3, 0.9],
            "steps_per_s": {"alone": [3000.0], "from elsewhere": [2990.0], "here": [2700.0]},
            "server_share": {"from elsewhere": [0.004], "here": [0.006]},
            "cost": {"from elsewhere": 0.0033, "here": 0.1},
        }
    )
    lines = targets.summary([acting, page])
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in lines}
    one = f"{targets.ACT}: 84x84, network of ppo-breakout (dqn2013)"
    assert rows[one].endswith("| 2 | 1 | 0.81; 1.50 |")
    assert "**0.50** (0.50, 0.40, 0.60)" in rows[f"{targets.LIVE}: {page.rows[0].label}"]
    assert rows[f"{targets.LIVE}: {page.rows[2].label}"].endswith("| 0.997 |")
    measured = [line for line in lines if targets.ACT in line or f"{targets.LIVE}:" in line]
    assert not [line for line in measured if "not measured yet" in line]
    text = "\n".join(acting.lines() + page.lines())
    assert (
        "`python benchmarks/live_page.py`; Xeon, 2 cores, 24 GiB; 2026-01-02, commit `abc`" in text
    )


def test_what_is_not_measured_has_no_section() -> None:
    files = {file.stem for file in sections_use.FOLDER.glob("*.json")}
    wanted = [name for name in ("act", "live_page") if name in files]
    assert len(sections_use.sections()) == 1 + len(wanted)  # and the pairs with version 0.1
    for name in wanted:
        about = json.loads((sections_use.FOLDER / f"{name}.json").read_text("utf-8"))
        assert {"time", "machine"} <= about.keys()


def test_the_newest_pairs_with_version_01_stand_beside_the_medians_of_earlier_ones() -> None:
    def line(commit: str, ratios: list[float]) -> Line:
        pairs = [[2000.0, 2000.0 * ratio] for ratio in ratios]
        middle = sorted(ratios)[len(ratios) // 2]
        line: Line = {"other": commit, "what": "pong", "unit": "steps/s", "pairs": pairs}
        line |= {"ratios": ratios, "median_ratio": middle, "time": "2026-11-23T10:00:00+00:00"}
        return line | {"machine": MACHINE}

    first, newest = line("b8731a0", [0.9]), line("b8731a0", [1.0, 0.98, 1.1])
    section = sections_use.beside_first_version([first, line("another", [5.0]), newest])
    assert section is not None
    (row,) = section.rows
    assert row.cells[1:] == (
        "2,000",
        "2,000",
        "**1.000** (1.000, 0.980, 1.100)",
        "0.900 (1)",
        "0.990",
    )
    assert sections_use.beside_first_version([line("another", [5.0])]) is None
