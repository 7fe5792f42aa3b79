"""The table of what is measured: a name, a preset, seeds, how, and with which flags and figures.

How the results of a cell become figures stands in `benchmarks.render`. Seeds 1 to 5 are for
measuring only: no setting was ever chosen on them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.lib import cluster, recipe, timed
from benchmarks.lib.ledger import Cell
from colobus.experiment.presets import preset

ROUND = 1
"""Raise this to measure everything anew, for example after a change of the code."""

TIMED = {"--checkpoint-seconds": "10", "--keep-checkpoints": "0"}
PONG = TIMED | {"--until-score": "18.5", "--steps": "1000000"}
"""The score is that of training games, which lags: the checkpoint looked for is earlier."""

LONGER = TIMED | {"--until-score": "19.5", "--steps": "3000000", "--minutes": "8"}
"""Of DBA3C runs that ended at a training score of 18.5 ended too early: see the README."""

SIX_MINUTES = LONGER | {"--minutes": "6"}
"""The training games of Ape-X's epsilons never have a mean of 19.5: some explore to the end."""

HOUR = {"--minutes": "75", "--checkpoint-seconds": "300", "--keep-checkpoints": "0"}
HALF_HOUR = HOUR | {"--minutes": "30"}

BEST_APPO = {"--lr": "0.002", "--entropy": "0.01", "--entropy-end": "0.01", "--length": "64"}
"""What was best of the tries with `appo-pong` (docs/results/appo.md)."""

SIX = ("boxing", "freeway", "space_invaders", "seaquest", "qbert", "beam_rider")
UNTUNED = ("battle_zone", "double_dunk", "name_this_game", "phoenix")
"""With Qbert, the five games that stand for 57 (Aitchison et al. 2023). Qbert is one of the six."""

ALL_CORES = "--cores all --advantage vtrace"
GPU = f"--device cuda {ALL_CORES}"

EARLY = (5, 10, 20, 40)
"""Minutes of an hour after which its newest checkpoint plays, too."""

STICKY = ("--sticky", "0.25", "--no-life-loss-ends", "--noop-max", "0")

Measure = Callable[[Cell, Path, Path], dict[str, Any]]


class Plan(NamedTuple):
    """A row of the table."""

    what: str
    preset: str
    seeds: tuple[int, ...]
    measure: Measure
    asked: dict[str, Any]  # how it is measured, the procedure in the cell's settings


def table() -> Iterator[Plan]:
    """Yield the rows, in the order in which they are measured."""
    asked: dict[str, Any]
    seconds = 2 * timed.BENCH_SECONDS
    yield from to_18("pong", "pong", (1, 2, 3, 4, 5), PONG, since="a half more steps a second")
    yield Plan("limit", "pong", (1,), recipe.limit, {"seconds": seconds})
    yield Plan("memory", "pong", (1,), recipe.whole_run, {"steps": recipe.MEMORY_STEPS})

    for name in ("ppo-pong", "ppo-breakout"):
        yield Plan("act-with", name, (1,), recipe.act_with, {"games": recipe.ACT_GAMES})

    yield from to_18("dba3c", "dba3c-pong", (1, 2), SIX_MINUTES)
    yield from to_18("dba3c-async", "dba3c-pong", (1, 2), SIX_MINUTES, switches=("--asynchronous",))
    timed_half = {"timed": HALF_HOUR}
    for what, measure in (("train", timed.train_timed), ("score", timed.score_after)):
        name = "dba3c-breakout"
        yield Plan(f"{name}-{what}", name, (1, 2, 3, 4, 5), measure, timed_half)
    yield Plan("dba3c-limit", "dba3c-pong", (1,), recipe.limit, {"seconds": seconds})
    slow = {"minutes": cluster.SLEEPING_MINUTES, "runs": cluster.STRAGGLERS}
    many = {"minutes": cluster.OF_MANY, "faults": cluster.SLEEP, "of": cluster.WORKERS}
    for what, key, asked in (("straggler", "runs", slow), ("workers", "workers", many)):
        yield Plan(f"dba3c-{what}", "dba3c-pong", (1,), partial(cluster.sleeping, key), asked)
    for delay in cluster.DELAYS:
        asked = {"delay": delay, "steps": cluster.DELAY_STEPS}
        yield Plan("dba3c-delay", "dba3c-pong", (1, 2, 3), cluster.delayed, asked)

    for name in ("dba3c-pong", "pong"):
        asked = {"words": cluster.ON_RAY, "of": cluster.SECONDS, "since": "tensors without code"}
        yield Plan("ray-limit", name, (1,), cluster.share_of_limit, asked)
    for whom, name in cluster.FAILURES.items():
        for how in ("kill", "stop"):
            yield Plan("ray-failure", name, (1,), cluster.fail, {"whom": whom, "how": how})

    yield from to_18("gorila", "gorila-pong", (1, 2), LONGER)
    asked = {"timed": LONGER, "solved": 15.0}
    yield Plan("gorila-time", "gorila-pong", (1, 2), timed.time_to_score, asked)
    yield from to_18("apex", "apex-pong", (1, 2), SIX_MINUTES)
    for what in ("dqn", "a3c", "pqn"):
        yield from to_18(what, f"{what}-pong", (1, 2), LONGER)
    yield from to_18("appo", "appo-pong", (1, 2), LONGER | BEST_APPO)

    limits = {"of": recipe.LIMITS, "seconds": recipe.LIMIT_SECONDS, "rounds": recipe.TURNS}
    yield Plan("general-limit", "breakout", (1,), recipe.share_of_limits, limits)
    yield Plan("breakout-train", "breakout", (1,), timed.train_timed, {"timed": HOUR})
    yield Plan("breakout-score", "breakout", (1,), timed.score_after, {"timed": HOUR})
    asked = {"timed": HOUR, "solved": 300.0}
    yield Plan("breakout-time", "breakout", (1,), timed.time_to_score, asked)

    yield from course("budget-games", SIX[::-1], (6,), 10)
    yield from course("lambda-games", SIX[::-1], (7, 8), 10, flags=("--lam-end", "0.5"))
    yield from course("hour-games", SIX[::-1], (1,), 60, early=EARLY)
    yield from course("sticky-games", SIX[::-1], (1,), 10, protocol="sticky", flags=STICKY)
    yield from course("untuned-games", UNTUNED, (1,), 10)
    yield from on_gpu()


def to_18(
    what: str, name: str, seeds: tuple[int, ...], flags: dict[str, str], **more: Any
) -> Iterator[Plan]:
    """Yield a timed training of Pong, and the search for its first checkpoint that plays at 18."""
    asked = {"timed": flags, **more}
    yield Plan(f"{what}-train", name, seeds, timed.train_timed, asked)
    yield Plan(f"{what}-time", name, seeds, timed.time_to_score, asked | {"solved": 18.0})


def course(
    what: str, games: tuple[str, ...], seeds: tuple[int, ...], minutes: float, **more: Any
) -> Iterator[Plan]:
    """Yield runs of some games with the default: all games once, before any is repeated."""
    asked = {"protocol": "noop", "flags": (), "early": None, "episodes": recipe.EPISODES, **more}
    for seed in seeds:
        for game in games:
            own = {"game": game, "minutes": minutes, **asked}
            yield Plan(what, game, (seed,), recipe.play_after, own)


def on_gpu() -> Iterator[Plan]:
    """Yield what needs a GPU. Each kind takes at most ten minutes: one may be lent for so long."""
    atari = f"--torso nature --width 512 {GPU}"
    for name, words in (
        ("pong", GPU),
        ("ppo-breakout", atari),
        ("pong", f"{GPU} --act-device cpu"),
        ("pong", ALL_CORES),
        ("pong", "--learners 4 --reduce group --actors 3"),
    ):
        yield Plan("gpu-speed", name, (1,), recipe.limit, {"words": words, "seconds": 60.0})
    for turn, name, graphs in product((1, 2), ("pong", "ppo-breakout"), (" --no-cuda-graphs", "")):
        words = (GPU if name == "pong" else atari) + graphs
        asked = {"words": words, "seconds": 30.0, "turn": turn}
        yield Plan("gpu-graphs", name, (1,), recipe.limit, asked)
    words = f"{GPU} --no-finish --no-tensorboard --until-score"
    asked = {"words": f"{words} 18 --minutes 1.5"}
    yield Plan("gpu-pong", "pong", (1, 2, 3, 4, 5), recipe.whole_run, asked)
    asked = {"words": f"{words} 400 --minutes 9"}
    yield Plan("gpu-breakout", "ppo-breakout", (1,), recipe.whole_run, asked)


def all_cells() -> list[Cell]:
    """Return every cell, in the order in which they are measured."""
    return [
        Cell(plan.what, seed, settings(plan), plan.measure, plan.preset)
        for plan in table()
        for seed in plan.seeds
    ]


def settings(plan: Plan) -> dict[str, Any]:
    """Return everything a result may depend on: the preset, and how it is measured."""
    experiment = chosen(preset(plan.preset)[0])
    experiment.pop("seed", None)
    about = {"what": plan.what, "round": ROUND, "experiment": experiment}
    return about | {"procedure": plan.asked}


def chosen(settings: Any) -> dict[str, Any]:
    """Return a dataclass's values that are not its defaults, so that a new switch changes no cell.

    A changed default is a change of the code: raise `ROUND` for it.
    """
    found: dict[str, Any] = {"type": type(settings).__name__}
    for field in dataclasses.fields(settings):
        value, default = getattr(settings, field.name), field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if value != default:
            found[field.name] = chosen(value) if dataclasses.is_dataclass(value) else value
    return found
