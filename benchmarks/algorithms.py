"""The tables of docs/gorila.md: all algorithms on one Pong, and Gorila on six games."""

from __future__ import annotations

from typing import Any

import cells
import dba3c
import games
import gorila
from ledger import Line, result_of
from table import listed, markdown, rows_of
from timed import Timed

ALGORITHMS = (
    (cells.PONG, "APPO, the default (`pong`)"),
    (gorila.DQN, "DQN (`dqn-pong`)"),
    (gorila.APEX, "Ape-X (`apex-pong`)"),
    (gorila.GORILA, "Gorila (`gorila-pong`)"),
    (gorila.A3C, "A3C (`a3c-pong`)"),
    (dba3c.SYNCHRONOUS, "DBA3C (`dba3c-pong`)"),
)
"""Timed presets of one network on one machine."""

SEEDS = (1, 2)
"""That all of them have."""


def results(timed: Timed, lines: list[Line]) -> list[dict[str, Any]]:
    """Return what is known about when a preset's runs played well enough."""
    found = [result_of(timed.time_cell(seed), lines) for seed in SEEDS]
    return [one for one in found if one]


def gorila_table(lines: list[Line]) -> list[str]:
    """Return what was asked of Gorila's times and what was measured."""

    def seconds(timed: Timed) -> str:
        return listed([one["seconds_to_solved"] for one in results(timed, lines)], "{:.0f}")

    return rows_of(
        [
            ("seconds to a mean of 15, `gorila-pong`", "1,500", "", seconds(gorila.GORILA_15)),
            ("seconds to a mean of 18, `gorila-pong`", "", "480", seconds(gorila.GORILA)),
            ("seconds to a mean of 18, `apex-pong`", "900", "240", seconds(gorila.APEX)),
        ]
    )


def gorila_details(lines: list[Line]) -> list[list[str]]:
    """Return the tables of all algorithms and of the six games."""
    rows = []
    for timed, name in ALGORITHMS:
        found = results(timed, lines)
        solved = [[one[f"{key}_to_solved"] for one in found] for key in ("steps", "seconds")]
        rows.append([name, listed(solved[0], "{:,.0f}"), listed(solved[1], "{:.0f}")])
    head = [f"Pong, mean of 18, seeds {' and '.join(map(str, SEEDS))}", "steps", "seconds"]
    return [markdown(head, rows), markdown(games.HEAD, gorila.SIX.rows(lines))]
