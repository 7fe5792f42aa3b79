"""A recurrent policy from end to end: it learns what needs a memory, and keeps it everywhere."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from colobus.core.checkpoint import newest_checkpoint
from colobus.evaluation.agent import load
from colobus.evaluation.evaluator import evaluate
from colobus.evaluation.films.player import record
from colobus.experiment.presets import PRESETS
from colobus.experiment.settings import Experiment
from colobus.roles.tracker import StopRule
from colobus.training.run import train
from conftest import catch, tuned
from helpers.learning import QUIET, learn
from helpers.outcomes import assert_same, inline, threads

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


def test_a_resumed_run_goes_on_where_it_was(learned: Path, tmp_path: Path) -> None:
    run = shutil.copytree(learned, tmp_path / "run")
    _, before, _ = newest_checkpoint(run / "checkpoints")
    stop = StopRule(steps=before.steps + 5_000)
    result = train(replace(DARK, stop=stop), run, resume=True)
    _, after, _ = newest_checkpoint(run / "checkpoints")
    assert after.version.incarnation == before.version.incarnation + 1
    assert after.steps >= before.steps + 5_000
    assert result.status.score is not None
    assert result.status.score >= 0.7


SHORT = replace(catch(512 + 6 * 512, deterministic=True), games=DARK.games, network=DARK.network)


@pytest.mark.parametrize("advantage", ["gae", "vtrace"])
def test_inline_and_threads_give_the_same_run_bit_for_bit(advantage: str) -> None:
    experiment: Experiment = replace(SHORT, algorithm=tuned(SHORT, advantage=advantage))
    assert_same(inline(experiment), threads(experiment))


def test_several_servers_are_one_server_bit_for_bit() -> None:
    several = replace(SHORT, shape=replace(SHORT.shape, servers=3))
    assert_same(inline(SHORT), inline(several))
