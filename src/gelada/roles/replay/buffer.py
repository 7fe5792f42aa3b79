"""ReplayBuffer: keeps experience and hands out windows of it, again and again.

A replay with a memory (Gorila's experience store): what actors add goes into one stream for each
game; learners sample windows cut anywhere in them. It has the interface of a `TrajectoryQueue`, and
`update` for priorities.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from gelada.core.errors import Closed, Deadline, GeladaError
from gelada.core.seeding import sequence
from gelada.core.types import Batch, Floats, Ints, State, Trajectory
from gelada.roles.replay.file import (
    Contents,
    read_about,
    read_arrays,
    streams_from,
    streams_to,
    write_arrays,
)
from gelada.roles.replay.rate_limiter import RateLimiter
from gelada.roles.replay.ring import Rings
from gelada.roles.replay.sampling import Priorities, Prioritized, Select
from gelada.roles.replay.windows import as_batch


class Offer(NamedTuple):
    """What a store has for whoever chooses between several."""

    depth: int  # steps that it keeps
    mass: float  # sum of its priorities, or the number of its windows
    ready: bool  # a batch could be taken now


class ReplayBuffer:
    """The newest steps of every game. Actors add, learners sample; passive.

    A window never crosses the end of an actor's unbroken play. It may show two games: the steps
    after the first end in it (terminated, truncated or a game over) have ``mask`` False.

    Args:
        capacity: steps kept of all games together; each game keeps the same share. Oldest out.
        windows: windows of a batch (N).
        length: steps of a window (T).
        streams: games of all actors that add here.
        stack: frames of an observation (K).
        frame_shape: H, W.
        select: which windows are drawn how often.
        limiter: when actors may add and learners may sample.
        patience: seconds that `sample` and `room` wait before they give up (0: never wait).
        seed: of the run.
        index: which store this is.

    Raises:
        GeladaError: if the capacity is too small for the games, for a window or for the limiter.
    """

    def __init__(
        self,
        capacity: int,
        windows: int,
        length: int,
        streams: int,
        stack: int,
        frame_shape: tuple[int, int],
        select: Select,
        limiter: RateLimiter,
        patience: float = 600.0,
        seed: int = 1,
        index: int = 0,
    ) -> None:
        if limiter.minimum > capacity:
            raise GeladaError(
                f"the first batch waits for {limiter.minimum:,} steps, and the store keeps "
                f"{capacity:,}; lower that or raise --capacity"
            )
        self._rings = Rings(capacity, streams, length, stack, frame_shape)
        self._select = select
        self._priorities = (
            Priorities(self._rings.places, windows, select)
            if isinstance(select, Prioritized)
            else None
        )
        self._windows, self._limiter, self._patience = windows, limiter, patience
        self._random = np.random.default_rng(sequence(seed, "store", index))
        self._fresh = 0  # steps added since the sample before
        self._changed = threading.Condition()
        self._closed = False

    @property
    def depth(self) -> int:
        """Steps that are kept now."""
        with self._changed:
            return self._rings.size

    @property
    def nbytes(self) -> int:
        """Bytes of everything that is kept for steps."""
        tree = 0 if self._priorities is None else self._priorities.tree.nbytes
        return self._rings.nbytes + tree

    def wait_for_room(self) -> None:
        """Wait until another trajectory is wanted.

        Raises:
            Deadline: if none was within the patience.
            Closed: if the run stops.
        """
        with self._changed:
            if not self._changed.wait_for(self._wanted, self._patience):
                raise Deadline(
                    f"no room for {self._patience:g} s: the learners take no batches "
                    f"({self._limiter.added:,} steps added, {self._limiter.sampled:,} windows "
                    "sampled)"
                )
            if self._closed:
                raise Closed

    def add(self, trajectory: Trajectory) -> None:
        """Keep a trajectory. Never waits for others.

        Raises:
            GeladaError: if it is longer than what is kept of a game, or of one game too many.
        """
        with self._changed:
            if self._closed:
                raise Closed
            appended = self._rings.append(trajectory)
            if self._priorities is not None:
                self._priorities.append(appended)
            self._limiter.added += trajectory.actions.size
            self._fresh += trajectory.actions.size
            self._changed.notify_all()

    def sample(self, patience: float | None = None) -> Batch:
        """Return windows, waiting until there are enough steps and the limiter allows it.

        Keys tell where windows begin, generations how often that place was overwritten.

        Args:
            patience: seconds to wait at most, instead of the store's own.

        Raises:
            Deadline: if there was no batch within the patience.
            Closed: if the run stops.
        """
        patience = self._patience if patience is None else patience
        with self._changed:
            if not self._changed.wait_for(lambda: self._closed or self._ready(), patience):
                raise Deadline(
                    f"no batch for {patience:g} s: the actors send too little "
                    f"({self._limiter.added:,} steps added, {self._limiter.minimum:,} are the "
                    f"least, {self._limiter.sampled:,} windows sampled)"
                )
            if self._closed:
                raise Closed
            keys, weights = self._draw()
            windows = self._rings.gather(keys)
            fresh, self._fresh = self._fresh, 0
            self._limiter.sampled += self._windows
            self._changed.notify_all()  # actors may be wanted now
        return as_batch(windows, keys, weights, fresh)

    def update(
        self, keys: torch.Tensor, generations: torch.Tensor, priorities: torch.Tensor
    ) -> None:
        """Set the priorities [M] of windows that were sampled; of those overwritten since, none.

        Without priorities it does nothing.

        Raises:
            ValueError: if one is below 0 or no finite number.
        """
        if self._priorities is None:
            return
        places = keys.cpu().numpy()
        errors = priorities.detach().cpu().numpy().astype(np.float64)
        with self._changed:
            alive = self._rings.generations(places) == generations.cpu().numpy()
            if not alive.all():
                places, errors = places[alive], errors[alive]
            self._priorities.update(places, errors)

    def offer(self) -> Offer:
        """Return what there is to sample now; never waits."""
        with self._changed:
            windows = self._rings.windows
            mass = windows if self._priorities is None else self._priorities.tree.total
            return Offer(self.depth, float(mass), self._ready())

    def close(self) -> None:
        """Wake everybody who waits; from now on all calls raise `Closed`."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def save(self, folder: Path) -> Path:
        """Write everything to ``store.safetensors`` in ``folder``; return the path.

        Actors and learners wait meanwhile. What was saved before stays until all is written.

        Raises:
            CannotWrite: if the disk is full or the folder cannot be written.
        """
        path = folder / "store.safetensors"
        with self._changed:
            about = {
                "layout": self._layout(),
                "streams": streams_to(self._rings.streams),
                "added": self._limiter.added,
                "sampled": self._limiter.sampled,
                "fresh": self._fresh,
                "largest": 1.0 if self._priorities is None else self._priorities.largest,
                "random": self._random.bit_generator.state,
            }
            write_arrays(path, self._contents(), about)
        return path

    def load(self, folder: Path) -> None:
        """Take over what `save` wrote; then the store is as it was, and goes on alike.

        Raises:
            GeladaError: if it is not there, damaged or of other settings; nothing has changed.
        """
        path = folder / "store.safetensors"
        about = read_about(path)
        for name, mine in self._layout().items():
            saved = about["layout"].get(name)
            if saved != mine:
                raise GeladaError(
                    f"the store in {folder} has {name} {saved}, this run {mine}; resume with the "
                    "settings of the run that saved it"
                )
        with self._changed:
            self._rings.restore(streams_from(about["streams"]))
            if self._priorities is not None:
                self._priorities.tree.weights[:] = 0.0
            read_arrays(path, self._contents())
            self._limiter.added, self._limiter.sampled = about["added"], about["sampled"]
            self._fresh = about["fresh"]
            self._random.bit_generator.state = about["random"]
            if self._priorities is not None:
                self._priorities.largest = about["largest"]
                self._priorities.tree.sum_anew()
            self._changed.notify_all()

    def _ready(self) -> bool:
        return self._limiter.may_sample() and self._rings.windows > 0

    def _wanted(self) -> bool:
        """Say whether actors may add; always while there is nothing to sample, whatever is due."""
        return self._closed or self._limiter.may_add() or self._rings.windows == 0

    def _draw(self) -> tuple[Ints, Floats]:
        """Return keys int64[N] and importance weights float32[N]."""
        if self._priorities is not None:
            return self._priorities.draw(self._random)
        return (
            self._rings.draw(self._windows, self._random),
            np.ones(self._windows, dtype=np.float32),
        )

    def _layout(self) -> State:
        """Return what a saved store must have in common with this one."""
        rings = self._rings
        return {
            "steps per game": rings.kept,
            "games": rings.games,
            "window": rings.length,
            "stack": rings.stack,
            "frame": list(rings.frame_shape),
            "selection": str(self._select),
        }

    def _contents(self) -> Contents:
        """Return what is kept, as views by name: only places that were ever written."""
        rings = self._rings
        contents: Contents = {}
        for stream in rings.streams.values():
            used = rings.used(stream)
            if self._priorities is not None:
                contents[f"{stream.index}/weights"] = self._priorities.tree.weights[used]
            for name in rings.steps._fields:
                contents[f"{stream.index}/{name}"] = getattr(rings.steps, name)[used]
            contents[f"{stream.index}/frames"] = rings.frames[used]
        return contents
