"""Checkpoints: put together from the slices of all servers, and written by a thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from colobus.core.checkpoint import Checkpoint, file_of, forget_old, is_there, write_checkpoint
from colobus.core.timing import now
from colobus.core.types import AlgorithmState, Params, State, Version
from colobus.ops.flat import Layout
from colobus.roles.tracker.reports import TrackerSettings

SOON_SECONDS = 10.0
"""Until a checkpoint is asked for again that could not be made, at most."""

FIRST_SECONDS, PARTS = 5.0, 8
"""Between the first checkpoints of a run, and into how many parts the time so far is cut after
that, until it is time for the interval of the settings: short runs have some from half way too."""


@dataclass(eq=False)
class Checkpoints:
    """Collects and writes the checkpoints of a run. Only the newest waits to be written."""

    folder: Path  # of the checkpoints
    settings: TrackerSettings  # how often, and how many are kept
    layout: Layout  # names the parameters
    fixed: dict[str, torch.Tensor]  # that every checkpoint holds as they are (input statistics)
    kept: Callable[[], Collection[int]]  # returns versions that are not forgotten
    run: State | None  # what every checkpoint says about the run (`Checkpoint.run`)
    first: bool  # ask for one at once, as the run has none yet

    def __post_init__(self) -> None:
        self._due = now() + (0.0 if self.first else self.settings.checkpoint_seconds)
        self._lock = threading.Lock()
        self._waiting: Checkpoint | None = None
        self._sound: set[str] = set()  # names of those that are known to be complete
        self._order: Version | None = None  # of the one that was written last
        self.newest = ""  # name of its file
        self.number, self.written = -1, now()  # its version, and when it was written

    def is_due(self) -> bool:
        """Return whether the last one is old enough."""
        return now() >= self._due

    def put_off(self) -> None:
        """Ask for one again soon, as this one could not be made."""
        self._due = now() + min(self.settings.checkpoint_seconds, SOON_SECONDS)

    def put(
        self,
        slices: Sequence[Params],
        optimizers: Sequence[dict[str, torch.Tensor]],
        algorithm_state: AlgorithmState,
        steps: int,
        counters: dict[str, Any],
        mixed: bool,
        more: dict[str, torch.Tensor],
    ) -> None:
        """Let `write` write one, with ``more`` tensors as they are; see `Tracker.checkpoint`.

        Raises:
            ValueError: if a slice is missing or of another version.
        """
        versions = [params.version for params in slices]
        if len(set(versions)) != 1 and not mixed:
            raise ValueError(f"a checkpoint needs slices of one version, got {sorted(versions)}")
        size = sum(params.values.numel() for params in slices)
        if size != self.layout.size:
            raise ValueError(f"a checkpoint needs all {self.layout.size} parameters, got {size}")
        wait = max(FIRST_SECONDS, counters["seconds"] / PARTS)
        self._due = now() + min(self.settings.checkpoint_seconds, wait)
        counters = counters | {"parameters": self.layout.count}
        if mixed:
            counters["server_versions"] = [version.number for version in versions]
        tensors = {f"aux/{name}": tensor for name, tensor in algorithm_state.items()} | self.fixed
        tensors |= more
        tensors |= self._name("parameter", torch.cat([params.values for params in slices]))
        for name, first in optimizers[0].items():
            if first.dim() == 0:
                tensors[f"optimizer/{name}"] = first
            else:
                vector = torch.cat([state[name] for state in optimizers])
                tensors |= self._name(f"optimizer/{name}", vector)
        with self._lock:
            self._waiting = Checkpoint(max(versions), steps, tensors, counters, self.run)

    def write(self) -> None:
        """Write the newest that waits, and delete old ones.

        One of the same version as the last is not written again: the last would be incomplete
        meanwhile, and it may be the only one.

        Raises:
            OSError: if the disk is full or the run's folder is gone; it goes on waiting.
        """
        checkpoint = self._waiting
        if checkpoint is None:
            return
        path = file_of(self.folder, checkpoint.version.number)
        again = checkpoint.version == self._order and is_there(path)
        if not again:
            write_checkpoint(self.folder, checkpoint)
        with self._lock:
            if self._waiting is checkpoint:
                self._waiting = None
        if again:
            return
        self._order = checkpoint.version
        self.written = now()  # who sees the name sees its time
        self.newest, self.number = path.name, checkpoint.version.number
        self._sound.add(path.name)
        keep = self.settings.keep_checkpoints
        with contextlib.suppress(OSError):  # the next time
            forget_old(self.folder, keep, path, self._sound, self.run, self.kept())

    def _name(self, prefix: str, vector: torch.Tensor) -> dict[str, torch.Tensor]:
        return {f"{prefix}/{k}": v for k, v in self.layout.named(vector.cpu()).items()}
