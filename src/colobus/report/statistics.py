"""Statistics over games and runs, as Agarwal et al. 2021 (arXiv:2108.13264) recommend them.

Scores are human-normalised, one array of runs for each game. Games are the strata of the bootstrap:
runs are drawn again within each game, with as many as there are. At the end stands how a report
writes such numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from colobus.core.fields import digits_of

Scores = Mapping[str, Sequence[float]]
"""Human-normalised scores of all runs, by game."""

Vector = NDArray[np.float64]

LEAST_GAMES, LEAST_RUNS = 20, 5
"""Below so many games, or runs of a game, intervals over games are not given: see `enough`."""

SAMPLES = 2000
"""Times that the runs are drawn again."""

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """A number and its confidence interval."""

    value: float
    low: float
    high: float


def enough(scores: Scores) -> bool:
    """Return whether intervals over games are worth giving: 20 games with 5 runs each.

    With fewer runs the bootstrap, which draws from the few that there are, gives intervals that are
    too narrow (Agarwal et al. 2021, section 4 and figure A.11), and with few games their choice
    decides the mean.
    """
    runs = [len(values) for values in scores.values()]
    return len(runs) >= LEAST_GAMES and min(runs) >= LEAST_RUNS


def interquartile_mean(values: Sequence[float] | Vector) -> float:
    """Return the mean of the middle half: a quarter of the values is cut off at each end.

    As scipy's ``trim_mean(values, 0.25)``, the number of values that are cut off is rounded down.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64), axis=-1)
    cut = int(0.25 * ordered.shape[-1])
    return float(ordered[cut : ordered.shape[-1] - cut].mean())


def over_games(average: Callable[[Vector], Any], values: Vector, games: NDArray[np.int64]) -> float:
    """Return the average over games of their means; ``games`` numbers each value's game."""
    return float(average(np.bincount(games, weights=values) / np.bincount(games)))


def standard_error(values: Sequence[float]) -> float | None:
    """Return the standard error of the mean; None below two values."""
    count = len(values)
    return float(np.std(values, ddof=1)) / math.sqrt(count) if count > 1 else None


def _again(values: Sequence[float], random: np.random.Generator) -> Vector:
    """Return float64[SAMPLES, runs]: the runs of one game, drawn with replacement."""
    own = np.asarray(values, dtype=np.float64)
    return own[random.integers(len(own), size=(SAMPLES, len(own)))]


def bootstrap(
    statistic: Callable[[Vector], float], scores: Scores, random: np.random.Generator
) -> Interval:
    """Return a statistic of all runs with its stratified bootstrap interval (percentiles).

    The statistic takes the runs float64[runs of all games], in the order of the games.
    """
    every = np.concatenate([np.asarray(v, dtype=np.float64) for v in scores.values()])
    drawn = np.concatenate([_again(values, random) for values in scores.values()], axis=1)
    return Interval(statistic(every), *_percentiles([statistic(row) for row in drawn]))


def probability_of_improvement(ours: Scores, others: Scores) -> float:
    """Return how likely a run of ours is better than one of theirs in a game drawn by chance.

    It is the mean over the games that both have of P(X > Y) + P(X = Y) / 2, which is the
    Mann-Whitney statistic divided by the number of pairs.

    Raises:
        ValueError: if no game is in both.
    """
    games = [game for game in ours if game in others]
    if not games:
        raise ValueError("no game is in both groups")
    every = [(np.asarray(ours[game]), np.asarray(others[game])) for game in games]
    return float(np.mean([np.mean(_wins(x[:, None], y[None, :])) for x, y in every]))


def improvement_interval(ours: Scores, others: Scores, random: np.random.Generator) -> Interval:
    """Return the probability of improvement with its stratified bootstrap interval."""
    games = [game for game in ours if game in others]
    again = np.zeros(SAMPLES)
    for game in games:
        xs, ys = _again(ours[game], random), _again(others[game], random)
        again += np.mean(_wins(xs[:, :, None], ys[:, None, :]), axis=(1, 2)) / len(games)
    return Interval(probability_of_improvement(ours, others), *_percentiles(again))


def performance_profile(scores: Scores, levels: Sequence[float]) -> list[float]:
    """Return for each level the share of runs above it: the mean over games of their shares."""
    return [
        float(np.mean([np.mean(np.asarray(values) > level) for values in scores.values()]))
        for level in levels
    ]


def profile_band(
    scores: Scores, levels: Sequence[float], random: np.random.Generator
) -> tuple[list[float], list[float]]:
    """Return the pointwise stratified bootstrap interval of the profile at each level."""
    again = np.zeros((SAMPLES, len(levels)))
    for values in scores.values():
        above = _again(values, random)[:, :, None] > np.asarray(levels)[None, None, :]
        again += above.mean(axis=1) / len(scores)
    low, high = _percentiles(again)
    return low, high


def _wins(x: Vector, y: Vector) -> Vector:
    wins: Vector = (x > y) + 0.5 * (x == y)
    return wins


def _percentiles(values: Sequence[float] | Vector) -> Any:
    """Return both ends of the interval, of numbers or of each column of them."""
    ends = (50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE))
    return np.percentile(values, ends, axis=0).tolist()


def plus_minus(value: float, error: float | None) -> str:
    """Return a number with its standard error, if that is known."""
    small = error is not None and 1e-6 <= error < 0.05  # it would be 0.0
    digits = 1 if abs(value) >= 100 and not small else digits_of(error)
    said = f"{value:,.{digits}f}"
    return said if error is None else f"{said} ± {error:,.{digits}f}"


def with_interval(found: Interval) -> str:
    """Return a number with its confidence interval."""
    return f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"


def count(number: int, what: str) -> str:
    """Return such as "1 run" or "2 runs"."""
    return f"{number} {what}{'' if number == 1 else 's'}"
