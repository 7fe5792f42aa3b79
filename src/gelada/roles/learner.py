"""Learner: turns batches into gradients.

learner = Learner(...)
while not learner.finished:
    learner.step()    # one batch: targets, passes of minibatches, a new version
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from gelada.algorithms.algorithm import Algorithm
from gelada.errors import Diverged
from gelada.nets.network import Network
from gelada.ops.flat import FlatParameters
from gelada.roles.clock import Clock
from gelada.roles.parameter_server import ParameterServer
from gelada.roles.replay import Replay
from gelada.roles.tracker import Tracker
from gelada.seeding import generator
from gelada.types import Aux, Batch, Gradient, Update, Version


class Learner:
    """Holds the network whose vector the servers step in place; active.

    Args:
        index: which learner this is.
        seed: of the run.
        flat: the network's parameters; the servers own slices of the same memory.
        algorithm: what to minimise.
        servers: parameter servers, in the order of their slices.
        replay: where batches come from.
        tracker: told about every round; says when to stop.
        aux: the algorithm's own state, restored or new.
        version: of the parameters now.
        steps: environment steps behind them.
    """

    def __init__(
        self,
        index: int,
        seed: int,
        flat: FlatParameters,
        algorithm: Algorithm,
        servers: Sequence[ParameterServer],
        replay: Replay,
        tracker: Tracker,
        aux: Aux,
        version: Version,
        steps: int,
    ) -> None:
        self.name = f"learner-{index}"
        self.clock = Clock()
        self.finished = False
        self._index, self._seed = index, seed
        self._flat = flat
        assert isinstance(flat.module, Network)
        self._net = flat.module
        self._device = flat.values.device
        self._algorithm = algorithm
        self._servers, self._replay, self._tracker = servers, replay, tracker
        self._cuts = flat.layout.cut(len(servers))
        self._aux, self._version, self._steps = aux, version, steps
        self._whole = True

    def step(self) -> None:
        """Learn from one batch: all passes, then a new version. Sets ``finished`` at the end."""
        with self.clock("wait for experience"):
            batch = self._replay.sample()
        with self.clock("learn"):
            self._whole = False
            lag = self._version.number - batch.versions.float()
            values = self._learn(batch.to(self._device))
            self._steps += batch.actions.numel()
            self._version = self._version._replace(number=self._version.number + 1)
            self._algorithm.after(self._aux, values, self._steps)
            self._whole = True
            self._flat.check()  # a few microseconds a parameter, and a torn view never shows
        with self.clock("report"):
            spread = (float(lag.min()), float(lag.mean()), float(lag.max()))
            update = Update(self._index, self._version, self._steps, spread, values)
            self.finished = self._tracker.report(update)
            if self._tracker.wants_checkpoint():
                self.save()
        self.clock.steps += 1

    def save(self) -> None:
        """Hand everything a resume needs to the tracker: copies, taken at a round's edge."""
        states = [server.state() for server in self._servers]
        self._tracker.checkpoint(
            [params for params, _ in states],
            [optimizer for _, optimizer in states],
            {name: tensor.clone() for name, tensor in self._aux.items()},
            self._steps,
        )

    def is_sound(self) -> bool:
        """Say whether it can be saved: at the edge of a round, with finite parameters."""
        finite = all(bool(s.state()[0].values.isfinite().all()) for s in self._servers)
        return self._whole and finite

    def _learn(self, batch: Batch) -> dict[str, float]:
        """Run all passes over the batch; return the statistics of the last one."""
        algorithm, net = self._algorithm, self._net
        prepared = algorithm.prepare(net, batch, self._aux)
        random = generator(
            self._seed, "learner", self._index, self._version.epoch, self._version.number
        )
        passes = [
            torch.split(torch.randperm(prepared.size, generator=random), algorithm.minibatch)
            for _ in range(algorithm.passes)
        ]
        parts = sum(map(len, passes))
        part = 0
        history: list[dict[str, torch.Tensor]] = []
        for minibatches in passes:
            seen: list[dict[str, torch.Tensor]] = []
            for index in minibatches:
                total, terms = algorithm.loss(net, prepared.select(index), self._aux)
                terms["gradient_norm"] = self._gradient(total)
                seen.append(terms)
                history.append(terms)
                if len(seen) == len(minibatches):  # before the push that publishes the round
                    values = _means(seen)
                    _check_finite(values, history, self._version)
                self._push(part, parts, len(index), float(total.detach()))
                part += 1
        values["learning_rate"] = algorithm.learning_rate(self._aux)
        return values

    def _gradient(self, total: torch.Tensor) -> torch.Tensor:
        """Write the loss's gradient into the flat vector, clipped; return the norm before."""
        self._flat.zero_gradients()
        torch.autograd.backward(total)
        return self._flat.clip(self._algorithm.gradient_clip)

    def _push(self, part: int, parts: int, samples: int, loss: float) -> None:
        rate = self._algorithm.learning_rate(self._aux)
        for server, cut in zip(self._servers, self._cuts, strict=True):
            server.push(
                Gradient(
                    self._index,
                    self._version,
                    part,
                    parts,
                    samples,
                    loss,
                    rate,
                    self._flat.gradients[cut],
                )
            )


def _means(seen: list[dict[str, torch.Tensor]]) -> dict[str, float]:
    """Return the mean of each named scalar over the minibatches."""
    names = list(seen[0])
    table = torch.stack([torch.stack([terms[name].float() for name in names]) for terms in seen])
    return dict(zip(names, table.mean(dim=0).tolist(), strict=True))


def _check_finite(
    values: dict[str, float], history: list[dict[str, torch.Tensor]], version: Version
) -> None:
    """Raise Diverged if a mean is not a finite number, naming the term that was the first."""
    if all(math.isfinite(value) for value in values.values()):
        return
    for terms in history:  # one bad term soon spoils all others
        for name, value in terms.items():
            if not math.isfinite(value):
                raise Diverged(
                    f"{name} became {float(value)} at version {version.number}: training has "
                    "diverged; the last good checkpoint is kept; lower --lr or --gradient-clip"
                )
