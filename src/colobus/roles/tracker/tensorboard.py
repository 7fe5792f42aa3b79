"""TensorBoard events: a convenience that must never hold up a run or its checkpoints.

Metrics have the names there that CleanRL and others use.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from colobus.core.types import Episode

MOST = 1000
"""Lines that wait to be written; further ones are left out."""

END_SECONDS = 5.0
"""How long the end of a run waits for the last events."""


class TensorBoard:
    """Writes lines of metrics as TensorBoard events, on a thread of its own.

    The library has a thread and a short queue of its own, and whoever adds an event while that
    thread is dead or its disk hangs, waits for ever. Here only this class's own thread does.

    Args:
        folder: of the events.
        settings: of the run by name, written once as a table.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any] | None = None) -> None:
        self._folder, self._settings = folder, settings or {}
        self.trouble = ""  # why there are no events any more
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue(MOST)
        self._hook_before = threading.excepthook
        self._hook = self._note_library_error  # one object, as each access makes a new one
        threading.excepthook = self._hook
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        self._thread.start()

    def put(self, line: dict[str, Any]) -> None:
        """Let the thread write a line; ``steps`` is its time axis. Never waits."""
        if self.trouble:
            return
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self.trouble = "they cannot be written as fast as they come"

    def close(self) -> None:
        """Write the rest, for at most `END_SECONDS`."""
        with suppress(queue.Full):
            self._lines.put_nowait(None)
            self._thread.join(END_SECONDS)
        if threading.excepthook is self._hook:
            threading.excepthook = self._hook_before

    def _note_library_error(self, args: threading.ExceptHookArgs) -> None:
        """Keep the error that ended the library's own thread, instead of printing its traceback."""
        if type(args.thread).__module__.startswith("tensorboardX"):
            self.trouble = f"{args.exc_type.__name__}: {args.exc_value}"
        else:
            self._hook_before(args)

    def _run(self) -> None:
        events: Any = None
        try:
            while (line := self._lines.get()) is not None:
                if events is None:
                    from tensorboardX import SummaryWriter

                    # absolute, as the library takes names such as s3://x for addresses
                    events = SummaryWriter(str(self._folder.absolute()))
                    events.add_text("hyperparameters", table(self._settings), 0)
                for name, value in line.items():
                    if name not in NO_METRICS and value is not None:
                        events.add_scalar(name, value, line["steps"])
            if events is not None:
                events.close()
        except Exception as error:
            self.trouble = f"{type(error).__name__}: {error}"


def table(settings: Mapping[str, Any]) -> str:
    """Return settings as a table in Markdown."""
    return "\n".join(["|name|value|", "|-|-|", *(f"|{k}|{v}|" for k, v in settings.items())])


EVALUATED = "eval/episodic_return"
"""Name of the mean score of an evaluation beside the run."""

OTHER = {
    "evaluated": EVALUATED,
    "kl": "losses/approx_kl",
    "clipped": "losses/clipfrac",
    "learning_rate": "charts/learning_rate",
}
"""Names that others call differently, or have in another group."""

NO_METRICS = ("steps", "version")
"""Of a line: its time axis, and what is no measurement."""


def tagged(
    line: Mapping[str, Any], reported: Collection[str], rate: float, episodes: Sequence[Episode]
) -> dict[str, float]:
    """Return what TensorBoard shows for a new line of metrics, by the names there.

    Args:
        line: of metrics.
        reported: names in it that the algorithm reports.
        rate: environment steps per second since the line before.
        episodes: that have ended since then.
    """
    found: dict[str, float] = {
        OTHER.get(name) or f"{'losses' if name in reported else 'charts'}/{name}": value
        for name, value in line.items()
        if name not in NO_METRICS and value is not None
    }
    found["charts/SPS"] = rate
    if count := len(episodes):
        found["charts/episodic_return"] = sum(e.score for e in episodes) / count
        found["charts/episodic_length"] = sum(e.steps for e in episodes) / count
    return found
