"""The sections of docs/results.md about the screen of DQN's settings (`screen.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from ledger import Line, logged_metrics
from lookup import Results
from page import Row, Section, machine, origin
from screen import LATE, SEED, STEPS, effects_table, runs_table, whole_games
from sections import by_ppo
from sections_search import origins

LOOKS = (400_000, 800_000, 1_200_000, 1_600_000, 2_000_000, 2_400_000, 2_700_000)
"""Steps of a long run after which its score is shown."""


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
        "two actors of 8 games. Rows without a number are other changes.",
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


def long(lines: list[Line], results: Results) -> list[Section]:
    """Return the section about a long run of Breakout beside those of PPO; [] without one."""
    found = results.one("breakout-train")
    if not lines or not found:
        return []
    ppo = [one for one in (*found.earlier, found.line) if by_ppo(one)]
    runs = [*lines, *ppo]
    curves = [logged_metrics(line) for line in runs]
    rows = [
        Row((f"{steps:,}", *(shown(score_after(curve, steps)) for curve in curves)))
        for steps in LOOKS
    ]
    torsos = [line["settings"]["frames"].split()[1] for line in lines]
    seeds = [
        f"DQN, `{torso}`, seed {line['seed']}" for torso, line in zip(torsos, lines, strict=True)
    ]
    seeds += [f"`ppo-breakout`, seed {line['seed']}" for line in ppo]
    return [
        Section(
            "Breakout with DQN for longer",
            "The best combination of the screen, as it was there and with the torso `pooled`, for "
            "as long as there was time (deterministic, beside other runs), and the runs of "
            "[Breakout](#breakout) with PPO: means of the last 50 training games after so many "
            "steps. The seed of DQN is of the search.",
            ("steps", *seeds),
            tuple(rows),
            measured=tuple(f"{machine(line)}; {origin(line)}" for line in runs),
        )
    ]


def score_after(curve: Sequence[Line], steps: int) -> float | None:
    """Return the first score after so many steps; None if the run was shorter."""
    return next((x["score"] for x in curve if x["steps"] >= steps), None)


def shown(score: float | None) -> str:
    """Return a score as text."""
    return "" if score is None else f"{score:.1f}"
