"""Runs with loaders: the same bits, and a loader that fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import colobus
from colobus.core.checkpoint import newest_checkpoint
from colobus.core.errors import ColobusError, RoleFailed
from colobus.core.types import Version
from colobus.experiment.check import check
from colobus.experiment.settings import ReuseSettings
from colobus.roles.replay.minibatch_buffer import Loader
from colobus.roles.tracker import Status
from colobus.runtime.api import RoleState
from colobus.training.run import train
from conftest import catch
from helpers.outcomes import assert_same, inline, threads

CATCH = catch(512 + 12 * 512, deterministic=True)
OLD = replace(CATCH, reuse=ReuseSettings(replay_proportion=0.5, replay_slots=4))


@pytest.mark.slow
@pytest.mark.parametrize("experiment", [CATCH, OLD], ids=["plain", "old windows"])
def test_loaders_change_no_bit(experiment: Any) -> None:
    want = inline(experiment)
    assert want.version == Version(0, 12)
    for loaders in (1, 3):
        shape = replace(experiment.shape, loaders=loaders)
        assert_same(threads(replace(experiment, shape=shape)), want)


def test_a_loader_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(loader: Loader) -> None:
        raise ValueError("torn")

    monkeypatch.setattr(Loader, "step", failing)
    experiment = replace(CATCH, shape=replace(CATCH.shape, loaders=2))
    with pytest.raises(RoleFailed, match=r"^loader-\d failed at test_loaders\.py"):
        train(experiment, tmp_path / "run", log=lambda _line: None)


def test_an_interrupted_run_with_loaders_is_saved(tmp_path: Path) -> None:
    def interrupt(status: Status, _: Sequence[RoleState]) -> None:
        if status.version > 4:
            raise KeyboardInterrupt

    free = catch(10_000_000)
    free = replace(free, shape=replace(free.shape, loaders=2))
    result = train(free, tmp_path / "run", watch=interrupt, log=lambda _line: None)
    assert result.interrupted
    assert result.saved
    assert newest_checkpoint(tmp_path / "run" / "checkpoints")[1].steps == result.steps


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("dba3c-pong", {"loaders": 1}, r"^--loaders 1: has an effect only without --workers"),
        ("apex-pong", {"loaders": 1}, r"^--loaders 1 with DQN: "),
    ],
)
def test_where_loaders_make_no_sense_they_are_refused(
    name: str, words: dict[str, Any], said: str
) -> None:
    with pytest.raises(ColobusError, match=said):
        check(colobus.preset(name, **words))
