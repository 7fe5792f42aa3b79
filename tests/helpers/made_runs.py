"""Folders of runs that were never trained: what the live page and reports are tested with."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def row(steps: int, seconds: float, score: float | None, **more: Any) -> Row:
    return {
        "steps": steps,
        "seconds": seconds,
        "version": steps,
        "games": 9,
        "score": score,
        **more,
    }


def rising(count: int, every: int = 1000, slope: float = 0.1, **more: Any) -> list[Row]:
    """Return rows of a run that plays 500 steps a second, ``slope`` points better each row."""
    return [row(every * i, every * i / 500, slope * i, **more) for i in range(1, count + 1)]


def write_metrics(folder: Path, rows: Sequence[Row]) -> None:
    text = "".join(json.dumps(one) + "\n" for one in rows)
    (folder / "metrics.jsonl").write_text(text, encoding="utf-8")


def append(folder: Path, *rows: Row) -> None:
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write("".join(json.dumps(one) + "\n" for one in rows))


def make_run(
    folder: Path,
    rows: Sequence[Row] = (),
    game: str = "pong",
    seed: int = 1,
    lr: float = 0.002,
    name: str = "appo",
) -> Path:
    """Make a run's folder with its settings and metrics; return it."""
    folder.mkdir(parents=True)
    config = {
        "format": 2,
        "name": game,
        "actions": 6,
        "games": {"game": game, "frame_skip": 4, "sticky": 0.25, "noop_max": 0},
        "algorithm": {"name": name, "lr": lr},
        "stop": {"steps": 1000 * seed},
        "seed": seed,
        "about": {"processor": "A processor", "cores": 2, "colobus": "0.2", "commit": "abc"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    write_metrics(folder, rows)
    return folder


def change_config(run: Path, **groups: Row) -> None:
    """Change settings in a run's ``config.json``, each in its group."""
    path = run / "config.json"
    config = json.loads(path.read_text())
    config |= {name: config.get(name, {}) | values for name, values in groups.items()}
    path.write_text(json.dumps(config))


def evaluate(
    run: Path, steps: int, scores: Sequence[float], protocol: str = "sticky", **more: Any
) -> Path:
    """Write an evaluation into a run's folder; return its path."""
    count = len(scores)
    mean = sum(scores) / count
    variance = sum((score - mean) ** 2 for score in scores) / max(count - 1, 1)
    said = {
        "protocol": protocol,
        "steps": steps,
        "seconds": steps / 500,
        "mean": mean,
        "standard_error": (variance / count) ** 0.5 if count > 1 else None,
        "episodes": count,
        "policy": "sampled",
        "scores": list(scores),
        "seed": 1,
        "most_noops": 0,
        "interrupted": False,
        "settings": {"game": "pong", "sticky": 0.25, "noop_max": 0, "max_frames": 108_000},
    }
    path = run / "eval" / f"{steps}-{protocol}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(said | more))
    return path


def events_of(run: Path) -> tuple[dict[str, list[tuple[int, float]]], dict[str, str]]:
    """Return the scalars with their steps, and the texts, that TensorBoard has of a run."""
    from tensorboardX.proto import event_pb2

    (file,) = (run / "tensorboard").glob("events*")
    data, offset = file.read_bytes(), 0
    scalars: dict[str, list[tuple[int, float]]] = {}
    texts: dict[str, str] = {}
    while offset < len(data):  # TFRecord: length, checksum, data, checksum
        (length,) = struct.unpack_from("<Q", data, offset)
        event = event_pb2.Event.FromString(data[offset + 12 : offset + 12 + length])
        offset += 16 + length
        for value in event.summary.value:
            if value.HasField("tensor"):
                texts[value.tag] = value.tensor.string_val[0].decode()
            else:
                scalars.setdefault(value.tag, []).append((event.step, value.simple_value))
    return scalars, texts
