"""What flows between roles (docs/circle.md).

Everything here is an immutable tuple of arrays. Letters in shapes: ``B`` environments or
windows, ``T`` actions (steps), ``K`` frames in a stack, ``H`` and ``W`` pixels, ``P`` parameters
of one slice. ``T`` actions have ``T + 1`` observations, so nothing is ever shifted by one.

A *step* is one agent decision; a *frame* is one emulator frame. With the usual frame skip a step
is four frames.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


class Version(NamedTuple):
    """Which parameters: ``number`` batch rounds since the start, within one ``epoch``.

    A restore raises the epoch, so nothing computed before it can be mistaken for something newer.
    Versions order as tuples. One version is one batch round, however many minibatches it takes.
    """

    epoch: int
    number: int


class Trajectory(NamedTuple):
    """``T`` steps of ``B`` games by one actor: Actor → TrajectoryQueue.

    ``frames[b, t : t + K]`` is observation ``t`` of game ``b``: one contiguous view, each frame
    stored once. Of that stack the frames older than ``ages[b, t]`` steps belong to the game
    before and count as black (``envs.stacking.blank``).
    """

    actor: int  # index of the actor
    round: int  # how many trajectories this actor had sent before
    version: Version  # of the parameters that chose the actions
    frames: Bytes  # uint8[B, T + K, H, W]
    ages: Ints  # int64[B, T + 1]: steps since the game's first observation
    actions: Ints  # int64[B, T]
    rewards: Floats  # float32[B, T], raw
    terminated: Bools  # bool[B, T]: no value after this step
    truncated: Bools  # bool[B, T]: cut off; what follows was not seen
    mask: Bools  # bool[B, T]: False where the agent did not choose, or truncated (weight 0)
    log_probs: Floats  # float32[B, T]: log of the behaviour policy at the action
    state: Floats  # float32[B, S]: recurrent state at the start (S = 0: none)


class Batch(NamedTuple):
    """``N`` windows of streams on the learner's device: TrajectoryQueue → Learner.

    The fields of a `Trajectory` as tensors, windows first, and what a replay adds: ``keys`` with
    their ``generations`` (a key whose generation has changed names another window by now),
    importance ``weights``, and how many steps are ``fresh``: a learner counts the environment's
    steps by them, since a store hands out a step several times or never.
    """

    frames: torch.Tensor  # uint8[N, T + K, H, W]
    ages: torch.Tensor  # int64[N, T + 1]
    actions: torch.Tensor  # int64[N, T]
    rewards: torch.Tensor  # float32[N, T], raw
    terminated: torch.Tensor  # bool[N, T]
    truncated: torch.Tensor  # bool[N, T]
    mask: torch.Tensor  # bool[N, T]
    log_probs: torch.Tensor  # float32[N, T]
    state: torch.Tensor  # float32[N, S]
    versions: torch.Tensor  # int64[N]: number of the behaviour parameters' version
    keys: torch.Tensor  # int64[N]
    generations: torch.Tensor  # int64[N]
    weights: torch.Tensor  # float32[N]
    fresh: torch.Tensor  # int64, a scalar: environment steps added since the sample before

    def to(self, device: torch.device) -> Batch:
        """Return the batch on ``device`` (itself if it is there)."""
        return Batch(*(tensor.to(device, non_blocking=True) for tensor in self))


class Gradient(NamedTuple):
    """One learner's gradient for one slice: Learner → ParameterServer.

    ``part`` numbers the minibatches of a round from 0; the last,
    ``parts - 1``, closes it. A gradient is told from all others by (learner, version, part), so
    sending it again is harmless.
    """

    learner: int
    version: Version  # of the parameters it was computed from
    part: int
    parts: int
    samples: int  # transitions behind it
    loss: float  # their mean loss
    learning_rate: float  # the learner decides the step's size, the server takes the step
    values: torch.Tensor  # float32[P]


class Params(NamedTuple):
    """One published, immutable slice of parameters: ParameterServer → Actor, Learner."""

    version: Version
    values: torch.Tensor  # float32[P]


class Answer(NamedTuple):
    """What a server says to a push: its version afterwards and whether the gradient counted."""

    version: Version
    counted: bool
    reason: str  # "" or why not


class Episode(NamedTuple):
    """One finished full game: Actor → Tracker."""

    actor: int
    round: int  # trajectory in which it ended
    score: float  # raw return
    steps: int  # agent decisions


class Traffic(NamedTuple):
    """What crossed between one learner and servers elsewhere since it began."""

    counted: int = 0  # gradients that all servers counted
    dropped: int = 0  # gradients that no server counted
    torn: int = 0  # gradients that some servers counted and others dropped
    moved: int = 0  # bytes of gradients and parameters, both ways
    outliers: int = 0  # gradients that the learner itself dropped for their loss


class Update(NamedTuple):
    """What a learner tells about one batch: Learner → Tracker."""

    learner: int
    version: Version  # that the batch makes, if its gradient counts
    steps: int  # environment steps in the batch
    lag: tuple[float, float, float]  # versions between acting and learning: min, mean, max
    values: dict[str, float]  # losses and statistics by name
    traffic: Traffic | None = None  # None where the servers step the learner's own memory
    queue: int = 0  # trajectories that waited in the replay
    waited: float = 0.0  # seconds that it waited for others since the update before


Aux = dict[str, torch.Tensor]
"""A learner's own named state besides the parameters, checkpointed with them."""

State = dict[str, Any]
"""What an object saves: tensors by name, and JSON values."""
