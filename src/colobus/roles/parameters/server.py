"""ParameterServer: owns one slice of the parameters and its optimizer state.

It accepts or drops gradients, steps the optimizer, and publishes snapshots of the parameters. In a
run with a single learner it steps the learner's parameters in place, as an ordinary optimizer does.
In other runs it has memory of its own, as the servers of Gorila and DBA3C. The code is the same.

Admission: the rule by which a parameter server accepts or drops gradients.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from colobus.core.errors import Deadline
from colobus.core.timing import Clock, Condition
from colobus.core.types import Answer, Exchanged, Gradient, Params, Version
from colobus.ops.optimizers import Optimizer, OptimizerSettings
from colobus.roles.parameters.published import ANY, PublishedParameters
from colobus.roles.update_schedule import is_kept


@dataclass(frozen=True)
class Admission:
    """Which gradients a server accepts, and how many of them make a step.

    In a synchronous run a step takes the first ``needed`` gradients of the newest version, and
    later ones are dropped. If there are more learners than that, the others are backup workers
    (Chen et al. 2016; DBA3C). In an asynchronous one every gradient makes a step, unless it is too
    stale (Gorila).
    """

    needed: int
    """Gradients that make a step."""
    max_staleness: int = 0
    """Steps of the server since the version of a gradient that counts, at most."""

    def refusal(self, computed: Version, now: Version) -> str:
        """Return why to drop a gradient computed from ``computed`` at version ``now``, or ""."""
        behind = now.number - computed.number
        if 0 <= behind <= self.max_staleness:
            return ""
        return f"{behind} steps old, at most {self.max_staleness} count"


REPEATED = "already there"
"""Reason for dropping a gradient that was sent twice. Its first copy was accepted."""

PREVIOUS = "previous"
"""Name of the slice of the version before, in the optimizer's state."""

TARGET = "target"
"""Name of the target slice in the optimizer's state, with which it is saved and restored."""

OptimizerState = dict[str, torch.Tensor]


@dataclass(frozen=True)
class ServerSettings:
    """Settings of a parameter server."""

    name: str = "server"
    """Name in messages."""
    patience: float = 600.0
    """Seconds after which `ParameterServer.pull` raises `Deadline` (0: it does not wait)."""
    keep_every: int = 0
    """Keep a copy of parameters and optimizer state at versions divisible by this and at the first,
    so that all slices of a checkpoint have the same version (0: never)."""
    target_every: int = 0
    """Copy the slice to the target slice at versions divisible by this (Nair et al. 2015: every N
    global updates; 0: no target slice)."""
    target_tau: float = 1.0
    """Share of the slice in the target slice after such a copy; the rest is what was there
    before."""
    previous: bool = False
    """Save and restore the slice of the version before too: a run that goes on exactly plays its
    first rollouts with it."""
    broadcast_every: int = 1
    """Publish the parameters at versions divisible by this; other versions cannot be pulled."""


class ParameterServer:
    """One slice ``values`` float32[P] with its optimizer. Other roles call its methods.

    Args:
        values: the slice, stepped in place. If it is a view of a learner's parameters, that learner
            has the result of each step without a pull.
        optimizer: settings of the optimizer.
        admission: rule by which gradients are accepted.
        version: version of ``values``.
        settings: see `ServerSettings`.
        state: initial state of the optimizer, by name; a missing name gets a new state. ``target``
            is the target slice; if it is missing, ``values`` are the first target slice.
            ``previous`` is the slice of the version before, which can then be pulled too.
        scales: float32[P], factors of the learning rate (None: 1 for all parameters).
    """

    def __init__(
        self,
        values: torch.Tensor,
        optimizer: OptimizerSettings,
        admission: Admission,
        version: Version,
        settings: ServerSettings | None = None,
        state: OptimizerState | None = None,
        scales: torch.Tensor | None = None,
    ) -> None:
        settings, state = settings or ServerSettings(), state or {}
        self._settings, self.name = settings, settings.name
        self.values = values
        self.optimizer = Optimizer(values, optimizer, scales)
        self._load(state)
        self._admission, self._needed = admission, admission.needed
        self._version = version
        self._part = 0
        self._before: tuple[torch.Tensor, OptimizerState] | None = None  # a round of several steps
        self._stepping = False  # in a step of the optimizer
        self._waiting: dict[int, Gradient] = {}  # by learner, of the current version and part
        self._taken: dict[int, tuple[Version, int]] = {}  # newest that was accepted, by learner
        params = Params(version, on_host(values))
        self._previous: Params | None = None
        if settings.previous and PREVIOUS in state:
            before = version._replace(number=version.number - 1)
            self._previous = Params(before, on_host(state[PREVIOUS]))
        self._snapshots = PublishedParameters(
            params, patience=settings.patience, before=self._previous
        )
        self._target: Params | None = None
        if settings.target_every:
            copied = version.number - version.number % settings.target_every
            first = on_host(state.get(TARGET, values))
            self._target = Params(version._replace(number=copied), first)
        self._kept: tuple[Params, OptimizerState] | None = None
        self._lock, self.clock = Condition(), Clock()

    def push(self, gradient: Gradient) -> Answer:
        """Accept or drop a gradient, and step when there are enough. Never waits.

        A gradient that was sent twice is accepted once. A gradient of another incarnation, of
        another part, or refused by the admission rule is dropped. The answer has the current
        version.
        """
        with self._lock:
            mark = (gradient.version, gradient.part)
            if mark <= self._taken.get(gradient.learner, (Version(-1, 0), 0)):
                return Answer(self._version, False, REPEATED)
            if reason := self.refusal(gradient):
                return Answer(self._version, False, reason)
            self._taken[gradient.learner] = mark
            self._waiting[gradient.learner] = gradient
            if len(self._waiting) < self._needed:  # a copy, as the learner may overwrite its own
                with self.clock("take a gradient"):
                    kept = gradient._replace(values=gradient.values.clone())
                self._waiting[gradient.learner] = kept
            else:
                self._step(list(self._waiting.values()))
            return Answer(self._version, True, "")

    def exchange(self, gradient: Gradient, at_least: Version) -> Exchanged:
        """Push a gradient, then wait as `pull` does; one call for a learner elsewhere."""
        return Exchanged(self.push(gradient), self.pull(at_least))

    def pull(self, at_least: Version = ANY, exactly: bool = False) -> Params:
        """Wait for a snapshot and return it; see `PublishedParameters.pull`.

        Raises:
            Deadline: if it took longer than ``patience``; the message names the learners whose
                gradients have arrived.
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
        """Return the current target slice; a server with ``target_every`` has one. Never waits."""
        assert self._target is not None
        return self._target

    def state(self) -> tuple[Params, OptimizerState]:
        """Return the parameters as `Params` and copies of the optimizer's state.

        Between two rounds both are of the newest version, also if that was not published.
        """
        with self._lock:
            params = self._snapshots.newest
            if params.version != self._version:
                params = Params(self._version, on_host(self.values))
            return params, self._copy()

    def kept(self, above: Version) -> tuple[Params, OptimizerState] | None:
        """Return the newest kept copy (`ServerSettings.keep_every`); None if none is that new."""
        kept = self._kept
        return kept if kept and kept[0].version > above else None

    def need(self, count: int) -> None:
        """Set the number of gradients of a step, which is lower while learners are lost."""
        with self._lock:
            self._needed = count
            if len(self._waiting) >= count:
                self._step(list(self._waiting.values()))

    def go_back(self, version: Version) -> bool:
        """Undo all steps of the round since a version, as if no gradient of it had come.

        Returns:
            False if that is not possible: the version is not the newest, or an error interrupted
            the only step of a round. Then nothing changes.
        """
        with self._lock:
            if self._version != version or (self._stepping and self._before is None):
                return False
            if self._before is not None:
                values, optimizer = self._before
                self.values.copy_(values)
                self._load(optimizer)
            self._before, self._stepping, self._part = None, False, 0
            self._waiting.clear()
            self._taken.clear()
            return True

    def close(self) -> None:
        """End all waiting. Pulls raise `Closed` from now on."""
        self._snapshots.close()

    def refusal(self, gradient: Gradient) -> str:
        """Return why to drop a gradient, or "" to accept it."""
        if gradient.version.incarnation != self._version.incarnation:
            return f"of incarnation {gradient.version.incarnation}, now {self._version.incarnation}"
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
        copy |= {TARGET: self._target.values} if self._target else {}
        return copy | ({PREVIOUS: self._previous.values} if self._previous else {})

    def _step(self, gradients: list[Gradient]) -> None:
        """Step with the mean of the gradients over all samples, summed in the order of learners."""
        gradients.sort(key=lambda g: g.learner)
        rate = sum(g.learning_rate for g in gradients) / len(gradients)
        if self._part == 0 and gradients[0].parts > 1:
            newest = self._snapshots.newest
            values = newest.values if newest.version == self._version else self.values.clone()
            self._before = values, self._copy()
        self._stepping = True
        with self.clock("step"):
            self.optimizer.step(_mean(gradients), rate)
        self._stepping = False
        self._waiting.clear()
        self._part += 1
        if self._part == gradients[0].parts:
            self._part, self._before = 0, None
            self._version = self._version._replace(number=self._version.number + 1)
            self.publish()

    def publish(self) -> None:
        """Publish the parameters of a new version, or copy them, where the settings ask for it."""
        number, settings = self._version.number, self._settings
        intervals = (settings.target_every, settings.broadcast_every)
        copied, told = (every > 0 and number % every == 0 for every in intervals)
        kept = is_kept(number, settings.keep_every)
        if not (copied or kept or told):
            return
        params = Params(self._version, on_host(self.values))
        if settings.previous:
            self._previous = self._snapshots.newest
        if copied:
            values = params.values
            if settings.target_tau != 1.0 and self._target is not None:
                values = torch.lerp(self._target.values, values, settings.target_tau)
            self._target = params._replace(values=values)
        if kept:
            self._kept = (params, self._copy())
        if told:
            self._snapshots.publish(params)


def on_host(values: torch.Tensor) -> torch.Tensor:
    """Return a copy in the memory of the host; the copy of what is on a GPU waits for it."""
    return values.clone() if values.device.type == "cpu" else values.cpu()


def _mean(gradients: list[Gradient]) -> torch.Tensor:
    """Return the mean gradient of all samples, as if one learner had computed it.

    All operations are element-wise, so the result does not depend on the number of slices.
    """
    if len(gradients) == 1:
        return gradients[0].values
    total = sum(float(g.samples) for g in gradients)
    first, *rest = ((g.values, float(g.samples) / total if total else 0.0) for g in gradients)
    mean = first[0] * first[1]
    for values, weight in rest:
        mean.add_(values, alpha=weight)
    return mean
