"""Where the counting of a run began: its rounds, its steps, and its random streams."""

from __future__ import annotations

from typing import NamedTuple


class Origin(NamedTuple):
    """The start of a run, or the last resume that did not go on exactly.

    A resume raises the epoch of the versions, but an exact resume keeps the origin, so the random
    streams and the numbers of the rounds go on as if the run had never stopped.
    """

    epoch: int = 0  # in the seeds of all random streams
    version: int = 0  # number of the version with which round 0 began
    steps: int = 0  # environment steps behind that version


START = Origin()
"""Of a run that was never resumed, but for its steps."""
