"""What happens when things go wrong: exit code, one line, and nothing learned is lost."""

from __future__ import annotations

import contextlib
import itertools
import queue
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
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
from colobus.runtime.api import nothing
from colobus.runtime.threads import Threads
from colobus.training import run
from colobus.training import runtimes as module
from colobus.training.callbacks import StopTraining
from colobus.training.run import train
from colobus.training.words import how_it_stopped
from conftest import catch
from helpers.launching import CATCH, LONG, complete, finish, refused, start, wait_until


@pytest.mark.processes
@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGTERM, 143),
        (signal.SIGHUP, 129),
        (signal.SIGQUIT, 131),
        (signal.SIGUSR1, 138),
        (signal.SIGINT, 130),
    ],
)
def test_a_signal_saves_and_says_how_to_go_on(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """Ctrl-C is pressed again and again, but not for so long that it ends the process at once."""
    run = tmp_path / "run"
    process = start(*CATCH, "--out", run, "--minutes", 5, "--checkpoint-seconds", 0.5)
    wait_until(lambda: bool(complete(run)), process)
    before = complete(run)[-1]["version"]
    until = time.monotonic() + GIVE_UP_SECONDS / 2
    process.send_signal(number)
    while number == signal.SIGINT and process.poll() is None and time.monotonic() < until:
        process.send_signal(number)
        time.sleep(0.005)
    returned, out, err = finish(process)
    assert returned == code
    assert err == ""
    said = re.search(r"stopped by (\S+) at ([\d,]+) steps, .*--resume (\S+)", out)
    assert said is not None, out
    assert said[1] == NAMES[number]
    assert "all saved" in out
    last = complete(run)[-1]
    assert last["steps"] == int(said[2].replace(",", ""))
    assert last["version"] >= before
    assert said[3] == str(run)
    assert load(run, checkpoint="last").checkpoint.steps == last["steps"]


@pytest.fixture
def handlers() -> Iterator[None]:
    """Give all handlers back."""
    before = {number: signal.getsignal(number) for number in NAMES}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_only_the_first_signal_counts_and_a_gentle_one_waits(handlers: None) -> None:
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


def test_a_later_signal_ends_a_process_that_waits_for_its_disk(handlers: None) -> None:
    now, codes = [50.0], list[int]()
    with Interrupts(now=lambda: now[0], end=codes.append) as interrupts:
        interrupts.gentle = True
        signal.raise_signal(signal.SIGHUP)
        for _ in range(5):  # held down
            now[0] += GIVE_UP_SECONDS / 6
            signal.raise_signal(signal.SIGINT)
        assert codes == []
        now[0] += GIVE_UP_SECONDS
        signal.raise_signal(signal.SIGINT)
        assert codes == [129]


def test_from_a_signal_on_lines_say_that_the_run_is_ending(
    handlers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("colobus.cli.interrupts.SAY_SECONDS", 0.01)
    now, lines = [50.0], queue.Queue[str]()
    with Interrupts(now=lambda: now[0], say=lines.put) as interrupts:
        interrupts.gentle = True
        signal.raise_signal(signal.SIGTERM)
        assert lines.get(timeout=LONG) == "SIGTERM was heard 0 s ago: the run is ending"
        now[0] += GIVE_UP_SECONDS
        last = "SIGTERM was heard 10 s ago: the run is ending; one more ends it at once"
        while lines.get(timeout=LONG) != last:
            pass
    while not lines.empty() or any(t.name == "says that it ends" for t in threading.enumerate()):
        with contextlib.suppress(queue.Empty):
            lines.get_nowait()
    assert lines.empty()


def test_a_hangup_that_is_ignored_stays_so(handlers: None) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGHUP)
        assert interrupts.signal == 0


@pytest.mark.processes
def test_a_signal_during_the_start_ends_the_run_too(tmp_path: Path) -> None:
    run = tmp_path / "run"
    args = ("--out", run, "--random-steps", 300_000, "--minutes", 5)
    process = start(*CATCH, *args)
    wait_until(run.exists, process)
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)
    assert (code, err) == (130, "")
    assert out.count("stopped by Ctrl-C ") == 1


WORKERS = ("train", "dba3c-catch", "--no-finish", "--no-tensorboard")
DRIVER = """
import itertools
import threading
import numpy
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


def driver(folder: Path, trouble: str) -> Path:
    """Write a script that is the command line with trouble in the environment."""
    path = folder / "driver.py"
    path.write_text(DRIVER.format(trouble=trouble))
    return path


@pytest.mark.processes
def test_an_actor_that_hangs_ends_the_run_with_exit_code_3(tmp_path: Path) -> None:
    run = tmp_path / "run"
    script = driver(tmp_path, "threading.Event().wait() if calls > 4000 else None")
    args = (*WORKERS, "--out", run, "--minutes", 5, "--deadline", 20)
    code, _, err = finish(start(*args, script=script))
    assert code == 3
    named = r"colobus: actor-\d has hung in 'emulate' for \d+ s \(deadline 20 s\); go on with: .*\n"
    assert re.fullmatch(named, err), err
    assert complete(run)[-1]["steps"] > 10_000
    assert all(bool(t.isfinite().all()) for t in load(run).checkpoint.tensors.values())


@pytest.mark.processes
def test_a_nan_in_the_middle_of_a_round_does_not_reach_a_checkpoint(tmp_path: Path) -> None:
    run = tmp_path / "run"
    rewards = "numpy.full(self.count, numpy.nan, dtype=numpy.float32)"
    trouble = f"if calls > 2000: return play(self, actions)._replace(rewards={rewards})"
    args = (*CATCH, "--out", run, "--minutes", 5, "--checkpoint-seconds", 0.1)
    raw = ("--reward-clip", "none")  # the sign of nan is 0
    code, _, err = finish(start(*args, *raw, script=driver(tmp_path, trouble)))
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
    script = driver(tmp_path, "1 / 0 if calls in (2000, 3000) else None")
    code, out, err = finish(start(*CATCH, "--out", run, "--steps", 30_000, script=script))
    assert (code, err) == (0, "")
    assert len(re.findall(r"actor-\d raised at \S+: ZeroDivisionError: .*; restarted", out)) == 2
    events = read_lines(run / "events.jsonl")
    assert [event["event"] for event in events] == ["restarted", "restarted"]
    assert all(event["why"].startswith("ZeroDivisionError") for event in events)
    assert complete(run)[-1]["steps"] >= 30_000


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    err = refused(*CATCH, "--out", tmp_path, "--steps", 1000)
    assert err.startswith(f"colobus: --out {tmp_path}: the folder is not empty; ")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


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
    kept = how_it_stopped(tmp_path, again, 700, "Ctrl-C")
    assert kept.endswith(f"at 700 steps, all saved; go on with: {again}")
    lost = how_it_stopped(tmp_path, again, 700, "Ctrl-C", saved=False)
    assert f"learned after that could not be saved; go on with: {again}" in lost
    assert "all saved" not in lost


STEPS = 100_000_000


class SlowStart(Threads):
    """Takes part of its roles for started, the learner among them, when the caller ends it."""

    ends: BaseException
    learned = 0

    def start(self, pause: Callable[[], None] = nothing) -> None:
        """Start the roles; before it returns, a version has been learned and the caller stops."""
        super().start(pause)
        while not self.roles["tracker"].status().version:
            time.sleep(0.01)
        SlowStart.learned = self.roles["tracker"].status().version
        raise self.ends


class NoStart(Threads):
    """The caller ends it before any role has begun."""

    def start(self, pause: Callable[[], None] = nothing) -> None:
        """Start nothing."""
        raise KeyboardInterrupt

    def has_begun(self, role: str) -> bool:
        """Return False, as a process does that has not built its roles."""
        return False


@pytest.mark.parametrize("ends", [KeyboardInterrupt(), StopTraining("enough")])
def test_what_was_learned_before_all_had_started_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: BaseException
) -> None:
    monkeypatch.setattr(SlowStart, "ends", ends, raising=False)
    monkeypatch.setattr(module, "Threads", SlowStart)
    result = train(catch(STEPS), tmp_path / "run", log=lambda _: None)
    assert result.saved
    assert (result.interrupted, result.stopped) in [(True, ""), (False, "enough")]
    _, checkpoint, _ = newest_checkpoint(tmp_path / "run" / "checkpoints")
    assert checkpoint.version.number >= SlowStart.learned > 0
    monkeypatch.setattr(module, "Threads", Threads)
    goes_on = catch(checkpoint.steps + 1_000)
    after = train(goes_on, tmp_path / "run", resume=True, log=lambda _: None)
    assert after.steps > checkpoint.steps


def test_a_run_that_learned_nothing_leaves_no_folder_that_looks_like_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "Threads", NoStart)
    result = train(catch(STEPS), tmp_path / "run", log=lambda _: None)
    assert result.interrupted
    assert not (tmp_path / "run" / "config.json").exists()


def test_ctrl_c_before_there_are_roles_is_a_result_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run, "begin_new", stop)
        result = train(catch(STEPS), tmp_path / "new", log=lambda _: None)
    assert (result.interrupted, result.steps, result.score) == (True, 0, None)
    assert not (tmp_path / "new").exists()
    train(catch(2_000), tmp_path / "run", log=lambda _: None)
    monkeypatch.setattr(run, "begin_again", stop)
    result = train(catch(STEPS), tmp_path / "run", resume=True, log=lambda _: None)
    kept = newest_checkpoint(tmp_path / "run" / "checkpoints")[1].steps
    assert (result.interrupted, result.steps) == (True, kept)


LATE = 0.3
"""Seconds that a rollout takes longer."""


@pytest.mark.slow
def test_an_actor_in_the_middle_of_a_rollout_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = Actor.step

    def step(self: Actor) -> None:
        time.sleep(LATE)
        quick(self)

    monkeypatch.setattr(Actor, "step", step)
    monkeypatch.setattr(run, "STOP_SECONDS", LATE / 10)
    result = run.train(catch(3_000), tmp_path / "run", log=lambda _: None)
    assert result.saved
    assert result.steps >= 3_000


@pytest.mark.slow
def test_those_that_do_not_come_back_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    monkeypatch.setattr(run, "STOP_SECONDS", 0.5)
    monkeypatch.setattr(run, "LATE_SECONDS", 0.5)
    said = "^actor-0, actor-1 did not stop; everything learned is saved$"
    with pytest.raises(Stalled, match=said):
        run.train(catch(512 + rounds * 512), tmp_path / "run", log=lambda _: None)
    goes_on.set()
    for thread in threading.enumerate():
        if thread.name.startswith("actor-"):
            thread.join(60)


@pytest.mark.slow
def test_an_actor_whose_games_cannot_be_saved_once_loses_no_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deterministic run would wait for that round until it stalls."""
    save, calls = CatchGames.save, itertools.count(1)

    def fails_once(self: CatchGames) -> dict[str, Any]:
        if next(calls) == 10:
            raise RuntimeError("no room")
        return save(self)

    monkeypatch.setattr(CatchGames, "save", fails_once)
    result = train(catch(steps=20_000, deterministic=True), tmp_path / "run")
    assert next(calls) > 11
    assert result.status.steps >= 20_000
