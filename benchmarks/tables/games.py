"""Tables about games: Breakout, the default on many games, and public curves beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, median, stdev

import numpy as np

from benchmarks.cells import SIX, UNTUNED
from benchmarks.lib.ledger import MEAN_300, Found, Results
from benchmarks.lib.table import MISSING, Row, Table, markdown, score_of
from colobus.evaluation.scores import normalised, published
from colobus.report.plots import public_curves
from colobus.report.statistics import bootstrap, interquartile_mean

COLUMNS = {
    "random": "random play",
    "human": "human",
    "dqn_2015": "DQN, 200 M frames",
    "gorila": "Gorila",
    "a2c": "A2C, 40 M",
    "ppo": "PPO, 40 M",
}
"""Published scores beside ours, and how they are called."""


def breakout(results: Results, what: str = "breakout") -> Table:
    """Return the table about a long run of Breakout, with a row for each seed."""
    every, rows = results.seeds(f"{what}-score"), []
    for found in every:
        seed = f", seed {found.line['seed']}" if len(every) > 1 else ""
        for minutes, one in found.line["result"]["minutes"].items():
            label = f"Breakout after {minutes} minutes{seed}"
            score, after = score_of(one["mean"], one["standard_error"]), one["seconds"] / 60
            cells = (label, score, f"{one['median']:.0f}", f"{one['steps']:,}", f"{after:.0f}")
            rows.append(Row(cells, (found,)))
    rows += [reached(one) for one in results.seeds(f"{what}-time", MEAN_300)]
    return Table(("", "mean of 50 games", "median", "steps", "saved after minutes"), rows)


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


TEN, HOUR, OTHERS = "10 minutes", "60 minutes", "untuned"

NOW = {
    TEN: "budget-games",
    "10 minutes, sticky": "sticky-games",
    HOUR: "hour-games",
    OTHERS: "untuned-games",
}
"""What was measured with the default, and the name in the ledger."""

BEFORE = {
    TEN: "default-games",
    "10 minutes, until 2026-11-30": "ten-minute-games",
    "10 minutes, shorter returns": "shorter-games",
    "10 minutes, sticky": "default-sticky-games",
    HOUR: "default-hour-games",
    OTHERS: "default-untuned-games",
}
"""The same until 2026-11-29, when targets of histograms were too large near 0, and of the next day:
a rate that does not know its budget, and eight games for each actor."""


def of(results: Results, kinds: Mapping[str, str], what: str, game: str) -> list[Found]:
    """Return what was found with each seed.

    Before a run knew its budget, an hour's first ten minutes were a run of ten.
    """
    found = results.seeds(kinds[what], game)
    if what == TEN and kinds is BEFORE:
        hours = [one.line for one in results.seeds(kinds[HOUR], game)]
        early = [x | {"result": x["result"] | x["result"].get("early", {})} for x in hours]
        found[:0] = [Found(line) for line in early if "early" in line["result"]]
    # some "shorter returns" were measured with another torso
    return [one for one in found if "--torso padded" not in one.line["result"]["command"]]


def absent(kinds: Mapping[str, str]) -> str:
    """Return what stands for a figure that is not there: what is over will not be measured."""
    return "" if kinds is BEFORE else MISSING


def courses(kinds: Mapping[str, str]) -> list[str]:
    """Return what was measured on the six games."""
    return [what for what in kinds if what != OTHERS]


def scores(found: Sequence[Found]) -> list[float]:
    """Return the score of each seed."""
    return [one.line["result"]["score"] for one in found]


def human(score: float, game: str) -> float:
    """Return a human-normalised score, 1 for a human."""
    share = normalised(score, game)
    assert share is not None
    return share / 100


def joined(found: Sequence[Found]) -> str:
    """Return the mean over the seeds, and the seeds' scores behind it; "" without any."""
    own = scores(found)
    if not own:
        return ""
    if len(own) == 1:
        result = found[0].line["result"]
        return score_of(result["score"], result["standard_error"])
    return f"**{fmean(own):,.1f}** ({', '.join(f'{score:,.1f}' for score in own)})"


def six(results: Results, kinds: Mapping[str, str] = NOW) -> Table:
    """Return the table about the six games one by one."""
    rows, missing = [], absent(kinds)
    for game in SIX:
        found = {what: of(results, kinds, what, game) for what in courses(kinds)}
        share = f"{human(fmean(scores(found[TEN])), game):.2f}" if found[TEN] else missing
        ten, *others = (joined(own) or missing for own in found.values())
        cells = (game, ten, share, *others, f"{best_public(game):,.0f}")
        rows.append(Row(cells, tuple(one for own in found.values() for one in own)))
    head = ("game", TEN, "human", *courses(kinds)[1:], "best public curve")
    return Table(head, rows)


def best_public(game: str) -> float:
    """Return the best mean score of a public curve at 6 M frames."""
    frames = 6_000_000
    return max(curve.points[frames] for curve in public_curves(game) if frames in curve.points)


def means(results: Results, kinds: Mapping[str, str] = NOW) -> Table:
    """Return the table about all six games together."""
    rows = []
    for what in courses(kinds):
        found = of_common_seeds({game: of(results, kinds, what, game) for game in SIX})
        shares = {game: [human(s, game) for s in scores(own)] for game, own in found.items()}
        cells = (what, *summed(shares, absent(kinds)))
        rows.append(Row(cells, tuple(x for own in found.values() for x in own)))
    head = ("", "interquartile mean", "interval", "mean", "median", "above a human", "runs")
    return Table(head, rows)


def of_common_seeds(found: Mapping[str, Sequence[Found]]) -> dict[str, list[Found]]:
    """Return what was found on seeds that all games have, if there are any.

    Otherwise a game with more seeds than others would count for more in the mean over all runs.
    """
    common = set.intersection(*({one.line["seed"] for one in own} for own in found.values()))
    return {
        game: [one for one in own if not common or one.line["seed"] in common]
        for game, own in found.items()
    }


def summed(shares: Mapping[str, Sequence[float]], missing: str) -> tuple[str, ...]:
    """Return the cells about human-normalised scores of the six games, by game and run."""
    if len(shares) < len(SIX) or not all(shares.values()):
        return (missing, "", "", "", "", str(sum(map(len, shares.values()))))
    each = [fmean(own) for own in shares.values()]
    interval = ""
    if min(map(len, shares.values())) > 1:
        found = bootstrap(interquartile_mean, shares, np.random.default_rng(1))
        interval = f"{found.low:.2f} to {found.high:.2f}"
    return (
        f"**{interquartile_mean([one for own in shares.values() for one in own]):.2f}**",
        interval,
        f"{fmean(each):.2f}",
        f"{median(each):.2f}",
        f"{sum(one > 1 for one in each)} of {len(each)}",
        str(sum(map(len, shares.values()))),
    )


def five(results: Results, kinds: Mapping[str, str] = NOW) -> Table:
    """Return the table about games that nothing was tuned on, of seed 1, else of all seeds."""
    rows, shares = [], []
    for game in (*UNTUNED, "qbert"):
        own = of(results, kinds, TEN if game == "qbert" else OTHERS, game)
        own = [one for one in own if one.line["seed"] == 1] or own
        beside = [published(game, name) for name in COLUMNS]
        cells = [game, MISSING, ""]
        if own:
            shares.append(human(fmean(one.line["result"]["score"] for one in own), game))
            cells = [game, joined(own), f"{shares[-1]:.2f}"]
        cells += ["" if value is None else f"{value:,.1f}" for value in beside]
        rows.append(Row(tuple(cells), tuple(own)))
    middle = f"{median(shares):.2f}" if len(shares) == len(rows) else MISSING
    rows.append(Row(("median", "", middle, *[""] * len(COLUMNS))))
    return Table(("game", "10 minutes", "human-normalised", *COLUMNS.values()), rows)


def readme(results: Results) -> list[str]:
    """Return the lines of the README: games above a human, and Breakout.

    A game is above if two standard errors below its human-normalised mean are: of one seed those
    over its games, of several over seeds. No-op starts; the six games and those that nothing was
    tuned on.
    """
    measured = all(of(results, NOW, TEN, game) for game in SIX)
    kinds = NOW if measured else BEFORE
    found = {game: of(results, kinds, TEN, game) for game in SIX}
    found |= {game: of(results, kinds, OTHERS, game) for game in UNTUNED}
    played, above = {game: own for game, own in sorted(found.items()) if own}, []
    for game, own in played.items():
        mean, error = fmean(scores(own)), own[0].line["result"]["standard_error"]
        if len(own) > 1:
            error = stdev(scores(own)) / math.sqrt(len(own))
        if human(mean - 2 * error, game) > 1:
            above.append(f"`{game}` ({100 * human(mean, game):.0f} %)")
    text = f"{len(above)} of {len(played)} games: {', '.join(above)}"
    rows = [("above a human after ten minutes", text)]
    if hour := results.one("breakout-score"):
        one = hour.line["result"]["minutes"]["60"]
        score = f"{one['mean']:.0f} ± {one['standard_error']:.0f} (seed {hour.line['seed']})"
        rows.append(("Breakout after an hour", score))
    return markdown(("Games", ""), rows)
