"""The pending gradient of a learner, on its way to the parameter servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

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
        copied: send numbers and copies of vectors that the servers can read without a GPU.
    """

    def __init__(
        self, learner: int, servers: Sequence[Server], flat: FlatParameters, copied: bool = False
    ) -> None:
        self._learner, self._servers = learner, servers
        self._cuts = flat.layout.cut(len(servers))
        self._gradients, self._copied = flat.gradients, copied
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
        samples: float | torch.Tensor,
        rate: float,
    ) -> None:
        """Make a gradient pending; ``versions`` are those of the slices it was computed from."""
        vector = self._gradients
        if self._copied:
            vector, samples = _on_host(vector, samples)
        numbers = (part, parts, samples, rate)
        self._pending = [
            (server, Gradient(self._learner, version, *numbers, vector[cut]))
            for server, version, cut in zip(self._servers, versions, self._cuts, strict=True)
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


def _on_host(gradients: torch.Tensor, samples: float | torch.Tensor) -> tuple[torch.Tensor, float]:
    """Return a vector in the memory of the host and a number; from a GPU both are one read."""
    if gradients.device.type == "cpu":
        return gradients, float(samples)
    weight = torch.as_tensor(samples, dtype=torch.float32, device=gradients.device)
    both = torch.cat([gradients, weight.reshape(1)]).cpu()
    return both[:-1], float(both[-1])
