"""What is done before a run has roles: its settings are checked, its folder is held."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import torch

from gelada.core.fields import check as check_fields
from gelada.envs.api import Games
from gelada.experiment.autoscale import idle
from gelada.experiment.check import check
from gelada.experiment.memory import check_limits
from gelada.experiment.settings import Experiment, flag
from gelada.runs.config import Config, identity, new_run, read_config
from gelada.runs.folder import held, make_folder
from gelada.runtime.devices import Devices, Placement, describe_devices, place, prepare
from gelada.runtime.groups import Cluster
from gelada.runtime.system import describe_machine, keep_freed_memory, usable_cores
from gelada.training.faults import Faults
from gelada.training.on_ray import join
from gelada.training.start import Start, begin, begin_again, open_games

Log = Callable[[str], None]
"""Takes lines for the user."""


class Prepared(NamedTuple):
    """What the roles of a run are made from."""

    config: Config
    start: Start
    games: list[Games] | None  # that are open already, by actor
    alive: Any  # with a cluster: tells whether Ray itself lives


def prepare_process(
    experiment: Experiment, cluster: Cluster | None, devices: Devices, log: Log, resumed: bool
) -> Placement:
    """Check the settings against one another and the machine; set up this process for the run.

    Args:
        experiment: all settings.
        cluster: in which the roles run (None: on threads of this process).
        devices: that learn and act.
        log: takes lines for the user.
        resumed: whether the run goes on from a checkpoint.

    Returns:
        The devices of the run.

    Raises:
        GeladaError: if a setting is out of range or contradicts another one, or the machine is
            too small for the run.
    """
    check(experiment)
    if cluster is not None:
        check_fields(cluster, flag)
    placement = place(devices, on_ray=cluster is not None)
    check_limits(experiment, cluster, placement, resumed)
    if cluster is None:
        prepare(placement, experiment.deterministic)
        if line := idle(experiment, usable_cores(), placement.learn.type == "cuda"):
            log(line)
    keep_freed_memory()
    torch.set_num_threads(1)
    return placement


def begin_new(
    experiment: Experiment,
    folder: Path,
    name: str,
    faults: Faults,
    cluster: Cluster | None,
    placement: Placement,
    stack: ExitStack,
    log: Log,
) -> Prepared:
    """Make the folder of a new run, and play random games to measure the input.

    Args:
        experiment: all settings.
        folder: of the run; held until the stack is left.
        name: game or preset as the user gave it.
        faults: what goes wrong on purpose.
        cluster: in which the roles run (None: on threads of this process); joined until the stack
            is left.
        placement: the devices of the run.
        stack: takes what is undone at the end of the run.
        log: takes lines for the user.

    Raises:
        GeladaError: if the folder is not empty or in use by another process, or the cluster
            cannot be joined.
    """
    make_folder(folder)
    stack.enter_context(held(folder, False, log))
    alive = join(cluster, experiment, stack, log) if cluster else None
    say_what_is_least(experiment, log)
    elsewhere = faults.compute or cluster is not None  # those who play open games there
    games = open_games(experiment, 1 if elsewhere else None)
    # in a cluster actors compute on CPUs, and this host may have no GPU
    start = begin(experiment, games, placement.act if cluster else placement.learn)
    about = {"run": new_run(), **describe_machine(), "precision": start.precision}
    about |= describe_devices(placement, on_ray=cluster is not None)
    about["faults"] = str(faults)
    config = Config(name, experiment, start.actions, about)
    return Prepared(config, start._replace(run=identity(config)), games, alive)


def go_on(
    experiment: Experiment, folder: Path, cluster: Cluster | None, stack: ExitStack, log: Log
) -> Prepared:
    """Read where a run stopped; its folder is held, and a cluster joined, until the stack is left.

    Raises:
        GeladaError: if it is no run, has no checkpoint that fits, or is in use by another process,
            or the cluster cannot be joined.
    """
    config = read_config(folder)
    stack.enter_context(held(folder, True, log))
    alive = join(cluster, experiment, stack, log) if cluster else None
    return Prepared(config, begin_again(folder, config, log), None, alive)


def say_what_is_least(experiment: Experiment, log: Log) -> None:
    """Say that a run has more steps than ``--steps``, if its first batch already has."""
    steps, least = experiment.stop.steps, least_steps(experiment)
    if steps is None or steps >= least:
        return
    shape, memory = experiment.shape, experiment.replay
    buffer = f"a replay buffer of --minimum {memory.minimum}"
    log(
        f"--steps {steps}: the run will have at least {least:,} steps: random ones that measure "
        f"the input (--random-steps {shape.random_steps}) and "
        f"{buffer if memory.capacity else 'a first batch'}"
    )


def least_steps(experiment: Experiment) -> int:
    """Return how many environment steps a run has at least when it has learned once."""
    shape, memory = experiment.shape, experiment.replay
    games = shape.players * shape.games
    random = shape.random_steps // games * games
    return random + (memory.minimum if memory.capacity else shape.datapoints)
