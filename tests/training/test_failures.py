"""What happens when things go wrong: exit code, one line, and nothing learned is lost."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from colobus.cli.interrupts import GIVE_UP_SECONDS, NAMES, Interrupts
from colobus.core.checkpoint import newest_checkpoint
from colobus.core.errors import Stalled
from colobus.core.files import read_lines
from colobus.envs.catch import CatchGames
from colobus.evaluation.agent import load
from colobus.roles.actor import Actor
from colobus.roles.learner import Learner
from colobus.runtime.threads import Threads
from colobus.training.callbacks import StopTraining
from colobus.training.run import train
from colobus.training.words import how_it_stopped
from conftest import catch
from helpers.launching import CATCH, LONG, colobus, complete, finish, start, wait_until

CODES = {"SIGTERM": 143, "SIGHUP": 129, "SIGQUIT": 131, "SIGUSR1": 138, "SIGINT": 130}


@pytest.mark.processes
@pytest.mark.parametrize("name", CODES)
def test_a_signal_saves_and_says_how_to_go_on(tmp_path: Path, name: str) -> None:
    """Until then the run is its own; Ctrl-C is pressed again and again, though not for long."""
    run, number = tmp_path / "run", signal.Signals[name]
    process = start(*CATCH, "--out", run, "--minutes", 5, "--checkpoint-seconds", 0.5)
    wait_until(lambda: bool(complete(run)), process)
    for words in ((*CATCH, "--out", run), ("train", "--resume", run)):
        code, _, said = colobus(*words)
        assert (code, said.count("\n")) == (2, 1)
    assert said.startswith(f"colobus: the run {run} is in use by process {process.pid} on ")
    before = complete(run)[-1]["version"]
    until = time.monotonic() + GIVE_UP_SECONDS / 2
    process.send_signal(number)
    while number == signal.SIGINT and process.poll() is None and time.monotonic() < until:
        process.send_signal(number)
        time.sleep(0.005)
    returned, out, err = finish(process)
    assert (returned, err) == (CODES[name], "")
    found = re.search(r"stopped by (\S+) at ([\d,]+) steps, .*--resume (\S+)", out)
    assert found is not None, out
    assert found[1] == NAMES[number]
    assert "all saved" in out
    assert not (run / "lock").exists()
    last = complete(run)[-1]
    assert last["steps"] == int(found[2].replace(",", ""))
    assert last["version"] >= before
    assert found[3] == str(run)
    assert load(run, checkpoint="last").checkpoint.steps == last["steps"]


@pytest.mark.usefixtures("usual_signals")
def test_the_first_signal_counts_a_gentle_one_waits_an_ignored_one_is_none() -> None:
    with Interrupts() as interrupts:
        interrupts.gentle = True
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        assert (interrupts.name, interrupts.exit_code) == ("SIGTERM", 143)
        with pytest.raises(KeyboardInterrupt):
            interrupts.raise_if_any()
        interrupts.gentle = False
        signal.raise_signal(signal.SIGINT)  # nothing: the process is on its way out
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert interrupts.exit_code == 130
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGHUP)
    assert interrupts.signal == 0


@pytest.mark.usefixtures("usual_signals")
def test_from_a_signal_on_lines_say_that_the_run_is_ending_and_a_later_one_ends_it_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("colobus.cli.interrupts.SAY_SECONDS", 0.01)
    now, codes, lines = [50.0], list[int](), queue.Queue[str]()
    with Interrupts(lambda: now[0], codes.append, lines.put) as interrupts:
        interrupts.gentle = True
        signal.raise_signal(signal.SIGHUP)
        assert lines.get(timeout=LONG) == "SIGHUP was heard 0 s ago: the run is ending"
        for _ in range(5):  # held down
            now[0] += GIVE_UP_SECONDS / 6
            signal.raise_signal(signal.SIGINT)
        assert codes == []
        now[0] = 50.0 + GIVE_UP_SECONDS
        last = "SIGHUP was heard 10 s ago: the run is ending; one more ends it at once"
        while lines.get(timeout=LONG) != last:
            pass
        signal.raise_signal(signal.SIGINT)
        assert codes == [129]
    while not lines.empty() or any(t.name == "says that it ends" for t in threading.enumerate()):
        with contextlib.suppress(queue.Empty):
            lines.get_nowait()
    assert lines.empty()


@pytest.mark.processes
def test_a_signal_during_the_start_ends_the_run_too(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start(*CATCH, "--out", run, "--random-steps", 300_000, "--minutes", 5)
    wait_until(run.exists, process)
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)
    assert (code, err) == (130, "")
    assert out.count("stopped by Ctrl-C ") == 1


DRIVER = """
import itertools, threading, numpy
from colobus.cli.main import main
from colobus.envs.catch import CatchGames
play = CatchGames.step
count = itertools.count(1)
def step(self, actions):
    calls = next(count)  # of all actors; each has another number
    {trouble}
    return play(self, actions)
CatchGames.step = step
main()
"""


def troubled(run: Path, trouble: str, *words: object) -> tuple[int, str, str]:
    script = run.with_name("driver.py")
    script.write_text(DRIVER.format(trouble=trouble))
    return finish(start(*words, "--out", run, script=script))


@pytest.mark.processes
def test_an_actor_that_hangs_ends_the_run_with_exit_code_3(tmp_path: Path) -> None:
    run, words = tmp_path / "run", ("train", "dba3c-catch", "--no-finish", "--no-tensorboard")
    trouble = "threading.Event().wait() if calls > 4000 else None"
    code, _, err = troubled(run, trouble, *words, "--minutes", 5, "--deadline", 20)
    assert code == 3
    named = r"colobus: actor-\d has hung in 'emulate' for \d+ s \(deadline 20 s\); go on with: .*\n"
    assert re.fullmatch(named, err), err
    assert complete(run)[-1]["steps"] > 10_000
    assert all(bool(t.isfinite().all()) for t in load(run).checkpoint.tensors.values())


@pytest.mark.processes
def test_a_nan_in_the_middle_of_a_round_does_not_reach_a_checkpoint(tmp_path: Path) -> None:
    run, words = tmp_path / "run", ("--minutes", 5, "--checkpoint-seconds", 0.1)
    rewards = "numpy.full(self.count, numpy.nan, dtype=numpy.float32)"
    trouble = f"if calls > 2000: return play(self, actions)._replace(rewards={rewards})"
    raw = ("--reward-clip", "none")  # the sign of nan is 0
    code, _, err = troubled(run, trouble, *CATCH, *words, *raw)
    assert code == 4
    assert re.match(r"colobus: \w+ became nan at version \d+: training has diverged; ", err), err
    assert err.count("\n") == 1
    checkpoint = load(run).checkpoint
    assert checkpoint.steps > 512
    for name, tensor in checkpoint.tensors.items():
        # an actor may have played a rollout with nan that nobody has learned from yet
        assert name.startswith("play/") or bool(tensor.isfinite().all()), name


@pytest.mark.processes
def test_an_actor_that_raises_is_restarted_and_the_run_ends_well(tmp_path: Path) -> None:
    run = tmp_path / "run"
    trouble = "1 / 0 if calls in (2000, 3000) else None"
    code, out, err = troubled(run, trouble, *CATCH, "--steps", 30_000)
    assert (code, err) == (0, "")
    assert len(re.findall(r"actor-\d raised at \S+: ZeroDivisionError: .*; restarted", out)) == 2
    events = read_lines(run / "events.jsonl")
    assert [event["event"] for event in events] == ["restarted", "restarted"]
    assert all(event["why"].startswith("ZeroDivisionError") for event in events)
    assert complete(run)[-1]["steps"] >= 30_000


@pytest.mark.processes
def test_a_run_whose_folder_was_deleted_ends_with_5_and_leaves_nothing(tmp_path: Path) -> None:
    run = tmp_path / "run"
    often = ("--checkpoint-seconds", 0.2, "--disk-patience", 0.5)
    process = start(*CATCH, "--out", run, "--minutes", 5, *often)
    wait_until(lambda: bool(complete(run)), process)
    while run.exists():  # the run may be writing into it
        shutil.rmtree(run, ignore_errors=True)
    code, out, err = finish(process)
    assert code == 5
    assert err.startswith(f"colobus: cannot write to {run}: No such file or directory; ")
    assert err.count("\n") == 1
    assert "all saved" not in out
    assert not run.exists()


def test_what_was_not_saved_is_not_called_saved(tmp_path: Path) -> None:
    again = "colobus train --resume there"
    nothing = how_it_stopped(tmp_path, again, 700, "Ctrl-C")
    assert nothing.endswith("before anything was learned: there is nothing to go on with")
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "00000001.safetensors").touch()
    lost = how_it_stopped(tmp_path, again, 700, "Ctrl-C", saved=False)
    assert f"learned after that could not be saved; go on with: {again}" in lost
    assert "all saved" not in lost


ENDLESS = catch(100_000_000)


@pytest.mark.parametrize("ends", [KeyboardInterrupt(), StopTraining("enough")])
def test_what_was_learned_before_all_had_started_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: BaseException
) -> None:
    """Some roles have started, the learner among them, when the caller ends the run."""
    begin, learned = Threads.start, list[int]()

    def started(place: Threads, *rest: Any) -> None:
        begin(place, *rest)
        while not place.roles["tracker"].status().version:
            time.sleep(0.01)
        learned.append(place.roles["tracker"].status().version)
        raise ends

    with monkeypatch.context() as patch:
        patch.setattr(Threads, "start", started)
        result = train(ENDLESS, tmp_path / "run")
    assert result.saved
    assert (result.interrupted, result.stopped) in [(True, ""), (False, "enough")]
    _, checkpoint, _ = newest_checkpoint(tmp_path / "run" / "checkpoints")
    assert checkpoint.version.number >= learned[0] > 0
    after = train(catch(checkpoint.steps + 1_000), tmp_path / "run", resume=True)
    assert after.steps > checkpoint.steps


def test_ctrl_c_at_the_start_is_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("colobus.training.run.begin_new", stop)
        result = train(ENDLESS, tmp_path / "new")
    assert (result.interrupted, result.steps, result.score) == (True, 0, None)
    assert not (tmp_path / "new").exists()
    with monkeypatch.context() as patch:
        patch.setattr(Threads, "start", stop)
        patch.setattr(Threads, "has_begun", lambda *_: False)
        result = train(ENDLESS, tmp_path / "unbegun")
    assert result.interrupted
    assert not (tmp_path / "unbegun" / "config.json").exists()
    train(catch(2_000), tmp_path / "run")
    monkeypatch.setattr("colobus.training.run.begin_again", stop)
    result = train(ENDLESS, tmp_path / "run", resume=True)
    kept = newest_checkpoint(tmp_path / "run" / "checkpoints")[1].steps
    assert (result.interrupted, result.steps) == (True, kept)


@pytest.mark.slow
def test_a_long_rollout_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick, late = Actor.step, 0.3  # seconds that a rollout takes longer

    def step(self: Actor) -> None:
        time.sleep(late)
        quick(self)

    monkeypatch.setattr(Actor, "step", step)
    monkeypatch.setattr("colobus.training.run.STOP_SECONDS", late / 10)
    result = train(catch(3_000), tmp_path / "run")
    assert result.saved
    assert result.steps >= 3_000


@pytest.mark.slow
def test_those_that_never_stop_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both actors are in a rollout that does not end when the learner has learned enough."""
    play, learn = Actor.step, Learner.step
    rounds, everyone, goes_on = 3, threading.Barrier(3), threading.Event()

    def step(self: Actor) -> None:
        if self.clock.steps == rounds:
            everyone.wait(60)
            goes_on.wait(60)
        play(self)

    def last_step(self: Learner) -> None:
        learn(self)
        if self.finished:
            everyone.wait(60)

    monkeypatch.setattr(Actor, "step", step)
    monkeypatch.setattr(Learner, "step", last_step)
    monkeypatch.setattr("colobus.training.run.STOP_SECONDS", 0.5)
    monkeypatch.setattr("colobus.training.run.LATE_SECONDS", 0.5)
    said = "^actor-0, actor-1 did not stop; everything learned is saved$"
    with pytest.raises(Stalled, match=said):
        train(catch(512 + rounds * 512), tmp_path / "run")
    goes_on.set()
    for thread in threading.enumerate():
        if thread.name.startswith("actor-"):
            thread.join(60)


@pytest.mark.slow
def test_a_save_that_fails_loses_no_round(tmp_path: Path, fail_once: Any) -> None:
    """A deterministic run would wait for that round until it stalls."""
    calls = fail_once(CatchGames, "save", 10)
    result = train(catch(steps=20_000, deterministic=True), tmp_path / "run")
    assert next(calls) > 11
    assert result.status.steps >= 20_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.cluster
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system: needs root")
@pytest.mark.parametrize("events", ["--tensorboard", "--no-tensorboard"])
def test_a_full_disk_ends_a_run_with_a_line_and_keeps_a_checkpoint(disk: Path, events: str) -> None:
    run = disk / "run"
    args = ("--minutes", 2, "--checkpoint-seconds", 0.05, "--keep-checkpoints", 0, events)
    process = start("train", "catch", "--out", run, *args, "--disk-patience", 1)
    code, _, err = finish(process)
    assert code == 5
    assert err.count("\n") == 1
    assert re.match(
        rf"colobus: cannot write to {run}: No space left on device; the newest complete "
        rf"checkpoint is kept: make room and go on with .*--resume {run}\n",
        err,
    ), err
    newest = complete(run)[-1]
    agent = load(run, checkpoint="last")  # by itself the best one, if the newest is worse
    assert agent.checkpoint.version.number == newest["version"]
    assert agent.checkpoint.steps == newest["steps"] > 0
    assert not list((run / "checkpoints").glob(".*"))

    for path in sorted((run / "checkpoints").glob("*"))[:-6]:  # make room, and go on
        path.unlink()
    stop = newest["steps"] + 5120
    again = ("--no-finish", "--steps", stop, "--checkpoint-seconds", 60, events)
    assert finish(start("train", "--resume", run, *again))[0] == 0
    assert complete(run)[-1]["steps"] >= stop
