"""ParameterServer: owns one slice of the parameters and its optimizer state.

It decides whether a gradient counts, steps, and serves published snapshots. Placed in the
learner's own process over the learner's own memory it is an ordinary optimizer step; placed
elsewhere it is Gorila's and DBA3C's server. The code is the same.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import NamedTuple

import torch

from gelada.core.errors import Deadline
from gelada.core.types import Answer, Gradient, Params, Version
from gelada.ops.optimizers import OptimizerSettings, make_optimizer
from gelada.roles.parameters.admission import Admission
from gelada.roles.parameters.published import ANY, PublishedParameters

REPEATED = "already there"
"""Why a gradient that was sent again does not count again; its first delivery did count."""

TARGET = "target"
"""Name of the target slice beside the optimizer's state: saved and restored with it."""

OptimizerState = dict[str, torch.Tensor]


class Counts(NamedTuple):
    """What became of the gradients that a server was sent, repeated ones left out."""

    counted: int
    dropped: int


@dataclass(frozen=True)
class ServerSettings:
    """Name and habits of a parameter server."""

    name: str = "server"
    """For messages."""
    patience: float = 600.0
    """Seconds that `ParameterServer.pull` waits before it gives up (0: never wait)."""
    keep_every: int = 0
    """Put a copy of everything aside at versions divisible by this, for checkpoints of one version
    of all slices (0: never)."""
    target_every: int = 0
    """The slice at versions divisible by this is the target slice, which value methods bootstrap
    from (Nair et al. 2015: every N global updates; 0: there is none)."""


class ParameterServer:
    """One slice ``values`` float32[P] with its optimizer; passive.

    Args:
        values: the slice, stepped in place. If it is a view of a learner's vector, that learner
            sees every step at once and needs no pull.
        optimizer: which optimizer steps the slice.
        admission: which gradients count.
        version: of ``values``.
        settings: see `ServerSettings`.
        state: of the optimizer to start from, by name; new where a name is missing. The target
            slice is among it as ``target``; without one, ``values`` are the first target slice.
    """

    def __init__(
        self,
        values: torch.Tensor,
        optimizer: OptimizerSettings,
        admission: Admission,
        version: Version,
        settings: ServerSettings | None = None,
        state: OptimizerState | None = None,
    ) -> None:
        settings, state = settings or ServerSettings(), state or {}
        self.name = settings.name
        self.values = values
        self.optimizer = make_optimizer(values, optimizer)
        self._load(state)
        self._admission, self._needed = admission, admission.needed
        self._version = version
        self._part = 0
        self._waiting: dict[int, Gradient] = {}  # by learner, of the current version and part
        self._taken: dict[int, tuple[Version, int]] = {}  # newest that counted, by learner
        self._snapshots = PublishedParameters(
            Params(version, values.clone()), patience=settings.patience
        )
        self._every, self._target_every = settings.keep_every, settings.target_every
        self._target = self._first_target(state)
        self._kept: tuple[Params, OptimizerState] | None = None
        self._lock = threading.Lock()
        self._counted = self._dropped = 0

    def push(self, gradient: Gradient) -> Answer:
        """Take a gradient; step when enough are there. Never waits.

        The same gradient sent twice counts once. One of another epoch, of another part, or too
        old by the admission's rule is dropped, and answered with the version of today.
        """
        with self._lock:
            mark = (gradient.version, gradient.part)
            if mark <= self._taken.get(gradient.learner, (Version(-1, 0), 0)):
                return Answer(self._version, False, REPEATED)
            if reason := self.refusal(gradient):
                self._dropped += 1
                return Answer(self._version, False, reason)
            self._taken[gradient.learner] = mark
            self._counted += 1
            self._waiting[gradient.learner] = gradient
            if len(self._waiting) < self._needed:  # kept while its sender goes on
                kept = gradient._replace(values=gradient.values.clone())
                self._waiting[gradient.learner] = kept
            else:
                self._step(list(self._waiting.values()))
            return Answer(self._version, True, "")

    def pull(self, at_least: Version = ANY, exactly: bool = False) -> Params:
        """Return the newest snapshot, waiting until it is ``at_least`` that version.

        With ``exactly``, return that very version if it is still kept, else a newer one.

        Raises:
            Deadline: if none came within the patience; says whose gradients are there.
            Closed: if the run stops.
        """
        try:
            return self._snapshots.pull(at_least, exactly)
        except Deadline as error:
            with self._lock:
                there = ", ".join(f"learner-{i}" for i in sorted(self._waiting)) or "none"
            raise Deadline(
                f"{self.name}: {error}; a step takes {self._needed} gradients, there are: {there}"
            ) from None

    def pull_target(self) -> Params:
        """Return the target slice of today; never waits.

        Raises:
            ValueError: if the server keeps none.
        """
        if self._target is None:
            raise ValueError(f"{self.name} keeps no target slice")
        return self._target

    def state(self) -> tuple[Params, OptimizerState]:
        """Return the newest snapshot and copies of the optimizer's state.

        At the edge of a round the two belong together exactly.
        """
        with self._lock:
            return self._snapshots.newest, self._copy()

    def kept(self) -> tuple[Params, OptimizerState] | None:
        """Return what was put aside last: a slice and optimizer state of one version."""
        return self._kept

    def counts(self) -> Counts:
        """Return how many gradients counted and how many were dropped."""
        return Counts(self._counted, self._dropped)

    def need(self, count: int) -> None:
        """Make steps of so many gradients from now on: fewer, while learners are lost."""
        with self._lock:
            self._needed = count
            if len(self._waiting) >= count:
                self._step(list(self._waiting.values()))

    def close(self) -> None:
        """Wake everybody who waits; pulls raise `Closed` from now on."""
        self._snapshots.close()

    def refusal(self, gradient: Gradient) -> str:
        """Return why a gradient does not count, or ""."""
        if gradient.version.epoch != self._version.epoch:
            return f"of epoch {gradient.version.epoch}, now {self._version.epoch}"
        if reason := self._admission.refusal(gradient.version, self._version):
            return reason
        if gradient.part != self._part:
            return f"part {gradient.part}, now at {self._part}"
        return ""

    def _load(self, optimizer: OptimizerState) -> None:
        for name, tensor in self.optimizer.state().items():
            if name in optimizer:
                tensor.copy_(optimizer[name])

    def _copy(self) -> OptimizerState:
        copy = {name: tensor.clone() for name, tensor in self.optimizer.state().items()}
        return copy | ({TARGET: self._target.values} if self._target else {})

    def _first_target(self, saved: OptimizerState) -> Params | None:
        """Return the target slice to begin with: the saved one, or the parameters themselves."""
        if not self._target_every:
            return None
        number = self._version.number - self._version.number % self._target_every
        values = saved.get(TARGET, self.values)
        return Params(self._version._replace(number=number), values.clone())

    def _step(self, gradients: list[Gradient]) -> None:
        """Step against the gradients' mean by samples, added up in the order of the learners."""
        gradients.sort(key=lambda g: g.learner)
        rate = sum(g.learning_rate for g in gradients) / len(gradients)
        self.optimizer.step(_mean(gradients), rate)
        self._waiting.clear()
        self._part += 1
        if self._part == gradients[0].parts:
            self._part = 0
            self._version = self._version._replace(number=self._version.number + 1)
            self.publish()

    def publish(self) -> None:
        """Publish the parameters of a new version, and keep what belongs to it."""
        params = Params(self._version, self.values.clone())
        if self._target_every and self._version.number % self._target_every == 0:
            self._target = params
        if self._every and self._version.number % self._every == 0:
            self._kept = (params, self._copy())
        self._snapshots.publish(params)


def _mean(gradients: list[Gradient]) -> torch.Tensor:
    """Return the mean gradient of all samples, as if one learner had had them all.

    One operation a gradient: element by element, so slices stepped apart give the same bits.
    """
    if len(gradients) == 1:
        return gradients[0].values
    total = sum(g.samples for g in gradients)
    first, *rest = ((g.values, g.samples / total if total else 0.0) for g in gradients)
    mean = first[0] * first[1]
    for values, weight in rest:
        mean.add_(values, alpha=weight)
    return mean
