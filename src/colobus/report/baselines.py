"""What others published: curves at the same frames, and scores of papers."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np

from colobus.envs.make import is_atari
from colobus.evaluation.scores import Published, compare, normalised, published
from colobus.report import plots
from colobus.report.format import DASH, Block, Figure, Heading, Table, Text
from colobus.report.plots import REMARK, SOURCES, public_curves
from colobus.report.results import (
    FEW_GAMES,
    TRAINING_GAMES,
    Results,
    RunScore,
    played,
    running_scores,
    score_at,
    seconds_above,
)
from colobus.report.statistics import count, plus_minus
from colobus.runs.read import RunFolder


def beside_public(results: Results) -> list[Block]:
    """Return the runs between public curves, at the same numbers of frames."""
    blocks: list[Block] = []
    for game in results.games:
        curves, groups = public_curves(game), results.playing(game)
        every = [run for runs in groups.values() for run in runs]
        most = max((int(run.curve.newest["steps"]) * run.frame_skip for run in every), default=0)
        marks = sorted({f for curve in curves for f in curve.points if f <= most})
        if not marks:
            continue
        rows = []
        for name, runs in groups.items():
            if runs:
                cells = [_mean_at(runs, frames) for frames in marks]
                rows.append((f"this report: {name}", str(len(runs)), *cells))
        for curve in curves:
            points = [curve.points.get(frames) for frames in marks]
            cells = ["" if score is None else plus_minus(score, None) for score in points]
            rows.append((curve.method, str(curve.runs), *cells))
        columns = ("method", "runs>", *(f"{frames // 1_000_000} M>" for frames in marks))
        caption = f"{game}: grey lines are public curves, named where there is room."
        blocks.append(Heading(game, 3))
        if len(results.games) <= FEW_GAMES:
            blocks.append(Figure(plots.public_picture(groups, game, most), caption))
        blocks.append(Table(columns, tuple(rows)))
    if not blocks:
        return []
    methods = {curve.method for game in results.games for curve in public_curves(game)}
    sources = sorted({SOURCES[method.partition(":")[0]] for method in methods})
    runs = [run for run in results.runs if is_atari(run.game)]
    easier = sum(run.settings.get("games.sticky", 0) == 0 for run in runs)
    said = (
        f"{REMARK} {easier} of the {count(len(runs), 'run')} of this report learned "
        f"without sticky actions. Sources: {'; '.join(sources)}."
    )
    return [Heading("Public curves at the same frames"), Text(said), *blocks]


def _mean_at(runs: Sequence[RunFolder], frames: int) -> str:
    scores = [score for run in runs if (score := score_at(run, frames)) is not None]
    return plus_minus(float(np.mean(scores)), None) if len(scores) == len(runs) else ""


def beside_published(results: Results) -> list[Block]:
    """Return the scores of papers beside those of the runs."""
    blocks: list[Block] = []
    for game in results.games:
        own = results.of(game)
        rows: list[tuple[str, ...]] = [
            (
                f"this report: {one.group}",
                one.results[0].protocol,
                f"{one.frames / 1e6:.3g} M",
                plus_minus(one.score, one.error),
                "",
                "",
            )
            for one in own
        ]
        others = [_published(one.results[0]) for one in own]
        if not others[0]:
            continue
        for key, row in others[0].items():
            said = "; ".join(dict.fromkeys(other[key].comparable for other in others))
            label, protocol, frames, score, _, *how = published_row(row._replace(comparable=said))
            rows.append((label, protocol, frames, score, *how))
        columns = ("", "games", "learned>", "score>", "comparable", "source")
        blocks += [Heading(game, 3), Table(columns, tuple(rows))]
    if not blocks:
        return []
    said = (
        "Learned: frames of training of each game. Comparable: whether the games were played with "
        "the same settings of the emulator (docs/evaluation.md explains the words); where groups "
        "of this report differ in that, all answers."
    )
    return [Heading("Published scores"), Text(said), *blocks]


HUMAN, DQN = "a human", "DQN, 2015"
"""Whose scores stand beside those of a report; DQN's are those of Mnih et al. 2015."""


def beside_dqn(results: Results) -> list[Block]:
    """Return the human-normalised scores of each game beside those of DQN, as bars and a table."""
    rows: dict[str, dict[str, float]] = {}
    starts = results.protocol == "human"
    for game in results.games:
        known = {o.group: s for o in results.of(game) if (s := o.human_normalised) is not None}
        theirs = published(game, "dqn_starts" if starts else "dqn_2015")
        if known and theirs is not None:
            rows[game] = known | {DQN: normalised(theirs, game, starts) or 0.0}
    if not rows:
        return []
    rows = dict(sorted(rows.items(), key=lambda row: -max(row[1][n] for n in row[1] if n != DQN)))
    names = [name for name in (*results.groups, DQN) if any(name in row for row in rows.values())]
    cells = [[f"{row[n]:.0f} %" if n in row else DASH for n in names] for row in rows.values()]
    table = tuple((game, *own) for game, own in zip(rows, cells, strict=True))
    said = (
        "Human-normalised scores: random play is 0 %, a human 100 %. DQN learned from 200 M frames "
        "of each game (Mnih et al. 2015); how its games were played stands below."
    )
    picture = plots.normalised_picture(rows, names, list(results.groups))
    return [
        Heading("Beside DQN and a human"),
        Figure(picture, "Means over runs; dashed: a human."),
        Table(("game", *(f"{name}>" for name in names)), table),
        Text(said),
    ]


def peaks(results: Results) -> list[Block]:
    """Return when running scores were highest, and when they passed a human's and DQN's."""
    rows: list[tuple[str, ...]] = []
    passed: dict[str, dict[str, list[float]]] = {HUMAN: {}, DQN: {}}
    counted = 0
    for game in results.games:
        levels = {HUMAN: published(game, "human"), DQN: published(game, "dqn_2015")}
        counted += (both := None not in levels.values())
        for group, runs in results.playing(game).items():
            every = [running_scores(row.values for row in run.curve.rows) for run in runs]
            if not (each := [scores for scores in every if scores]):
                continue
            tops = [max(scores, key=lambda one: one[1]) for scores in each]
            after, score = (fmean(values) for values in zip(*tops, strict=True))
            cells = [plus_minus(score, None), f"{after / 60:.1f}"]
            for level, least in levels.items():
                when = [seconds_above(scores, least) for scores in each]
                minutes = [seconds / 60 for seconds in when if seconds is not None]
                cells.append(DASH)
                if len(minutes) == len(runs):
                    passed[level].setdefault(group, []).extend([fmean(minutes)] * both)
                    cells[-1] = f"{fmean(minutes):.1f}"
            rows.append((game, group, *cells))
    if not rows:
        return []
    columns = ("game", "group", "peak>", "minutes to it>", f"to {HUMAN}>", f"to {DQN}>")
    said = (
        "Peak: highest running score (mean of the last 50 training games), and the minutes until "
        "it; then the minutes until the running score was above that of a human and of DQN (a "
        "dash: it never was in one of the runs, or nobody published it). All are means over runs."
    )
    blocks: list[Block] = [Heading("Time to the peak"), Table(columns, tuple(rows)), Text(said)]
    if counted > 1:
        caption = f"How many of {counted} games were above a level after which time."
        picture = plots.passed_picture(passed, list(results.groups), counted)
        blocks.append(Figure(picture, caption))
    return blocks


def published_row(row: Published) -> tuple[str, ...]:
    """Return a published score as cells: label, games, frames, score, human %, how, source."""
    share = "" if row.normalised is None else f"{row.normalised:,.1f}"
    score = f"{row.score:,.1f}"
    return row.label, row.protocol, row.frames, score, share, row.comparable, row.source


def _published(result: RunScore) -> dict[tuple[str, str], Published]:
    """Return the scores of papers for a result, by method and kind of games.

    Those that can be compared come first.
    """
    found = compare(played(result), human_starts=result.protocol == "human")
    if result.protocol == TRAINING_GAMES:
        found = [row._replace(comparable="no: not evaluated") for row in found]
    return {(row.label, f"{row.protocol} {row.frames}"): row for row in found}
