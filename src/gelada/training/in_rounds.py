"""The replay buffer of a deterministic run, as a role of the graph, and what saves it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gelada.core.types import Version
from gelada.roles.replay.buffer import ReplayBuffer
from gelada.roles.replay.in_rounds import BufferInRounds, SaveWithCheckpoints
from gelada.roles.replay.rate_limiter import MinimumSize
from gelada.roles.rhythm import Sampled
from gelada.runtime.graph import part
from gelada.training.buffers import sampling_of, shape_of
from gelada.training.exact import BUFFERS, rhythm_of
from gelada.training.nodes import Nodes


def add_buffer_in_rounds(nodes: Nodes) -> BufferInRounds:
    """Add the only replay buffer of a deterministic run, to which all actors add."""
    experiment, (height, width) = nodes.experiment, nodes.net.mean.shape
    actors, rhythm = experiment.shape.actors, rhythm_of(experiment)
    assert isinstance(rhythm, Sampled)
    buffer = part(
        ReplayBuffer,
        shape_of(experiment, actors, (height, width)),
        sampling_of(experiment, nodes.start.origin.steps),
        MinimumSize(experiment.replay.minimum),
        nodes.patience,
        experiment.seed,
    )
    return nodes.graph.add(
        "replay", "replay", "main", BufferInRounds, buffer, range(actors), rhythm, nodes.patience
    )


def saver_of(replay: BufferInRounds, folder: Path | None) -> Callable[[Version], None] | None:
    """Return what saves the buffer in a run's folder before each checkpoint, if there is one."""
    if folder is None:
        return None
    return part(SaveWithCheckpoints, replay, folder / BUFFERS / "replay", folder / "checkpoints")
