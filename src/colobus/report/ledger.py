"""A suite: the same settings on many games, one ledger that resumes, one table of results.

The ledger, ``suite.jsonl``, has a line for each finished (game, seed), written when its last
checkpoint has been evaluated. The runs themselves lie in ``runs/GAME-SEED`` beside it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

from colobus.core.errors import ColobusError, nearest
from colobus.core.fields import hints_of, read
from colobus.core.files import read_lines
from colobus.core.timing import clock
from colobus.envs.make import UnknownGame, is_atari, known_games, parse_game
from colobus.evaluation.protocols import Evaluation, find_protocol
from colobus.evaluation.scores import COLUMNS, DECIDES, HARDLY_ABOVE, published, scores
from colobus.experiment.check import check, differing_for_good
from colobus.experiment.settings import Experiment, groups_of
from colobus.report.format import Table, as_csv
from colobus.report.results import GameSummary, LedgerLine, running_scores, seconds_above
from colobus.report.statistics import plus_minus
from colobus.runs.config import changed, read_config
from colobus.runs.curves import read_metrics
from colobus.runs.folder import is_run, slug

REFERENCES = ("random", "human", "dqn_2015", "gorila", "ppo", "rainbow")
"""Columns of `scores.COLUMNS` that the table shows beside the results."""


@dataclass(frozen=True)
class Suite:
    """The runs of a suite: every game with every seed, all other settings equal."""

    folder: Path
    games: tuple[str, ...]
    seeds: int  # how many, from `first` on
    base: Experiment  # whose game and seed are replaced
    preset: str
    protocol: str
    episodes: int
    first: int = 1  # seed
    source: str = ""  # of the weights that the runs begin with; "" for new ones

    @property
    def pairs(self) -> list[tuple[str, int]]:
        """All (game, seed) in the order they are played: a first seed of all games comes first."""
        seeds = range(self.first, self.first + self.seeds)
        return [(game, seed) for seed in seeds for game in self.games]

    @property
    def settings(self) -> str:
        """Hash of everything that must be equal in one ledger: all but games and seeds.

        It is of what differs from the defaults, so that new settings change nothing.
        """
        groups = groups_of(self.experiment("", 0))
        same = {k: changed(own) for k, own in groups.items() if k not in ("tracker", "sidecars")}
        data = [type(self.base.algorithm).__name__, same, self.base.deterministic]
        data += [self.protocol, self.episodes]
        data += [self.source] if self.source else []
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def ledger(self) -> Path:
        """The file with the results."""
        return self.folder / "suite.jsonl"

    def experiment(self, game: str, seed: int) -> Experiment:
        """Return all settings of one run."""
        return replace(self.base, games=replace(self.base.games, game=game), seed=seed)

    def run(self, game: str, seed: int) -> Path:
        """Return the folder of one run."""
        return self.folder / "runs" / f"{slug(game)}-{seed}"

    def check(self) -> None:
        """Check what can be checked before anything is started.

        Raises:
            ColobusError: if a setting or the protocol does not suit a game, or a run that was begun
                here has other settings.
        """
        protocol = find_protocol(self.protocol)
        for game, seed in self.pairs:
            experiment, folder = self.experiment(game, seed), self.run(game, seed)
            try:
                check(experiment)
            except ColobusError as error:
                raise ColobusError(f"{error} (a suite's settings are those of --preset)") from None
            protocol.settings(experiment.games)
            if not is_run(folder):
                continue
            config = read_config(folder)
            config.check_begun(folder, self.source)
            other = differing_for_good(experiment, config.experiment)
            if other or config.experiment.stop != experiment.stop:
                raise ColobusError(
                    f"{folder} was begun with other settings; give those, or another --out"
                )


def parse_games(words: str) -> tuple[str, ...]:
    """Return the games of ``GAME,GAME…``, each once.

    atari49 are those of Mnih et al. 2015, atari57 all with published scores.

    Raises:
        ColobusError: if a game is unknown (all of them are named), or its name implies settings.
    """
    games: list[str] = []
    unknown: list[str] = []
    for word in (word for word in words.split(",") if word):
        if word in ("atari49", "atari57"):
            table = scores()
            games += [game for game in table if word == "atari57" or "dqn_2015" in table[game]]
            continue
        try:
            name = parse_game(word)
        except UnknownGame:
            unknown.append(f"{word!r} ({nearest(word.lower(), known_games())})")
            continue
        if name.sticky is not None:
            raise ColobusError(
                f"{name.note}; a suite has the same settings for all games: write {name.game}"
            )
        games.append(name.game)
    if unknown:
        raise ColobusError(f"unknown game{'s' * (len(unknown) > 1)} {', '.join(unknown)}")
    if not games:
        raise ColobusError("which games? such as: pong,breakout or atari49")
    return tuple(dict.fromkeys(games))


def read_ledger(suite: Suite) -> list[LedgerLine]:
    """Return the results so far.

    A line that is no JSON or lacks a value was cut off when the machine stopped: its pair is
    evaluated again.

    Raises:
        ColobusError: if the ledger has results with other settings, cannot be read, or has a value
            that cannot be; names the line and the value.
    """
    entries = []
    try:
        rows = read_lines(suite.ledger)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ColobusError(f"{suite.ledger}: cannot be read: {error.strerror}") from None
    for number, row in enumerate(rows, 1):
        if not hints_of(LedgerLine).keys() <= row.keys():
            continue
        try:
            entry: LedgerLine = read(LedgerLine, row, str)
        except ColobusError as error:
            raise ColobusError(f"{suite.ledger}, result {number}: {error}; delete it") from None
        if entry.settings != suite.settings:
            raise ColobusError(
                f"{suite.ledger} has results with other settings (preset {entry.preset[:40]}, "
                f"protocol {entry.protocol[:40]}, {entry.episodes} games, settings "
                f"{entry.settings[:40]}, now {suite.settings}); give those, or another --out"
            )
        entries.append(entry)
    return entries


def append(suite: Suite, entry: LedgerLine) -> None:
    """Add a line to the ledger and flush it to the disk."""
    suite.folder.mkdir(parents=True, exist_ok=True)
    path = suite.ledger
    whole = not path.exists() or path.read_bytes()[-1:] in (b"", b"\n")
    with path.open("a", encoding="utf-8") as file:
        if not whole:  # a line was cut off when the machine stopped
            file.write("\n")
        file.write(json.dumps(dataclasses.asdict(entry)) + "\n")
        file.flush()
        os.fsync(file.fileno())


def entry_of(suite: Suite, seed: int, evaluation: Evaluation) -> LedgerLine:
    """Return the ledger's line for an evaluated run."""
    game, error = evaluation.settings.game, evaluation.standard_error
    folder = suite.run(game, seed)
    return LedgerLine(
        game=game,
        seed=seed,
        settings=suite.settings,
        preset=suite.preset,
        protocol=suite.protocol,
        episodes=suite.episodes,
        score=evaluation.mean,
        standard_error=None if math.isnan(error) else error,
        human_normalised=evaluation.human_normalised,
        steps=evaluation.steps,
        frames=evaluation.steps * (evaluation.settings.frame_skip if is_atari(game) else 1),
        seconds=evaluation.seconds,
        passed=passing_times(folder, game),
        run=str(folder.relative_to(suite.folder)),
    )


def passing_times(folder: Path, game: str) -> dict[str, float]:
    """Return the seconds of training until the running score first passed published ones.

    The running score is the mean raw return of the last 50 full games; before there were 50 it
    passes nothing. What a resumed run lost when it went back to a checkpoint does not count.
    """
    rows = []
    with contextlib.suppress(OSError):
        rows = read_metrics(folder)
    found = running_scores(rows)
    times = {name: seconds_above(found, published(game, name)) for name in REFERENCES}
    return {name: float(seconds) for name, seconds in times.items() if seconds is not None}


def summarize(suite: Suite, entries: Sequence[LedgerLine]) -> list[GameSummary[LedgerLine]]:
    """Return a summary of each game with results, in the order of the suite."""
    wanted = set(suite.pairs)
    return [
        GameSummary(game, suite.preset, tuple(own.values()))
        for game in suite.games
        if (own := {e.seed: e for e in entries if e.game == game and (game, e.seed) in wanted})
    ]


def as_dict(one: GameSummary[LedgerLine]) -> dict[str, Any]:
    """Return a game's results as JSON values.

    ``passed`` has the medians over seeds of the seconds until a published score was passed, for
    those that more than half of the seeds passed; ``published`` has the scores.
    """
    times = {c: median(e.passed.get(c, math.inf) for e in one.results) for c in REFERENCES}
    scores = {column: published(one.game, column) for column in REFERENCES}
    return {
        "game": one.game,
        "seeds": len(one.results),
        "score": one.score,
        "error": one.error,
        "frames": one.frames,
        "seconds": one.seconds,
        "human_normalised": one.human_normalised,
        "passed": {column: time for column, time in times.items() if time < math.inf},
        "published": {column: score for column, score in scores.items() if score is not None},
    }


def human_normalised(found: Sequence[GameSummary[LedgerLine]]) -> tuple[float, float] | None:
    """Return median and mean over games of the human-normalised score; None if no game has one."""
    shares = [one.human_normalised for one in found if one.human_normalised is not None]
    return (median(shares), fmean(shares)) if shares else None


def suite_csv(suite: Suite, found: Sequence[GameSummary[LedgerLine]]) -> str:
    """Return the results of `as_dict` as CSV, a row for each game."""
    rows = []
    for row in map(as_dict, found):
        scores, times = row.pop("published"), row.pop("passed")
        row |= {name: scores.get(name) for name in REFERENCES}
        row |= {f"seconds_to_{name}": times.get(name) for name in REFERENCES}
        rows.append(row | {"protocol": suite.protocol, "episodes": suite.episodes})
    return as_csv(rows)


def suite_table(suite: Suite, found: Sequence[GameSummary[LedgerLine]]) -> Table:
    """Return the results beside the published scores, each with the time it took to pass it."""
    labels = {column.name: column.label for column in COLUMNS}
    rows = []
    for row in map(as_dict, found):
        share, seconds, frames = row["human_normalised"], row["seconds"], row["frames"]
        cells = [row["game"], plus_minus(row["score"], row["error"]), f"{frames / 1e6:,.2f} M"]
        cells.append("" if seconds is None else clock(seconds))
        cells.append("" if share is None else f"{share:,.1f}")
        for rival in REFERENCES:
            score, passed = row["published"].get(rival), row["passed"].get(rival)
            time = "" if passed is None else f"\nin {clock(passed)}"
            cells.append("" if score is None else f"{_score(score)}{time}")
        rows.append(tuple(cells))
    both = human_normalised(found)
    said = f"human-normalised: median {both[0]:.1f} %, mean {both[1]:.1f} %; " if both else ""
    if HARDLY_ABOVE in {one.game for one in found}:
        said += f"{HARDLY_ABOVE}: {DECIDES}; "
    seeds = min(len(one.results) for one in found)
    names = ("score", "frames", "time", "human %", *(labels[name] for name in REFERENCES))
    return Table(
        ("", *(f"{name}>" for name in names)),
        tuple(rows),
        f"{suite.preset or 'general recipe'}, protocol {suite.protocol}, {suite.episodes} games",
        f"games: {len(found)} of {len(suite.games)}, seeds: {seeds} of {suite.seeds}; {said}score: "
        "mean ± standard error; below a published score: the time of training until the running "
        "score had passed it",
    )


def _score(score: float) -> str:
    """Return a published score, with as few digits as the table has room for."""
    size = abs(score)
    return f"{score:,.0f}" if size >= 1000 else f"{score:.1f}" if size >= 1 else f"{score:.2f}"
