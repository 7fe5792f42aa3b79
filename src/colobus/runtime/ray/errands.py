"""Errands: commands of Colobus that another host of the cluster does, with files that it is sent.

So an evaluator or a recorder needs no disk in common with the run: it gets a copy of a checkpoint,
and what it makes is sent back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayError

from colobus.core.errors import Closed, Lost
from colobus.runtime.api import Done
from colobus.runtime.host import Errander
from colobus.runtime.ray.process import first_line
from colobus.runtime.ray.remote import NODE

LOOK_SECONDS = 0.5
"""Seconds between two looks whether an errand is still wanted."""

END_SECONDS = 2.0
"""Seconds that an errand has to end, when it is not wanted any more."""

LATE_SECONDS = 60.0
"""Seconds after which an errand that no host has taken is told of."""


class Errands:
    """Has errands done on a host, one at a time; on another than this one if there is any.

    Args:
        what: whose errands, for messages.
        cpus: that the process asks for.
        say: takes lines for the user.
    """

    def __init__(self, what: str, cpus: float, say: Callable[[str], None]) -> None:
        self._what, self._cpus, self._say = what, cpus, say
        self._actor: Any = None
        self._over = False

    def __call__(self, words: Sequence[str], files: Mapping[str, bytes]) -> Done:
        """Run ``colobus WORDS`` there, in a folder with these files.

        Raises:
            Closed: if `close` was called meanwhile.
            Lost: if the process or its host is gone; the next errand gets another.
        """
        if self._actor is None:
            self._actor = self._start()
            self._answer(self._actor.stop.remote(), LATE_SECONDS)  # there is nothing to stop yet
        done: Done = self._answer(self._actor.run.remote(words, files))
        return done

    def close(self) -> None:
        """End the process, with the errand that it does."""
        self._over = True
        if (actor := self._actor) is not None:
            with suppress(RayError):  # it may be gone, or not be there yet
                ray.get(actor.stop.remote(), timeout=END_SECONDS)
            ray.kill(actor)

    def _start(self) -> Any:
        here = ray.get_runtime_context().get_node_id()
        others = [one for one in ray.nodes() if one["Alive"] and one["NodeID"] != here]
        elsewhere = {NODE: f"!in({here})"} if others else None
        asked = {"num_cpus": self._cpus, "max_concurrency": 2, "label_selector": elsewhere}
        return ray.remote(Errander).options(scheduling_strategy="SPREAD", **asked).remote()

    def _answer(self, reference: Any, late: float = float("inf")) -> Any:
        """Wait for an answer; say so if it takes longer than ``late`` seconds."""
        until = time.monotonic() + late
        while not self._over:
            done, _ = ray.wait([reference], timeout=LOOK_SECONDS)
            if done:
                try:
                    return ray.get(reference)
                except RayError as error:
                    self._actor = None
                    raise Lost(first_line(error)) from None
            if time.monotonic() > until:
                until = float("inf")
                self._say(f"the {self._what} waits for a host with {self._cpus:g} free CPU")
        raise Closed
