"""Exact resume: whether a checkpoint has all that a run needs to go on as if it had not stopped.

In a deterministic run a checkpoint holds the states of all actors at its version, and what was
counted until then. Without a replay buffer it also holds the parameters of the version before; with
one, a copy of the buffer lies beside the checkpoint. Then every number that the resumed run
computes is that of the unbroken run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

from gelada.core.checkpoint import Checkpoint
from gelada.core.errors import GeladaError
from gelada.core.files import read_lines, write_whole
from gelada.core.nested import join
from gelada.core.types import Origin, State, Version
from gelada.envs.make import agents
from gelada.experiment.memory import batch_of
from gelada.experiment.settings import Experiment, ReuseSettings
from gelada.roles.replay.in_rounds import folder_of
from gelada.roles.update_schedule import OneEach, SampledUpdates, UpdateSchedule
from gelada.runs.folder import BUFFERS, EPISODES, METRICS

DETERMINISTIC_EVERY = 10
"""Versions between lines of metrics in the deterministic mode."""


def update_schedule_of(experiment: Experiment) -> UpdateSchedule:
    """Return how many versions a deterministic run makes of how many rounds."""
    shape, replay = experiment.shape, experiment.replay
    if not replay.capacity:
        return OneEach()
    rows = shape.actors * shape.games * agents(experiment.games)
    windows, length = batch_of(experiment)
    minimum = max(replay.minimum, rows * (length + 1))  # no window is whole before that
    return SampledUpdates(rows * shape.length, minimum, replay.samples_per_insert, windows)


def states_of(checkpoint: Checkpoint, experiment: Experiment) -> dict[str, State]:
    """Return the states of all actors in a checkpoint, by name; {} if it does not have them."""
    values = checkpoint.counters.get("play", {})
    if not isinstance(values, dict) or not all(isinstance(v, dict) for v in values.values()):
        return {}
    states = join(checkpoint.tensors, values, "play")
    wanted = {f"actor-{index}" for index in range(experiment.shape.topology.players)}
    return states if states.keys() == wanted else {}


def origin_of(checkpoint: Checkpoint, experiment: Experiment, folder: Path) -> Origin | None:
    """Return the origin of a run that goes on exactly; None if it cannot.

    Args:
        checkpoint: that the run resumes from.
        experiment: all settings.
        folder: of the run.
    """
    if not experiment.deterministic or "origin" not in checkpoint.counters:
        return None
    shape = experiment.shape
    if max(shape.ahead, shape.broadcast_every) > 1 or experiment.reuse != ReuseSettings():
        return None  # older parameters, or trajectories and batches that are used again
    try:
        incarnation, version, steps = map(int, checkpoint.counters["origin"])
    except (TypeError, ValueError):
        raise GeladaError(
            f"the checkpoint of version {checkpoint.version.number}: counters.origin is "
            f"{checkpoint.counters['origin']!r}, want three numbers"
        ) from None
    origin = Origin(incarnation, version, steps)
    states, update_schedule = states_of(checkpoint, experiment), update_schedule_of(experiment)
    round = update_schedule.rounds(checkpoint.version.number - origin.version)
    if not states or any(state.get("round") != round for state in states.values()):
        return None
    if experiment.replay.capacity and not buffer_at(folder, checkpoint.version).exists():
        return None
    return origin


def buffer_at(folder: Path, version: Version) -> Path:
    """Return the folder of the central replay buffer that was saved at a version."""
    return folder_of(folder / BUFFERS / "replay", version)


def cut_lines(folder: Path, version: int, steps: int) -> None:
    """Delete the lines of metrics and episodes after a version; the run writes them again.

    Lines of metrics that only the end of the earlier run made go too.

    Args:
        folder: of the run.
        version: number of the version that the run goes on from.
        steps: environment steps behind it.

    Raises:
        GeladaError: if a file cannot be read; names it.
    """
    _cut(folder / METRICS, lambda line: _is_before(line, version))
    _cut(folder / EPISODES, lambda line: _number(line, "steps") <= steps)


def _is_before(line: State, version: int) -> bool:
    number = _number(line, "version")
    return number <= version and number % DETERMINISTIC_EVERY == 0


def _number(line: State, name: str) -> float:
    """Return a number of a line; one that is larger than all others if there is none."""
    value = line.get(name)
    return value if isinstance(value, int) else math.inf


def _cut(path: Path, stays: Callable[[State], bool]) -> None:
    """Keep some lines of a file; leave it as it is if those are all."""
    try:
        lines = read_lines(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise GeladaError(f"{path} cannot be read: {error.strerror or error}") from None
    kept = [line for line in lines if stays(line)]
    if kept != lines:
        write_whole(path, "".join(json.dumps(line) + "\n" for line in kept).encode())
