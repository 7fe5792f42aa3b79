"""What is done before a run has roles: its folder is held, its settings and its start are found."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from gelada.core.errors import GeladaError
from gelada.envs.api import Games
from gelada.runtime.groups import Cluster
from gelada.runtime.system import describe_machine
from gelada.training.config import Config, identity, new_run, read_config
from gelada.training.experiment import Experiment
from gelada.training.faults import Faults
from gelada.training.run_folder import held, make_folder
from gelada.training.start import Start, begin, begin_again, open_games

Log = Callable[[str], None]
"""Takes lines for the user."""


class Prepared(NamedTuple):
    """What the roles of a run are made from."""

    config: Config
    start: Start
    games: list[Games] | None  # that are open already, by actor


def begin_new(
    experiment: Experiment,
    folder: Path,
    name: str,
    faults: Faults,
    here: bool,
    stack: ExitStack,
    log: Log,
) -> Prepared:
    """Make the folder of a new run, and play random games to measure the input.

    Args:
        experiment: all settings.
        folder: of the run; held until the stack is left.
        name: game or preset as the user gave it.
        faults: what goes wrong on purpose.
        here: whether actors of this process will play the games.
        stack: takes what is undone at the end of the run.
        log: takes lines for the user.

    Raises:
        GeladaError: if the folder is not empty or in use by another process.
    """
    make_folder(folder)
    stack.enter_context(held(folder, False, log))
    say_what_is_least(experiment, log)
    games = open_games(experiment, None if here else 1)
    start = begin(experiment, games)
    about = {"run": new_run(), **describe_machine(), "precision": start.precision}
    about["faults"] = str(faults)
    config = Config(name, experiment, start.actions, about)
    return Prepared(config, start._replace(run=identity(config)), games)


def go_on(folder: Path, stack: ExitStack, log: Log) -> Prepared:
    """Read where a run stopped; its folder is held until the stack is left.

    Raises:
        GeladaError: if it is no run, has no checkpoint that fits, or is in use by another process.
    """
    config = read_config(folder)
    stack.enter_context(held(folder, True, log))
    return Prepared(config, begin_again(folder, config, log), None)


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


def join(cluster: Cluster, stack: ExitStack) -> None:
    """Join the Ray cluster until the stack is left.

    Raises:
        GeladaError: if Ray is not installed, or the cluster cannot be joined.
    """
    from gelada.runtime.ray import prepare

    prepare(cluster.address)
    try:
        from gelada.runtime.ray.session import connected
    except ImportError as error:
        raise GeladaError(
            f"--on ray: {error}; install it with: pip install 'gelada-rl[cluster]'"
        ) from None
    stack.enter_context(connected(cluster))
