"""What is done before a run has roles: its settings are checked, its folder is held."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import torch

from gelada.core.errors import GeladaError
from gelada.envs.api import Games
from gelada.experiment.check import check
from gelada.experiment.settings import Experiment
from gelada.runs.config import Config, identity, new_run, read_config
from gelada.runs.folder import held, make_folder
from gelada.runtime.devices import Devices, Placement, describe_devices
from gelada.runtime.system import describe_machine, keep_freed_memory
from gelada.training.runtimes import Launcher, Log
from gelada.training.start import Start, begin, begin_again, open_games


class Prepared(NamedTuple):
    """What the roles of a run begin with."""

    config: Config
    start: Start
    games: list[Games] | None = None  # that are open already, by actor


def prepare_process(
    experiment: Experiment, launcher: Launcher, devices: Devices, log: Log, resumed: bool
) -> Placement:
    """Check the settings against one another and the machine; set up this process for the run.

    Args:
        experiment: all settings.
        launcher: of the runtime.
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
    placement = launcher.check(experiment, devices, resumed)
    if placement.act_with == "onnx":
        check_onnx(experiment)
    launcher.prepare(experiment, placement, log)
    keep_freed_memory()
    torch.set_num_threads(1)
    return placement


def check_onnx(experiment: Experiment) -> None:
    """Raise GeladaError if actors cannot compute with ONNX Runtime in this run."""
    from gelada.nets.onnx import packages

    net = experiment.network
    unfit = {
        "--deterministic": experiment.deterministic,
        "--recurrent lstm": net.recurrent == "lstm",
        f"--own-torso {net.own_torso}": bool(net.own_torso),
        f"--own-heads {net.own_heads}": bool(net.own_heads),
    }
    for given, holds in unfit.items():
        if holds:
            why = "it rounds otherwise" if experiment.deterministic else "only torch computes that"
            raise GeladaError(f"--act-with onnx with {given}: {why}; use --act-with torch")
    packages("--act-with onnx")


def begin_new(
    experiment: Experiment,
    folder: Path,
    name: str,
    launcher: Launcher,
    placement: Placement,
    stack: ExitStack,
    log: Log,
) -> Prepared:
    """Make the folder of a new run, and play random games to measure the input.

    Args:
        experiment: all settings.
        folder: of the run; held until the stack is left.
        name: game or preset as the user gave it.
        launcher: of the runtime; what it joins is left with the stack.
        placement: the devices of the run.
        stack: takes what is undone at the end of the run.
        log: takes lines for the user.

    Raises:
        GeladaError: if the folder is not empty or in use by another process, or the cluster
            cannot be joined.
    """
    make_folder(folder)
    stack.enter_context(held(folder, False, log))
    launcher.join(experiment, stack, log)
    say_what_is_least(experiment, log)
    games = open_games(experiment, 1 if launcher.remote else None)  # actors there open their own
    # in other processes actors compute on CPUs, and this host may have no GPU
    start = begin(experiment, games, placement.act if launcher.remote else placement.learn)
    about = {"run": new_run(), **describe_machine(), "precision": start.precision}
    about |= describe_devices(placement, on_ray=launcher.remote)
    config = Config(name, experiment, start.actions, about)
    return Prepared(config, start._replace(run=identity(config)), games)


def resume_from(
    experiment: Experiment, folder: Path, launcher: Launcher, stack: ExitStack, log: Log
) -> Prepared:
    """Read where a run stopped; its folder is held, and a cluster joined, until the stack is left.

    Raises:
        GeladaError: if it is no run, has no checkpoint that fits, or is in use by another process,
            or the cluster cannot be joined.
    """
    config = read_config(folder)
    stack.enter_context(held(folder, True, log))
    launcher.join(experiment, stack, log)
    return Prepared(config, begin_again(folder, config, log))


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
    games = shape.topology.players * shape.games
    random = shape.random_steps // games * games
    return random + (memory.minimum if memory.capacity else shape.datapoints)
