"""Agents before, half way through and after learning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import catch
from gelada.core.checkpoint import list_checkpoints, newest_checkpoint, write_checkpoint
from gelada.core.errors import GeladaError
from gelada.core.types import Version
from gelada.evaluation.films.milestones import milestones, untrained
from gelada.runs.config import read_config
from gelada.training.run import train
from gelada.training.start import begin, make_network
from helpers.players import CATCH, make_checkpoint, make_experiment, write_run


def add(run: Path, steps: int, number: int) -> Path:
    """Write another checkpoint whose first bias is ``number``."""
    checkpoint = make_checkpoint(make_experiment(CATCH), 3, steps)
    checkpoint.tensors["parameter/heads.policy.bias"][0] = float(number)
    return write_checkpoint(run / "checkpoints", checkpoint._replace(version=Version(0, number)))


def mark(agent: Any) -> float:
    return float(agent.checkpoint.tensors["parameter/heads.policy.bias"][0])


def test_the_untrained_agent_is_that_of_version_0(tmp_path: Path) -> None:
    """The weights that a run began with are made again from its settings and a later checkpoint."""
    experiment = catch(2_000, deterministic=True, seed=5)
    folder = train(experiment, tmp_path / "run", name="catch").folder
    config = read_config(folder)
    _, last, _ = newest_checkpoint(folder / "checkpoints")
    agent = untrained(config, last)
    start = begin(config.experiment)
    want = dict(make_network(config.experiment, start).named_parameters())
    have = dict(agent.net.named_parameters())
    assert have.keys() == want.keys()
    assert all(torch.equal(have[name], want[name]) for name in want)
    assert torch.equal(agent.net.mean, torch.from_numpy(start.statistics.mean))
    assert not torch.equal(
        have["heads.policy.weight"], last.tensors["parameter/heads.policy.weight"]
    )
    assert agent.checkpoint.steps == 0


def test_half_way_is_the_checkpoint_nearest_to_half_of_the_steps(tmp_path: Path) -> None:
    write_run(tmp_path)  # version 7 after 1,000 steps
    for steps, number in ((100, 1), (300, 2), (480, 3), (800, 5)):
        add(tmp_path, steps, number)
    found = milestones(tmp_path)
    assert [one.name for one in found] == ["before", "half way", "after"]
    assert [one.agent.checkpoint.steps for one in found] == [0, 480, 1000]
    assert mark(found[1].agent) == 3.0
    assert [one.title for one in found] == [
        "before: 0 steps",
        "half way: 480 steps",
        "after: 1,000 steps",
    ]


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path) -> None:
    write_run(tmp_path)
    add(tmp_path, 500, 3).write_bytes(b"damaged")
    add(tmp_path, 600, 4)
    assert [one.agent.checkpoint.steps for one in milestones(tmp_path)] == [0, 600, 1000]


def test_without_a_checkpoint_near_half_there_are_two(tmp_path: Path) -> None:
    write_run(tmp_path)
    add(tmp_path, 900, 6)
    assert [one.name for one in milestones(tmp_path)] == ["before", "after"]


def test_a_checkpoint_of_version_0_is_what_was_before(tmp_path: Path) -> None:
    write_run(tmp_path)
    add(tmp_path, 64, 0)
    before = milestones(tmp_path)[0]
    assert (before.name, before.agent.checkpoint.steps) == ("before", 64)


def test_a_run_without_checkpoints_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path)
    for path in list_checkpoints(tmp_path / "checkpoints"):
        path.unlink()
    with pytest.raises(GeladaError, match="no complete checkpoint"):
        milestones(tmp_path)
