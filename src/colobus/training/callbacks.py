"""What a run tells as it goes on: functions of the user, and lines about its files."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colobus.core.files import Events
from colobus.core.timing import now
from colobus.core.types import Episode
from colobus.roles.tracker import Status, Tracker, TrackerSettings
from colobus.runs.folder import CHECKPOINTS
from colobus.runtime.api import RoleState


class StopTraining(Exception):
    """Raise this in a callback to end the run: it is saved as after Ctrl-C.

    Any other exception of a callback is reported once, and the run goes on.
    """


@dataclass(frozen=True)
class Callbacks:
    """Functions that are called about twice a second, between two looks at the run.

    They run on the thread that called `train`, so a slow one delays the next look but not the
    learning. Each is called at least once, at the end of the run, if there is anything to tell.
    """

    on_update: Callable[[Status], object] | None = None
    """Called with the status of the run if it has learned since the call before."""
    on_episode: Callable[[Episode], object] | None = None
    """Called with every episode that the score counts, in order: those of ``episodes.jsonl``.
    ``score`` is its raw return, ``steps`` its length in decisions."""
    on_checkpoint: Callable[[Path], object] | None = None
    """Called with the path of a new checkpoint, which `colobus.load` takes."""


NO_CALLBACKS = Callbacks()


@dataclass(eq=False)
class Caller:
    """Calls the callbacks of a run for what is new."""

    callbacks: Callbacks  # of the user
    folder: Path  # of the run
    log: Callable[[str], None]  # takes a line about the first error of each callback

    def __post_init__(self) -> None:
        self._failed: set[str] = set()
        self._version: int | None = None
        self._episodes = 0
        self._checkpoint = ""
        self._request: StopTraining | None = None  # the first

    def look(self, tracker: Tracker, status: Status) -> None:
        """Call what there is something new for.

        Raises:
            StopTraining: if a callback asked for the end of the run; all others have been called.
        """
        if self.callbacks.on_episode is not None:
            episodes, self._episodes = tracker.episodes_since(self._episodes)
            for episode in episodes:
                self._call("on_episode", episode)
        if status.last_checkpoint and status.last_checkpoint != self._checkpoint:
            self._checkpoint = status.last_checkpoint
            self._call("on_checkpoint", self.folder / CHECKPOINTS / self._checkpoint)
        if status.values and status.version != self._version:
            self._version = status.version
            self._call("on_update", status)
        if self._request is not None:
            raise self._request

    def _call(self, name: str, news: Any) -> None:
        function = getattr(self.callbacks, name)
        if function is None:
            return
        try:
            function(news)
        except StopTraining as request:  # the rest of the news is told before the end
            self._request = self._request or request
        except Exception as error:
            if name in self._failed:
                return
            self._failed.add(name)
            place = traceback.extract_tb(error.__traceback__)[-1]
            self.log(
                f"{name} raised {type(error).__name__}: {error} ({place.filename}, line "
                f"{place.lineno}); the run goes on, and further errors of {name} are not reported"
            )


@dataclass(eq=False)
class Pulse:
    """Writes down every so many seconds what each role does."""

    write: Events
    every: float  # seconds (0: nothing is written), simulated ones in simulated time
    _due: float = -math.inf

    def beat(self, roles: Sequence[RoleState]) -> None:
        """Write a line, if one is due."""
        moment = now()
        if not self.every or moment < self._due:
            return
        self._due = moment + self.every
        self.write(
            {
                "roles": {
                    role.name: {
                        "stage": role.stage,
                        "for": round(role.stuck, 3),
                        "steps": role.steps,
                        "ended": role.ended,
                    }
                    for role in roles
                }
            }
        )


LATE = 3
"""A checkpoint that is this many times as old as ``--checkpoint-seconds`` is reported."""


@dataclass(eq=False)
class Alarms:
    """Says once when writing begins to fail, when it works again, and when checkpoints are late."""

    settings: TrackerSettings
    log: Callable[[str], None]  # takes lines for the user

    def __post_init__(self) -> None:
        self._trouble = self._no_events = ""
        self._late = False

    def look(self, status: Status) -> None:
        """Compare the status with that of the call before."""
        if status.trouble and not self._trouble:
            self.log(
                f"the run's folder cannot be written to: {status.trouble}; training goes on for "
                f"{self.settings.disk_patience:g} s (--disk-patience) and tries again"
            )
        if self._trouble and not status.trouble:
            self.log("the run's folder can be written to again")
        self._trouble = status.trouble
        if status.no_events and not self._no_events:
            self.log(f"no more TensorBoard events: {status.no_events}; the run goes on")
        self._no_events = status.no_events
        every = self.settings.checkpoint_seconds
        late = status.unsaved > max(LATE * every, 30.0)
        if late and not self._late:
            self.log(
                f"the newest checkpoint is {status.unsaved:,.0f} s old, and --checkpoint-seconds "
                f"is {every:g}: what was learned since then would be lost"
            )
        self._late = late
