"""Installs each peer into an environment of its own, once, and runs it and ours in turn.

`NAME.txt` beside this file has the exact versions of everything in it. torch is the one that the
project itself is tested with (constraints.txt). A line of JSON says how each did.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.lib.ledger import NAME, Line
from benchmarks.lib.process import COLOBUS, execute, last_line
from benchmarks.peers.counting import Counts, steady
from benchmarks.run import ROOT
from colobus.core.files import read_lines

HERE = Path(__file__).resolve().parent
CACHE = ROOT / ".peers"

INSTALLING = 300.0
"""Seconds that an installation should take."""

MODES = ("own", "alike")
"""own: the peer as its documentation has it for Atari, beside our default recipe. alike: our run
with the peer's network, input, passes, minibatch, games and steps of a batch."""

NATURE = "--torso nature --width 512 --size 84 --no-layer-norm --actors 2"
"""The network that all these peers have in common, and two actors."""


@dataclass(frozen=True)
class Peer:
    """A system to compare with."""

    name: str
    venv: str  # folder of its environment, and name of the file with its versions
    script: str
    ours: str  # flags that make our run like it
    note: str  # how like it is, for the record
    words: tuple[str, ...] = ()  # flags of its script

    def our_words(self, mode: str, game: str) -> tuple[str, ...]:
        """Return the preset and the flags of our run beside it."""
        return (f"ppo-{game}", *self.ours.split()) if mode == "alike" else (game,)


PEERS = (
    Peer(
        "sb3-ppo",
        "sb3",
        "run_sb3.py",
        f"{NATURE} --games 4 --length 128 --epochs 4 --minibatch 256",
        "the same network (NatureCNN); 8 games, 1024 steps a batch in minibatches of 256, 4 passes",
        ("--algorithm", "ppo"),
    ),
    Peer(
        "sample-factory-appo",
        "sample-factory",
        "run_sample_factory.py",
        f"{NATURE} --games 8 --length 256 --epochs 4 --minibatch 1024",
        "the same network (convnet_atari); 16 games, 4096 steps a batch in minibatches of 1024, "
        "4 passes",
    ),
)

SCORE = "score"
"""The mode of a line about one run, alone, of a peer with its own recipe until it has a score."""

OURS = NAME
"""Ours in the place of a peer: in the mode `SCORE` only."""

START = 15.0
"""Seconds that a run of ours has more than a peer's, which counts from when it is ready to learn:
imports, and the random games that measure the input."""


class Failed(Exception):
    """A peer cannot be measured; its arguments: at which stage, and the last line that was said."""


def said(stage: str, command: Sequence[str], seconds: float, **where: Any) -> str:
    """Return what a command prints; it is ended if it takes ten times as long as it should.

    Raises:
        Failed: with the last line it said, if its exit code is not 0 or its time is over.
    """
    try:
        done = execute(command, 10.0 * seconds + 300.0, **where)
    except OSError as error:
        raise Failed(stage, f"{command[0]}: {error.strerror}") from None
    if done.failure:
        raise Failed(stage, done.failure)
    return done.said


def install(venv: str, cache: Path = CACHE) -> str:
    """Return the Python of a peer's environment, which is made if it is not there yet.

    Raises:
        Failed: if it cannot be made; what there is of it is removed the next time.
    """
    wanted = (HERE / f"{venv}.txt").read_text(encoding="utf-8")
    folder = cache / venv
    python, done = folder / "bin" / "python", folder / "installed.txt"
    if done.exists() and done.read_text(encoding="utf-8") == wanted:
        return str(python)
    shutil.rmtree(folder, ignore_errors=True)
    cache.mkdir(parents=True, exist_ok=True)
    constraints = cache / "constraints.txt"
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    constraints.write_text(next(pin for pin in pins if pin.startswith("torch==")), "utf-8")
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    pip += ["-c", str(constraints), "-r", str(HERE / f"{venv}.txt")]
    for words in ([sys.executable, "-m", "venv", str(folder)], pip):
        said("install", words, INSTALLING)
    if venv == "sample-factory":
        copy_roms(folder)
    done.write_text(wanted, encoding="utf-8")
    return str(python)


def copy_roms(folder: Path) -> None:
    """Copy the games of our own ale-py into an environment whose older ale-py comes without."""
    import ale_py

    games = sorted((Path(ale_py.__file__).parent / "roms").glob("*.bin"))
    targets = list(folder.glob("lib/python*/site-packages/ale_py/roms"))
    if not games or not targets:
        raise Failed("install", f"{len(games)} games to copy into {len(targets)} folders")
    for game in games:
        shutil.copy(game, targets[0])


def learn_ours(game: str, seed: int, seconds: float, score: float) -> Line:
    """Train with the default recipe until its last 50 games have a score; return the line of it.

    The seconds are those since the start of the command. The rate is that of the steady part.
    """
    # more steps than the time is enough for: they decide nothing but the end
    words = [game, "--seed", str(seed), "--until-score", f"{score:g}", "--steps", str(10**8)]
    did, metrics = train(words, seconds)
    counts = Counts(seconds, score)
    for line in metrics:
        now = line["seconds"], line["steps"]
        if line["score"] is not None:
            counts.scores.append((*now, line["score"]))
        if line["best"] is not None and line["best"] >= score:  # the best mean of 50 games
            counts.reached = counts.reached or now
    return {"version": version("colobus"), **did, **counts.about_score()}


def train(words: Sequence[str], seconds: float) -> tuple[Line, list[Line]]:
    """Train for so many seconds at most; return command, precision, rate, and all metrics."""
    words = ["train", *words, "--no-finish", "--minutes", f"{seconds / 60:.6g}"]
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch) / "run"
        said("ours", [COLOBUS, *words, "--out", str(run)], seconds, cwd=scratch)
        try:
            metrics = read_lines(run / "metrics.jsonl")
            rate = steady([(line["seconds"], line["steps"]) for line in metrics])
            precision = json.loads((run / "config.json").read_text("utf-8"))["about"]["precision"]
        except (OSError, ValueError, KeyError) as error:
            raise Failed("ours", str(error)) from None
    return {"command": " ".join(["colobus", *words]), "precision": precision, **rate}, metrics


def run_theirs(peer: Peer, game: str, seconds: float, score: float | None = None) -> Line:
    """Run a peer's script with the Python of its environment, and return its line.

    Raises:
        Failed: if it cannot be installed, fails, takes too long, or prints no such line.
    """
    words = [install(peer.venv), str(HERE / peer.script), *peer.words]
    words += ["--game", game.title().replace("_", ""), "--seconds", f"{seconds:g}"]
    words += ["--score", f"{score:g}"] if score is not None else []
    with tempfile.TemporaryDirectory() as scratch:
        # a home of its own, because some write into it; nothing of ours on its path
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        environment["HOME"] = scratch
        told = said("run", words, seconds, cwd=scratch, env=environment)
    for text in reversed(told.splitlines()):
        with contextlib.suppress(ValueError):
            line = json.loads(text)
            if isinstance(line, dict) and {"peer", "version", "steps_per_s"} <= line.keys():
                return line
    raise Failed("run", f"no result; its last line: {last_line(told)}")
