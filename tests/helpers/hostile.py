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
from colobus.nets.network import InputStatistics
from colobus.ops.flat import FlatParameters
from colobus.ops.optimizers import Optimizer
from colobus.report.ledger import Suite, read_ledger, summarize
from colobus.report.plots import line_of
from colobus.report.results import LedgerLine
from colobus.runs.config import Config, identity, read_config, write_config
from colobus.runs.curves import read_metrics
from colobus.runs.read import RunFolder
from colobus.runtime.system import version_of
from colobus.training.start import Start, begin_again, make_network

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


class Kind(NamedTuple):
    """One way to spoil one place of one file."""

    file: str
    place: str  # field or position; "" is the file as a whole
    how: str
    spoil: Callable[[Path], None]  # takes the folder
    names: str = ""  # what a refusal has to name

    def __str__(self) -> str:
        return " ".join(filter(None, [self.file, self.place, self.how]))


# what is spoiled: a run of Catch with two checkpoints and everything else that is read again


def experiment() -> Experiment:
    base = PRESETS["catch"]
    network = NetworkSettings(torso="tiny", width=8, stack=2, layer_norm=False)
    return replace(base, network=network, algorithm=APPO(minibatch=32))


def make_run(folder: Path, run: str = "ours") -> Config:
    """Write a run's folder: settings, two checkpoints, metrics, an evaluation."""
    folder.mkdir(parents=True)
    about = {"run": run, "precision": "float32", "colobus": version_of("colobus")}
    config = Config("catch", experiment(), 3, about)
    write_config(folder, config)
    statistics = InputStatistics(
        np.full((10, 5), 9.0, dtype=np.float32), np.full((10, 5), 40.0, dtype=np.float32)
    )
    start = Start(statistics, 3, "float32")
    flat = FlatParameters(make_network(config.experiment, start))
    named = flat.layout.named(flat.values)
    tensors = {f"parameter/{k}": t for k, t in named.items()}
    state = Optimizer(flat.values.clone(), config.experiment.optimizer).state()
    for name, tensor in state.items():
        if tensor.dim():
            parts = flat.layout.named(tensor)
            tensors |= {f"optimizer/{name}/{k}": t for k, t in parts.items()}
        else:
            tensors[f"optimizer/{name}"] = tensor
    tensors |= {f"aux/{k}": t for k, t in config.experiment.algorithm.start().items()}
    tensors |= {f"input/{k}": torch.from_numpy(v) for k, v in statistics._asdict().items()}
    for number in (7, 9):
        scores = {"score": 0.5, "best": None, "best_game": 1.0, "recent_scores": [0.0, 1.0]}
        counters = {"games": 2, "seconds": 1.5, **scores, "parameters": flat.layout.count}
        write_checkpoint(
            folder / "checkpoints",
            Checkpoint(Version(0, number), 100 * number, tensors, counters, identity(config)),
        )
    row = {"steps": 100, "seconds": 1.0, "version": 1, "games": 60, "score": 0.5, "best": None}
    rows = [row, row | {"steps": 200, "seconds": 2.0}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (folder / "eval").mkdir()
    marks = {"protocol": "noop", "mean": 1.0, "episodes": 5, "steps": 100, "standard_error": 0.1}
    (folder / "eval" / "100-noop.json").write_text(json.dumps(marks | {"interrupted": False}))
    return config


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

    def writes(changed: dict[str, Any]) -> Callable[[Path], None]:
        return lambda folder: void((folder / file).write_text(text(changed)))

    for path in paths_of(data):
        place = ".".join(path)
        for how, value in VALUES.items():
            yield Kind(file, place, how + note, writes(with_value(data, path, value)), path[-1])
        yield Kind(file, place, "renamed" + note, writes(with_name(data, path)), path[-1])


def void(_: object) -> None:
    """Return nothing."""


# whole files


def _replace(make: Callable[[Path], None]) -> Callable[[Path], None]:
    def replaced(path: Path) -> None:
        path.unlink()
        make(path)

    return replaced


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 42)


def _cut(share: float) -> Callable[[Path], None]:
    def cut(path: Path) -> None:
        data = path.read_bytes()
        path.write_bytes(data[: int(len(data) * share)])

    return cut


def _flip(share: float) -> Callable[[Path], None]:
    def flip(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[int((len(data) - 1) * share)] ^= 0x41
        path.write_bytes(bytes(data))

    return flip


WHOLE: dict[str, Callable[[Path], None]] = {
    "deleted": Path.unlink,
    "a folder": _replace(Path.mkdir),
    "a pipe": _replace(lambda path: os.mkfifo(path)),
    "a link to itself": _replace(lambda path: path.symlink_to(path.name)),
    "a link to nothing": _replace(lambda path: path.symlink_to("nowhere")),
    "an endless device": _replace(lambda path: path.symlink_to("/dev/zero")),
    "empty": lambda path: void(path.write_bytes(b"")),
    "zeros": lambda path: void(path.write_bytes(bytes(4096))),
    "four terabytes": _sparse,
    "noise": lambda path: void(path.write_bytes(np.random.default_rng(1).bytes(3000))),
    "UTF-16": lambda path: void(path.write_bytes("{}".encode("utf-16"))),
    "a list": lambda path: void(path.write_text("[1, 2]")),
    "a number": lambda path: void(path.write_text("1")),
    "null": lambda path: void(path.write_text("null")),
    "an empty object": lambda path: void(path.write_text("{}")),
    "nested 100,000 deep": lambda path: void(path.write_text("[" * 10**5)),
    "nested in objects": lambda path: void(path.write_text('{"a":' * 5000 + "1" + "}" * 5000)),
    **{f"cut at {share:.0%}": _cut(share) for share in (0.001, 0.1, 0.5, 0.9, 0.999)},
    **{f"a bit wrong at {share:.0%}": _flip(share) for share in (0.0, 0.05, 0.3, 0.6, 0.95, 1.0)},
    "with more at its end": lambda path: void(path.write_bytes(path.read_bytes() + b"more")),
    "twice": lambda path: void(path.write_bytes(path.read_bytes() * 2)),
}


def _spoil(file: str, spoil: Callable[[Path], None], folder: Path) -> None:
    spoil(folder / file)


def whole_kinds(file: str) -> Iterator[Kind]:
    """Yield what can be wrong with a file as a whole."""
    for how, spoil in WHOLE.items():
        yield Kind(file, "", how, partial(_spoil, file, spoil))


# checkpoints

NEWEST = "checkpoints/00000009"


def signed(about: dict[str, Any]) -> str:
    """Return the JSON of a checkpoint with the right checksum."""
    return json.dumps(about | {"checksum": checksum_of(about)} if "checksum" in about else about)


def rewrite(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    """Change tensors of the newest checkpoint and make all checksums right."""
    path = folder / f"{NEWEST}.safetensors"
    tensors = load(path.read_bytes())
    change(tensors)
    reseal(folder, save(tensors))


def reseal(folder: Path, data: bytes) -> None:
    """Write the tensors' file of the newest checkpoint and make all checksums right."""
    (folder / f"{NEWEST}.safetensors").write_bytes(data)
    about = json.loads((folder / f"{NEWEST}.json").read_text())
    about["sha256"] = hashlib.sha256(data).hexdigest()
    (folder / f"{NEWEST}.json").write_text(signed(about))


def _value(number: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda tensor: torch.full_like(tensor, number) if tensor.is_floating_point() else tensor


TENSORS: dict[str, Callable[[torch.Tensor], torch.Tensor | None]] = {
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


def _rename(name: str, tensors: dict[str, torch.Tensor]) -> None:
    tensors[f"{name}x"] = tensors.pop(name)


def tensor_kinds(tensors: dict[str, torch.Tensor]) -> Iterator[Kind]:
    """Yield all changes of one tensor, with right checksums."""
    file = f"{NEWEST}.safetensors"
    for name in tensors:
        for how, change in TENSORS.items():

            def put(found: dict[str, torch.Tensor], name: str = name, change: Any = change) -> None:
                value = change(found.pop(name))
                if value is not None:
                    found[name] = value.contiguous()

            yield Kind(file, name, how, partial(rewrite, change=put))
        yield Kind(file, name, "renamed", partial(rewrite, change=partial(_rename, name)))


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

    def other(**changes: Any) -> Callable[[Path], None]:
        """Take the newest checkpoint of another run; with changes it says that it is of ours."""

        def swap(folder: Path) -> None:
            theirs = folder.parent / f"theirs-{folder.name}"
            config = make_run(theirs, run="theirs")
            for suffix in (".json", ".safetensors"):
                shutil.copy(theirs / f"{NEWEST}{suffix}", folder / f"{NEWEST}{suffix}")
            if changes:
                ours = config._replace(
                    experiment=replace(config.experiment, **changes),
                    about=config.about | {"run": "ours"},
                )
                path = folder / f"{NEWEST}.json"
                path.write_text(signed(json.loads(path.read_text()) | {"run": identity(ours)}))
            shutil.rmtree(theirs)

        return swap

    ours = experiment()
    pong, wider = replace(ours.games, game="pong"), replace(ours.network, width=9)
    yield Kind("checkpoints", "", "of another run", other())
    yield Kind("checkpoints", "", "of another game", other(games=pong))
    yield Kind("checkpoints", "", "of another network", other(network=wider))

    def exchange(suffix: str) -> Callable[[Path], None]:
        def swap(folder: Path) -> None:
            one, two = (folder / "checkpoints" / f"0000000{n}{suffix}" for n in (7, 9))
            held = one.read_bytes()
            one.write_bytes(two.read_bytes()[:-1] + b" ")
            two.write_bytes(held + b" ")

        return swap

    for suffix in (".json", ".safetensors"):
        yield Kind("checkpoints", suffix, "exchanged with each other", exchange(suffix))

    def config_of(change: Callable[[Config], Config]) -> Callable[[Path], None]:
        return lambda folder: write_config(folder, change(read_config(folder)))

    def plays(name: str) -> Callable[[Config], Config]:
        return lambda config: Config(name, PRESETS[name], 6, config.about)

    for name in ("pong", "dba3c-catch", "apex-pong", "dba3c-breakout-paper"):
        yield Kind("config.json", "", f"of {name}", config_of(plays(name)))
    for actions in (1, 2, 4, 18):
        change = partial(Config._replace, actions=actions)
        yield Kind("config.json", "actions", f"of {actions}", config_of(change))


# start states, ledgers, metrics

LEDGER, STARTS = "suite.jsonl", "pong.starts"


def make_suite(folder: Path) -> Suite:
    base = replace(experiment(), stop=PRESETS["catch"].stop)
    return Suite(folder, ("catch",), 2, base, "catch", "training", 2)


def entry_of(suite: Suite, seed: int) -> LedgerLine:
    return LedgerLine(
        game="catch", seed=seed, settings=suite.settings, preset="catch", protocol="training",
        episodes=2, score=0.5, standard_error=0.1, human_normalised=None, steps=100, frames=400,
        seconds=1.0, passed={"random": 0.5}, run=f"runs/catch-{seed}",
    )  # fmt: skip


def make_ledger(folder: Path) -> None:
    suite = make_suite(folder)
    lines = [json.dumps(asdict(entry_of(suite, seed))) + "\n" for seed in (1, 2)]
    (folder / LEDGER).write_text("".join(lines))


def ledger_kinds(folder: Path) -> Iterator[Kind]:
    """Yield what can be wrong with a suite's ledger."""
    first, second = (folder / LEDGER).read_text().splitlines()
    yield from json_kinds(LEDGER, json.loads(first), lambda one: f"{json.dumps(one)}\n{second}\n")
    yield from whole_kinds(LEDGER)


def metrics_kinds(folder: Path) -> Iterator[Kind]:
    """Yield what can be wrong with a run's metrics and evaluations."""
    file = "metrics.jsonl"
    first, second = (folder / file).read_text().splitlines()
    yield from json_kinds(file, json.loads(second), lambda one: f"{first}\n{json.dumps(one)}\n")
    yield from whole_kinds(file)
    file = "eval/100-noop.json"
    yield from json_kinds(file, json.loads((folder / file).read_text()))
    yield from whole_kinds(file)


def starts_kinds(starts: StartStates) -> Iterator[Kind]:
    """Yield what can be wrong with a file of start states, its checksum being right."""

    def writes(changed: StartStates) -> Callable[[Path], None]:
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


def read_all_metrics(folder: Path) -> str:
    rows = read_metrics(folder)
    assert all(isinstance(row["steps"], int) for row in rows)
    run = RunFolder(folder, "run")
    run.refresh()
    assert all(abs(one.mean) < 1e30 for one in run.evaluations)
    line_of(run, "minutes", "score")
    return "" if len(rows) == 2 else "a line is left out"


def read_suite(folder: Path) -> str:
    suite = make_suite(folder)
    entries = read_ledger(suite)
    summarize(suite, entries)
    return "" if len(entries) == 2 else "a line is left out"


def read_of(file: str, starts: StartStates | None) -> Callable[[Path], str]:
    """Return what reads a file of a folder."""
    if file == LEDGER:
        return read_suite
    if file == STARTS:
        assert starts is not None
        settings = PRESETS["pong"].games
        return lambda folder: str(read_starts(folder / STARTS, settings).count)[:0]
    return read_all_metrics if file.startswith(("metrics", "eval")) else read_run


def outcome(kind: Kind, folder: Path, starts: StartStates | None = None) -> str:
    """Spoil a file of a folder and read it; return what came of it.

    Raises:
        AssertionError: if a refusal is not one line with the file's name and the field, or
            anything was changed.
    """
    kind.spoil(folder)
    before = contents(folder)
    try:
        said = read_of(kind.file, starts)(folder)
        how = "passed over" if said else "accepted"
    except (ColobusError, OSError) as error:  # `colobus.cli.main` makes one line of an OSError
        said, how = str(error), "refused"
    assert len(said) < 1500, said[:300]
    assert contents(folder) == before
    return how


def all_kinds(folder: Path, starts: StartStates | None) -> list[Kind]:
    """Return all kinds for what `make_run`, `make_ledger` and `make_starts` wrote."""
    config = json.loads((folder / "config.json").read_text())
    found = [*json_kinds("config.json", config), *whole_kinds("config.json")]
    for suffix in (".json", ".safetensors"):
        found += whole_kinds(NEWEST + suffix)
    found += [*checkpoint_kinds(folder), *swapped_kinds()]
    found += [*ledger_kinds(folder), *metrics_kinds(folder)]
    return found + (list(starts_kinds(starts)) if starts else [])
