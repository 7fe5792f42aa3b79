"""A recurrent policy from end to end: it learns what needs a memory, and keeps it everywhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from colobus.core.checkpoint import newest_checkpoint
from colobus.evaluation.agent import load
from colobus.evaluation.evaluator import evaluate
from colobus.evaluation.films.player import record
from colobus.experiment.presets import PRESETS
from colobus.roles.tracker import StopRule
from colobus.training.run import train
from helpers.learning import QUIET, learn

pytestmark = pytest.mark.slow

DARK = replace(PRESETS["catch-dark"], tracker=QUIET)


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the dark Catch with an LSTM."""
    folder = tmp_path_factory.mktemp("dark") / "run"
    learn(DARK, folder, steps=10**9)
    return folder


def test_a_memory_is_what_the_dark_catch_needs(learned: Path) -> None:
    """As many steps without the LSTM, which sees one frame at a time, are of no use."""
    _, checkpoint, _ = newest_checkpoint(learned / "checkpoints")
    network = replace(DARK.network, recurrent="none")
    stop = StopRule(steps=checkpoint.steps)
    result = train(replace(DARK, network=network, stop=stop), learned.parent / "without")
    assert result.status.best is not None
    assert result.status.best < 0.4


def test_evaluation_and_film_keep_the_memory(learned: Path, tmp_path: Path) -> None:
    agent = load(learned)
    assert evaluate(agent, episodes=100).mean >= 0.6  # without a memory at most -0.6
    film = record(agent, tmp_path / "dark.gif", seconds=30.0, several=True)
    assert film.games >= 20
    assert film.score >= 0.5 * film.games
