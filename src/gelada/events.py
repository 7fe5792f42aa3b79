"""What happened to a run spread over processes: ``events.jsonl`` in its folder."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any


class Events:
    """Appends one JSON line for each event, with its seconds since the run began.

    Args:
        path: of the file.
        began: `time.monotonic` at the beginning.
    """

    def __init__(self, path: Path, began: float) -> None:
        self._path, self._began = path, began

    def __call__(self, event: dict[str, Any]) -> None:
        """Write an event down. A full disk does not end a run here: the tracker will say it."""
        line = json.dumps({"seconds": round(time.monotonic() - self._began, 3), **event})
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError:
            pass
