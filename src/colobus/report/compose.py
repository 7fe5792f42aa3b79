"""Puts a report together: what was measured, how sure it is, what others published, and how."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from itertools import combinations

import numpy as np

from colobus.evaluation.scores import DECIDES, HARDLY_ABOVE
from colobus.report import plots
from colobus.report.baselines import beside_dqn, beside_public, beside_published, peaks
from colobus.report.format import DASH, Block, Figure, Heading, Table, Text
from colobus.report.provenance import differences_in_play, how_measured
from colobus.report.results import FEW_GAMES, TRAINING_GAMES, Results, RunScore
from colobus.report.statistics import (
    LEAST_GAMES,
    LEAST_RUNS,
    bootstrap,
    count,
    enough,
    improvement_interval,
    interquartile_mean,
    over_games,
    performance_profile,
    plus_minus,
    probability_of_improvement,
    profile_band,
    standard_error,
    with_interval,
)
from colobus.runs.curves import SPEED

LEAST = 0.005
"""Shares below this are left out."""


def where_the_time_went(results: Results) -> list[Block]:
    """Return a row for each run that wrote its shares; nothing if none did."""
    found = [(one.run, stages) for one in results.all if (stages := one.run.stages())]
    if not found:
        return []
    roles = sorted({role for _, stages in found for role in stages})
    rows = tuple(
        (run.name, run.bound(), *(shares_in_words(stages.get(role, {})) for role in roles))
        for run, stages in found
    )
    columns = ("run", "speed limited by", *(f"time of {role}s" for role in roles))
    said = "Shares of the time of each kind of role, at the newest line of the run's metrics."
    return [Heading("Where the time went"), Table(columns, rows), Text(said)]


def shares_in_words(shares: Mapping[str, float]) -> str:
    """Return such as "emulate 52 %, act 34 %", the largest share first."""
    order = sorted(shares.items(), key=lambda one: -one[1])
    return ", ".join(f"{stage} {100 * share:.0f} %" for stage, share in order if share >= LEAST)


LEVELS = tuple(np.linspace(0, 8, 81).tolist())
"""Human-normalised scores at which a performance profile is drawn."""

METRICS = (SPEED, "lag_mean", "policy_loss", "value_loss", "td_error", "entropy", "kl", "q")
"""Metrics that are drawn beside the score, where a run has them."""

SEED = 1
"""Of the bootstrap: the same runs give the same report."""


def compose(results: Results) -> tuple[str, list[Block]]:
    """Return a report's title and blocks."""
    games = results.games
    title = games[0] if len(games) == 1 else f"{len(games)} games"
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    blocks: list[Block] = [
        Text(
            f"{count(len(results.runs), 'run')} in {count(len(games), 'game')}, "
            f"{count(len(results.groups), 'group')} of settings; written {when}."
        ),
        Text(_which_scores(results)),
        *_summary(results),
        *beside_dqn(results),
        *_over_games(results),
        *_curves(results),
        *peaks(results),
        *where_the_time_went(results),
        *beside_public(results),
        *beside_published(results),
        *how_measured(results),
    ]
    return f"Report: {title}", blocks


def _which_scores(results: Results) -> str:
    if results.protocol == TRAINING_GAMES:
        said = (
            "No run was evaluated, so scores are means of the last games while learning, 50 if "
            "there were as many; those that ended their run (--until-score) are on the lucky side. "
            "colobus eval plays full games without learning."
        )
    else:
        said = (
            f"Scores are means of full games without learning, by protocol {results.protocol}, of "
            "each run's evaluation after the most steps."
        )
        if earlier := [words for one in results.all if (words := _earlier(one))]:
            said += f" Of these runs an earlier checkpoint played: {', '.join(earlier)}."
        if differ := differences_in_play(results.all):
            said += (
                f" These games were not played alike: {', '.join(differ)}. The last tables have "
                "how each was played."
            )
    if unlike := _of_unlike_lengths(results):
        said += f" Runs of one group learned for different numbers of steps: {unlike}."
    if results.unscored:
        said += (
            " Without such a score, and so with a dash or a dashed line and not counted: "
            f"{', '.join(run.name for run, _, _ in results.unscored)}."
        )
    return said


def _of_unlike_lengths(results: Results) -> str:
    """Return the groups of which a run learned for more than 1.2 times the steps of another."""
    return ", ".join(
        f"{one.group} in {game}"
        for game in results.games
        for one in results.of(game)
        if max(steps := [run.learned for run in one.results]) > 1.2 * min(steps)
    )


def _earlier(result: RunScore) -> str:
    """Return which checkpoint was evaluated if a run went on after it, as after its best one."""
    if result.steps >= 0.99 * result.learned:  # a last batch may be counted that made no version
        return ""
    return f"{result.run.name}, after {result.steps:,} of {result.learned:,} steps"


def _summary(results: Results) -> list[Block]:
    rows = []
    for game in results.games:
        for one in results.of(game):
            games = [each.games for each in one.results]
            share, seconds = one.human_normalised, one.seconds
            rows.append(
                {
                    "game": game,
                    "group": one.group,
                    "runs>": str(len(one.results)),
                    "score>": plus_minus(one.score, one.error),
                    "each run>": ", ".join(
                        [plus_minus(score, None) for score in one.scores]
                        + [DASH] * sum(own[1:] == (one.group, game) for own in results.unscored)
                    ),
                    "human-normalised>": "" if share is None else f"{share:.1f} %",
                    "frames>": f"{one.frames / 1e6:.3g} M",
                    "minutes>": "" if seconds is None else f"{seconds / 60:.1f}",
                    "games a run>": " to ".join(map(str, sorted({min(games), max(games)}))),
                }
            )
    scored = {(one.group, one.game) for one in results.all}
    for group, game in dict.fromkeys(own[1:] for own in results.unscored):
        if (group, game) not in scored:
            names = dict.fromkeys(("runs>", "score>", "each run>"), DASH)
            rows.append(dict.fromkeys(rows[0], "") | {"game": game, "group": group} | names)
    rows.sort(key=lambda row: row["game"])
    said = (
        "Score: mean over runs ± standard error; of a single run, the standard error over its "
        "games. Human-normalised: random play is 0 %, a human 100 %."
    )
    return [Heading("Scores"), Table.of(rows), Text(said)]


def _over_games(results: Results) -> list[Block]:
    """Return what is said over all games: intervals, profiles, who is better."""
    groups = {name: scores for name in results.groups if (scores := results.normalised(name))}
    if not groups or max(map(len, groups.values())) < 2:
        return []
    sure = all(enough(scores) for scores in groups.values())
    blocks: list[Block] = [Heading("Over all games")]
    blocks += _intervals(groups) if sure else _plain_means(groups)
    profiles = {name: performance_profile(scores, LEVELS) for name, scores in groups.items()}
    random = np.random.default_rng(SEED)
    bands = {n: profile_band(s, LEVELS, random) for n, s in groups.items()} if sure else {}
    caption = (
        "Performance profile: the share of runs whose human-normalised score is above a level, "
        f"mean over games{'; bands are 95 % stratified bootstrap intervals' if sure else ''}."
    )
    every = dict.fromkeys(results.groups, ()) | profiles
    blocks.append(Figure(plots.profile_picture(LEVELS, every, bands), caption))
    if any(HARDLY_ABOVE in scores for scores in groups.values()):
        blocks.append(Text(f"{HARDLY_ABOVE}: {DECIDES}"))
    return [*blocks, *improvements(groups, sure)]


def _intervals(groups: dict[str, dict[str, list[float]]]) -> list[Block]:
    rows = []
    for name, scores in groups.items():
        random = np.random.default_rng(SEED)
        games = np.repeat(np.arange(len(scores)), [len(v) for v in scores.values()])
        iqm = bootstrap(interquartile_mean, scores, random)
        mean = bootstrap(partial(over_games, np.mean, games=games), scores, random)
        middle = bootstrap(partial(over_games, np.median, games=games), scores, random)
        rows.append((name, str(len(scores)), *map(with_interval, (iqm, middle, mean))))
    said = (
        "Human-normalised, 1 being a human's, with 95 % intervals of the stratified bootstrap: "
        "runs drawn again within each game, 2,000 times (Agarwal et al. 2021). IQM is the mean of "
        "the middle half of all runs; the mean is that of the games' means."
    )
    if len({len(v) for scores in groups.values() for v in scores.values()}) > 1:
        said += " Not all games have as many runs, and in the IQM those with more count for more."
    columns = ("group", "games>", "IQM>", "median of games>", "mean>")
    return [Table(columns, tuple(rows)), Text(said)]


def _plain_means(groups: dict[str, dict[str, list[float]]]) -> list[Block]:
    rows = []
    for name, scores in groups.items():
        means = [float(np.mean(values)) for values in scores.values()]
        error = standard_error(means)
        rows.append((name, str(len(scores)), plus_minus(float(np.mean(means)), error)))
    least = min(len(v) for scores in groups.values() for v in scores.values())
    fewest = min(map(len, groups.values()))
    said = (
        "Mean over games of the human-normalised score (1 is a human's) ± its standard error over "
        "games. There is no interquartile mean and no bootstrap interval here: with "
        f"{count(fewest, 'game')} and {count(least, 'run')} a game they would look surer than they "
        f"are. From {LEAST_GAMES} games with {LEAST_RUNS} runs each on, they are given."
    )
    return [Table(("group", "games>", "mean>"), tuple(rows)), Text(said)]


def improvements(groups: dict[str, dict[str, list[float]]], sure: bool) -> list[Block]:
    """Return who is how probably better, of each two groups with games that both played."""
    rows = []
    for (ours, x), (others, y) in combinations(groups.items(), 2):
        if not (both := [game for game in x if game in y]):
            continue
        if sure and len(both) >= LEAST_GAMES:
            said = with_interval(improvement_interval(x, y, np.random.default_rng(SEED)))
        else:
            said = f"{probability_of_improvement(x, y):.2f}"
        rows.append((ours, others, str(len(both)), said))
    if not rows:
        return []
    said = (
        "Probability of improvement: how likely a run of the first group scores higher than one of "
        "the second in a game that both played; ties count half."
    )
    return [Table(("group", "against", "games>", "probability>"), tuple(rows)), Text(said)]


def _curves(results: Results) -> list[Block]:
    every = sorted({*results.games, *(game for _, _, game in results.unscored)})
    playing = {game: results.playing(game, unscored=True) for game in every}
    playing = {game: groups for game, groups in playing.items() if any(groups.values())}
    if not playing:
        return []
    many = any(len(runs) > 1 for groups in playing.values() for runs in groups.values())
    said = "Mean score of the last 50 training games."
    said += " Thin lines are seeds, thick ones the mean of a group." if many else ""
    dashed = {run.path for run, _, _ in results.unscored}
    said += " Dashed lines are runs without an evaluation." if dashed else ""
    blocks: list[Block] = [Heading("Learning curves")]
    if len(playing) > FEW_GAMES:
        small = [(game, groups, "score") for game, groups in playing.items()]
        picture = plots.small_pictures(small, 1.9, True, dashed)
        return [*blocks, Figure(picture, said)]
    for game, groups in playing.items():
        blocks.append(Figure(plots.score_picture(groups, game, dashed), f"{game}. {said}"))
        there = {name for runs in groups.values() for run in runs for name in run.curve.names()}
        names = [name for name in METRICS if name in there or name == SPEED]
        titles = {name: name.replace("_", " ") for name in names} | {SPEED: "steps a second"}
        picture = plots.small_pictures([(titles[n], groups, n) for n in names], 2.3)
        blocks.append(Figure(picture, f"{game}: speed and losses over steps."))
    return blocks
