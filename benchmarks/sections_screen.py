"""The sections of docs/results.md about the screen of DQN's settings (`screen.py`)."""

from __future__ import annotations

from ledger import Line
from page import Row, Section
from screen import LATE, SEED, STEPS, effects_table, runs_table, whole_games
from sections_search import origins


def sections(lines: list[Line]) -> list[Section]:
    """Return the sections of what the screen's file has with these lines."""
    if not lines:
        return []
    head, rows = runs_table(lines)
    runs = Section(
        "A screen of DQN's settings",
        "`python benchmarks/screen.py`: settings that cost no time are on in four and off in four "
        "of eight combinations, each pair of them together in two (Plackett & Burman 1946). Each "
        f"combination plays {STEPS:,} deterministic steps with seed {SEED}. A score is that of "
        f"the last 50 training games, on average over the last {1 - LATE:.0%} of the steps. Plain "
        "is the best candidate of the search above, which has batches of 8 windows of 32 steps and "
        "two actors of 8 games. Rows without a number are other changes to it.",
        head,
        tuple(Row(cells) for cells in rows),
        measured=origins(lines),
    )
    if not whole_games(lines):
        return [runs]
    head, rows = effects_table(lines)
    effects = Section(
        "What DQN's settings are worth",
        "From the scores above: the mean of the four runs with a setting less that of the four "
        "without it, as a share between random play (0) and the best public curve at 6 million "
        "frames (1). No setting is behind the row *nothing*: what it shows is chance, and so may "
        "be any effect that is not much larger. What two settings do only together looks like the "
        "effect of a third. All this is early: ten minutes play about four times as many steps.",
        head,
        tuple(Row(cells) for cells in rows),
        measured=("the lines above",),
    )
    return [runs, effects]
