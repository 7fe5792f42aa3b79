"""What the runs of a report reached: by run, by game and group, and over all games."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Generic, TypeVar

from colobus.core.errors import ColobusError, program
from colobus.core.fields import NUMBER, Range
from colobus.envs.api import GameSettings
from colobus.envs.make import is_atari
from colobus.evaluation.scores import normalised
from colobus.report.statistics import count, standard_error
from colobus.roles.tracker import WINDOW
from colobus.runs.curves import Row
from colobus.runs.listing import (
    SAME_AGENT,
    Runs,
    check_places,
    grouped,
    is_nameless,
    run_names,
    title_of,
    told_apart,
)
from colobus.runs.read import EvaluationFile, RunFolder

KEPT = 2000
"""Rows of a run's metrics that a report reads at least."""

SAME_METHOD = (*SAME_AGENT, "games.game")
"""Beginnings of the settings in which the runs of one method may differ."""

FEW_GAMES = 3
"""Up to so many games have large pictures of their own."""

TRAINING_GAMES = "games of training"
"""The score of a run without an evaluation: the mean of its last 50 games while it learned."""


@dataclass(frozen=True)
class RunScore:
    """The score of one run, and how it was measured."""

    run: RunFolder
    group: str
    score: float
    standard_error: float | None  # over its games; None if it is not known
    games: int
    protocol: str  # of the evaluation, or `TRAINING_GAMES`
    steps: int  # learned from
    seconds: float | None  # of training
    evaluation: EvaluationFile | None
    game: str

    @property
    def learned(self) -> int:
        """Steps that the run learned for, also after the checkpoint that was evaluated."""
        return max(self.steps, int(self.run.curve.newest.get("steps", 0)))

    @property
    def frames(self) -> int:
        """Emulator frames of training; steps where there is no emulator."""
        return self.steps * (self.run.frame_skip if is_atari(self.run.game) else 1)

    @property
    def human_normalised(self) -> float | None:
        """Human-normalised score in per cent; None for a game without reference scores."""
        return normalised(self.score, self.game, self.protocol == "human")


@dataclass(frozen=True)
class LedgerLine:
    """One line of a suite's ledger: a finished (game, seed)."""

    game: str
    seed: Annotated[int, Range(0)]
    settings: str  # `colobus.report.ledger.Suite.settings`
    preset: str
    protocol: str
    episodes: Annotated[int, Range(0)]
    score: Annotated[float, NUMBER]  # mean of the evaluation
    standard_error: Annotated[float, NUMBER] | None  # None: of one game
    human_normalised: Annotated[float, NUMBER] | None  # per cent; None: no published human
    steps: Annotated[int, Range(0)]  # learned from
    frames: Annotated[int, Range(0)]  # the same in emulator frames
    seconds: Annotated[float, NUMBER] | None  # of training
    passed: dict[str, Annotated[float, NUMBER]]  # seconds until a published score was passed
    run: str


R = TypeVar("R", RunScore, LedgerLine)


@dataclass(frozen=True)
class GameSummary(Generic[R]):
    """All runs of one group in one game; numbers are means over them."""

    game: str
    group: str
    results: tuple[R, ...]

    @property
    def scores(self) -> list[float]:
        """The score of each run."""
        return [result.score for result in self.results]

    @property
    def score(self) -> float:
        """Mean score of the runs."""
        return fmean(self.scores)

    @property
    def error(self) -> float | None:
        """Standard error of the mean: over runs, with one run over its games."""
        many = len(self.results) > 1
        return standard_error(self.scores) if many else self.results[0].standard_error

    @property
    def frames(self) -> float:
        """Emulator frames of training."""
        return fmean(result.frames for result in self.results)

    @property
    def seconds(self) -> float | None:
        """Seconds of training of the runs that say it."""
        return mean_of_known(result.seconds for result in self.results)

    @property
    def human_normalised(self) -> float | None:
        """Human-normalised score in per cent."""
        return mean_of_known(result.human_normalised for result in self.results)


def mean_of_known(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are known; None without one."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


@dataclass(frozen=True)
class Results:
    """Everything that a report is made of."""

    runs: tuple[RunFolder, ...]
    groups: dict[str, tuple[RunFolder, ...]]
    protocol: str
    all: tuple[RunScore, ...]
    unscored: tuple[tuple[RunFolder, str, str], ...]  # runs without a score, their group and game

    @property
    def games(self) -> list[str]:
        """Names of all games with a result, in order."""
        return sorted({result.game for result in self.all})

    def of(self, game: str) -> list[GameSummary[RunScore]]:
        """Return the results in a game, one for each group that played it."""
        return [
            GameSummary(game, group, own)
            for group in self.groups
            if (own := tuple(r for r in self.all if r.game == game and r.group == group))
        ]

    def normalised(self, group: str) -> dict[str, list[float]]:
        """Return a group's human-normalised scores by game, 1 being a human's.

        Games without such scores are left out.
        """
        found: dict[str, list[float]] = {}
        for result in self.all:
            if result.group == group and (share := result.human_normalised) is not None:
                found.setdefault(result.game, []).append(share / 100)
        return dict(sorted(found.items()))

    def playing(self, game: str, unscored: bool = False) -> dict[str, list[RunFolder]]:
        """Return the runs of a game that have metrics, by group; some groups may have none.

        Exported agents have no metrics. With ``unscored`` runs without a score are among them.
        """
        found: dict[str, list[RunFolder]] = {group: [] for group in self.groups}
        named = [(one.run, one.group, one.game) for one in self.all]
        for run, group, own in [*named, *self.unscored] if unscored else named:
            if own == game and run.curve.rows:
                found[group].append(run)
        return found


def read_results(places: Sequence[Path], protocol: str = "") -> Results:
    """Return the results of the runs in and below some folders.

    Args:
        places: runs, or folders of runs.
        protocol: of the evaluations that count; by default the one that most runs have been
            evaluated by, so that one number is not compared with another kind of number.

    Raises:
        ColobusError: if there is no run, or no run with a score.
    """
    check_places(places)
    found = Runs(places, KEPT)
    found.look()
    runs = found.all
    if not runs:
        where = ", ".join(map(str, places))
        raise ColobusError(f"{where}: no run there; name a folder that colobus train made")
    for run in runs:
        run.refresh()
    chosen = protocol or usual_protocol(runs)
    runs = trainings(runs, chosen)
    for run, name in zip(runs, run_names(runs), strict=True):
        run.name = name
    groups = methods(runs)
    of = {run.path: name for name, members in groups.items() for run in members}
    policies = {name: usual_policy(members, chosen) for name, members in groups.items()}
    games = titles(groups)
    named = [(run, of[run.path], games[run.game]) for run in runs]
    results = [
        result
        for run, group, game in named
        if (result := _result(run, group, game, chosen, policies[group]))
    ]
    if not results:
        asked = f" by protocol {protocol}" if protocol else ""
        raise ColobusError(
            f"{count(len(runs), 'run')}, and none has a score{asked} yet; evaluate with: "
            f"{program()} eval RUN"
        )
    have = {result.run.path for result in results}
    unscored = tuple(one for one in named if one[0].path not in have)
    return Results(tuple(runs), groups, chosen, tuple(results), unscored)


def trainings(runs: Sequence[RunFolder], protocol: str) -> list[RunFolder]:
    """Return each training once: no copies, and an exported agent if it alone has a score."""
    scored = {run.path for run in runs if any(e.protocol == protocol for e in run.evaluations)}
    rank = {run: (run.path in scored, run.curve.newest.get("steps", -1)) for run in runs}
    best: dict[tuple[str, bool], RunFolder] = {}  # (…, True): of those that learned
    for run in sorted(runs, key=rank.__getitem__, reverse=True):
        number = str(run.about.get("run") or run.path)
        for learned in {False, bool(run.curve.rows)}:
            best.setdefault((number, learned), run)
    return [run for run in runs if run in best.values()]


def titles(groups: Mapping[str, Sequence[RunFolder]]) -> dict[str, str]:
    """Return what each game is called, by its name in settings.

    Environments of lambdas are one game, unless two runs of a group have the same seed: then the
    same lines have made different environments.
    """
    own = [[run for run in runs if is_nameless(run.game)] for runs in groups.values()]
    names = sorted({run.game for runs in own for run in runs})
    one = all(len({run.seed for run in runs}) == len(runs) for runs in own)
    every = {run.game: drawable(run.game) for runs in groups.values() for run in runs}
    number = {name: "" if one or len(names) == 1 else f" {i + 1}" for i, name in enumerate(names)}
    return every | {name: title_of(name) + number[name] for name in names}


def drawable(name: str) -> str:
    """Return a name as a picture can have it: bytes of folders that are no UTF-8 are escaped."""
    return name.encode(errors="backslashreplace").decode()


def usual_protocol(runs: Sequence[RunFolder]) -> str:
    """Return the protocol by which most runs were evaluated; `TRAINING_GAMES` if none was.

    Of equal ones it is that of the later checkpoints, and then any but dba3c, by whose games
    `colobus.evaluation.sidecar` chooses checkpoints: the best of many is better in them.
    """
    last = {(e.protocol, run.path): e.steps for run in runs for e in run.evaluations}
    of: dict[str, list[int]] = {}
    for (name, _), steps in last.items():
        of.setdefault(name, []).append(steps)
    rank = {name: (len(steps), sum(steps), name != "dba3c") for name, steps in of.items()}
    return max(sorted(of), key=rank.__getitem__, default=TRAINING_GAMES)


def methods(runs: Sequence[RunFolder]) -> dict[str, tuple[RunFolder, ...]]:
    """Return the runs by what learned: all settings but the game and the seed are the same.

    A group's name is its algorithm, and where that is not enough what differs.
    """
    groups = grouped(runs, SAME_METHOD)
    firsts = [members[0] for members in groups]
    names = told_apart([run.algorithm or "unknown" for run in firsts], firsts, SAME_METHOD, ", ")
    return {
        drawable(name if names.count(name) == 1 else f"{name}, {members[0].name}"): tuple(members)
        for name, members in zip(names, groups, strict=True)
    }


def usual_policy(runs: Sequence[RunFolder], protocol: str) -> str:
    """Return how actions were chosen in the evaluations of most runs; "" if there are none.

    Runs of one method are compared by the same policy. Where as many have each, it is not greedy.
    """
    each = [{e.policy for e in run.evaluations if e.protocol == protocol} for run in runs]
    counts = Counter(policy for policies in each for policy in policies)
    return min(counts, key=lambda p: (-counts[p], p == "greedy", p)) if counts else ""


def _result(run: RunFolder, group: str, game: str, protocol: str, policy: str) -> RunScore | None:
    """Return a run's score by a protocol and policy; None if it has none.

    It is that of the evaluation after the most steps, and of those the one of most games.
    """
    if protocol == TRAINING_GAMES:
        rows = [row.values for row in run.curve.rows if "score" in row.values]
        if not rows:
            return None
        last, seconds = rows[-1], rows[-1]["seconds"]
        score, steps, games = last["score"], int(last["steps"]), min(int(last.get("games", 50)), 50)
        return RunScore(run, group, score, None, games, protocol, steps, seconds, None, game)
    own = [one for one in run.evaluations if one.protocol == protocol and one.policy == policy]
    if not own:
        return None
    one = own[-1]
    found = one.mean, one.error, one.games, protocol, one.steps, seconds_of(run.curve.rows, one)
    return RunScore(run, group, *found, one, game)


def seconds_of(rows: Sequence[Row], one: EvaluationFile) -> float | None:
    """Return the seconds of training behind an evaluation; None if nobody knows."""
    before = [row.values["seconds"] for row in rows if row.values["steps"] <= one.steps]
    return one.seconds if one.seconds is not None else next(reversed(before), None)


def running_scores(rows: Iterable[Mapping[str, float]]) -> list[tuple[float, float]]:
    """Return seconds and best running score until then of each row of metrics, of full 50 games.

    A report does not read all rows of a long run; the best tells of those between them, too.
    """
    full = [row for row in rows if "score" in row and row.get("games", 0) >= WINDOW]
    return [(row["seconds"], row.get("best", row["score"])) for row in full]


def seconds_above(scores: Sequence[tuple[float, float]], least: float | None) -> float | None:
    """Return when running scores were first above ``least``; None if they never were."""
    return next((s for s, score in scores if least is not None and score > least), None)


def score_at(run: RunFolder, frames: int) -> float | None:
    """Return a run's running score after so many frames; None if it did not come so far."""
    steps = frames / run.frame_skip
    rows = [row.values for row in run.curve.rows if "score" in row.values]
    rows = [row for row in rows if row.get("games", 0) >= WINDOW]
    if not rows or rows[-1]["steps"] < steps:
        return None
    return next((row["score"] for row in reversed(rows) if row["steps"] <= steps), None)


def played(result: RunScore) -> GameSettings:
    """Return how the games of a result were played: of its evaluation, or of its training."""
    known = {field.name: field.default for field in dataclasses.fields(GameSettings)}
    own = result.run.settings
    about: dict[str, Any] = {name: own.get(f"games.{name}") for name in known}
    if result.evaluation and isinstance(result.evaluation.about.get("settings"), dict):
        about = result.evaluation.about["settings"]
    values = {k: about[k] for k, usual in known.items() if type(about.get(k)) is type(usual)}
    return GameSettings(**values)
