"""Which checkpoint of a run plays: the newest, or the best one where the newest is worse.

Checkpoints are compared by evaluations where both have one of the same kind, else by their scores
in training. A training saves which one has been best in its newest checkpoint (`Score.peak`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from colobus.core.checkpoint import (
    About,
    Check,
    Checkpoint,
    by_age,
    file_of,
    newest_checkpoint,
    read_about,
    read_checkpoint,
)
from colobus.core.errors import ColobusError
from colobus.core.fields import with_error
from colobus.envs.api import GameSettings
from colobus.envs.make import agents
from colobus.roles.tracker import WINDOW
from colobus.runs.folder import CHECKPOINTS, EVALUATIONS
from colobus.runs.read import read_evaluations

BEST, LAST = "best", "last"
"""Names of checkpoints."""

ENOUGH = 30
"""Games of an evaluation by which checkpoints are compared."""

INTERVAL = 1.96
"""Standard errors of a difference within which two scores may be equal: of 95 %."""


class Measured(NamedTuple):
    """The score of a checkpoint."""

    mean: float
    error: float  # its standard error
    how: str

    def __str__(self) -> str:
        return with_error(self.mean, self.error)

    def is_below(self, other: Measured) -> bool:
        """Return whether this score is lower by more than the interval."""
        return other.mean - self.mean > INTERVAL * math.hypot(self.error, other.error)


Scores = Mapping[Path, Measured]
"""Scores that can be compared, by checkpoint."""


def pick_checkpoint(
    run: Path, wanted: str, check: Check, log: Callable[[str], None]
) -> tuple[Path, Checkpoint]:
    """Return a checkpoint of a run, and its file.

    Args:
        run: folder of the run.
        wanted: "best", "last", the number of a version or the name of a file; "" for the newest
            complete one, or for the best one if the newest is worse by more than the interval.
        check: refuses those that do not fit the run.
        log: takes a line if the best one is taken, with the rule by which it is.

    Raises:
        ColobusError: if there is no complete one, or not the one that is wanted.
    """
    folder = run / CHECKPOINTS
    if wanted not in ("", BEST, LAST):
        return read_named(folder, wanted, check)
    newest, checkpoint, _ = newest_checkpoint(folder, check)
    if wanted == LAST:
        return newest, checkpoint
    every = _scores(run, newest)
    best = _best(every)
    if best is None or best == newest:
        if wanted and best is None:
            log(f"no checkpoint has the score of {WINDOW} games yet: {newest.name} is the newest")
        return newest, checkpoint
    pair = _pair(every, newest, best)
    worse = pair is not None and pair[0].is_below(pair[1])
    if not (wanted or worse):
        return newest, checkpoint
    try:
        found = read_checkpoint(best, check)
    except ColobusError as error:
        log(f"{error}; using the newest, which may be worse")
        return newest, checkpoint
    score = pair[1] if pair else next(scores[best] for scores in every if best in scores)
    beside = f"; the newest ({LAST}) has {pair[0]}" if pair else ""
    log(f"best checkpoint, after {found.steps:,} steps: score {score} {score.how}{beside}")
    return best, found


def read_named(folder: Path, name: str, check: Check) -> tuple[Path, Checkpoint]:
    """Return the checkpoint of a version's number, or of the name of a file.

    Raises:
        ColobusError: if there is none, or it cannot be used.
    """
    stem = name.removesuffix(".safetensors").removesuffix(".json")  # no number has 16 digits
    path = file_of(folder, int(stem.lstrip("0")[:16] or 0)) if stem.isdecimal() else Path(name)
    if path.parent.resolve() != folder.resolve() and path.is_file():
        raise ColobusError(f"--checkpoint {name}: is not in {folder}; name its own run")
    if not path.is_file():
        there = [BEST, LAST, *sorted(str(int(path.stem)) for path in by_age(folder))]
        raise ColobusError(f"--checkpoint {name}: not in {folder}; there are: {', '.join(there)}")
    return path, read_checkpoint(path, check)


def best_evaluated(run: Path, known: list[float] | None) -> list[float] | None:
    """Return version, mean and 1.0 (0.0: games are missing) of the best that the evaluator found.

    Args:
        run: folder of the run.
        known: what its newest checkpoint says, which was written before later evaluations.
    """
    found = [known] if known else []
    for one in read_evaluations([*(run / EVALUATIONS).glob("*-dba3c-*-greedy-seed0*.json")]):
        epoch, version = one.about.get("epoch"), one.about.get("version")
        # with few games it was made by hand
        whole = one.about.get("episodes_asked", one.games) == one.games >= ENOUGH
        if type(version) is int:
            with suppress(ColobusError):  # it was deleted
                if read_about(file_of(run / CHECKPOINTS, version)).epoch == epoch:
                    found.append([version, one.mean, float(whole)])
    return max(found, key=lambda it: (all(it[2:]), it[1]), default=None)


def _scores(run: Path, newest: Path) -> list[Scores]:
    """Return the scores of a run's checkpoints: of evaluations if several have one, of training."""
    about: dict[Path, About] = {}
    last = read_about(newest)
    for path in reversed(by_age(run / CHECKPOINTS)):
        try:
            one = read_about(path)
        except ColobusError:
            continue
        if one.order <= last.order and (one.run or {}).get("id") == (last.run or {}).get("id"):
            about[path] = one
    trained, evaluated = _trained(about, last), _evaluated(run, about)
    return [evaluated, trained] if len(evaluated) > 1 else [trained]


def _trained(about: Mapping[Path, About], last: About) -> Scores:
    """Return the scores in training: as each checkpoint was written, of the best around it."""
    found = {}
    game = GameSettings(game=str((last.run or {}).get("game", "")))
    wider = math.sqrt(agents(game))  # scores of the agents of one game depend on each other
    for path, one in about.items():
        recent = one.counters.get("recent_scores", [])
        if len(recent) >= WINDOW and all(map(math.isfinite, recent)):
            error = wider * stdev(recent) / math.sqrt(len(recent))
            found[path] = Measured(fmean(recent), error, f"in {len(recent)} games of training")
    peak = last.counters.get("peak") or []
    best = next((path for path, one in about.items() if [*one.order] == peak[:2]), None)
    if best is None or len(peak) != 4:
        return found
    top = Measured(peak[2], wider * peak[3], f"in the {WINDOW} games of training around it")
    for path, one in about.items():  # those that seemed better were not, as games after them say
        if path in found and one != last:
            found[path] = found[path]._replace(mean=min(found[path].mean, top.mean))
    return {best: top} | {path: found[path] for path in found if path != best}


def _evaluated(run: Path, about: Mapping[Path, About]) -> Scores:
    """Return the scores of the protocol, policy and seed by which most checkpoints have one."""
    of = {one.steps: path for path, one in about.items()}
    groups: dict[tuple[str, ...], dict[Path, Measured]] = {}
    for one in read_evaluations(list((run / EVALUATIONS).glob("*.json"))):
        said = one.about.get("version"), one.about.get("epoch")
        if (path := of.get(one.steps)) is None or one.error is None or one.games < ENOUGH:
            continue
        if said not in ((None, None), about[path].order[::-1]):
            continue
        how = f"in {one.games} games by protocol {one.protocol}"
        same = ("starts", "seed")  # the start states of one file alone, and the same games
        kind = one.protocol, one.policy, *(str(one.about.get(name)) for name in same)
        groups.setdefault(kind, {})[path] = Measured(one.mean, one.error, how)
    return max(groups.values(), key=len, default={})


def _best(every: list[Scores]) -> Path | None:
    """Return the best checkpoint: by evaluation, or one after those that was better in training.

    Of equal ones it is the first.
    """
    firsts = [max(scores, key=lambda path: scores[path].mean) for scores in every if scores]
    if len(firsts) < 2:
        return firsts[0] if firsts else None
    evaluated, trained = firsts
    pair = _pair(every, evaluated, trained)
    is_later = trained.name > max(path.name for path in every[0])
    return trained if is_later and pair and pair[0].is_below(pair[1]) else evaluated


def _pair(every: list[Scores], one: Path, other: Path) -> tuple[Measured, Measured] | None:
    """Return two scores that can be compared; None if there are none."""
    found = ((scores[one], scores[other]) for scores in every if one in scores and other in scores)
    return next(found, None)
