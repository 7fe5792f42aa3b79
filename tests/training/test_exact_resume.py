"""A deterministic run that was broken off anywhere goes on as the run without the break."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from colobus.algorithms.pqn import PQN
from colobus.cli.show import imagined_start
from colobus.core.checkpoint import Checkpoint, list_checkpoints, newest_checkpoint
from colobus.core.errors import ColobusError
from colobus.core.types import State, Version
from colobus.envs.api import Games, GameSettings
from colobus.envs.catch import CatchGames
from colobus.envs.make import ENVIRONMENTS
from colobus.envs.replayed import ReplayedGames
from colobus.experiment.presets import PRESETS
from colobus.roles.tracker import StopRule
from colobus.training.run import train
from colobus.training.saving import cut_lines, origin_of, states_of
from colobus.training.topology import make_graph
from conftest import (
    catch,
    distributed_catch,
    distributed_pong,
    dqn,
    often,
    reshaped,
    short_pong,
    tuned,
)
from helpers.launching import complete, finish, start, wait_until
from helpers.outcomes import assert_same_run, finished, threads

STICKY = GameSettings(game="pong", sticky=0.25, max_frames=200)
"""Games of at most 50 steps, so that some end."""

TARGET = tuned(PRESETS["appo-catch"], target_every=5)
"""APPO with a target policy that some checkpoints find half way between two copies, and with a KL
term whose weight moves."""

LASTING = tuned(PRESETS["pqn-catch"], longest_random=9)
"""PQN with random actions that last up to nine steps."""

EXPERIMENTS = {
    "appo catch": catch(512 + 30 * 512),
    "pqn catch": replace(
        PRESETS["pqn-catch"], algorithm=LASTING, stop=StopRule(steps=512 + 24 * 512)
    ),
    "a3c catch": distributed_catch(100, keep_every=2),
    "dqn catch": dqn(catch(512 + 8 * 512), prioritized=True, capacity=3_000),
    "iqn catch": replace(PRESETS["iqn-catch"], stop=StopRule(steps=512 + 8 * 256)),
    "lstm catch": replace(PRESETS["catch-dark"], stop=StopRule(steps=512 + 10 * 1024)),
    "pair catch": replace(PRESETS["catch-pair"], stop=StopRule(steps=512 + 10 * 1024)),
    "target catch": catch(512 + 12 * 512, algorithm=TARGET),
    "loaders catch": reshaped(catch(512 + 12 * 512), loaders=2),
    "group catch": reshaped(catch(512 + 12 * 512), actors=1, learners=2, reduce="group", servers=2),
    "appo pong": short_pong(12, servers=2, games=STICKY),
    "pqn pong": short_pong(12, games=STICKY, algorithm=PQN(minibatch=32)),
    "a3c pong": replace(distributed_pong(30, workers=2, servers=2, keep_every=2), games=STICKY),
    "dqn pong": dqn(short_pong(16, games=STICKY)),
}


def test_a_window_that_is_longer_than_the_minimum_is_waited_for() -> None:
    """Its buffer has the minimum long before a whole window is there."""
    experiment = replace(dqn(catch(512 + 8 * 512), minimum=64, capacity=4_000), deterministic=True)
    longer = replace(experiment, algorithm=tuned(experiment, n=100))
    assert threads(longer).version.number > 3


def broken_off(whole: Path, at: int, folder: Path) -> Path:
    """Return a run that was killed after the checkpoint of a version, while it wrote more."""
    shutil.copytree(whole, folder)
    for path in list_checkpoints(folder / "checkpoints"):
        if int(path.stem) > at:
            path.unlink()
            path.with_suffix(".json").unlink()
    return folder


LONG = ("a3c pong", "dqn pong", "pqn pong")  # the emulator plays what was played until then anew


@pytest.mark.processes
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name in LONG)) for name in EXPERIMENTS]
)
def test_a_run_goes_on_exactly_from_any_checkpoint(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("colobus.training.run.LOOK_SECONDS", 0.005)  # checkpoints of workers
    if name != "appo pong":  # the others do without helpers, which take long to start
        monkeypatch.setattr("colobus.envs.replayed_process.ReplayProcess", ReplayedGames)
    experiment, lines = often(EXPERIMENTS[name], deterministic=True), list[str]()
    train(experiment, tmp_path / "whole", log=lines.append)
    versions = [about["version"] for about in complete(tmp_path / "whole")]
    assert finished(tmp_path / "whole")[0].counters["games"] > 0
    count = 1 if "pong" in name else 2
    stops = random.Random(name).sample(versions[:-1], count)
    if experiment.replay.capacity:
        stops = [versions[-2]]  # older replay buffers are not kept
    for at in stops:
        folder = broken_off(tmp_path / "whole", at, tmp_path / str(at))
        train(experiment, folder, resume=True, log=lines.append)
        assert_same_run(folder, tmp_path / "whole")
    assert not any("new games" in line for line in lines)


@pytest.mark.slow
def test_a_run_goes_on_exactly_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second resume begins in games that already went on once."""
    monkeypatch.setattr("colobus.envs.replayed_process.ReplayProcess", ReplayedGames)
    experiment = often(EXPERIMENTS["appo pong"], deterministic=True)
    train(experiment, tmp_path / "whole")
    for rounds in (4, 8, 12):
        part = replace(experiment, stop=StopRule(steps=64 + 64 * rounds))
        train(part, tmp_path / "parts", resume=rounds > 4)
    assert_same_run(tmp_path / "parts", tmp_path / "whole")


@pytest.mark.processes
@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("appo catch", signal.SIGKILL),
        ("appo catch", signal.SIGINT),
        ("dqn catch", signal.SIGKILL),
        ("dqn catch", signal.SIGTERM),
    ],
)
def test_a_stopped_process_is_resumed_exactly(name: str, how: int, tmp_path: Path) -> None:
    experiment = often(EXPERIMENTS[name], deterministic=True, checkpoint_seconds=0.05)
    long = replace(experiment, stop=StopRule(steps=10**9))
    run, script = tmp_path / "run", tmp_path / "train.py"
    script.write_text(
        "import pickle, sys\nfrom pathlib import Path\nfrom colobus.training.run import train\n"
        "from colobus.cli.interrupts import Interrupts\n"
        f"experiment = pickle.loads({pickle.dumps(long)!r})\n"
        "with Interrupts():\n    train(experiment, Path(sys.argv[1]))\n"
    )
    process = start(run, script=script)
    wait_until(lambda: len(complete(run)) >= 2, process)
    process.send_signal(how)
    finish(process)
    at = complete(run)[-1]["version"]
    stop = StopRule(steps=complete(run)[-1]["steps"] + 4 * 512)
    train(replace(experiment, stop=stop), run, resume=True)
    train(replace(experiment, stop=stop), tmp_path / "whole")
    assert finished(run)[0].version.number > at
    assert_same_run(run, tmp_path / "whole")


@pytest.mark.slow
def test_a_checkpoint_without_the_actors_states_begins_new_games(tmp_path: Path) -> None:
    experiment, lines = often(EXPERIMENTS["appo catch"], deterministic=True), list[str]()
    train(experiment, tmp_path / "run", log=lines.append)
    path, checkpoint, _ = newest_checkpoint(tmp_path / "run" / "checkpoints")
    about = json.loads(path.with_suffix(".json").read_text())
    assert about["counters"].pop("origin")
    about.pop("checksum", None)
    about["format"] = 1
    path.with_suffix(".json").write_text(json.dumps(about))
    more = replace(experiment, stop=StopRule(steps=checkpoint.steps + 5 * 512))
    train(more, tmp_path / "run", resume=True, log=lines.append)
    assert any("goes on with new games" in line for line in lines)
    after = newest_checkpoint(tmp_path / "run" / "checkpoints")[1]
    assert after.counters["origin"][:2] == [1, checkpoint.version.number]
    assert after.version.number == checkpoint.version.number + 5


def test_games_of_a_free_run_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a resume does not favour short games in the training score."""
    monkeypatch.setattr("colobus.roles.actor.SAVE_SECONDS", 0.0)
    experiment = often(catch(512 + 5 * 512), deterministic=False)
    train(experiment, tmp_path / "run")
    saved = newest_checkpoint(tmp_path / "run" / "checkpoints")[1]
    begun: list[State] = []

    def resume(state: State) -> Games:
        begun.append(state)
        return CatchGames.resumed(state)

    line = ENVIRONMENTS["catch"]._replace(resume=resume)
    monkeypatch.setitem(ENVIRONMENTS, "catch", line)
    more = replace(experiment, stop=StopRule(steps=512 + 10 * 512))
    train(more, tmp_path / "run", resume=True)
    assert len(begun) == 2
    rows = {tuple(state["row"]) for state in begun}
    assert rows == {tuple(saved.tensors[f"play/actor-{i}/games/row"].tolist()) for i in range(2)}


@pytest.mark.parametrize(
    ("emulators", "deterministic", "goes_on"),
    [(1, False, True), (2, False, False), (2, True, True)],
)
def test_games_of_several_emulators_begin_anew_in_a_free_run(
    emulators: int, deterministic: bool, goes_on: bool
) -> None:
    """One core would play all those of an actor that went on, to the end of the run."""
    experiment = reshaped(short_pong(1, deterministic=deterministic), emulators=emulators)
    graph = make_graph(experiment, imagined_start(experiment), None)
    resumes = [node.args[-1] is not None for node in graph.nodes if node.kind == "actor"]
    assert resumes == [goes_on] * 2


@pytest.mark.parametrize("origin", [None, 3, "abc", [0, 1], [0, 1, 2, 3], [0, 1, None]])
def test_a_spoilt_origin_is_named(origin: object, tmp_path: Path) -> None:
    experiment = often(EXPERIMENTS["appo catch"], deterministic=True)
    checkpoint = Checkpoint(Version(0, 3), 700, {}, {"origin": origin})
    with pytest.raises(ColobusError, match=r"version 3: counters\.origin is .*want three numbers"):
        origin_of(checkpoint, experiment, tmp_path)


@pytest.mark.parametrize("play", [None, [1], {"actor-0": 3}, {"actor-0": {}}])
def test_spoilt_states_of_actors_are_none(play: object) -> None:
    checkpoint = Checkpoint(Version(0, 3), 700, {}, {"play": play})
    assert states_of(checkpoint, EXPERIMENTS["appo catch"]) == {}


def test_only_what_came_before_stays(tmp_path: Path) -> None:
    cut_lines(tmp_path, 20, 2000)  # no file yet
    metrics: list[Any] = [{"version": n, "steps": 100 * n} for n in (10, 20, 23, 30)]
    metrics += [{"version": "x"}, {}, {"version": None}]
    games = [{"steps": steps, "score": 1.0} for steps in (1900, 2000, 2000, 2100)]
    files = {tmp_path / "metrics.jsonl": metrics, tmp_path / "episodes.jsonl": games}
    for path, rows in files.items():
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    cut_lines(tmp_path, 20, 2000)
    kept = [[json.loads(line) for line in path.read_text().splitlines()] for path in files]
    assert kept == [metrics[:2], games[:3]]


def test_a_file_above_two_gibibytes_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    last = b'{"steps": 10}\n{"steps": 20}\n{"steps": 30}\n\n{"ste'
    with path.open("wb") as file:
        file.truncate(3 << 30)  # what is before is not read
        file.seek(3 << 30)
        file.write(b"\n" + last)
    cut_lines(tmp_path, 0, 20)
    assert path.stat().st_size == (3 << 30) + 1 + len(b'{"steps": 10}\n{"steps": 20}\n')


def test_a_file_of_which_nothing_stays_is_empty(tmp_path: Path) -> None:
    path, later = tmp_path / "episodes.jsonl", b'\n{"steps": 30}\n{"steps": 40}'
    for written in (later, later + b"\n", b""):
        path.write_bytes(written)
        cut_lines(tmp_path, 0, 20)
        assert path.read_bytes() == b""


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 42)


@pytest.mark.parametrize("file", ["metrics.jsonl", "episodes.jsonl"])
@pytest.mark.parametrize(
    ("make", "why"),
    [
        (Path.mkdir, "not a regular file|Is a directory"),
        (lambda path: os.mkfifo(path), "not a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
        (huge, "longer than [0-9,]+ bytes"),
    ],
    ids=["folder", "pipe", "device", "huge"],
)
def test_files_that_mean_no_good_are_named(file: str, make: Any, why: str, tmp_path: Path) -> None:
    make(tmp_path / file)
    with pytest.raises(ColobusError, match=rf"{file} cannot be read: .*({why})"):
        cut_lines(tmp_path, 20, 2000)
