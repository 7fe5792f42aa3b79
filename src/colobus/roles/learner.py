"""Learner: turns batches into gradients.

learner = Learner(...)
while not learner.finished:
    learner.step()    # one round: pull, sample a batch, compute gradients, report, push
"""

from __future__ import annotations

import errno
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from colobus.algorithms.api import LEARNING_RATE, TARGET, Algorithm
from colobus.core.errors import CannotWrite
from colobus.core.timing import WAIT, Clock
from colobus.core.types import Batch, Update, Version
from colobus.nets.autoencoder import Decoder
from colobus.nets.network import Network
from colobus.nets.observations import reconstruct, some_stacks
from colobus.roles.backprop import Backprop
from colobus.roles.parameters.client import ParameterClient
from colobus.roles.replay.api import ReplayReader
from colobus.roles.replay.minibatch_buffer import MinibatchBuffer, Use
from colobus.roles.schedule import Schedule
from colobus.roles.tracker import Tracker

if TYPE_CHECKING:
    from colobus.roles.probe import Probe


@dataclass(eq=False)
class Learner:
    """Learns from one fresh batch after the other; active."""

    index: int  # which learner this is
    algorithm: Algorithm  # says which gradients are outliers
    client: ParameterClient  # of the parameter servers
    compute: Backprop  # turns batches into gradients
    schedule: Schedule  # the algorithm's own state
    replay: ReplayReader  # where fresh batches come from
    tracker: Tracker  # is told about every round; says when to stop
    saves: bool = False
    """Write checkpoints between rounds: for a learner that shares its servers with none."""
    reuse: MinibatchBuffer | None = None  # what a round uses besides its fresh batch
    before_save: Callable[[Version], None] | None = None
    """Called with the version before each checkpoint; writes what belongs to it."""
    threads: int = 1  # of torch
    probe: Probe | None = None  # looks into the network now and then, for metrics

    def __post_init__(self) -> None:
        self.name = f"learner-{self.index}"
        self.clock = Clock()
        self.finished = False
        self._reuse = self.reuse or MinibatchBuffer(1, self.algorithm.epochs)
        self._begun = False
        self._in_round = False
        self._batch: Batch | None = None  # the fresh one of this round
        self._uses: list[Use] | None = None  # what it learns from in this round
        self._shown: torch.Tensor | None = None  # stacks of the last one, for the next picture
        self._over: bool | None = None  # what the tracker answered to this round's report
        self._values: dict[str, float] = {}  # found in it
        self._waited = 0.0  # seconds, up to the last report

    @property
    def device(self) -> torch.device:
        """Where the parameters are, and the batches are learned from."""
        return self.client.flat.values.device

    def step(self) -> None:
        """Learn from one fresh batch. Sets ``finished`` when the run should end."""
        client = self.client
        if not self._begun:
            self.schedule.begin(self.tracker.begin(self.name))
            self._begun = True
            if client.member is not None:
                client.member.clock = self.clock
        if self._over is None or not client.pending:  # else an error came between two servers
            with self.clock("wait for parameters"):
                client.pull()
            if self._batch is None:  # else an error came after the batch: it is learned again
                with self.clock("wait for experience"):
                    self._batch = self.replay.sample()
                if client.member is not None:  # all begin the round, or none
                    client.member.any(False)
            targets = client.pull_targets().items()
            self.schedule.algorithm_state.update(
                (TARGET + name, values) for name, values in targets
            )
            with self.clock("learn"):
                self._learn(self._batch)
                self._batch = self._shared(self._batch)
                # of what was measured nowhere nothing is said, and nothing follows
                self._values = {n: value for n, value in self._values.items() if value > -math.inf}
            if self._over is None:  # else an error came after the report: it counts once
                with self.clock("report"):
                    self._over = self._report(self._batch)
        with self.clock("push"):
            client.push(last=bool(self._over))
        assert self._batch is not None
        batch, self._batch, self._uses = self._batch, None, None
        self.finished, self._over = bool(self._over), None
        self.end_round(batch)
        self.clock.steps += 1

    def end_round(self, batch: Batch) -> None:
        """Count the round, move the schedules, and save if a checkpoint is due."""
        self.client.end_round()
        self.schedule.after(batch, self._values)
        self._in_round = False
        if self.saves:
            net = self.client.flat.module
            if isinstance(net, Network) and isinstance(net.auxiliary, Decoder):
                self._shown = some_stacks(batch.frames, batch.ages, net.stack)
            if self.tracker.wants_checkpoint():
                with suppress(CannotWrite):  # the tracker was told, and wants another one soon
                    self.save()

    def restart(self) -> bool:
        """Go back to the beginning of the round after an error; return whether that is possible."""
        counting = self._batch is None and self._in_round  # learned, but not counted yet
        grouped = self.client.member is not None  # the others go on, or have ended
        if counting or grouped or not self.client.go_back():
            return False
        self._in_round = False
        return True

    def leave(self) -> None:
        """Let the others of a group go, unless all of them end with the same round."""
        if self.client.member is not None and not self.finished:
            self.client.member.leave()

    def save(self) -> None:
        """Hand everything that a resumed run needs to the tracker, as copies.

        Raises:
            CannotWrite: if what belongs to the checkpoint, such as a replay buffer, cannot be
                written. The tracker has been told.
        """
        if self.before_save is not None:
            try:
                with self.clock("wait for the disk"):  # also for one that hangs
                    self.before_save(self.client.version)
            except CannotWrite as error:
                self.tracker.beside(OSError(errno.EIO, str(error)))
                raise
            self.tracker.beside(None)
        with self.clock("report"):
            states = self.client.states()
            self.tracker.checkpoint(
                [params for params, _ in states],
                [optimizer for _, optimizer in states],
                {
                    k: v.clone()
                    for k, v in self.schedule.algorithm_state.items()
                    if not k.startswith(TARGET)
                },
                self.schedule.steps,
            )
            if self._shown is not None:
                net = self.client.flat.module
                assert isinstance(net, Network)
                self.tracker.picture(*reconstruct(net, self._shown), self.schedule.steps)

    def save_last(self) -> bool:
        """Save at the end of a run; return False if something was learned that cannot be saved.

        Raises:
            CannotWrite: as `save` does.
        """
        if not self.is_sound():
            return False
        if self.clock.steps:
            self.save()
        return True

    def is_sound(self) -> bool:
        """Return whether it can be saved: between two rounds, with finite parameters."""
        if self._in_round:
            return False
        return all(bool(params.values.isfinite().all()) for params, _ in self.client.states())

    def _learn(self, batch: Batch) -> None:
        """Compute the round's gradients; the last one stays pending, unless it is an outlier."""
        self._in_round = True
        self.schedule.before(batch, self.client.version)
        algorithm_state = self.schedule.algorithm_state
        if self._uses is None:  # else an error came: the same batches are learned from again
            self._uses = self._reuse.take(batch.to(self.device))
        self._values, priorities = self.compute.run(
            self._uses, self.client, algorithm_state, self._send
        )
        self._values[LEARNING_RATE] = float(algorithm_state[LEARNING_RATE])
        if self.probe is not None:
            self.probe.look(self.client.flat, batch, self.client.version.number)
        if self.algorithm.is_outlier(algorithm_state, self._values.get("value_loss", 0.0)):
            self.client.discard()
        if priorities is not None:
            self.replay.update(batch.keys, batch.generations, priorities)

    def _send(self, part: int, parts: int, samples: float | torch.Tensor) -> None:
        """Offer a gradient, and push it unless it is the round's last, which waits for the report.

        See `colobus.roles.backprop.Send`.
        """
        self.client.offer(part, parts, samples, float(self.schedule.algorithm_state[LEARNING_RATE]))
        if part + 1 < parts:
            self.client.push()

    def _shared(self, batch: Batch) -> Batch:
        """Return the batch, in a group with the steps of all learners; take over their values."""
        member = self.client.member
        if member is None:
            return batch
        self._values, steps = member.share(self._values, int(batch.fresh))
        return batch._replace(fresh=torch.tensor(steps))

    def _report(self, batch: Batch) -> bool:
        """Tell the tracker about the round; return whether the run should end.

        The first learner of a group reports for all, and all end with the same round.
        """
        member, over = self.client.member, False
        if member is None or member.rank == 0:
            over, steps = self.tracker.report(self._update(batch))
            self.schedule.hear(steps)
        return over if member is None else member.any(over)

    def _update(self, batch: Batch) -> Update:
        """Return what the tracker is told, before the gradient that makes the version is pushed."""
        version = self.client.version
        lag = version.number - batch.versions[~batch.replayed].float()
        waited = sum(s for stage, s in self.clock.seconds.items() if stage.startswith(WAIT))
        before, self._waited = self._waited, waited
        return Update(
            learner=self.index,
            version=version._replace(number=version.number + 1),
            steps=int(batch.fresh),
            lag=(float(lag.min()), float(lag.mean()), float(lag.max())),
            values=self._values | (self.probe.values if self.probe else {}),
            traffic=self.client.traffic,
            outliers=self.client.outliers,
            queue=self.replay.depth,
            waited=waited - before,
        )
