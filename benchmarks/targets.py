"""What was asked of the project before it was measured: the least that must be, and the goal.

`python benchmarks/run.py summary` prints it beside what was measured. Documents for readers do not
speak of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from games import GAMES
from page import Section
from sections_default import FIVE, MEANS, SIX
from table import markdown


@dataclass(frozen=True)
class Target:
    """What was asked of one row of a section."""

    section: str
    row: str
    must: str = ""
    goal: str = ""


PONG = "Pong with the default recipe"
SHARES = "Shares of the machine's limit"
DBA3C = "DBA3C on Pong"
GORILA = "Gorila on Pong"
STORES = "The replay buffer beside others"
RAY_SHARE = "Ray: share of the machine's limit"
LOSS = "Ray: what a loss costs"
PAPER = "Ray: the shape of DBA3C's paper"
KILLED = "Ray: Pong with processes that are killed"
ALL_PARTS = "appo-pong on Pong"
PARTS = "Parts of APPO, the best of them"
LOSS_MUST = "10 seconds to detect, 60 to 90 % of the speed"
LOSS_GOAL = "3 and 20"

ACT = "The loaded agent: one observation"
LIVE = "The live page"

TARGETS = (
    Target(PONG, "seconds to Pong", "87", "60"),
    Target(PONG, "steps to Pong", "500,000", "250,000"),
    Target(PONG, "share of the machine's limit", "0.80", "0.92"),
    Target(PONG, "speed with --deterministic, free = 1", "0.85", "0.95"),
    Target(PONG, "--deterministic twice, bit for bit", "equal", "equal"),
    Target(PONG, "peak memory of a whole run (RSS), MB", "2,000", "1,000"),
    Target("Breakout", "Breakout after 30 minutes", "", "300"),
    Target("Breakout", "Breakout after 45 minutes", "300"),
    Target(MEANS, "10 minutes, no-op starts", "0.50, 3 above a human", "0.73, 4 above a human"),
    Target(MEANS, "10 minutes, sticky actions, no lives", "0.39", "0.54"),
    Target(MEANS, "60 minutes, no-op starts", "1.0", "2.2"),
    *(Target(SIX, game, "0.9 of version 0.1", "1.0") for game in GAMES),
    Target(FIVE, "median", "", "0.6"),
    *(
        Target(SHARES, row, "0.80", "0.95")
        for row in (
            "Pong, the recipe",
            "Breakout, the recipe",
            "Pong, Nature network, 84x84",
            "Breakout, Nature network, 84x84",
        )
    ),
    Target(
        "Beside other systems: steps a second",
        "Stable-Baselines3 A2C 2.9.2",
        "3 like for like",
        "5",
    ),
    Target(DBA3C, "seconds to Pong", "900", "240"),
    Target(DBA3C, "share of the machine's limit", "0.60", "0.85"),
    Target(DBA3C, "updates/s with a slow worker, no backup", "at most 0.15"),
    Target(DBA3C, "updates/s with a slow worker, 1 backup", "at least 0.95"),
    Target(DBA3C, "bytes of an update, gradient and parameters = 100 %", "95 to 105 %"),
    Target(GORILA, "seconds to a mean of 15, gorila-pong", "1,500"),
    Target(GORILA, "seconds to a mean of 18, gorila-pong", "", "480"),
    Target(GORILA, "seconds to a mean of 18, apex-pong", "900", "240"),
    Target(STORES, "uniform, batches/s", "0.9 of the fastest other", "2"),
    Target(STORES, "prioritized, batches/s", "0.9 of the fastest other", "2"),
    Target(STORES, "prioritized with new priorities, batches/s", "0.9 of the fastest other", "2"),
    Target(STORES, "resident bytes of a transition", "8,200"),
    Target(RAY_SHARE, "DBA3C, 2 workers, 2 servers", "0.45", "0.75"),
    Target(RAY_SHARE, "APPO, 2 remote actors", "0.45", "0.75"),
    *(
        Target(LOSS, f"{whom}, {how}", LOSS_MUST, LOSS_GOAL)
        for whom in ("worker", "server", "learner")
        for how in ("SIGKILL", "SIGSTOP")
    ),
    Target(LOSS, "a host, power", LOSS_MUST, LOSS_GOAL),
    Target(LOSS, "a host, SIGSTOP to all its processes", LOSS_MUST, LOSS_GOAL),
    Target(PAPER, "processes", "9"),
    Target(PAPER, "seconds to a score of 0.9", "180"),
    Target(PAPER, "PSS of all processes, Ray's too, GB", "6"),
    Target(ALL_PARTS, "seconds to Pong, appo-pong", "180", "75"),
    Target(ALL_PARTS, "steps to Pong, appo-pong", "1,700,000", "250,000"),
    Target(PARTS, "Pong, steps to 18, IMPALA = 1", "0.50", "0.36"),
    Target(PARTS, "Breakout after equal processor time, `ppo-` = 1", "1.0", "1.3"),
    Target(
        "Parts of APPO on Pong",
        "the same with one frame and an LSTM",
        "1,500,000 steps",
        "twice those of the default recipe",
    ),
    Target("The autoencoder's cost", "predict", "", "1.15"),
    *(
        Target(KILLED, f"killed every 30 s, seed {seed}", "", "1.1 times the steps")
        for seed in (1, 2)
    ),
    Target(ACT, "84x84, network of ppo-breakout (dqn2013)", "2", "1"),
    Target(LIVE, "first view of 50 runs of 10,000,000 steps, s", "2", "0.5"),
    Target(LIVE, "a new line of metrics on that page, s", "2", "1"),
    Target(LIVE, "speed of a run that is watched from elsewhere, alone = 1", "0.95", "0.99"),
    Target(LIVE, "the same with a browser on the same two cores", "0.95", "0.99"),
)


def summary(sections: Iterable[Section]) -> list[str]:
    """Return the lines of a Markdown table: what was asked, and what was measured."""
    rows = {(one.title, row.label): row.cells[1:] for one in sections for row in one.rows}
    table = [
        (
            f"{target.section}: {target.row}",
            target.must,
            target.goal,
            "; ".join(filter(None, rows.get((target.section, target.row), ("not measured yet",)))),
        )
        for target in TARGETS
    ]
    return markdown(("", "must", "goal", "measured"), table)
