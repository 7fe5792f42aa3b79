"""Learner: turns batches into gradients.

learner = Learner(...)
while not learner.finished:
    learner.step()    # one batch: targets, passes of minibatches, a new version
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import torch

from gelada.algorithms.api import TARGET, Algorithm, Prepared
from gelada.core.errors import Diverged
from gelada.core.seeding import generator
from gelada.core.timing import WAIT, Clock
from gelada.core.types import Aux, Batch, Gradient, Params, Traffic, Update, Version
from gelada.nets.network import Network
from gelada.ops.flat import FlatParameters
from gelada.roles.parameters.pulling import pull_common, pull_newest, pull_whole
from gelada.roles.parameters.server import REPEATED, ParameterServer
from gelada.roles.parameters.snapshots import Snapshots
from gelada.roles.replay.api import ReplayReader
from gelada.roles.tracker import Tracker


class Learner:
    """Computes gradients with a network; active.

    Servers in its own process step its vector in place: then a push is an optimizer step, a round
    may have many minibatches, and the learner itself decides the version. Servers elsewhere step
    vectors of their own: then a round is one gradient, and it pulls before each batch.

    Args:
        index: which learner this is.
        seed: of the run.
        flat: the network's parameters; the servers own slices of the same memory. With a mirror
            only a template, which is copied.
        algorithm: what to minimise.
        servers: parameter servers, in the order of their slices.
        replay: where batches come from.
        tracker: told about every batch; says when to stop.
        aux: the algorithm's own state, restored or new.
        version: of the parameters now.
        steps: environment steps behind them.
        mirror: if the servers are elsewhere: passes on what was pulled to the worker's actors.
        share: learners whose batches make one version (with stores: all learners); schedules
            count with it.
        asynchronous: every gradient makes a version, so slices may be of different ones.
    """

    def __init__(
        self,
        index: int,
        seed: int,
        flat: FlatParameters,
        algorithm: Algorithm,
        servers: Sequence[ParameterServer],
        replay: ReplayReader,
        tracker: Tracker,
        aux: Aux,
        version: Version,
        steps: int,
        mirror: Snapshots | None = None,
        share: int = 1,
        asynchronous: bool = False,
    ) -> None:
        self.name = f"learner-{index}"
        self.clock = Clock()
        self.finished = False
        self._index, self._seed = index, seed
        self._flat = flat if mirror is None else FlatParameters(copy.deepcopy(flat.module))
        assert isinstance(self._flat.module, Network)
        self._net = self._flat.module
        self._device = self._flat.values.device
        self._algorithm = algorithm
        self._servers, self._replay, self._tracker = servers, replay, tracker
        self._cuts = self._flat.layout.cut(len(servers))
        self._aux, self._version, self._steps = aux, version, steps
        self._first, self._first_steps = version, steps
        self._mirror, self._share, self._asynchronous = mirror, share, asynchronous
        self._versions = (version,) * len(servers)  # of each slice
        self._wanted = version
        self._batch: Batch | None = None  # that is being learned from
        self._values: dict[str, float] = {}  # what was seen in it
        self._to_push: list[tuple[ParameterServer, Gradient]] = []
        self._counted: list[bool] = []
        self._fresh = 0  # environment steps that came with the batches
        self._targets: tuple[Version, ...] = ()  # of each target slice
        self._traffic = Traffic()
        self._waited = 0.0
        self._whole = True

    def step(self) -> None:
        """Learn from one batch, then a new version. Sets ``finished`` at the end."""
        if not self._to_push:  # else an error came between two servers: the rest is still to go
            if self._mirror is not None:
                with self.clock("wait for parameters"):
                    self._pull(self._mirror)
            if self._batch is None:  # else an error came after the batch: it is learned again
                with self.clock("wait for experience"):
                    self._batch = self._sample()
            if self._algorithm.target_every:
                self._pull_targets()
            with self.clock("learn"):
                self._values = self._learn(self._batch.to(self._device))
            with self.clock("report"):
                self.finished = self._tracker.report(self._update(self._batch))
        with self.clock("push"):
            self._push()
        if self._mirror is None:
            self._close_round()
        else:
            self._tally()
        self._batch = None
        self.clock.steps += 1

    def restart(self) -> bool:
        """Say whether it can go on after an error: what it holds can be pulled and made anew."""
        return self._mirror is not None

    def save(self) -> None:
        """Hand everything a resume needs to the tracker: copies, taken at a round's edge."""
        states = [server.state() for server in self._servers]
        self._tracker.checkpoint(
            [params for params, _ in states],
            [optimizer for _, optimizer in states],
            {k: v.clone() for k, v in self._aux.items() if not k.startswith(TARGET)},
            self._steps,
        )

    def save_last(self) -> None:
        """Save at the end of a run, if something was learned and it can be saved."""
        if self.clock.steps and self.is_sound():
            self.save()

    def is_sound(self) -> bool:
        """Say whether it can be saved: at the edge of a round, with finite parameters."""
        finite = all(bool(s.state()[0].values.isfinite().all()) for s in self._servers)
        return self._whole and finite

    def _pull(self, mirror: Snapshots) -> None:
        """Load parameters of a version not learned with yet, and pass them on."""
        if self._asynchronous:
            pulled = pull_newest(self._servers)
        elif self.clock.steps:
            pulled = pull_whole(self._servers, self._wanted)
        else:
            pulled = pull_common(self._servers)
        self._count(moved=pulled.moved)
        self._version, self._versions = pulled.version, pulled.versions
        self._flat.values.copy_(pulled.vector)
        if pulled.version > mirror.newest.version:
            mirror.publish(Params(pulled.version, pulled.vector))

    def _sample(self) -> Batch:
        """Return the next batch."""
        return self._replay.sample()

    def _learn(self, batch: Batch) -> dict[str, float]:
        """Run all passes; push all gradients but the last, which waits for `_push`.

        Returns the statistics of the last pass.
        """
        self._whole = False
        algorithm = self._algorithm
        if self._mirror is not None:
            self._steps = self._first_steps + self._share * self._steps_behind(batch)
            algorithm.after(self._aux, {}, self._steps)
        prepared = self._prepare(batch)
        random = generator(
            self._seed, "learner", self._index, self._version.epoch, self._version.number
        )
        passes = [
            torch.split(torch.randperm(prepared.size, generator=random), algorithm.minibatch)
            for _ in range(algorithm.epochs)
        ]
        parts = sum(map(len, passes))
        part = 0
        history: list[dict[str, torch.Tensor]] = []
        for minibatches in passes:
            seen: list[dict[str, torch.Tensor]] = []
            for index in minibatches:
                self._push()
                total, terms = self._forward(prepared, index)
                terms["gradient_norm"] = self._gradient(total)
                seen.append(terms)
                history.append(terms)
                samples = len(index) if parts > 1 else int(batch.mask.sum())
                self._to_push = self._gradients(part, parts, samples, float(total.detach()))
                part += 1
            values = _means(seen)
            _check_finite(values, history, self._version)  # before the push that ends the round
        values["learning_rate"] = algorithm.learning_rate(self._aux)
        if algorithm.source == "buffer":
            self._look_back(batch, prepared, values)
        return values

    def _look_back(self, batch: Batch, prepared: Prepared, values: dict[str, float]) -> None:
        """Drop the gradient of an outlier, and tell the store how much there was to learn."""
        if self._algorithm.is_outlier(self._aux, values["value_loss"]):
            self._to_push.clear()
            self._count(outliers=1)
        if self._mirror is None:  # schedules move at the round's edge
            values["outliers"] = float(self._traffic.outliers)
        else:  # they are among the traffic
            self._algorithm.after(self._aux, values, self._steps)
        if prepared.priorities is not None:
            self._replay.update(batch.keys, batch.generations, prepared.priorities)

    def _steps_behind(self, batch: Batch) -> int:
        """Return the environment steps of this learner's share since it began."""
        if self._algorithm.source == "buffer":
            self._fresh += int(batch.fresh)
            return self._fresh
        rounds = self._version.number - self._first.number
        return rounds * batch.actions.numel()

    def _pull_targets(self) -> None:
        """Load the target slices that are not those of today's updates any more."""
        every = self._algorithm.target_every
        due = tuple(v._replace(number=v.number - v.number % every) for v in self._versions)
        if due == self._targets:
            return
        slices = [server.pull_target() for server in self._servers]
        self._targets = due
        self._count(moved=sum(params.values.nbytes for params in slices))
        vector = torch.cat([params.values for params in slices])
        for name, view in self._flat.layout.views(vector):
            self._aux[TARGET + name] = view

    def _prepare(self, batch: Batch) -> Prepared:
        return self._algorithm.prepare(self._net, batch, self._aux)

    def _forward(
        self, prepared: Prepared, index: torch.Tensor
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        return self._algorithm.loss(self._net, prepared.select(index), self._aux)

    def _gradient(self, total: torch.Tensor) -> torch.Tensor:
        """Write the loss's gradient into the flat vector, clipped; return the norm before."""
        self._flat.zero_gradients()
        torch.autograd.backward(total)
        return self._flat.clip(self._algorithm.gradient_clip)

    def _gradients(
        self, part: int, parts: int, samples: int, loss: float
    ) -> list[tuple[ParameterServer, Gradient]]:
        """Return what each server is to get."""
        rate = self._algorithm.learning_rate(self._aux)
        vector = self._flat.gradients
        return [
            (server, Gradient(self._index, v, part, parts, samples, loss, rate, vector[cut]))
            for server, cut, v in zip(self._servers, self._cuts, self._versions, strict=True)
        ]

    def _push(self) -> None:
        """Push what is to be pushed."""
        while self._to_push:
            server, gradient = self._to_push[0]
            answer = server.push(gradient)
            self._counted.append(answer.counted or answer.reason == REPEATED)
            del self._to_push[0]

    def _close_round(self) -> None:
        """The servers' last step made a version: count it, and move what follows from it.

        A gradient that was dropped as an outlier made none.
        """
        assert self._batch is not None
        if self._counted:
            self._version = self._version._replace(number=self._version.number + 1)
            self._versions = (self._version,) * len(self._servers)
        self._steps += int(self._batch.fresh)
        self._counted.clear()
        self._move_schedules()
        self._whole = True
        self._flat.check()  # a few microseconds a parameter, and a torn view never shows
        if self._tracker.wants_checkpoint():
            with self.clock("report"):
                self.save()

    def _move_schedules(self) -> None:
        self._algorithm.after(self._aux, self._values, self._steps)

    def _tally(self) -> None:
        """Count what became of the gradient, and what crossed to the servers."""
        counted = self._counted.count(True)
        self._count(
            counted=int(counted == len(self._servers)),
            dropped=int(counted == 0 < len(self._counted)),
            torn=int(0 < counted < len(self._servers)),
            moved=self._flat.gradients.nbytes if self._counted else 0,
        )
        self._counted.clear()
        if not self._asynchronous:
            self._wanted = self._version._replace(number=self._version.number + 1)

    def _count(self, **more: int) -> None:
        sums = {name: getattr(self._traffic, name) + count for name, count in more.items()}
        self._traffic = self._traffic._replace(**sums)

    def _update(self, batch: Batch) -> Update:
        """Return what the tracker is told, before the gradient that makes the version is pushed."""
        lag = self._version.number - batch.versions.float()
        waited = sum(s for stage, s in self.clock.seconds.items() if stage.startswith(WAIT))
        before, self._waited = self._waited, waited
        return Update(
            learner=self._index,
            version=self._version._replace(number=self._version.number + 1),
            steps=int(batch.fresh),
            lag=(float(lag.min()), float(lag.mean()), float(lag.max())),
            values=self._values,
            traffic=None if self._mirror is None else self._traffic,
            queue=self._replay.depth,
            waited=waited - before,
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
