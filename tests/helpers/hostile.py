"""Files that mean no good: every kind of damage to every file of a run that is read again."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial, reduce
from operator import getitem
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load, save

from colobus.algorithms.appo import APPO
from colobus.core.checkpoint import Checkpoint, checksum_of, write_checkpoint
from colobus.core.errors import ColobusError
from colobus.core.types import Version
from colobus.evaluation.agent import load as load_agent
from colobus.evaluation.start_states import StartStates, read_starts, write_starts
from colobus.experiment.presets import PRESETS
from colobus.experiment.settings import Experiment
from colobus.nets.config import NetworkSettings
from colobus.ops.optimizers import Optimizer
from colobus.report.ledger import Suite, read_ledger, summarize
from colobus.report.plots import line_of
from colobus.report.results import LedgerLine
from colobus.runs.config import Config, identity, read_config, write_config
from colobus.runs.curves import read_metrics
from colobus.runs.read import RunFolder
from colobus.runtime.system import version_of
from colobus.training.start import begin_again
from helpers.made_runs import write_metrics
from helpers.players import make_checkpoint

GONE = object()
"""Stands for a value that is missing."""

VALUES: dict[str, Any] = {
    "missing": GONE,
    "null": None,
    "true": True,
    "a text": "x",
    "a number as text": "1",
    "an empty text": "",
    "an empty list": [],
    "a list": [1],
    "an object": {},
    "negative": -1,
    "zero": 0,
    "a fraction": 0.5,
    "huge": 10**17,
    "more than 64 bits": 2**65,
    "400 digits": 10**400,
    "a huge float": 1e308,
    "infinity": float("inf"),
    "minus infinity": float("-inf"),
    "nan": float("nan"),
    "escape sequences": "\x1b[2J\x1b[31mred\n",
    "a long text": "a" * 100_000,
    "markup": "[red]$x_{$",
    "deep": json.loads("[" * 150 + "]" * 150),
}


Spoil = Callable[[Path], object]
"""Spoils something in a folder, or a file."""


class Kind(NamedTuple):
    """One way to spoil one place of one file."""

    file: str
    place: str  # field or position; "" is the file as a whole
    how: str
    spoil: Spoil  # takes the folder
    names: str = ""  # what a refusal has to name

    def __str__(self) -> str:
        return " ".join(filter(None, [self.file, self.place, self.how]))


# what is spoiled: a run of Catch with two checkpoints and everything else that is read again


def experiment() -> Experiment:
    base = PRESETS["catch"]
    network = NetworkSettings(torso="tiny", width=8, stack=2, layer_norm=False)
    return replace(base, network=network, algorithm=APPO(minibatch=32))


def make_run(folder: Path, run: str = "ours", **changes: Any) -> None:
    """Write a run's folder: settings, perhaps changed, two checkpoints, metrics, an evaluation."""
    folder.mkdir(parents=True)
    about = {"run": run, "precision": "float32", "colobus": version_of("colobus")}
    config = Config("catch", replace(experiment(), **changes), 3, about)
    write_config(folder, config)
    made = make_checkpoint(config.experiment, 3)
    tensors = made.tensors | {f"aux/{k}": t for k, t in config.experiment.algorithm.start().items()}
    for name, values in made.group("parameter").items():
        for kind, state in Optimizer(values, config.experiment.optimizer).state().items():
            tensors[f"optimizer/{kind}/{name}" if state.dim() else f"optimizer/{kind}"] = state
    count = sum(values.numel() for values in made.group("parameter").values())
    for number in (7, 9):
        scores = {"score": 0.5, "best": None, "best_game": 1.0, "recent_scores": [0.0, 1.0]}
        counters = {"games": 2, "seconds": 1.5, **scores, "parameters": count}
        write_checkpoint(
            folder / "checkpoints",
            Checkpoint(Version(0, number), 100 * number, tensors, counters, identity(config)),
        )
    row = {"steps": 100, "seconds": 1.0, "version": 1, "games": 60, "score": 0.5, "best": None}
    write_metrics(folder, [row, row | {"steps": 200, "seconds": 2.0}])
    (folder / "eval").mkdir()
    marks = {"protocol": "noop", "mean": 1.0, "episodes": 5, "steps": 100, "standard_error": 0.1}
    (folder / EVALUATION).write_text(json.dumps(marks | {"interrupted": False}))


# places in JSON


def paths_of(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every value in an object; lists count as one value."""
    for name, inner in value.items():
        yield (*path, name)
        if isinstance(inner, dict):
            yield from paths_of(inner, (*path, name))


def with_value(data: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """Return a copy of an object in which one value is another, or missing."""
    changed = copy.deepcopy(data)
    place = changed
    for name in path[:-1]:
        place = place[name]
    if value is GONE:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return changed


def with_name(data: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """Return a copy of an object in which one name is spelled wrongly."""
    value = reduce(getitem, path, data)
    return with_value(with_value(data, path, GONE), (*path[:-1], path[-1] + "x"), value)


def json_kinds(
    file: str,
    data: dict[str, Any],
    text: Callable[[dict[str, Any]], str] = json.dumps,
    note: str = "",
) -> Iterator[Kind]:
    """Yield all changes of one value of an object, of which ``text`` makes the file's text."""

    def writes(changed: dict[str, Any]) -> Spoil:
        return lambda folder: (folder / file).write_text(text(changed))

    for path in paths_of(data):
        place = ".".join(path)
        for how, value in VALUES.items():
            yield Kind(file, place, how + note, writes(with_value(data, path, value)), path[-1])
        yield Kind(file, place, "renamed" + note, writes(with_name(data, path)), path[-1])


# whole files


def _replace(make: Spoil) -> Spoil:
    def replaced(path: Path) -> None:
        path.unlink()
        make(path)

    return replaced


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 42)


def _edited(change: Callable[[bytes], bytes]) -> Spoil:
    return lambda path: path.write_bytes(change(path.read_bytes()))


def _cut(share: float, data: bytes) -> bytes:
    return data[: int(len(data) * share)]


def _flip(share: float, data: bytes) -> bytes:
    place = int((len(data) - 1) * share)
    return data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :]


WHOLE: dict[str, Spoil] = {
    "deleted": Path.unlink,
    "a folder": _replace(Path.mkdir),
    "a pipe": _replace(os.mkfifo),
    "a link to itself": _replace(lambda path: path.symlink_to(path.name)),
    "a link to nothing": _replace(lambda path: path.symlink_to("nowhere")),
    "an endless device": _replace(lambda path: path.symlink_to("/dev/zero")),
    "empty": lambda path: path.write_bytes(b""),
    "zeros": lambda path: path.write_bytes(bytes(4096)),
    "four terabytes": _sparse,
    "noise": lambda path: path.write_bytes(np.random.default_rng(1).bytes(3000)),
    "UTF-16": lambda path: path.write_bytes("{}".encode("utf-16")),
    "a list": lambda path: path.write_text("[1, 2]"),
    "a number": lambda path: path.write_text("1"),
    "null": lambda path: path.write_text("null"),
    "an empty object": lambda path: path.write_text("{}"),
    "nested 100,000 deep": lambda path: path.write_text("[" * 10**5),
    "nested in objects": lambda path: path.write_text('{"a":' * 5000 + "1" + "}" * 5000),
    **{f"cut at {n:.0%}": _edited(partial(_cut, n)) for n in (0.001, 0.1, 0.5, 0.9, 0.999)},
    **{f"a bit wrong at {n:.0%}": _edited(partial(_flip, n)) for n in (0, 0.05, 0.3, 0.6, 0.95, 1)},
    "with more at its end": _edited(lambda data: data + b"more"),
    "twice": _edited(lambda data: data * 2),
}


def whole_kinds(file: str) -> Iterator[Kind]:
    """Yield what can be wrong with a file as a whole."""

    def inside(spoil: Spoil) -> Spoil:
        return lambda folder: spoil(folder / file)

    for how, spoil in WHOLE.items():
        yield Kind(file, "", how, inside(spoil))


# checkpoints

NEWEST = "checkpoints/00000009"
Change = Callable[[torch.Tensor], torch.Tensor | None]


def signed(about: dict[str, Any]) -> str:
    """Return the JSON of a checkpoint with the right checksum."""
    return json.dumps(about | {"checksum": checksum_of(about)} if "checksum" in about else about)


def rewrite(folder: Path, name: str, change: Change, end: str = "") -> None:
    """Change a tensor of the newest checkpoint, or its name, and make all checksums right."""
    tensors = load((folder / f"{NEWEST}.safetensors").read_bytes())
    value = change(tensors.pop(name))
    if value is not None:
        tensors[name + end] = value.contiguous()
    reseal(folder, save(tensors))


def reseal(folder: Path, data: bytes) -> None:
    """Write the tensors' file of the newest checkpoint and make all checksums right."""
    (folder / f"{NEWEST}.safetensors").write_bytes(data)
    about = json.loads((folder / f"{NEWEST}.json").read_text())
    about["sha256"] = hashlib.sha256(data).hexdigest()
    (folder / f"{NEWEST}.json").write_text(signed(about))


def _value(number: float) -> Change:
    return lambda tensor: torch.full_like(tensor, number) if tensor.is_floating_point() else tensor


TENSORS: dict[str, Change] = {
    "missing": lambda _: None,
    "empty": lambda tensor: tensor.new_zeros((0, *tensor.shape[1:]) if tensor.dim() else (0,)),
    "of one number": lambda tensor: tensor.new_zeros(()) if tensor.dim() else tensor.new_zeros(1),
    "with a dimension more": lambda tensor: tensor[None].clone(),
    "longer": lambda tensor: torch.cat([tensor.reshape(-1)] * 2),
    "in float16": lambda tensor: tensor.to(torch.float16),
    "in int32": lambda tensor: tensor.to(torch.int32),
    "in complex64": lambda tensor: tensor.to(torch.complex64),
    "with nan": _value(float("nan")),
    "with infinity": _value(float("inf")),
}


def tensor_kinds(tensors: dict[str, torch.Tensor]) -> Iterator[Kind]:
    """Yield all changes of one tensor, with right checksums."""
    file = f"{NEWEST}.safetensors"
    for name in tensors:
        for how, change in TENSORS.items():
            yield Kind(file, name, how, partial(rewrite, name=name, change=change))
        again = partial(rewrite, name=name, change=torch.clone, end="x")
        yield Kind(file, name, "renamed", again)


def header(entries: Any, size: int = 8) -> bytes:
    """Return a tensors' file with this header."""
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + bytes(size)


def entry(dtype: str = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"parameter/x": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


HEADERS = {
    "a header of 2^63 bytes": struct.pack("<Q", 2**63) + b"{}",
    "a header longer than the file": struct.pack("<Q", 10**6) + b"{}",
    "an unknown type": header(entry("F99")),
    "a negative shape": header(entry(shape=(-2,))),
    "a shape of 2^62": header(entry(shape=(2**62, 2**62))),
    "a shape of text": header(entry(shape="xy")),
    "offsets beyond the file": header(entry(offsets=(0, 10**12))),
    "offsets backwards": header(entry(offsets=(8, 0))),
    "overlapping offsets": header(entry() | {"parameter/y": entry()["parameter/x"]}),
    "offsets of text": header(entry(offsets="ab")),
    "one offset": header(entry(offsets=(0,))),
    "entries that are numbers": header({"parameter/x": 5}),
    "metadata that is a number": header({"__metadata__": 5} | entry()),
    "a list as header": header([1]),
    "deep nesting": header(b"[" * 50_000),
    "no tensors": header({}, 0),
    "a hole": header(entry(), 16),
}


def checkpoint_kinds(folder: Path) -> Iterator[Kind]:
    """Yield what can be wrong with the newest checkpoint of a run."""
    about = json.loads((folder / f"{NEWEST}.json").read_text())
    names = f"{NEWEST}.json"
    yield from json_kinds(names, about)
    yield from json_kinds(names, about, signed, ", checksum right")
    first = {k: v for k, v in about.items() if k not in ("checksum", "run")} | {"format": 1}
    yield from json_kinds(names, first, note=", format 1")
    yield from tensor_kinds(load((folder / f"{NEWEST}.safetensors").read_bytes()))
    for how, data in HEADERS.items():
        yield Kind(f"{NEWEST}.safetensors", "header", how, partial(reseal, data=data))


def swapped_kinds() -> Iterator[Kind]:
    """Yield files that are good, but another run's or another checkpoint's."""

    def other(run: str = "ours", **changes: Any) -> Spoil:
        """Take the newest checkpoint of another run, which may say that it is of ours."""

        def swap(folder: Path) -> None:
            theirs = folder.parent / f"theirs-{folder.name}"
            make_run(theirs, run, **changes)
            for suffix in (".json", ".safetensors"):
                shutil.copy(theirs / f"{NEWEST}{suffix}", folder / f"{NEWEST}{suffix}")
            shutil.rmtree(theirs)

        return swap

    ours = experiment()
    pong, wider = replace(ours.games, game="pong"), replace(ours.network, width=9)
    yield Kind("checkpoints", "", "of another run", other("theirs"))
    yield Kind("checkpoints", "", "of another game", other(games=pong))
    yield Kind("checkpoints", "", "of another network", other(network=wider))

    def exchange(suffix: str) -> Spoil:
        def swap(folder: Path) -> None:
            one, two = (folder / "checkpoints" / f"0000000{n}{suffix}" for n in (7, 9))
            held = one.read_bytes()
            one.write_bytes(two.read_bytes()[:-1] + b" ")
            two.write_bytes(held + b" ")

        return swap

    for suffix in (".json", ".safetensors"):
        yield Kind("checkpoints", suffix, "exchanged with each other", exchange(suffix))

    def config_of(**changes: Any) -> Spoil:
        return lambda folder: write_config(folder, read_config(folder)._replace(**changes))

    for name in ("pong", "dba3c-catch", "apex-pong", "dba3c-breakout-paper"):
        changed = config_of(name=name, experiment=PRESETS[name], actions=6)
        yield Kind("config.json", "", f"of {name}", changed)
    for actions in (1, 2, 4, 18):
        yield Kind("config.json", "actions", f"of {actions}", config_of(actions=actions))


# start states, ledgers, metrics

LEDGER, STARTS, EVALUATION = "suite.jsonl", "pong.starts", "eval/100-noop.json"


def make_suite(folder: Path) -> Suite:
    base = replace(experiment(), stop=PRESETS["catch"].stop)
    return Suite(folder, ("catch",), 2, base, "catch", "training", 2)


def make_ledger(folder: Path) -> None:
    settings = make_suite(folder).settings
    lines = [
        LedgerLine(
            game="catch", seed=seed, settings=settings, preset="catch", protocol="training",
            episodes=2, score=0.5, standard_error=0.1, human_normalised=None, steps=100, frames=400,
            seconds=1.0, passed={"random": 0.5}, run=f"runs/catch-{seed}",
        )
        for seed in (1, 2)
    ]  # fmt: skip
    (folder / LEDGER).write_text("".join(json.dumps(asdict(line)) + "\n" for line in lines))


def lines_kinds(folder: Path) -> Iterator[Kind]:
    """Yield what can be wrong with a suite's ledger, and a run's metrics and evaluations."""
    one, two = (folder / LEDGER).read_text().splitlines()
    yield from json_kinds(LEDGER, json.loads(one), lambda bad: f"{json.dumps(bad)}\n{two}\n")
    file = "metrics.jsonl"
    first, second = (folder / file).read_text().splitlines()
    yield from json_kinds(file, json.loads(second), lambda bad: f"{first}\n{json.dumps(bad)}\n")
    yield from json_kinds(EVALUATION, json.loads((folder / EVALUATION).read_text()))
    for file in (LEDGER, "metrics.jsonl", EVALUATION):
        yield from whole_kinds(file)


def starts_kinds(starts: StartStates) -> Iterator[Kind]:
    """Yield what can be wrong with a file of start states, its checksum being right."""

    def writes(changed: StartStates) -> Spoil:
        def write(folder: Path) -> None:
            (folder / STARTS).unlink()
            write_starts(folder / STARTS, changed)

        return write

    for path in paths_of(starts.about):
        for how, value in VALUES.items():
            changed = replace(starts, about=with_value(starts.about, path, value))
            yield Kind(STARTS, ".".join(path), how, writes(changed))
    arrays: dict[str, Any] = {
        "none": np.zeros(0, dtype=np.int64),
        "too few": np.zeros(1, dtype=np.int64),
        "negative": np.full((starts.count, 16), -1, dtype=np.int64),
        "huge": np.full((starts.count, 16), 2**62, dtype=np.int64),
        "fractions": np.zeros((starts.count, 16), dtype=np.float64),
    }
    for how, array in arrays.items():
        yield Kind(STARTS, "actions", how, writes(replace(starts, actions=array)))
        frames = array[:, 0] if array.ndim == 2 else array
        if how != "too few" or starts.count != 1:
            yield Kind(STARTS, "frames", how, writes(replace(starts, frames=frames)))
    for how, states in {"none": (), "fewer": starts.states[:-1], "empty": (b"",) * 2}.items():
        yield Kind(STARTS, "states", how, writes(replace(starts, states=states)))
    yield from whole_kinds(STARTS)


# trying them


def contents(folder: Path) -> dict[str, Any]:
    """Return what is in a folder, to compare with."""
    return {
        str(path.relative_to(folder)): (path.lstat().st_mtime_ns, path.lstat().st_size)
        for path in sorted(folder.rglob("*"))
        if not path.is_dir()
    }


def read_run(folder: Path) -> str:
    """Read all that a resume and an evaluation of a run read; return the lines that they log."""
    lines: list[str] = []
    config = read_config(folder)
    start = begin_again(folder, config, lines.append)
    assert start.steps >= 0
    assert start.parameters
    assert all(bool(tensor.isfinite().all()) for tensor in start.parameters.values())
    load_agent(folder)
    return "; ".join(line for line in lines if "using the one before" in line)


def read_all_metrics(folder: Path) -> None:
    assert all(isinstance(row["steps"], int) for row in read_metrics(folder))
    run = RunFolder(folder, "run")
    run.refresh()
    assert all(abs(one.mean) < 1e30 for one in run.evaluations)
    line_of(run, "minutes", "score")


def read_of(file: str, folder: Path) -> str:
    """Read a file of a folder, and what is read with it; return the lines that are logged."""
    if file == LEDGER:
        suite = make_suite(folder)
        summarize(suite, read_ledger(suite))
    elif file == STARTS:
        read_starts(folder / STARTS, PRESETS["pong"].games)
    elif file.startswith(("metrics", "eval")):
        read_all_metrics(folder)
    else:
        return read_run(folder)
    return ""


def outcome(kind: Kind, base: Path, folder: Path) -> str:
    """Copy what is sound to a folder, spoil a file there, and read it; return what is said.

    That is why it is refused, or a checkpoint passed over; "" if it is taken.

    Raises:
        AssertionError: if it is refused or passed over at great length, or anything was changed.
    """
    shutil.copytree(base, folder)
    kind.spoil(folder)
    before = contents(folder)
    try:
        said = read_of(kind.file, folder)
    except (ColobusError, OSError) as error:  # `colobus.cli.main` makes one line of an OSError
        said = str(error)
    assert len(said) < 1500, said[:300]
    assert contents(folder) == before
    shutil.rmtree(folder)
    return said


def all_kinds(folder: Path, starts: StartStates | None) -> list[Kind]:
    """Return all kinds for what `make_run`, `make_ledger` and `make_starts` wrote."""
    config = json.loads((folder / "config.json").read_text())
    found = [*json_kinds("config.json", config)]
    for file in ("config.json", f"{NEWEST}.json", f"{NEWEST}.safetensors"):
        found += whole_kinds(file)
    found += [*checkpoint_kinds(folder), *swapped_kinds(), *lines_kinds(folder)]
    return found + (list(starts_kinds(starts)) if starts else [])
