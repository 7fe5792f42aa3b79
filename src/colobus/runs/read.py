"""Everything that one run's folder says, without the settings classes: any version's run is read.

Files are read when they change. What cannot be read is left out: a page that shows fifty runs must
not fail because of one of them. No file of an evaluation is ever overwritten.
"""

from __future__ import annotations

import math
import re
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from colobus.core.errors import ColobusError
from colobus.core.files import LARGEST, LOCK, read_lines, read_object, write_whole
from colobus.core.timing import bounding_stage
from colobus.runs.curves import KEPT, Curve
from colobus.runs.folder import (
    CONFIG,
    EVALUATION,
    EVALUATIONS,
    EVENTS,
    FILM,
    METRICS,
    VIDEOS,
    with_todays_name,
)

T = TypeVar("T")

LEARNING_SECONDS = 15.0
"""A run whose metrics were written within this time is learning, until its lock is gone."""

MOST_BYTES = 4 << 20
"""Of a file of events that is read; a longer one is left out."""

STAGE = re.compile(r"time_([a-z]+)_(.+)")
"""Names of the shares of a role's time in ``metrics.jsonl``."""

FILMS = (".mp4", ".gif")

TOGETHER = "milestones"
"""Name of the film that ``colobus record --milestones`` makes, without its suffix."""


class EvaluationFile(NamedTuple):
    """One evaluation: a file in ``eval/``, or that of an exported agent."""

    steps: int
    protocol: str
    mean: float
    error: float | None  # standard error of the mean
    games: int
    policy: str
    seconds: float | None  # of training
    about: dict[str, Any]  # the file without its long lists
    saved: int = 0  # when, in ns since 1970

    @property
    def played(self) -> str:
        """How many games were played, and of how many if fewer than were asked for."""
        asked = self.about.get("episodes_asked")
        fewer = isinstance(asked, int) and asked > self.games
        return f"{self.games} of {asked} games" if fewer else f"{self.games} games"


class RunFilm(NamedTuple):
    """A film of the agent after so many steps."""

    steps: int
    path: Path
    seen: int  # time of its last change, in nanoseconds


class Cached(Generic[T]):
    """What is made of a file or of a folder's files, made again when one of them changes."""

    def __init__(self, find: Callable[[], list[Path]], make: Callable[[list[Path]], T]) -> None:
        self._find, self._make = find, make
        self._seen: list[tuple[Path, int, int]] | None = None
        self.value: T = make([])

    def refresh(self) -> bool:
        """Return whether anything has changed."""
        seen = [(path, *stamp) for path in self._find() if (stamp := _stamp(path))]
        if seen == self._seen:
            return False
        changed = self._seen is not None or bool(seen)
        self._seen = seen
        self.value = self._make([path for path, *_ in seen])
        return changed


class RunFolder:
    """A run as its folder shows it.

    Args:
        path: of the folder.
        name: by which people know it.
        kept: rows of metrics, see `colobus.runs.curves.KEPT`.
    """

    def __init__(self, path: Path, name: str, kept: int = KEPT) -> None:
        self.path, self.name = path, name
        self.curve = Curve(path / METRICS, kept)
        self._config = Cached(
            lambda: [path / CONFIG], lambda found: _read_json(found[0]) if found else {}
        )
        self._events = Cached(lambda: [path / EVENTS], _read_events)
        self._evaluations = Cached(
            lambda: [*_files(path / EVALUATIONS, (".json",)), path / EVALUATION], read_evaluations
        )
        self._films = Cached(lambda: [*_files(path / VIDEOS, FILMS), path / FILM], list)

    def refresh(self) -> bool:
        """Read what has changed; return whether anything has."""
        parts = (self.curve, self._config, self._events, self._evaluations, self._films)
        return sum(part.refresh() for part in parts) > 0  # each of them, whatever others say

    @property
    def config(self) -> dict[str, Any]:
        """What ``config.json`` holds; {} if it cannot be read."""
        return self._config.value

    @property
    def about(self) -> dict[str, Any]:
        """The machine and the versions that the run was made with."""
        return with_todays_name(_dict(self.config.get("about")))

    @property
    def settings(self) -> dict[str, Any]:
        """All settings by ``group.name``, those outside of a group by their name alone.

        What a run began with, if not with new weights, and its time, if simulated, are among them.
        """
        other = ("about", "format", "actions", "name")
        kept = {k: v for k, v in self.config.items() if k not in other}
        return flat(kept | {k: v for k, v in self.about.items() if k in ("from", "time")})

    @property
    def game(self) -> str:
        """The game's name; "" if it is not known."""
        return str(self.settings.get("games.game", ""))

    @property
    def algorithm(self) -> str:
        """The algorithm's name; version 0.1 wrote none for APPO."""
        algorithm = _dict(self.config.get("algorithm"))
        return str(algorithm.get("name", "appo")) if algorithm else ""

    @property
    def seed(self) -> int | None:
        """The run's seed."""
        seed = self.config.get("seed")
        return seed if type(seed) is int else None

    @property
    def tags(self) -> list[str]:
        """The words by which people find it, sorted."""
        return tags_of(str(self.settings.get("tracker.tags", "")))

    @property
    def frame_skip(self) -> int:
        """Emulator frames of one step."""
        frames = self.settings.get("games.frame_skip", 4)
        return frames if type(frames) is int else 4

    @property
    def evaluations(self) -> list[EvaluationFile]:
        """All complete evaluations, by their steps."""
        return self._evaluations.value

    @property
    def events(self) -> list[dict[str, Any]]:
        """Losses and restarts in the order in which they happened, resumes last."""
        resumed = [{"event": "resumed", "steps": steps} for steps in self.curve.resumed]
        return [*self._events.value, *resumed]

    @property
    def films(self) -> list[RunFilm]:
        """The run's films, by the steps that the agent had learned from."""
        found = []
        for path in self._films.value:
            steps = int(path.stem) if path.stem.isdecimal() and len(path.stem) < 16 else None
            if (stamp := _stamp(path)) and path.name == FILM:
                steps = self._filmed(stamp[0])
            if steps is not None and stamp:
                found.append(RunFilm(steps, path, stamp[0]))
        return sorted(found)

    def _filmed(self, when: int) -> int:
        """Return the steps of the agent that was filmed at the end: it had just been evaluated."""
        own = [one for one in self.evaluations if one.protocol == "training"]
        before = [one for one in own if one.saved <= when] or own
        last = max(before, key=lambda one: one.saved, default=None)
        return last.steps if last else int(self.curve.newest.get("steps", 0))

    @property
    def together(self) -> RunFilm | None:
        """The film of the agent before, half way through and after learning, side by side."""
        found = ((path, _stamp(path)) for path in self._films.value if path.stem == TOGETHER)
        return next((RunFilm(0, path, stamp[0]) for path, stamp in found if stamp), None)

    @property
    def age(self) -> float | None:
        """Seconds since the metrics were written last; None before."""
        stamp = _stamp(self.path / METRICS)
        return None if stamp is None else max(time.time() - stamp[0] / 1e9, 0.0)

    @property
    def learning(self) -> bool:
        """Whether the metrics were written of late, and the run's lock is still there.

        Lines may be rare, as where ten versions have one; simulated seconds do not say how rare.
        """
        late = max(LEARNING_SECONDS, 0.0 if "time" in self.about else 2 * self.curve.pause)
        return self.age is not None and self.age < late and (self.path / LOCK).exists()

    def stages(self) -> dict[str, dict[str, float]]:
        """Return the share of its time that each kind of role spends in each stage of late."""
        found: dict[str, dict[str, float]] = {}
        for name, value in self.curve.newest.items():
            if match := STAGE.fullmatch(name):
                found.setdefault(match[1], {})[match[2].replace("_", " ")] = value
        return found

    def bound(self) -> str:
        """Return the stage that bounds the speed of late; "" if the run does not say."""
        stages = self.stages()
        return bounding_stage(stages) if stages else ""


def tags_of(text: str) -> list[str]:
    """Return the words of a text with commas between them, each once, sorted."""
    return sorted({word.strip() for word in text.split(",")} - {""})


def milestones(films: list[RunFilm]) -> list[RunFilm]:
    """Return the first film, the one nearest to half of the steps of the last, and the last.

    Fewer than three films are all returned.
    """
    if len(films) < 3:
        return films
    half = films[-1].steps / 2
    middle = min(films[1:-1], key=lambda film: abs(film.steps - half))
    return [films[0], middle, films[-1]]


def flat(values: dict[str, Any], group: str = "") -> dict[str, Any]:
    """Return nested settings as one dict with names such as ``games.size``."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found |= flat(value, f"{group}{name}.")
        else:
            found[f"{group}{name}"] = value
    return found


def read_evaluations(paths: list[Path]) -> list[EvaluationFile]:
    """Return the complete evaluations in these files, by their steps.

    Of those after the same steps the one of most games is last, and of these the newest file.
    """
    by_age = sorted(paths, key=lambda path: (_stamp(path) or (0, 0))[0])
    found = [one for path in by_age if (one := _read_evaluation(path))]
    return sorted(found, key=lambda one: (one.steps, one.protocol, one.games))


def _read_evaluation(path: Path) -> EvaluationFile | None:
    row = _read_json(path)
    try:
        if row.get("interrupted"):
            return None
        error, seconds = row.get("standard_error"), row.get("seconds")
        scores = [float(score) for score in row.get("scores", [])]
        found = EvaluationFile(
            steps=int(row["steps"]),
            protocol=str(row["protocol"]),
            mean=float(row["mean"]),
            error=None if error is None else float(error),
            games=int(row["episodes"]),
            policy=str(row.get("policy", "")),
            seconds=None if seconds is None else float(seconds),
            about={k: v for k, v in row.items() if not isinstance(v, list)},
            saved=(_stamp(path) or (0, 0))[0],
        )
        numbers = [found.mean, found.error or 0.0, found.seconds or 0.0, *scores]
        return found if all(abs(number) < LARGEST for number in numbers) else None
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        return None


def _read_events(paths: list[Path]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    with suppress(OSError):
        if paths and paths[0].stat().st_size <= MOST_BYTES:
            rows = read_lines(paths[0])
    events = [flat(row) for row in rows if isinstance(row.get("event"), str)]
    return [{k: v for k, v in event.items() if _is_finite(v)} for event in events]


def _is_finite(value: Any) -> bool:
    if isinstance(value, list):  # in no event that a run writes one holds objects, or lists
        return all(not isinstance(one, list | dict) and _is_finite(one) for one in value)
    return not isinstance(value, float) or math.isfinite(value)


def _read_json(path: Path) -> dict[str, Any]:
    """Return the object in a file; {} if there is none."""
    try:
        return read_object(path)
    except (ColobusError, OSError):
        return {}


def _files(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    try:
        if folder.is_symlink():  # as in `_stamp`
            return []
        return sorted(path for path in folder.iterdir() if path.suffix in suffixes)
    except OSError:
        return []


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return the time of a file's last change and its size; None for what is no plain file.

    Links are left out, so that the page shows nothing from outside of a run's folder.
    """
    try:
        found = path.lstat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size) if stat.S_ISREG(found.st_mode) else None


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def write_new(path: Path, data: bytes) -> Path:
    """Write a file without overwriting another one; return its path.

    A file at ``path`` with the same content only gets a new time. Beside one with another content
    the name of the new one ends in ``-2``, or the next free number.

    Raises:
        OSError: if it cannot be written.
    """
    path.parent.mkdir(exist_ok=True)
    free, number = path, 1
    while free.exists():
        if free.read_bytes() == data:
            with suppress(OSError):  # whose folder cannot be written
                free.touch()
            return free
        number += 1
        free = path.with_stem(f"{path.stem}-{number}")
    write_whole(free, data)
    return free


def has_evaluation(
    folder: Path, steps: int, protocol: str, policy: str, episodes: int, seed: int
) -> bool:
    """Return whether there is a complete evaluation of at least so many games after these steps.

    In version 0.1 the names had steps and protocol only.
    """
    if (folder / EVALUATIONS / f"{steps}-{protocol}.json").exists():
        return True
    form = re.compile(rf"{steps}-{re.escape(protocol)}-(\d+)-{policy}-seed{seed}(-\d+)?\.json")
    found = [form.fullmatch(path.name) for path in (folder / EVALUATIONS).glob(f"{steps}-*.json")]
    return any(int(match[1]) >= episodes for match in found if match)
