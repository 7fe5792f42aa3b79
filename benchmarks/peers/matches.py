"""Installs each peer into an environment of its own, once, and runs it and ours in turn.

`NAME.txt` beside this file has the exact versions of everything in it. torch is the one that the
project itself is tested with (constraints.txt). A line of JSON says how each did.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.lib.ledger import NAME
from benchmarks.peers.counting import Counts, steady
from colobus.core.files import read_lines

Line = dict[str, Any]

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CACHE = ROOT / ".peers"

LONGEST = 3600.0
"""Seconds that an installation may take."""

MODES = ("own", "alike")
"""own: the peer as its documentation has it for Atari, beside our default recipe. alike: our run
with the peer's network, input, passes, minibatch, games and steps of a batch."""

NATURE = ("--torso", "nature", "--width", "512", "--size", "84", "--no-layer-norm")
"""The network that all these peers have in common, but for what a note says."""


@dataclass(frozen=True)
class Peer:
    """A system to compare with."""

    name: str
    venv: str  # folder of its environment, and name of the file with its versions
    script: str
    ours: tuple[str, ...]  # flags that make our run like it
    note: str  # how like it is, for the record
    words: tuple[str, ...] = ()  # flags of its script
    alike: tuple[str, ...] = ()  # the same, only where it is compared like for like

    def command(self, mode: str) -> tuple[str, ...]:
        """Return the script and its flags."""
        return (self.script, *self.words, *(self.alike if mode == "alike" else ()))

    def our_words(self, mode: str, game: str) -> tuple[str, ...]:
        """Return the preset and the flags of our run beside it."""
        return (f"ppo-{game}", *self.ours) if mode == "alike" else (game,)


def batch(games: int, length: int, passes: int, minibatch: int) -> tuple[str, ...]:
    """Return flags for two actors with ``games`` games each."""
    numbers = {"games": games, "length": length, "epochs": passes, "minibatch": minibatch}
    words: tuple[str, ...] = ("--actors", "2")
    for name, value in numbers.items():
        words += (f"--{name}", str(value))
    return words


PEERS = (
    Peer(
        "sb3-a2c",
        "sb3",
        "run_sb3.py",
        (*NATURE, *batch(8, 5, 1, 80)),
        "the same network (NatureCNN); 16 games, 80 steps a batch, one pass",
        ("--algorithm", "a2c"),
    ),
    Peer(
        "sb3-ppo",
        "sb3",
        "run_sb3.py",
        (*NATURE, *batch(4, 128, 4, 256)),
        "the same network (NatureCNN); 8 games, 1024 steps a batch in minibatches of 256, 4 passes",
        ("--algorithm", "ppo"),
    ),
    Peer(
        "rllib-appo",
        "rllib",
        "run_rllib.py",
        (*NATURE, *batch(10, 50, 2, 500)),
        "RLlib's own network (4 padded layers on 64x64) is not among our torsos and none of ours "
        "on 64x64 is as large, so both play 84x84 with Nature's convolutions; RLlib's two hidden "
        "layers of 256 are as many multiplications as our one of 512; 20 games, 1000 steps a batch "
        "in minibatches of 500, 2 passes (RLlib: what `passes` says, at most 2)",
        alike=("--network", "nature"),
    ),
    Peer(
        "sample-factory-appo",
        "sample-factory",
        "run_sample_factory.py",
        (*NATURE, *batch(8, 256, 4, 1024)),
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
    """A peer cannot be measured: at which stage, and the last line that was said."""

    def __init__(self, stage: str, line: str) -> None:
        super().__init__(f"{stage}: {line}")
        self.stage, self.line = stage, line


def last_line(text: str) -> str:
    """Return the last line that is not empty, cut to a length for a table."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"


def install(venv: str, cache: Path = CACHE) -> str:
    """Return the Python of a peer's environment, which is made if it is not there yet.

    Raises:
        Failed: if it cannot be made; what there is of it is removed.
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
    try:
        for words in ([sys.executable, "-m", "venv", str(folder)], pip):
            with tempfile.TemporaryDirectory() as scratch:
                execute(words, "install", LONGEST, scratch, dict(os.environ))
        if venv == "sample-factory":
            copy_roms(folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
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


def limit(seconds: float) -> float:
    """Return the seconds after which a run that should count for ``seconds`` is ended."""
    return 10.0 * seconds + 300.0


def attempt(run: Callable[[], Line], record: Callable[[Line], None], **about: Any) -> bool:
    """Record what a run did, or that it failed, with the time and the load before it began."""
    time_of_day = datetime.now(UTC).isoformat(timespec="seconds")
    about |= {"time": time_of_day, "load": round(os.getloadavg()[0], 2)}
    try:
        did = run()
        record({**about, **(did if "ratio" in did else {"theirs": did})})  # one alone: no ratio
    except Failed as failed:
        record({**about, "stage": failed.stage, "failed": failed.line})
        return False
    return True


def both(ours: Callable[[], Line], theirs: Callable[[], Line]) -> Line:
    """Run both in turn, ours first; return what they did, and the ratio of their rates."""
    did = {"ours": ours(), "theirs": theirs()}
    rates = (did[side]["steps_per_s"] for side in ("ours", "theirs"))
    return {**did, "ratio": round(next(rates) / next(rates), 3)}


def run_ours(program: str, words: Sequence[str], seconds: float) -> Line:
    """Train for so many seconds and `START` as a user does; return the rate of the steady part."""
    return train(program, words, START + seconds)[0]


def learn_ours(program: str, game: str, seed: int, seconds: float, score: float) -> Line:
    """Train with the default recipe until its last 50 games have a score; return the line of it.

    The seconds are those since the start of the command. The rate is that of the steady part.
    """
    # more steps than the time is enough for: they decide nothing but the end
    words = [game, "--seed", str(seed), "--until-score", f"{score:g}", "--steps", str(10**8)]
    did, metrics = train(program, words, seconds)
    counts = Counts(seconds, score)
    for line in metrics:
        now = line["seconds"], line["steps"]
        if line["score"] is not None:
            counts.scores.append((*now, line["score"]))
        if line["best"] is not None and line["best"] >= score:  # the best mean of 50 games
            counts.reached = counts.reached or now
    return {"version": version("colobus"), **did, **counts.about_score()}


def train(program: str, words: Sequence[str], seconds: float) -> tuple[Line, list[Line]]:
    """Train for so many seconds at most; return command, precision, rate, and all metrics."""
    words = ["train", *words, "--no-finish", "--minutes", f"{seconds / 60:.6g}"]
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch) / "run"
        execute(
            [program, *words, "--out", str(run)], "ours", limit(seconds), scratch, dict(os.environ)
        )
        try:
            metrics = read_lines(run / "metrics.jsonl")
            rate = steady([(line["seconds"], line["steps"]) for line in metrics])
            config = json.loads((run / "config.json").read_text(encoding="utf-8"))
            about = {"precision": config["about"]["precision"], **rate}
        except (OSError, ValueError, KeyError) as error:
            raise Failed("ours", str(error)) from None
    return {"command": " ".join([Path(program).name, *words]), **about}, metrics


def run_theirs(
    python: str, peer: Peer, mode: str, game: str, seconds: float, score: float | None = None
) -> Line:
    """Run a peer's script with a Python, that of its environment, and return its line.

    Raises:
        Failed: if it fails, takes too long, or prints no such line.
    """
    script, *words = peer.command(mode)
    words += ["--game", game.title().replace("_", ""), "--seconds", f"{seconds:g}"]
    words += ["--score", f"{score:g}"] if score is not None else []
    with tempfile.TemporaryDirectory() as scratch:
        # a home of its own, because some write into it; nothing of ours on its path
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        environment["HOME"] = scratch
        command = [python, str(HERE / script), *words]
        said = execute(command, "run", limit(seconds), scratch, environment)
    for text in reversed(said.splitlines()):
        with contextlib.suppress(ValueError):
            line = json.loads(text)
            if isinstance(line, dict) and {"peer", "version", "steps_per_s"} <= line.keys():
                return line
    raise Failed("run", f"no result; its last line: {last_line(said)}")


def execute(
    command: Sequence[str], stage: str, longest: float, folder: str, environment: dict[str, str]
) -> str:
    """Run a command, end everything it started, and return its standard output.

    Raises:
        Failed: with the last line it said, if its exit code is not 0 or its time is over.
    """
    output, errors = Path(folder) / "output.txt", Path(folder) / "errors.txt"
    with output.open("wb") as out, errors.open("wb") as err:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=folder,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise Failed(stage, f"{command[0]}: {error.strerror}") from None
        try:
            code = process.wait(longest)
        except subprocess.TimeoutExpired:
            raise Failed(stage, f"not over after {longest:g} s; ended") from None
        finally:
            with contextlib.suppress(ProcessLookupError):  # the next run has the machine to itself
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    said = output.read_text(encoding="utf-8", errors="replace")
    if code:
        told = errors.read_text(encoding="utf-8", errors="replace")
        raise Failed(stage, f"exit code {code}: {last_line(told if told.strip() else said)}")
    return said
