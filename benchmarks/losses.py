"""How soon frozen processes on Ray are seen, and what killed ones cost a training in score."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import process
from gelada.core.files import read_lines
from ledger import Cell, Line
from timed import settings, train, train_words

DBA3C, APPO = "dba3c-pong", "pong"

ON_RAY = ("--on", "ray", "--cpus", "0.5", "--checkpoint-seconds", "10")

FROZEN = {"--faults": "stop=any:25s", "--minutes": "8", "--steps": "100000000"}
"""A run in which processes are frozen again and again."""

MENDED = "calls end with the silence of their process"
"""What changed in the code after the first measurement, in which one frozen process was missed
for 8.1 s: the run waited for its answer and looked at nothing else."""

CALM = {"--minutes": "30", "--steps": "100000000"}
"""A run in which nothing is frozen, on a machine that has other work, too."""

BUSY = 4
"""Processes of that other work."""

NICENESS = 15
"""Of that other work: what Ray gives its processes. Beside four processes of the usual niceness a
run on two cores had not started after four minutes."""

KILLED, STEPS = "kill=any:30s", 700_000
"""What happens to a training, and the steps after which its score is compared."""

TIME_ENOUGH = 15.0
"""Seconds after which a frozen process that nobody missed was overlooked."""

SEEDS = (1, 2, 3)

LOWEST, HIGHEST = -21.0, 21.0
"""Scores of a game of Pong."""


def all_cells() -> list[Cell]:
    """Return every cell, in the order in which they are measured."""
    frozen = settings("ray-frozen", DBA3C, words=ON_RAY, timed=FROZEN, since=MENDED)
    calm = settings("ray-calm", DBA3C, words=ON_RAY, timed=CALM, busy=BUSY, niceness=NICENESS)
    score = settings("ray-killed-score", APPO, words=ON_RAY, faults=KILLED, steps=STEPS)
    return [
        Cell("ray-frozen", 1, frozen, detection_of_frozen),
        Cell("ray-calm", 1, calm, blamed_wrongly),
        *(Cell("ray-killed-score", seed, score, score_with_kills) for seed in SEEDS),
    ]


def detection_of_frozen(cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:
    """Freeze processes one after the other; return how long each was not missed."""
    timed = cell.settings["procedure"]["timed"]
    words, events, metrics = trained(cell, scratch / "run", log, timed)
    seconds = detections(events)
    return {
        "command": process.clean(words, scratch),
        "frozen": len(seconds),
        "missed": missed(events, max(float(line["seconds"]) for line in metrics)),
        "seconds_to_detect": seconds,
        "median": median(seconds),
        "most": max(seconds),
    }


def blamed_wrongly(cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:
    """Train beside other work; return how many processes were called lost, though none was."""
    procedure = cell.settings["procedure"]
    with other_work(procedure["busy"], procedure["niceness"]):
        words, events, _ = trained(cell, scratch / "run", log, procedure["timed"])
    lost = [event for event in events if event["event"] == "lost"]
    return {
        "command": process.clean(words, scratch),
        "lost": len(lost),
        "why": [event["why"] for event in lost],
    }


def score_with_kills(cell: Cell, scratch: Path, log: Path) -> dict[str, Any]:
    """Train with and without kills; compare the scores after equally many steps were played."""
    procedure = cell.settings["procedure"]
    stop = {"--steps": str(procedure["steps"])}
    _, _, calm = trained(cell, scratch / "calm", log, stop, "calm-")
    hit = {**stop, "--faults": procedure["faults"]}
    words, events, metrics = trained(cell, scratch / "killed", log, hit, "killed-")
    scores = [score_at(*run, procedure["steps"]) for run in ((calm, []), (metrics, events))]
    shares = [(score - LOWEST) / (HIGHEST - LOWEST) for score in scores]
    return {
        "command": process.clean(words, scratch),
        "score": scores[0],
        "score_with_kills": scores[1],
        "share": round(shares[1] / shares[0], 3),
        "hits": sum(event["event"] == "hit" for event in events),
        "restored": sum(event["event"] == "restored" for event in events),
        "lost_steps": sum(event.get("lost_steps", 0) for event in events),
    }


def trained(
    cell: Cell, run: Path, log: Path, flags: dict[str, str], prefix: str = ""
) -> tuple[list[str], list[Line], list[Line]]:
    """Train on Ray; return the words of the command, all events and all lines of metrics."""
    preset = DBA3C if cell.what != "ray-killed-score" else APPO
    more = [word for pair in flags.items() for word in pair]
    words = train_words(preset, cell.seed, run, *cell.settings["procedure"]["words"], *more)
    train(words, run, log, prefix)
    path, events = run / "events.jsonl", list[Line]()
    if path.exists():
        (log / f"{prefix}events.jsonl").write_bytes(path.read_bytes())
        events = read_lines(path)
    return words, events, read_lines(run / "metrics.jsonl")


def detections(events: Sequence[Line]) -> list[float]:
    """Return for each process that was hit the seconds until it was called lost."""
    return [seconds for seconds in _all_detections(events) if seconds is not None]


def missed(events: Sequence[Line], end: float) -> int:
    """Return how many processes were never called lost, though there was time for it.

    Args:
        events: of a run.
        end: seconds at which it ended.
    """
    hits = [event for event in events if event["event"] == "hit"]
    pairs = zip(hits, _all_detections(events), strict=True)
    return sum(found is None and end - hit["seconds"] > TIME_ENOUGH for hit, found in pairs)


def _all_detections(events: Sequence[Line]) -> list[float | None]:
    found: list[float | None] = []
    for hit in (event for event in events if event["event"] == "hit"):
        lost = [
            event["seconds"] - hit["seconds"]
            for event in events
            if event["event"] == "lost"
            and event.get("process") == hit.get("process")
            and event["seconds"] >= hit["seconds"]
        ]
        found.append(round(min(lost), 2) if lost else None)
    return found


def score_at(metrics: Sequence[Line], events: Sequence[Line], played: int) -> float:
    """Return the training score when so many steps had been played, lost ones included.

    Raises:
        LookupError: if there was no score yet.
    """
    restored = [event for event in events if event["event"] == "restored"]
    score = None
    for line in sorted(metrics, key=lambda line: float(line["seconds"])):
        lost = sum(each["lost_steps"] for each in restored if each["seconds"] <= line["seconds"])
        if line["steps"] + lost <= played and line["score"] is not None:
            score = float(line["score"])
    if score is None:
        raise LookupError(f"no score within {played:,} steps")
    return score


@contextmanager
def other_work(count: int, niceness: int) -> Iterator[None]:
    """Keep processors busy with so many processes of a niceness."""
    endless = [sys.executable, "-c", f"import os; os.nice({niceness})\nwhile True: pass"]
    others = [subprocess.Popen(endless) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()
