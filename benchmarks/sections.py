"""The sections of docs/results.md about the default recipe: Pong, other games, shares, choices."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from gelada.evaluation.scores import published
from ledger import Line
from lookup import MEAN_300, Found, Results
from page import Row, Section
from table import judged, listed

SOLVED = (
    "Seconds run from the start of the process, imports included, to the first checkpoint whose "
    "later evaluation over 50 fresh full games has a mean of at least 18 and is confirmed by 50 "
    "more games. The evaluation itself is not in these seconds."
)

HEAD = ("", "measured")

BESIDE = {"ppo": "PPO after 40 M frames", "a2c": "A2C after 40 M frames", "human": "a human"}
"""Published scores beside Breakout's."""


def values(found: Sequence[Found], name: str) -> list[Any]:
    """Return one entry of each result, in the order of the seeds."""
    return [one.line["result"][name] for one in found]


def figure(label: str, found: Sequence[Found], name: str, form: str) -> Row:
    """Return a row with the median over the seeds and the single values in brackets."""
    return Row((label, listed(values(found, name), form)), tuple(found))


def pong(results: Results) -> Section:
    """Return the section about the default recipe on Pong."""
    timed = results.seeds("pong-time")
    trained = [*timed, *results.seeds("pong-train")]
    shares = [one for one in trained if "share_of_limit" in one.line["result"]]
    shares.sort(key=lambda one: one.line["seed"])
    bench = results.seeds("limit")
    speed = results.seeds("deterministic-speed")
    equal = results.seeds("deterministic-equal")
    return Section(
        "Pong with the default recipe",
        f"{SOLVED} Single values are in the order of the seeds.\n\n"
        "The share of the machine's limit is the speed of the timed run from second 10 to its end, "
        "divided by the mean of the limits that `gelada bench` finds right before and right after.",
        HEAD,
        (
            figure("seconds to Pong", timed, "seconds_to_solved", "{:.0f}"),
            figure("steps to Pong", timed, "steps_to_solved", "{:,.0f}"),
            figure("share of the machine's limit", shares, "share_of_limit", "{:.2f}"),
            figure("the same by `gelada bench` alone", bench, "share_of_limit", "{:.2f}"),
            figure("speed with --deterministic, free = 1", speed, "ratio", "{:.2f}"),
            Row(
                ("--deterministic twice, bit for bit", judged(values(equal, "equal"))), tuple(equal)
            ),
            figure(
                "peak memory of a whole run (RSS), MB",
                results.seeds("memory"),
                "peak_rss_mb",
                "{:,.0f}",
            ),
        ),
    )


DQN_SINCE = "2026-11-24T23:30"
"""From then on a game that is named alone is learned by DQN, before by PPO."""


def by_ppo(line: Line) -> bool:
    """Say whether a game that was named alone was learned by PPO."""
    return bool(line["time"] < DQN_SINCE)


def breakout(results: Results) -> Section:
    """Return the section about the long run of Breakout."""
    found = results.one("breakout-score")
    today = " (PPO; today `ppo-breakout`)" if found and by_ppo(found.line) else ""
    before = any(map(by_ppo, found.earlier)) if found and not today else False
    played = found.line["result"]["minutes"] if found else {}
    rows = [
        Row(
            (
                f"Breakout after {minutes} minutes",
                score_of(one["mean"], one["standard_error"]),
                f"{one['median']:.0f}",
                f"{one['steps']:,}",
                f"{one['seconds'] / 60:.0f}",
            ),
            (found,) if found else (),
        )
        for minutes, one in played.items()
    ]
    rows += [reached(one) for one in results.seeds("breakout-time", MEAN_300)]
    return Section(
        "Breakout",
        f"`gelada train breakout --minutes 75`{today}, alone on the machine. The newest checkpoint "
        "of that time plays 50 fresh full games with the starts of training (protocol `training`)."
        + (" What was measured before is PPO's (today `ppo-breakout`)." if before else ""),
        ("", "mean of 50 games", "median", "steps", "saved after minutes"),
        tuple(rows),
        "Published scores, of games with other starts: "
        + ", ".join(f"{label} {published('breakout', name):,.1f}" for name, label in BESIDE.items())
        + ".\n\n![Mean score of Breakout against minutes](pictures/breakout.png)",
    )


def reached(found: Found) -> Row:
    """Return the row of the first checkpoint that is good enough, or of none."""
    told = found.line["result"]
    label = f"first checkpoint with a mean of {told['threshold']:.0f}, and again in 50 other games"
    if not told["solved"]:
        return Row((label, "**none**", "", "", ""), (found,))
    one = told["evaluated"][-1]
    first = score_of(one["mean"], one["standard_error"])
    again = score_of(one["confirmed_mean"], one["confirmed_standard_error"])
    minutes = f"{told['seconds_to_solved'] / 60:.0f}"
    return Row((label, f"{first}; {again}", "", f"{told['steps_to_solved']:,}", minutes), (found,))


def score_of(mean: float, standard_error: float) -> str:
    """Return a score with its standard error."""
    return f"**{mean:,.1f}** ± {standard_error:.1f}"


def six_games(results: Results, what: str, title: str, about: str) -> Section:
    """Return a section about six games of ten minutes each, beside published scores."""
    import games

    rows, above, first = [], [], []
    for game in games.GAMES:
        one = results.one(what, game)
        if one is None:
            continue
        rows.append(Row(tuple(games.row_of(one.line["result"])), (one,)))
        human = published(game, "human") or 0.0
        above.append(one.line["result"]["score"] > human)
        first.append((*one.earlier, one.line)[0]["result"]["score"] > human)
    counts = f"**{sum(above)}** of {len(above)}"
    if above != first:
        counts += f"; {sum(first)} of {len(first)} when only first measurements count"
    return Section(
        title,
        f"{about} Ten minutes of training each on seed 1; the last checkpoint plays 50 full games "
        "by protocol `noop`. Published scores are of 200 M or 40 M frames.",
        tuple(games.HEAD),
        tuple(rows),
        f"Games above a human: {counts}.",
    )


def shares(results: Results) -> Section:
    """Return the section about the shares of the machine's limit."""
    found = results.one("general-limit")
    result = found.line["result"] if found else {"shares": {}}

    def middle(key: str, name: str) -> str:
        return f"{median(result[key][name]):,.0f}" if key in result else ""

    rows = [
        Row(
            (
                name,
                middle("steps_per_s", name),
                middle("limit_of_processes", name),
                listed(result["shares"][name], "{:.2f}"),
            ),
            (found,) if found else (),
        )
        for name in result["shares"]
    ]
    return Section(
        "Shares of the machine's limit",
        "Three measurements in turn; columns are medians; [how the limit is put "
        "together](speed.md#the-limit). `gelada bench` measures the limit with a process on each "
        "core.",
        ("", "steps/s", "limit", "share"),
        tuple(rows),
    )


def choices(results: Results) -> Section:
    """Return the section about what single choices gain in a training."""
    found = results.one("choices")
    result = found.line["result"] if found else {"steps_per_s": {}, "gain": {}}
    rows = [
        Row(
            (of, name, listed(rates, "{:,.0f}"), f"{result['gain'][of].get(name, 1.0):.2f}"),
            (found,) if found else (),
        )
        for of, own in result["steps_per_s"].items()
        for name, rates in own.items()
    ]
    return Section(
        "What single choices gain in training",
        "Three runs of 45 seconds each in turn. *Gain* is the speed as it is, divided by the speed "
        "without the choice.",
        ("Pong", "", "steps/s", "gain"),
        tuple(rows),
    )


def sections(results: Results) -> list[Section]:
    """Return the sections of this module."""
    return [
        pong(results),
        breakout(results),
        six_games(
            results,
            "general-games",
            "Six games with PPO",
            "`gelada suite GAME --preset ppo-breakout --minutes 10`, the default of version 0.1.",
        ),
        shares(results),
        choices(results),
    ]
