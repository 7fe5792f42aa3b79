"""What others published: curves at the same frames, and scores of papers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from colobus.evaluation.scores import Published, compare
from colobus.report import plots
from colobus.report.format import Block, Figure, Heading, Table, Text
from colobus.report.plots import REMARK, public_curves, source_of
from colobus.report.results import FEW_GAMES, TRAINING_GAMES, Results, RunScore, played, score_at
from colobus.report.statistics import count, plus_minus
from colobus.runs.read import RunFolder


def beside_public(results: Results) -> list[Block]:
    """Return the runs between public curves, at the same numbers of frames."""
    blocks: list[Block] = []
    for game in results.games:
        curves, groups = public_curves(game), results.playing(game)
        every = [run for runs in groups.values() for run in runs]
        most = max(int(run.curve.newest.get("steps", 0)) * run.frame_skip for run in every)
        marks = sorted({f for curve in curves for f in curve.points if f <= most})
        if not marks:
            continue
        rows = []
        for name, runs in groups.items():
            cells = [_mean_at(runs, frames) for frames in marks]
            rows.append((f"this report: {name}", str(len(runs)), *cells))
        for curve in curves:
            cells = [f"{v:.4g}" if (v := curve.points.get(f)) is not None else "" for f in marks]
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
    sources = sorted({source_of(method) for method in methods})
    easier = sum(run.settings.get("games.sticky", 0) == 0 for run in results.runs)
    said = (
        f"{REMARK} {easier} of the {count(len(results.runs), 'run')} of this report learned "
        f"without sticky actions. Sources: {'; '.join(sources)}."
    )
    return [Heading("Public curves at the same frames"), Text(said), *blocks]


def _mean_at(runs: Sequence[RunFolder], frames: int) -> str:
    scores = [score for run in runs if (score := score_at(run, frames)) is not None]
    return f"{np.mean(scores):.4g}" if len(scores) == len(runs) else ""


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
            every = dict.fromkeys(other[key].comparable for other in others)
            label, protocol, frames, score, _, *how = published_row(
                row._replace(comparable="; ".join(every))
            )
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
