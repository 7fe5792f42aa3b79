"""ParameterServer: owns one slice of the parameters and its optimizer state.

It decides whether a gradient counts, steps, and serves published snapshots. Placed in the
learner's own process over the learner's own memory it is an ordinary optimizer step; placed
elsewhere it is Gorila's and DBA3C's server. The code is the same.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

import torch

from gelada.errors import Closed, Deadline, GeladaError
from gelada.ops.optimizers import OptimizerSettings, make_optimizer
from gelada.types import Answer, Gradient, Params, Version

KEPT = 2
"""Snapshots kept: workers that met version v at one server can still get it at all others."""

ANY = Version(0, 0)
"""Older than everything that is published."""


@dataclass(frozen=True)
class Quorum:
    """A step is made of the first ``count`` fresh gradients; late ones are dropped."""

    count: int

    def check(self, learners: int) -> None:
        """Raise GeladaError if more gradients are asked for than there are learners."""
        if self.count > learners:
            raise GeladaError(
                f"quorum {self.count} with {learners} learner(s): a step would never be complete; "
                f"ask for at most {learners}"
            )


class ParameterServer:
    """One slice ``values`` float32[P] with its optimizer; passive.

    Args:
        values: the slice, stepped in place. If it is a view of a learner's vector, that learner
            sees every step at once and needs no pull.
        settings: which optimizer.
        admission: which gradients count.
        version: of ``values``.
        patience: seconds that `pull` waits before it gives up (0: never wait).
        optimizer: state to start from, by name; new where a name is missing.
    """

    def __init__(
        self,
        values: torch.Tensor,
        settings: OptimizerSettings,
        admission: Quorum,
        version: Version,
        patience: float = 600.0,
        optimizer: dict[str, torch.Tensor] | None = None,
    ) -> None:
        self._values = values
        self._optimizer = make_optimizer(values, settings)
        self._load(optimizer or {})
        self._admission = admission
        self._version = version
        self._part = 0
        self._waiting: dict[int, Gradient] = {}  # by learner, of the current version and part
        self._snapshots: deque[Params] = deque(maxlen=KEPT)
        self._patience = patience
        self._changed = threading.Condition()
        self._closed = False
        self.dropped = 0
        with self._changed:
            self._publish()

    def push(self, gradient: Gradient) -> Answer:
        """Take a gradient; step when the quorum is complete. Never waits.

        The same gradient sent twice counts once. A gradient of another version or part is
        dropped, counted in ``dropped``, and answered with the version of today.
        """
        with self._changed:
            if gradient.version != self._version:
                return self._refuse(f"computed from {gradient.version}, now {self._version}")
            if gradient.part != self._part:
                return self._refuse(f"part {gradient.part}, now at {self._part}")
            if gradient.learner in self._waiting:
                return self._refuse("already there")
            self._waiting[gradient.learner] = gradient
            if len(self._waiting) < self._admission.count:  # kept while its sender goes on
                kept = gradient._replace(values=gradient.values.clone())
                self._waiting[gradient.learner] = kept
            else:
                self._step(list(self._waiting.values()))
            return Answer(self._version, True, "")

    def pull(self, at_least: Version = ANY, exactly: bool = False) -> Params:
        """Return the newest snapshot, waiting until it is ``at_least`` that version.

        With ``exactly``, return that very version if it is still kept, else a newer one.

        Raises:
            Deadline: if none came within the patience.
            Closed: if the run stops.
        """
        with self._changed:
            there = self._changed.wait_for(
                lambda: self._closed or self._version >= at_least, self._patience
            )
            if self._closed:
                raise Closed
            if not there:
                raise Deadline(
                    f"no parameters of version {at_least.number} for {self._patience:g} s; "
                    f"the newest are {self._version.number}"
                )
            if exactly:
                for params in self._snapshots:
                    if params.version == at_least:
                        return params
            return self._snapshots[-1]

    def state(self) -> tuple[Params, dict[str, torch.Tensor]]:
        """Return the newest snapshot and copies of the optimizer's state.

        At the edge of a round the two belong together exactly.
        """
        with self._changed:
            optimizer = {name: t.clone() for name, t in self._optimizer.state().items()}
            return self._snapshots[-1], optimizer

    def restore(
        self, version: Version, values: torch.Tensor, optimizer: dict[str, torch.Tensor]
    ) -> None:
        """Take over a checkpoint's slice. The version's epoch must be higher than today's."""
        with self._changed:
            if version.epoch <= self._version.epoch:
                raise ValueError(f"a restore must raise the epoch: {version} on {self._version}")
            self._values.copy_(values)
            self._load(optimizer)
            self._version = version
            self._part = 0
            self._waiting.clear()
            self._snapshots.clear()
            self._publish()

    def close(self) -> None:
        """Wake everybody who waits; pulls raise `Closed` from now on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _load(self, optimizer: dict[str, torch.Tensor]) -> None:
        for name, tensor in self._optimizer.state().items():
            if name in optimizer:
                tensor.copy_(optimizer[name])

    def _refuse(self, reason: str) -> Answer:
        self.dropped += 1
        return Answer(self._version, False, reason)

    def _step(self, gradients: list[Gradient]) -> None:
        """Step against the mean of the gradients, in the order of the learners."""
        gradients.sort(key=lambda g: g.learner)
        mean = gradients[0].values
        if len(gradients) > 1:
            mean = torch.stack([g.values for g in gradients]).mean(dim=0)
        rate = sum(g.learning_rate for g in gradients) / len(gradients)
        self._optimizer.step(mean, rate)
        self._waiting.clear()
        self._part += 1
        if self._part == gradients[0].parts:
            self._part = 0
            self._version = self._version._replace(number=self._version.number + 1)
            self._publish()

    def _publish(self) -> None:
        self._snapshots.append(Params(self._version, self._values.clone()))
        self._changed.notify_all()
