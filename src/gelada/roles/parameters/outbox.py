"""The pending gradient of a learner, on its way to the parameter servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gelada.core.types import Answer, Gradient, Params, Version
from gelada.ops.flat import FlatParameters
from gelada.roles.parameters.pulling import Source
from gelada.roles.parameters.server import REPEATED, OptimizerState


class Server(Source, Protocol):
    """What a client asks of a parameter server."""

    def push(self, gradient: Gradient) -> Answer:
        """Take a gradient; step when enough are there."""

    def pull_target(self) -> Params:
        """Return the target slice."""

    def state(self) -> tuple[Params, OptimizerState]:
        """Return the newest snapshot and copies of the optimizer's state."""


class OwnServer(Server, Protocol):
    """A server that steps the memory of its only learner."""

    def go_back(self, version: Version) -> bool:
        """Undo the steps of the round since a version; return False if that is not possible."""


class Outbox:
    """The pending gradient, cut into one slice for each server.

    Args:
        learner: index of the learner that computes the gradients.
        servers: in the order of their slices.
        flat: whose gradients are sent.
    """

    def __init__(self, learner: int, servers: Sequence[Server], flat: FlatParameters) -> None:
        self._learner, self._servers = learner, servers
        cuts = flat.layout.cut(len(servers))
        self._slices = [flat.gradients[cut] for cut in cuts]
        self._pending: list[tuple[Server, Gradient]] = []
        self._counted: list[bool] = []  # one for each slice that was sent in this round

    @property
    def pending(self) -> bool:
        """Whether a slice has not been sent yet."""
        return bool(self._pending)

    def put(
        self,
        versions: Sequence[Version],
        part: int,
        parts: int,
        samples: float,
        loss: float,
        rate: float,
    ) -> None:
        """Make a gradient pending; ``versions`` are those of the slices it was computed from."""
        self._pending = [
            (server, Gradient(self._learner, version, part, parts, samples, loss, rate, values))
            for server, version, values in zip(self._servers, versions, self._slices, strict=True)
        ]

    def push(self) -> None:
        """Send what is pending. After an error, the next call sends the rest."""
        while self._pending:
            server, gradient = self._pending[0]
            answer = server.push(gradient)
            # the first delivery of a repeated gradient did count
            self._counted.append(answer.counted or answer.reason == REPEATED)
            del self._pending[0]

    def discard(self) -> None:
        """Drop what is pending."""
        self._pending.clear()

    def take_counted(self) -> list[bool]:
        """Return for each slice that was sent since the last call whether it counted."""
        counted, self._counted = self._counted, []
        return counted
