"""Agents of a run before, half way through and after learning."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from colobus.core.checkpoint import Checkpoint, list_checkpoints, newest_checkpoint, read_about
from colobus.core.errors import ColobusError
from colobus.core.types import Version
from colobus.evaluation.agent import Agent, load
from colobus.runs.config import Config, check_of, read_config
from colobus.runs.folder import CHECKPOINTS
from colobus.runtime.devices import find_device
from colobus.training.start import Start, make_network, statistics_of

HALF = 0.25
"""A checkpoint is half way if its share of the newest one's steps differs from 0.5 by at most
this."""


class Milestone(NamedTuple):
    """An agent at one time of its training."""

    name: str  # "before", "half way", and "after" or "best"
    agent: Agent

    @property
    def title(self) -> str:
        """What a caption says."""
        return f"{self.name}: {self.agent.checkpoint.steps:,} steps"


def milestones(
    run: Path, device: str = "cpu", log: Callable[[str], None] = print
) -> list[Milestone]:
    """Return a run's agents before, half way through (if it kept such a checkpoint) and after.

    After learning it is the agent that `colobus.evaluation.agent.load` returns.

    Args:
        run: folder of the run.
        device: of their networks; see `colobus.evaluation.agent.load`.
        log: takes a line for the user.

    Raises:
        ColobusError: if the run has no complete checkpoint, or its game cannot be played.
    """
    config = read_config(run)
    folder, check = run / CHECKPOINTS, check_of(config)
    newest, last, _ = newest_checkpoint(folder, check)
    after = load(run, device=device, log=log)
    found = [Milestone("before", _before(folder, config, last, device))]
    if (half := _half_way(folder, newest, last.steps, device)) is not None:
        found.append(Milestone("half way", half))
    is_last = after.checkpoint.version == last.version
    return [*found, Milestone("after" if is_last else "best", after)]


def untrained(config: Config, checkpoint: Checkpoint, device: str = "cpu") -> Agent:
    """Return the agent as it was before it learned.

    The weights are drawn from the run's seed as at its start. The input statistics were measured
    before training and never change, so they are those of any checkpoint.
    """
    start = Start(statistics_of(checkpoint), config.actions, "float32")
    net = make_network(config.experiment, start)
    weights = {f"parameter/{name}": value.detach() for name, value in net.named_parameters()}
    inputs = {f"input/{name}": value for name, value in checkpoint.group("input").items()}
    first = Checkpoint(Version(0, 0), 0, weights | inputs, {})
    return Agent(config.experiment, first, config.actions, find_device(device))


def _before(folder: Path, config: Config, last: Checkpoint, device: str) -> Agent:
    """Return the agent of version 0: of its checkpoint, or made again from the seed."""
    for path in list_checkpoints(folder)[:1]:
        try:
            if read_about(path).version == 0 or "from" in config.about:
                return load(path, device=device)
        except ColobusError:
            pass
    return untrained(config, last, device)


def _half_way(folder: Path, newest: Path, steps: int, device: str) -> Agent | None:
    """Return the agent of the complete checkpoint that is nearest to half of the steps."""
    near = []
    for path in list_checkpoints(folder):
        try:
            share = read_about(path).steps / max(steps, 1)
        except ColobusError:
            continue
        if path != newest and abs(share - 0.5) <= HALF:
            near.append((abs(share - 0.5), path))
    for _, path in sorted(near):
        try:
            return load(path, device=device)
        except ColobusError:
            continue
    return None
