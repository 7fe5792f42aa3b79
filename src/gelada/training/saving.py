"""What a run leaves behind to go on from: checkpoints put together from slices, and experience."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from gelada.algorithms.api import Algorithm
from gelada.core.types import Aux, Params, Version
from gelada.roles.learner import Learner
from gelada.roles.parameters.server import OptimizerState, ParameterServer
from gelada.roles.replay.buffer import ReplayBuffer
from gelada.roles.tracker import Tracker

Slice = tuple[Params, OptimizerState]


class LearnerSaver:
    """For a learner whose memory the servers step: it saves itself at the edges of its rounds."""

    def __init__(self, learner: Learner, name: str) -> None:
        self._learner, self._name = learner, name

    def look(self) -> None:
        """Do nothing: the learner looks after every round."""

    def needs(self, hung: Sequence[str]) -> bool:
        """Say whether the last save has to wait for roles that have not ended yet."""
        return self._name in hung

    def last(self, hung: Sequence[str]) -> None:
        """Save the newest version, unless the learner may be in the middle of a round."""
        if self._name not in hung:
            self._learner.save_last()


class SliceSaver:
    """Hands slices of one version to the tracker.

    Every server puts a copy aside at the same versions. They are not there at the same moment, so
    whoever watches over the run calls `look` now and then.

    Args:
        servers: in the order of their slices.
        learners: their names; the last save waits for them.
        tracker: writes the checkpoints.
        algorithm: its own state is worked out from the steps.
        first: version that the run began with, which needs no saving.
        mixed: the servers' versions may differ (asynchronous runs).
        log: told about a checkpoint that could not be put together.
    """

    def __init__(
        self,
        servers: Sequence[ParameterServer],
        learners: Sequence[str],
        tracker: Tracker,
        algorithm: Algorithm,
        first: Version,
        mixed: bool,
        log: Callable[[str], None],
    ) -> None:
        self._servers, self._tracker, self._algorithm = servers, tracker, algorithm
        self._learners = set(learners)
        self._mixed, self._log = mixed, log
        self._saved = first

    def look(self) -> None:
        """Save what the servers have put aside, if it is complete and due."""
        if self._tracker.wants_checkpoint():
            self._save_kept()

    def needs(self, hung: Sequence[str]) -> bool:
        """Say whether the last save has to wait for roles that have not ended yet."""
        return bool(self._learners.intersection(hung))

    def last(self, hung: Sequence[str]) -> None:  # noqa: ARG002 - the servers are always sound
        """Save the newest version, when the learners have ended."""
        slices = [server.state() for server in self._servers]
        versions = [params.version for params, _ in slices]
        if not all(bool(params.values.isfinite().all()) for params, _ in slices):
            return
        if len(set(versions)) == 1 or self._mixed:
            if max(versions) > self._saved:
                self._save(slices)
            return
        numbers = ", ".join(f"server-{i} at {v.number}" for i, v in enumerate(versions))
        self._log(f"the newest parameters are of several versions ({numbers}): passed over")
        self._save_kept()

    def _save_kept(self) -> None:
        slices = [server.kept() for server in self._servers]
        whole = [part for part in slices if part is not None]
        versions = {params.version for params, _ in whole}
        if len(whole) == len(slices) and len(versions) == 1 and max(versions) > self._saved:
            self._save(whole)

    def _save(self, slices: Sequence[Slice]) -> None:
        version = max(params.version for params, _ in slices)
        steps = self._tracker.steps_at(version.number)
        steps = self._tracker.status().steps if steps is None else steps
        self._tracker.checkpoint(
            [params for params, _ in slices],
            [optimizer for _, optimizer in slices],
            aux_at(self._algorithm, steps),
            steps,
            mixed=self._mixed,
        )
        self._saved = version


def aux_at(algorithm: Algorithm, steps: int) -> Aux:
    """Return an algorithm's own state where nothing but the steps decides it."""
    aux: dict[str, torch.Tensor] = algorithm.start()
    algorithm.after(aux, {}, steps)
    return aux


def save_buffers(roles: Mapping[str, Any], folder: Path, log: Callable[[str], None]) -> None:
    """Save the replay buffers of a run that has ended.

    Raises:
        CannotWrite: if the disk is full; what was saved before is kept.
    """
    for name, buffer in _buffers(roles):
        log(f"saving {buffer.depth:,} steps of experience")
        buffer.save(folder / STORES / name)


def load_buffers(roles: Mapping[str, Any], folder: Path, log: Callable[[str], None]) -> None:
    """Fill the replay buffers with what the run has saved before.

    Raises:
        GeladaError: if a file is damaged, or of a buffer with other settings.
    """
    for name, buffer in _buffers(roles):
        if (folder / STORES / name).exists():
            buffer.load(folder / STORES / name)
            log(f"{name}: {buffer.depth:,} steps of experience are back")
        else:
            log(f"{name}: no experience was saved; it begins empty")


STORES = "stores"
"""Folder of a run for its replay buffers, with ``--keep``."""


def _buffers(roles: Mapping[str, Any]) -> list[tuple[str, ReplayBuffer]]:
    return [(name, role) for name, role in roles.items() if isinstance(role, ReplayBuffer)]
