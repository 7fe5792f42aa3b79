"""The measurement of the default: the order of its cells, and an early checkpoint."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import cells
from benchmarks.cells import SIX as GAMES
from benchmarks.cells import UNTUNED
from benchmarks.lib import process, recipe, timed
from benchmarks.lib.ledger import Cell
from benchmarks.lib.recipe import within
from benchmarks.tables.games import NOW
from helpers.made_runs import row, write_metrics
from helpers.players import add_checkpoint, write_run


def test_all_games_are_played_once_before_any_is_repeated() -> None:
    kinds = tuple(NOW.values())
    found = [cell for cell in cells.all_cells() if cell.what in kinds]
    assert len({cell.name for cell in found}) == len(found) == 6 + 6 + 6 + 4
    order = [(cell.what, cell.asked["game"], cell.seed) for cell in found]
    assert order[:6] == [("budget-games", game, 6) for game in GAMES[::-1]]
    assert [seed for _, _, seed in order[6:]] == [1] * 16
    sticky = next(cell.asked for cell in found if cell.what == "sticky-games")
    assert (sticky["protocol"], sticky["minutes"], sticky["early"]) == ("sticky", 10, None)
    assert not set(UNTUNED) & set(GAMES)


def test_the_last_checkpoint_of_the_first_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = [{"steps": 1000 * n, "seconds": 10.0 * n} for n in range(1, 7)]
    steps = {Path("1"): 1000, Path("2"): 2500, Path("3"): 5000}
    monkeypatch.setattr(recipe, "read_about", lambda path: SimpleNamespace(steps=steps[path]))
    assert within(50.0, metrics, list(steps)) == (Path("3"), {"steps": 5000, "seconds": 50.0})
    assert within(49.0, metrics, list(steps)) == (Path("2"), {"steps": 2500, "seconds": 30.0})
    with pytest.raises(LookupError, match="within 5 seconds"):
        within(5.0, metrics, list(steps))


def test_an_early_checkpoint_is_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(words: list[str], run: Path, log: Path) -> process.Outcome:
        write_run(run)  # after 1,000 steps
        add_checkpoint(run, 3, 500)
        write_metrics(run, [row(500, 11.0, 0.0), row(1000, 13.0, 0.0)])
        return process.Outcome(0, "", "", 0.0, 13.0, 10**6)

    monkeypatch.setattr(timed, "train", train)
    more: dict[str, Any] = {"protocol": "training", "early": (0.2,)}
    (plan,) = cells.course("default-games", ("catch",), (1,), 0.25, **more)
    cell = Cell(plan.what, 1, cells.settings(plan), plan.measure, plan.preset)
    result = cell.measure(cell, tmp_path, tmp_path)
    early = result["early"]["0.2"]
    assert (early["steps"], early["seconds"]) == (500, 11.0)
    assert (result["steps"], result["seconds"]) == (1000, 13.0)
    assert -1.0 <= early["score"] <= 1.0
    assert (tmp_path / "minute-0.2-evaluations.jsonl").exists()
