"""The sections of docs/results.md about the parts of APPO: the ladder and the autoencoder."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

import ladder
from autoencoders import CHEAPEST, FORMS, GAME_STEPS, PLAYER
from games import GAMES
from gelada.cli.flags import value_of
from intervals import Interval, geometric, interval
from ladder import RUNGS, TRIED, TRIES
from ledger import Line, logged_metrics, median_of
from lookup import Found, Results
from page import Row, Section
from sections import HEAD, SOLVED, figure, values
from table import listed, markdown

PONG = "Parts of APPO on Pong"
BREAKOUT = "Parts of APPO on Breakout"
BEST = "Parts of APPO, the best of them"

BESIDE_IMPALA = tuple(name for name, rung in RUNGS.items() if rung.tuned and name != "impala")

PICTURE = "![Score against steps and against processor time for each part](pictures/ladder.png)"

EQUAL = (
    f"Every part has the same {len(TRIES)} tries of learning rate, entropy weight and length on "
    f"Pong, {TRIED:,} deterministic steps each on seeds 11 and 12 (eight were planned; the others "
    "were left out for their time). The best of them plays with seeds that no try has used. Rows "
    "without a choice have the settings of their presets. Intervals are of 95 % (Student's t)."
)


def ladder_pong(results: Results) -> Section:
    """Return the section about the rungs on Pong."""
    rows = []
    for name, rung in RUNGS.items():
        if found := results.seeds("ladder-pong", name):
            cells = (
                rung.label,
                chosen(found),
                listed(values(found, "steps_to_solved"), "{:,.0f}"),
                steps_interval(found),
                f"{median(values(found, 'processor_ms')):.2f}",
                listed(minutes(found), "{:.1f}"),
                f"{fmean(values(found, 'score')):.1f}",
            )
            rows.append(Row(cells, tuple(found)))
    longer = int(value_of("--steps", RUNGS["lstm"].flags))
    return Section(
        PONG,
        f"{EQUAL} Each run ends when the mean of its last 50 training games is 18, or after "
        f"{steps_of(ladder.PONG)} steps (with the LSTM {longer:,}). In an interval, a run "
        "that did not get there counts with the steps that it has played; *at least* stands "
        "before such an interval. The last checkpoint then plays 50 fresh games. Runs are "
        "deterministic and two or three were measured at a time, so what a part costs is told in "
        "processor time of all cores: a minute of two busy cores is two. It is a rough figure: the "
        "machine was faster for later runs (IMPALA took 0.87 ms a step with seed 1, and later 0.52 "
        "with seed 2).",
        (
            *("", "rate, entropy weight, length", "steps to 18", "geometric mean and interval"),
            *("processor ms a step", "processor minutes to 18", "fresh games"),
        ),
        tuple(rows),
        PICTURE,
    )


def steps_of(course: ladder.Course) -> str:
    """Return after how many steps the runs of a course end at the latest."""
    return f"{int(course.flags['--steps']):,}"


def minutes(found: Sequence[Found]) -> list[float | None]:
    """Return the processor minutes to 18 of each seed; None where it did not get there."""
    results = [one.line["result"] for one in found]
    return [
        one["steps_to_solved"] and one["steps_to_solved"] * one["processor_ms"] / 60_000
        for one in results
    ]


def chosen(found: Sequence[Found]) -> str:
    """Return the values of the draw that was chosen for a rung."""
    words = found[-1].line["result"]["chosen"]
    named = dict(zip(words[::2], words[1::2], strict=True))
    return ", ".join(named[flag] for flag in ("--lr", "--entropy", "--length")) if named else "-"


def played(found: Sequence[Found]) -> list[float]:
    """Return the steps to 18 of each seed; of a run that did not get there all that it played."""
    results = [one.line["result"] for one in found]
    return [float(one["steps_to_solved"] or one["run_steps"]) for one in results]


def steps_interval(found: Sequence[Found]) -> str:
    """Return the geometric mean of the steps with its interval.

    Where a seed did not get there, it is known only what the mean is at least.
    """
    around = geometric(played(found))
    if around and any(value is None for value in values(found, "steps_to_solved")):
        return f"at least {around.mean:,.0f}"
    return shown(around, "{:,.0f}")


def shown(found: Interval | None, form: str) -> str:
    """Return an interval as text; "" if there is none."""
    return "" if found is None else found.shown(form)


def ladder_breakout(results: Results) -> Section:
    """Return the section about the rungs on Breakout."""
    rows = []
    for name, rung in RUNGS.items():
        if found := results.seeds("ladder-breakout", name):
            scores = values(found, "score")
            cells = (
                rung.label,
                listed(scores, "{:.1f}"),
                shown(interval(scores), "{:.1f}"),
                f"{median(values(found, 'processor_ms')):.2f}",
            )
            rows.append(Row(cells, tuple(found)))
    return Section(
        BREAKOUT,
        f"{steps_of(ladder.BREAKOUT)} steps of training with the settings that were chosen on "
        "Pong; the last checkpoint plays 50 fresh full games (protocol `training`). Intervals are "
        "over the seeds.",
        ("", "mean of 50 games", "mean and interval", "processor ms a step"),
        tuple(rows),
    )


def best(results: Results) -> Section:
    """Return the section that compares the best rungs with IMPALA and `ppo-`."""
    return Section(
        BEST,
        "Medians of the steps on Pong, means of the scores on Breakout. The best of several is "
        "better than it would be if it were measured again. After equal processor time, that of "
        "the shortest run, the means of the last 50 training games are compared.",
        ("", "best", "measured"),
        (*soonest(results), *highest(results)),
    )


def soonest(results: Results) -> list[Row]:
    """Return the row about the rung, or rungs, with the fewest steps to 18 in Pong."""
    base = results.seeds("ladder-pong", "impala")
    steps = {
        name: middle
        for name in BESIDE_IMPALA
        if (found := results.seeds("ladder-pong", name))
        and (middle := median_of(values(found, "steps_to_solved"))) is not None
    }
    if not base or not steps:
        return []
    fewest = min(steps.values())
    names = [name for name, middle in steps.items() if middle == fewest]
    text = f"{fewest / median(played(base)):.2f}"
    reached = values(base, "steps_to_solved")
    if median_of(reached) is None:
        never = sum(one is None for one in reached)
        text = f"at most {text}: {never} of {len(reached)} runs of IMPALA did not reach it"
    own = (*base, *(one for name in names for one in results.seeds("ladder-pong", name)))
    labels = "; ".join(RUNGS[name].label for name in names)
    return [Row(("Pong, steps to 18, IMPALA = 1", labels, text), own)]


def highest(results: Results) -> list[Row]:
    """Return the rows about the rung with the highest score in Breakout."""
    default = results.seeds("ladder-breakout", "default")
    parts = {
        name: found for name in BESIDE_IMPALA if (found := results.seeds("ladder-breakout", name))
    }
    if not default or not parts:
        return []
    name = max(parts, key=lambda one: fmean(values(parts[one], "score")))
    steps = fmean(values(parts[name], "score")) / fmean(values(default, "score"))
    time = after_equal_time(parts[name], default)
    own = (*default, *parts[name])
    label = RUNGS[name].label
    return [
        Row(("Breakout after equal steps, `ppo-` = 1", label, f"{steps:.2f}"), own),
        Row(("Breakout after equal processor time, `ppo-` = 1", label, f"{time:.2f}"), own),
    ]


def after_equal_time(found: Sequence[Found], beside: Sequence[Found]) -> float:
    """Return the ratio of mean training scores after the processor time of the shortest run."""
    results = [one.line["result"] for one in (*found, *beside)]
    time = min(result["run_steps"] * result["processor_ms"] for result in results)
    mean, other = (fmean(score_after(one.line, time) for one in runs) for runs in (found, beside))
    return mean / other


def score_after(line: Line, time: float) -> float:
    """Return the training score of a run after so many milliseconds of processor time."""
    steps = time / line["result"]["processor_ms"]
    known = (one for one in logged_metrics(line) if one["score"] is not None)
    return [float(one["score"]) for one in known if one["steps"] <= steps][-1]


def appo(results: Results) -> Section:
    """Return the section about the time of `appo-pong`."""
    timed, trained = results.seeds("appo-time"), results.seeds("appo-train")
    return Section(
        "appo-pong on Pong",
        f"`gelada train appo-pong` with the best of its [tries](#parts-of-appo-on-pong). {SOLVED}",
        HEAD,
        (
            figure("seconds to Pong, appo-pong", timed, "seconds_to_solved", "{:.0f}"),
            figure("steps to Pong, appo-pong", timed, "steps_to_solved", "{:,.0f}"),
            figure("share of the machine's limit", trained, "share_of_limit", "{:.2f}"),
        )
        if timed
        else (),
    )


def cost(results: Results) -> Section:
    """Return the section about what each form of the autoencoder costs."""
    found = results.one("autoencoder-speed")
    result = found.line["result"] if found else {"steps_per_s": {}, "time": {}}
    rows = [
        Row(
            (name, listed(rates, "{:,.0f}"), f"{result['time'][name]:.2f}"),
            (found,) if found else (),
        )
        for name, rates in result["steps_per_s"].items()
    ]
    return Section(
        "The autoencoder's cost",
        "Runs of Pong in turn. *Time* is that of a step, without an autoencoder = 1. A fraction is "
        "the part of a minibatch that its loss takes (`--autoencoder-part`), otherwise 1/4.",
        ("--autoencoder", "steps/s", "time"),
        tuple(rows),
    )


def six_games(results: Results) -> Section:
    """Return the section about six games with and without the autoencoder."""
    rows, fewer = [], 0
    for game in GAMES:
        found = results.seeds("autoencoder-games", game)
        if not found:
            continue
        ratios = values(found, "ratio")
        costs = [one[1] / one[0] for one in values(found, "processor_ms")]
        around = geometric(ratios)
        fewer += around is not None and around.mean <= 0.8
        cells = (
            game,
            listed(values(found, "level"), "{:,.1f}"),
            listed(ratios, "{:.2f}"),
            shown(around, "{:.2f}"),
            f"{median(costs):.2f}",
        )
        rows.append(Row(cells, tuple(found)))
    return Section(
        "The autoencoder on six games",
        f"Two runs of each seed, `gelada train ppo-GAME {' '.join(PLAYER)}` without an autoencoder "
        f"and with `{' '.join(FORMS[CHEAPEST])}`, {int(GAME_STEPS):,} steps each. *Score* is the "
        "highest that both reach as a mean of 50 training games; *steps* to it and processor "
        "*time* of a step are with the autoencoder, without it = 1.",
        ("game", "score", "steps to it", "geometric mean and interval", "time"),
        tuple(rows),
        f"Games with at least 20 % fewer steps: {fewer} of {len(rows)}." if rows else "",
    )


def sections(results: Results) -> list[Section]:
    """Return the sections of this module of which something has been measured."""
    makers = (ladder_pong, ladder_breakout, best, appo, cost, six_games)
    return [section for make in makers if (section := make(results)).rows]


def ladder_block(results: Results) -> str:
    """Return what docs/appo.md says of the ladder: its tables, or that there are none yet."""
    found = [one for make in (ladder_pong, ladder_breakout, best) if (one := make(results)).rows]
    if not found:
        return "It has not been measured yet.\n"
    lines: list[str] = []
    for section in found:
        lines += [f"**{section.title}**", ""]
        lines += [*markdown(section.head, [row.cells for row in section.rows]), ""]
    how = "[The results](results.md#parts-of-appo-on-pong) say how, where and when."
    return "\n".join([*lines, PICTURE, "", how]) + "\n"
