"""What a user is told about the files of a run while it goes on."""

from __future__ import annotations

from collections.abc import Callable

from gelada.roles.tracker import Status, TrackerSettings

LATE = 3
"""A checkpoint that is this many times as old as ``--checkpoint-seconds`` is reported."""

LEAST_SECONDS = 30.0
"""… but not one that is younger than this."""


class Alarms:
    """Says once when writing begins to fail, when it works again, and when checkpoints stay away.

    Args:
        settings: of the tracker.
        log: takes lines for the user.
    """

    def __init__(self, settings: TrackerSettings, log: Callable[[str], None]) -> None:
        self._settings, self._log = settings, log
        self._trouble = self._no_events = ""
        self._late = False

    def look(self, status: Status) -> None:
        """Compare the status with that of the call before."""
        if status.trouble and not self._trouble:
            self._log(
                f"the run's folder cannot be written to: {status.trouble}; training goes on for "
                f"{self._settings.disk_patience:g} s (--disk-patience) and tries again"
            )
        if self._trouble and not status.trouble:
            self._log("the run's folder can be written to again")
        self._trouble = status.trouble
        if status.no_events and not self._no_events:
            self._log(f"no more TensorBoard events: {status.no_events}; the run goes on")
        self._no_events = status.no_events
        self._look_at_age(status.unsaved)

    def _look_at_age(self, unsaved: float) -> None:
        every = self._settings.checkpoint_seconds
        late = unsaved > max(LATE * every, LEAST_SECONDS)
        if late and not self._late:
            self._log(
                f"the newest checkpoint is {unsaved:,.0f} s old, and --checkpoint-seconds is "
                f"{every:g}: what was learned since then would be lost"
            )
        self._late = late
