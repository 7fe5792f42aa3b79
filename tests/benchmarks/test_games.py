"""The measurement of the default: its cells, its sections from made-up ledgers, and Catch."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import cells
from benchmarks.cells import SIX as GAMES
from benchmarks.cells import UNTUNED
from benchmarks.lib import recipe, timed
from benchmarks.lib.ledger import Cell, Results
from benchmarks.lib.recipe import within
from benchmarks.lib.table import MISSING
from benchmarks.tables.games import five, means, six, ten_minutes
from colobus.core.checkpoint import list_checkpoints, read_about
from colobus.evaluation.scores import normalised

MACHINE = {"processor": "Xeon(R)", "cores": 2, "memory_gib": 24.0, "commit": "abc"}

SCORES = {
    "boxing": (90.0, 95.0, 88.0),
    "freeway": (31.0, 32.0, 33.0),
    "space_invaders": (800.0, 700.0, 900.0),
    "seaquest": (2000.0, 1500.0, 2500.0),
    "qbert": (6000.0, 7000.0, 5000.0),
    "beam_rider": (1500.0, 1200.0, 1400.0),
}


def line(what: str, game: str, seed: int, score: float, time: str = "2026-12-01") -> dict[str, Any]:
    result = {
        "game": game,
        "score": score,
        "standard_error": 1.5,
        "steps": 1_400_000,
        "command": f"colobus train {game} --seed {seed} --out RUNS/run",
    }
    about = {"event": "finished", "what": what, "settings": game, "seed": seed, "time": time}
    return about | {"machine": MACHINE, "result": result}


def measured(*leave_out: str) -> list[dict[str, Any]]:
    """Return the lines of all seeds of the six games."""
    return [
        line("default-games", game, seed, score)
        for game, own in SCORES.items()
        if game not in leave_out
        for seed, score in enumerate(own, 1)
    ]


def shares(game: str) -> list[float]:
    found = [normalised(score, game) for score in SCORES[game]]
    return [share / 100 for share in found if share is not None]


def test_all_games_are_played_once_before_any_is_repeated() -> None:
    found = [cell for cell in cells.all_cells() if cell.what.startswith("default-")]
    assert len({cell.name for cell in found}) == len(found) == 12 + 6 + 6 + 4
    order = [(cell.what, cell.asked["game"], cell.seed) for cell in found]
    assert order[:6] == [("default-games", game, 2) for game in GAMES]
    assert [seed for _, _, seed in order[6:]] == [3] * 6 + [1] * 16
    sticky = next(cell.asked for cell in found if cell.what == "default-sticky-games")
    assert (sticky["protocol"], sticky["minutes"], sticky["early"]) == ("sticky", 10, None)
    assert not set(UNTUNED) & set(GAMES)


def course(minutes: float, **more: Any) -> Cell:
    """Return a cell of a short run of Catch."""
    (plan,) = cells.course("default-games", ("catch",), (1,), minutes, protocol="training", **more)
    return Cell(plan.what, 1, cells.settings(plan), plan.measure, plan.preset)


def test_the_interquartile_mean_and_its_interval() -> None:
    lines = [*measured(), *(line("default-sticky-games", g, 1, s[0]) for g, s in SCORES.items())]
    found = means(Results(lines))
    rows = {row.label: row.cells for row in found.rows}
    every = sorted(share for game in GAMES for share in shares(game))
    middle = fmean(every[4:14])  # of 18 runs
    ten = dict(zip(found.head, rows["10 minutes, no-op starts"], strict=True))
    assert ten["interquartile mean"] == f"**{middle:.2f}**"
    low, high = map(float, ten["interval"].split(" to "))
    assert low < middle < high
    each = {game: fmean(shares(game)) for game in GAMES}
    assert ten["above a human"] == "2 of 6"
    assert ten["mean"] == f"{fmean(each.values()):.2f}"
    assert ten["runs"] == "18"
    firsts = sorted(shares(game)[0] for game in GAMES)
    sticky = dict(zip(found.head, rows["10 minutes, sticky actions, no lives"], strict=True))
    assert sticky["interquartile mean"] == f"**{fmean(firsts[1:5]):.2f}**"
    assert sticky["interval"] == ""
    assert rows["60 minutes, no-op starts"][1] == MISSING


def test_the_first_ten_minutes_of_an_hour_are_a_seed_of_their_own() -> None:
    early = {"score": 7777.0, "standard_error": 2.5, "steps": 900_000, "seconds": 590.0}
    hour = line("default-hour-games", "qbert", 1, 20_000.0)
    hour["result"]["early"] = early
    lines = [hour, line("default-games", "qbert", 2, 5000.0)]
    results = Results(lines)
    assert [one.line["seed"] for one in ten_minutes(results, "qbert")] == [1, 2]
    row = dict(zip(six(results).head, six(results).rows[4].cells, strict=True))
    assert row["10 minutes"] == "**6,388.5** (7,777.0, 5,000.0)"
    assert row["60 minutes"] == "**20,000.0** ± 1.5"
    assert {row.label: row.cells for row in five(results).rows}["qbert"][1] == "**7,777.0** ± 2.5"
    assert not five(Results(lines[1:])).rows[-2].found  # seed 2 is not the one


def test_the_last_checkpoint_of_the_first_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = [{"steps": 1000 * n, "seconds": 10.0 * n} for n in range(1, 7)]
    steps = {Path("1"): 1000, Path("2"): 2500, Path("3"): 5000}
    monkeypatch.setattr(recipe, "read_about", lambda path: SimpleNamespace(steps=steps[path]))
    assert within(50.0, metrics, list(steps)) == (Path("3"), {"steps": 5000, "seconds": 50.0})
    assert within(49.0, metrics, list(steps)) == (Path("2"), {"steps": 2500, "seconds": 30.0})
    with pytest.raises(LookupError, match="within 5 seconds"):
        within(5.0, metrics, list(steps))


@pytest.mark.processes
def test_an_early_checkpoint_is_evaluated_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the first checkpoint is early enough, and the run ends by steps.

    So it does not matter how fast the machine is.
    """

    train, read_metrics = timed.train, timed.read_metrics

    def by_steps(words: list[str], run: Path, log: Path) -> Any:
        words[words.index("1000000000")] = "60000"
        words[words.index("0.25")] = "100"
        return train(words, run, log)

    def read(run: Path) -> list[Any]:
        first = read_about(list_checkpoints(run / "checkpoints")[0]).steps
        lines = read_metrics(run)
        its = next(n for line in lines if (n := line["steps"]) >= first)
        return [{**line, "seconds": 12.0 if line["steps"] <= its else 13.0} for line in lines]

    monkeypatch.setattr(timed, "train", by_steps)
    monkeypatch.setattr(timed, "read_metrics", read)
    often = ("--checkpoint-seconds", "0.01")
    cell, log = course(0.25, flags=often, early=0.2), tmp_path / "log"
    log.mkdir()
    result = cell.measure(cell, tmp_path, log)
    assert (result["early"]["seconds"], result["seconds"]) == (12.0, 13.0)
    assert result["early"]["steps"] < result["steps"]
    assert -1.0 <= result["early"]["score"] <= 1.0
    assert (log / "minute-0.2-evaluations.jsonl").exists()
