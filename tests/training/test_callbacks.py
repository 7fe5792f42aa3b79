"""Callbacks: what they are called with, how one ends a run, and what an error in one does."""

from __future__ import annotations

from pathlib import Path

import pytest

from colobus.core.checkpoint import newest_checkpoint
from colobus.core.files import read_lines
from colobus.core.types import Episode
from colobus.roles.tracker import Status
from colobus.runs.curves import read_metrics
from colobus.training.callbacks import Callbacks, StopTraining
from colobus.training.run import Result, train
from conftest import catch

STEPS = 30_000


def run(folder: Path, lines: list[str], callbacks: Callbacks, steps: int = STEPS) -> Result:
    return train(catch(steps), folder, log=lines.append, callbacks=callbacks)


@pytest.mark.slow
def test_each_callback_hears_of_everything_in_order(tmp_path: Path) -> None:
    statuses: list[Status] = []
    episodes: list[Episode] = []
    checkpoints: list[Path] = []
    callbacks = Callbacks(statuses.append, episodes.append, checkpoints.append)
    result = run(tmp_path, [], callbacks)
    assert (result.stopped, result.interrupted) == ("", False)
    versions = [status.version for status in statuses]
    assert versions == sorted(set(versions))
    assert statuses[-1].steps == result.steps == read_metrics(tmp_path)[-1]["steps"]
    assert {"policy_loss", "kl"} <= statuses[-1].values.keys()
    logged = read_lines(tmp_path / "episodes.jsonl")
    assert len(episodes) == len(logged) == result.status.games >= 2_000
    assert [episode.score for episode in episodes] == [line["score"] for line in logged]
    assert {episode.steps for episode in episodes} == {9}
    assert {episode.score for episode in episodes} == {-1.0, 1.0}
    assert checkpoints[-1] == newest_checkpoint(tmp_path / "checkpoints")[0]
    assert len(checkpoints) == len(set(checkpoints))


@pytest.mark.parametrize("name", ["on_update", "on_episode", "on_checkpoint"])
def test_a_callback_ends_the_run_and_everything_is_saved(tmp_path: Path, name: str) -> None:
    calls = []

    def stop(news: object) -> None:
        calls.append(news)
        raise StopTraining("seen enough")

    result = run(tmp_path, [], Callbacks(**{name: stop}), 100_000_000)
    assert result.stopped == "seen enough"
    assert not result.interrupted
    _, checkpoint, _ = newest_checkpoint(tmp_path / "checkpoints")
    assert 0 < checkpoint.steps < 100_000_000
    assert calls


@pytest.mark.slow
def test_an_error_in_a_callback_is_told_once_and_the_run_goes_on(tmp_path: Path) -> None:
    calls: list[object] = []
    others: list[object] = []
    lines: list[str] = []

    def fail(news: object) -> None:
        calls.append(news)
        raise ValueError("no such table")

    result = run(tmp_path, lines, Callbacks(on_episode=fail, on_update=others.append))
    assert result.steps >= STEPS
    assert len(calls) >= 2_000
    assert others
    (line,) = (line for line in lines if "on_episode" in line)
    assert line.startswith("on_episode raised ValueError: no such table (")
    assert "test_callbacks.py, line " in line
    assert "\n" not in line
