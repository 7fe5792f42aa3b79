"""The messages that roles send to each other (docs/circle.md).

Each is an immutable tuple. Letters in shapes: ``B`` environments or windows, ``T`` actions (steps),
``K`` frames in a stack, ``H`` and ``W`` pixels, ``P`` parameters of one slice. ``T`` actions have
``T + 1`` observations.

A *step* is one agent decision; a *frame* is one emulator frame. With the usual frame skip a step
is four frames.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np  # noqa: F401 - torch, which imports it too, would lose a Ctrl-C meanwhile
import torch

from colobus.core.arrays import Bools as Bools
from colobus.core.arrays import Bytes as Bytes
from colobus.core.arrays import Doubles as Doubles
from colobus.core.arrays import Floats as Floats
from colobus.core.arrays import Frames as Frames
from colobus.core.arrays import Ints as Ints
from colobus.core.arrays import State as State

CPU = torch.device("cpu")


class Version(NamedTuple):
    """The version of the parameters: ``number`` rounds since the start, in one ``incarnation``.

    A round learns from one batch, in one or more minibatches. A resume raises the incarnation, so
    that whatever was computed before is older than whatever is computed after. Versions are ordered
    as tuples. Files call the incarnation ``epoch``, as they always did.
    """

    incarnation: int
    number: int


class Trajectory(NamedTuple):
    """``T`` steps of ``B`` games by one actor: Actor → replay.

    ``frames[b, t : t + K]`` is observation ``t`` of game ``b``: a contiguous view, so each frame is
    stored once. Frames of that stack that are older than ``ages[b, t]`` steps belong to the game
    before and are replaced by black ones (`colobus.nets.observations.blank`).
    """

    actor: int  # index of the actor
    round: int  # number of trajectories that this actor had sent before
    version: Version  # of the parameters that chose the actions
    frames: Frames  # uint8[B, T + K, H, W], or float32[B, T + K, 1, D]
    ages: Ints  # int64[B, T + 1]: steps since the game's first observation
    actions: Ints  # int64[B, T]
    rewards: Floats  # float32[B, T], raw
    terminated: Bools  # bool[B, T]: the value after this step is 0
    truncated: Bools  # bool[B, T]: the game was cut off, its next observation is unknown
    mask: Bools  # bool[B, T]: loss mask; False if truncated or not chosen by the agent
    log_probs: Floats  # float32[B, T]: log of the behaviour policy at the action
    independent: Bools  # bool[B]: the actions are independent draws from the policy at each step
    state: Floats  # float32[B, S]: recurrent state at the start (S = 0: none)


PER_GAME = tuple(name for name in Trajectory._fields if name not in ("actor", "round", "version"))
"""The fields of a trajectory that have a row for each game; a `Batch` has them too."""


class Batch(NamedTuple):
    """``N`` windows of ``T`` steps: replay → Learner, which moves them to its device with `to`.

    The fields of a `Trajectory` as tensors, windows first, and what a replay adds: ``keys`` and
    ``generations`` (a key with another generation names another window), importance ``weights``,
    which windows were handed out before (``replayed``), and the number of ``fresh`` steps. A
    learner counts environment steps by ``fresh``, because a replay may return a step several times
    or never.
    """

    frames: torch.Tensor  # uint8[N, T + K, H, W], or float32[N, T + K, 1, D]
    ages: torch.Tensor  # int64[N, T + 1]
    actions: torch.Tensor  # int64[N, T]
    rewards: torch.Tensor  # float32[N, T], raw
    terminated: torch.Tensor  # bool[N, T]
    truncated: torch.Tensor  # bool[N, T]
    mask: torch.Tensor  # bool[N, T]
    log_probs: torch.Tensor  # float32[N, T]
    independent: torch.Tensor  # bool[N]
    state: torch.Tensor  # float32[N, S]
    versions: torch.Tensor  # int64[N]: version number of the behaviour policy's parameters
    keys: torch.Tensor  # int64[N]
    generations: torch.Tensor  # int64[N]
    weights: torch.Tensor  # float32[N]
    replayed: torch.Tensor  # bool[N]: an old window that was mixed in
    fresh: torch.Tensor  # int64 scalar: environment steps added since the sample before

    def to(self, device: torch.device) -> Batch:
        """Return the batch on ``device``; one that is there is not copied.

        What only counts or names windows stays in the memory of the host, where it is read. So does
        ``replayed``: on another device ``independent`` leaves out the old windows.
        """
        if device == self.frames.device:
            return self
        fresh = self._replace(independent=self.independent & ~self.replayed)
        moved = {
            name: tensor.to(device, non_blocking=True)
            for name, tensor in fresh._asdict().items()
            if name not in COUNTED
        }
        return self._replace(**moved)

    def independent_steps(self) -> torch.Tensor:
        """Return float32[N * T], 1 for steps of fresh windows that are ``independent``.

        These steps measure how far the policy has moved: with old windows the learning rate would
        follow their age.
        """
        measured = self.independent
        if measured.device == self.replayed.device:
            measured = measured & ~self.replayed
        return measured.float().repeat_interleave(self.actions.shape[1])


COUNTED = frozenset({"versions", "keys", "generations", "replayed", "fresh"})
"""Fields of a batch that no network and no loss reads."""


class Gradient(NamedTuple):
    """One learner's gradient for one slice: Learner → ParameterServer.

    ``part`` is the number of the minibatch in its round, 0 … ``parts - 1``; the last one closes the
    round. (learner, version, part) identifies a gradient, so one that is sent twice counts once.
    """

    learner: int
    version: Version  # of the parameters that it was computed from
    part: int
    parts: int
    samples: float | torch.Tensor  # the sum of the weights of its minibatch's transitions
    learning_rate: float  # chosen by the learner; the server takes the step
    values: torch.Tensor  # float32[P]


class Params(NamedTuple):
    """A snapshot of one slice of the parameters: ParameterServer → Actor, Learner."""

    version: Version
    values: torch.Tensor  # float32[P]


class Answer(NamedTuple):
    """The answer to a push: the server's version afterwards, and whether the gradient counted."""

    version: Version
    counted: bool
    reason: str  # why it did not count, or ""


class Exchanged(NamedTuple):
    """The answer to a gradient, and the parameters of a later version."""

    answer: Answer
    params: Params


class Episode(NamedTuple):
    """One full game that has ended: Actor → Tracker."""

    actor: int
    round: int  # the actor's trajectory in which the game ended
    score: float  # sum of raw rewards
    steps: int  # agent decisions


class Traffic(NamedTuple):
    """Totals of one learner with remote parameter servers, since the learner began."""

    counted: int = 0  # gradients that all servers counted
    dropped: int = 0  # gradients that no server counted
    partial: int = 0  # gradients that some servers counted and others dropped
    moved: int = 0  # bytes of gradients sent and parameters received


class Update(NamedTuple):
    """The report of a learner about one batch: Learner → Tracker."""

    learner: int
    version: Version  # of the parameters after this batch, if its gradient counts
    steps: int  # environment steps in the batch
    lag: tuple[float, float, float]  # staleness of the batch in versions: min, mean, max
    values: dict[str, float]  # losses and statistics by name
    traffic: Traffic | None = None  # None where the servers step the learner's own memory
    outliers: int = 0  # gradients that the learner itself dropped for their loss, since it began
    queue: int = 0  # trajectories that waited in the replay
    waited: float = 0.0  # seconds spent waiting for other roles since the update before


AlgorithmState = dict[str, torch.Tensor]
"""The state of an algorithm besides the parameters, by name; checkpoints contain it."""


class Origin(NamedTuple):
    """The start of a run, or the last resume that did not go on exactly.

    A resume raises the incarnation of the versions, but an exact resume keeps the origin, so the
    random streams and the numbers of the rounds go on as if the run had never stopped.
    """

    incarnation: int = 0  # in the seeds of all random streams
    version: int = 0  # number of the version with which round 0 began
    steps: int = 0  # environment steps behind that version


START = Origin()
"""Of a run that was never resumed, but for its steps."""


class Request(NamedTuple):
    """A call of a role in another process."""

    incarnation: int
    role: str
    method: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


Wait = Callable[[], Any]
"""Waits for an answer and returns it; may be called again."""

Call = Callable[[Request], Wait]
"""Sends a request to the process that has the role; returns what waits for the answer."""


class Remote:
    """Stands for a passive role in another process: every call waits for the answer.

    Calls raise what the role raises, `Closed` if that process has begun another incarnation, and
    `colobus.core.errors.Lost` if it is gone.
    """

    def __init__(self, call: Call, incarnation: int, role: str) -> None:
        self._call, self._incarnation, self._role = call, incarnation, role

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.begin_call(method, *args, **kwargs)()

    def begin_call(self, method: str, *args: Any, **kwargs: Any) -> Wait:
        """Begin a call; return what waits for its answer."""
        return self._call(Request(self._incarnation, self._role, method, args, kwargs))


def ask(role: Any, method: str, *args: Any) -> Wait:
    """Begin a call, or one of a role in this process when its answer is waited for."""
    if isinstance(role, Remote):
        return role.begin_call(method, *args)
    return partial(getattr(role, method), *args)
