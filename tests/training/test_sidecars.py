"""The evaluator's and the recorder's processes beside a training, and ``colobus follow``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from colobus.core.checkpoint import newest_checkpoint
from colobus.core.errors import Lost
from colobus.experiment.presets import PRESETS
from colobus.experiment.settings import Experiment, Sidecars
from colobus.roles.tracker import StopRule, TrackerSettings
from colobus.runtime.api import Done
from colobus.runtime.host import Errander
from colobus.training.run import train
from colobus.training.sidecars import SidecarProcesses
from conftest import catch
from helpers.launching import CATCH, colobus, finish, is_gone, refused, start, wait_until
from helpers.players import add_checkpoint, write_run

Started = Callable[[], list[psutil.Process]]


@pytest.fixture
def started() -> Iterator[Started]:
    """Give what the test has started, and what that has; nothing of it is left at the end."""
    this = psutil.Process()
    before = this.children(recursive=True)

    def new() -> list[psutil.Process]:
        return [child for child in this.children(recursive=True) if child not in before]

    yield new
    assert new() == []


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_run(tmp_path / "run")
    return tmp_path / "run"


@contextmanager
def instead(script: str = "import time; time.sleep(600)") -> Iterator[None]:
    """Have the processes of sidecars run a script, by default until they are ended."""

    def popen(_: Sequence[str], **how: Any) -> Any:
        return subprocess.Popen([sys.executable, "-c", script], **how)

    changed = SimpleNamespace(**vars(subprocess) | {"Popen": popen})
    with pytest.MonkeyPatch.context() as patch:  # others may start what they like
        patch.setattr("colobus.training.sidecars.subprocess", changed)
        yield


@pytest.mark.processes
def test_both_tell_what_they_find_at_low_priority_and_leave_nothing(
    here: Path, started: Started
) -> None:
    """Of a run whose name begins with a dash, as in: colobus train catch --out=-x --evaluator."""
    run = Path("-x")
    write_run(run)
    results: list[Any] = []
    threads = set(threading.enumerate())
    with SidecarProcesses(run, Sidecars(True, True, 1.5), results.append) as sidecars:
        pids = [child.pid for child in started()]
        assert len(pids) == 2
        wait_until(lambda: len(results) == 2)
        assert [psutil.Process(pid).nice() for pid in pids] == [19, 19]
        assert [os.getpgid(pid) for pid in pids] == pids  # Ctrl-C in a terminal misses them
        add_checkpoint(run, 8)
        add_checkpoint(run, 9)
        wait_until(lambda: sum(r["version"] == 9 for r in results) == 2)
        assert sidecars.dead() == ""
    assert all(is_gone(pid) for pid in pids)
    assert set(threading.enumerate()) <= threads
    assert sidecars.dead() == ""
    for kind in ("evaluation", "film"):
        found = [result for result in results if result["kind"] == kind]
        assert {(r["version"], r["steps"]) for r in found} >= {(7, 1000), (9, 900)}
        versions = [result["version"] for result in found]
        assert versions == sorted(set(versions))  # none twice
        assert len(versions) + sum(r["skipped"] for r in found) == 3  # done or counted
    assert all(r["seconds"] == pytest.approx(1.5) for r in results if r["kind"] == "film")
    for folder in ("eval", "videos"):
        assert (run / folder / "follow.log").read_text() == ""


class Near:
    def __call__(self, words: Sequence[str], files: Mapping[str, bytes]) -> Done:
        return Errander().run(words, files)

    def close(self) -> None:
        pass


@pytest.mark.processes
def test_one_that_is_apart_is_sent_checkpoints_and_sends_back_what_it_made(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errands are done here; two after the first are lost; after the fourth its source is gone."""
    monkeypatch.setattr("colobus.training.sidecars.LOOK_SECONDS", 0.25)
    pair = [run / "checkpoints" / f"00000009.{suffix}" for suffix in ("safetensors", "json")]
    sent: list[list[str]] = []
    results: list[Any] = []

    class Far(Near):
        def __call__(self, words: Sequence[str], files: Mapping[str, bytes]) -> Done:
            sent.append(sorted(Path(name).name for name in files))
            if len(sent) in (2, 3):
                raise Lost("its host is gone")
            done = super().__call__(words, files)
            for path in pair if len(sent) == 4 else []:
                path.unlink()
            return done

    wanted = Sidecars(evaluator=True, every=True)
    with SidecarProcesses(run, wanted, results.append, lambda _: Far()) as sidecars:
        wait_until(lambda: len(results) == 1)
        add_checkpoint(run, 9)
        wait_until(lambda: len(results) == 2)
        told = [sidecars.dead() for _ in range(3)]
    lost = "the evaluator was lost (its host is gone); begun again in"
    assert told == [f"{lost} 0.5 s", f"{lost} 1 s", ""]
    first, second = (["config.json", f"0000000{n}.json", f"0000000{n}.safetensors"] for n in (7, 9))
    assert sent[:4] == [sorted(first), *[sorted(second)] * 3]  # it may look once more
    assert [(r["version"], r["skipped"]) for r in results] == [(7, 0), (9, 0)]
    for result in results:
        saved = json.loads(Path(result["file"]).read_text())
        assert Path(result["file"]).parent == run / "eval"
        assert (result["mean"], len(saved["scores"])) == (saved["mean"], 50)
    assert all(path.exists() for path in pair)  # it may be the best
    assert "--once --every --no-record" in " ".join(sidecars.idle())


@pytest.mark.processes
def test_what_one_that_is_apart_cannot_use_is_told(run: Path) -> None:
    (run / "checkpoints" / "00000007.safetensors").write_bytes(b"damaged")
    results: list[Any] = []
    said, wanted = "", Sidecars(recorder=True)
    with SidecarProcesses(run, wanted, results.append, lambda _: Near()) as sidecars:
        while not said:
            said = sidecars.dead()
            time.sleep(0.05)
    assert said.startswith("the recorder could not use 00000007.safetensors: colobus: no ")
    assert results == []


def test_nothing_is_started_unasked(tmp_path: Path, started: Started) -> None:
    with SidecarProcesses(tmp_path, Sidecars(False, False, 120.0), print) as sidecars:
        assert started() == []
        assert sidecars.dead() == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.processes
def test_a_child_that_dies_is_named_once(run: Path, started: Started) -> None:
    """One is killed, the other refuses a film of no length; its last message is in the line."""
    (run / "videos").mkdir()
    (run / "videos" / "follow.log").write_text("of an earlier start\n")
    with SidecarProcesses(run, Sidecars(True, True, 0.0), lambda _: None) as sidecars:
        evaluator, recorder = sorted(started(), key=lambda one: "--no-evaluate" in one.cmdline())
        evaluator.kill()
        wait_until(lambda: is_gone(evaluator.pid) and is_gone(recorder.pid))
        lines = [sidecars.dead() for _ in range(3)]
    assert lines == [
        f"the evaluator (process {evaluator.pid}) ended with exit code -9; it wrote no message",
        f"the recorder (process {recorder.pid}) ended with exit code 2; its last message: colobus: "
        "--record-length 0: must be above 0",
        "",
    ]


@pytest.mark.processes
@pytest.mark.parametrize("hangs", [False, True])
def test_a_child_is_ended_with_what_it_has_started(
    hangs: bool, run: Path, monkeypatch: pytest.MonkeyPatch, started: Started
) -> None:
    """Such as a simulator, which has its standard output, the pipe of the results."""
    if hangs:
        monkeypatch.setattr("colobus.training.sidecars.END_SECONDS", 0.2)
    script = "import subprocess, time; subprocess.Popen(['sleep', '600']); time.sleep(600)"
    with instead(script), SidecarProcesses(run, Sidecars(True, False), print):
        wait_until(lambda: len(started()) == 2)
        both = started()
        (child,) = (one for one in both if one.ppid() == os.getpid())
        if hangs:
            child.suspend()  # SIGTERM has to wait, SIGKILL has not
            wait_until(lambda: child.status() == psutil.STATUS_STOPPED)
    assert is_gone(child.pid)
    wait_until(lambda: all(is_gone(one.pid) for one in both))


CHATTY = """
import os, sys
from colobus.cli.main import main
from colobus.evaluation import sidecar

class Sidecar:
    def __init__(self, run, evaluate, record, say, *_, **__):
        self.say = say

    def work(self):
        os.write(1, b".")
        print({"a": 1}.__repr__().replace("'", '"'), flush=True)
        self.say({"kind": "evaluation"})

sidecar.Sidecar = Sidecar
main()
"""


@pytest.mark.processes
def test_what_an_environment_prints_is_no_result(run: Path, tmp_path: Path) -> None:
    script = tmp_path / "driver.py"
    script.write_text(CHATTY)
    words = ("follow", run, "--json", "--parent", os.getpid())
    code, out, err = finish(start(*words, script=script))
    assert (code, out) == (0, '{"kind": "evaluation"}\n')
    assert err.startswith('.{"a": 1}\n')


@pytest.mark.processes
def test_children_end_when_the_training_is_gone(tmp_path: Path) -> None:
    run = tmp_path / "run"
    training = start(*CATCH, "--evaluator", "--minutes", 5, "--out", run)
    wait_until(lambda: list(run.glob("eval/*.json")), training)
    (child,) = (one for one in psutil.Process(training.pid).children() if "follow" in one.cmdline())
    training.kill()
    training.communicate()
    wait_until(lambda: is_gone(child.pid))


def test_once_does_the_newest_or_fails(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colobus.cli.follow.lower_priority", lambda by: None)  # stays with pytest
    add_checkpoint(run, 8)
    config = json.loads((run / "config.json").read_text())
    unknown = config | {"games": config["games"] | {"game": "no_such_module:make"}}
    (run / "config.json").write_text(json.dumps(unknown))
    code, out, err = colobus("follow", run, "--once")
    assert code == 2
    assert out.startswith("passed over: ")
    assert err == f"colobus: no checkpoint of {run} can be used; see the lines above\n"
    (run / "config.json").write_text(json.dumps(config))
    code, out, err = colobus("follow", run, "--once", "--json", "--record-length", 1)
    results = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    found = [(result["kind"], result["version"], result["skipped"]) for result in results]
    assert found == [("evaluation", 8, 1), ("film", 8, 1)]
    code, out, _ = colobus("follow", run, "--once")
    assert (code, len(out.splitlines())) == (0, 1)
    assert out.startswith("00000008.safetensors is done already")


@pytest.mark.processes
def test_a_signal_ends_it_in_good_order(run: Path) -> None:
    process = start("follow", run, "--no-record")
    wait_until(lambda: (run / "eval").exists(), process)
    process.send_signal(signal.SIGTERM)
    code, out, err = finish(process)
    assert (code, err) == (143, "")
    assert "1,000 steps: mean " in out
    assert "of 50 games; 0 checkpoints skipped;" in out


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    for words, said in (
        (("--no-evaluate", "--no-record"), "nothing is left to do; leave one out"),
        (("--parent",), "must be a process's number"),
        ((), "is no run: it has no config.json"),
    ):
        assert said in refused("follow", tmp_path, *words)


@pytest.mark.processes
def test_those_that_had_nothing_to_do_say_so_at_the_end(run: Path) -> None:
    """Before the first checkpoint, or in the middle of a first evaluation; not if one was done."""
    for file in (run / "checkpoints").iterdir():
        file.unlink()
    with SidecarProcesses(run, Sidecars(True, True, 1.0), print) as sidecars:
        pass
    assert sidecars.idle() == []  # there is no checkpoint to point at
    add_checkpoint(run, 3)
    nothing = "has nothing to show: it was not done with a checkpoint before the end of the run; "
    evaluator, recorder = sidecars.idle()
    assert evaluator.startswith(f"the evaluator {nothing}")
    assert evaluator.endswith(f"colobus follow {run} --once --no-record")
    assert recorder.startswith(f"the recorder {nothing}")
    assert recorder.endswith(f"colobus follow {run} --once --no-evaluate")
    with instead(), SidecarProcesses(run, Sidecars(True, False, 1.0), print) as sidecars:
        pass
    assert sidecars.idle() == [evaluator]
    results: list[Any] = []
    with SidecarProcesses(run, Sidecars(True, False, 1.0), results.append) as sidecars:
        wait_until(lambda: bool(results))
    assert sidecars.idle() == []


@pytest.mark.processes
def test_a_run_passes_that_on(tmp_path: Path) -> None:
    lines: list[str] = []
    experiment = catch(2_000, sidecars=Sidecars(evaluator=True))
    with instead():
        train(experiment, tmp_path / "run", log=lines.append)
    assert any(line.startswith("the evaluator has nothing to show: ") for line in lines)


def telling(*news: dict[str, Any]) -> type[SidecarProcesses]:
    """Return sidecars that tell this at the start of a run, and do nothing else."""

    class Telling(SidecarProcesses):
        def __enter__(self) -> SidecarProcesses:
            for each in news:
                self.heard(each)
            return self

    return Telling


def test_what_is_passed_over_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torn = [{"kind": "passed over", "why": f"checkpoint {number} is torn"} for number in (1, 2)]
    monkeypatch.setattr("colobus.training.run.SidecarProcesses", telling(*torn))
    lines: list[str] = []
    train(catch(500), tmp_path / "run", log=lines.append)
    said = [line for line in lines if "torn" in line]
    assert said == ["a checkpoint was neither evaluated nor filmed: checkpoint 1 is torn"]


def evaluated(stop: StopRule) -> Experiment:
    tracker = TrackerSettings(checkpoint_seconds=0.5, tensorboard=False)
    beside = Sidecars(evaluator=True)
    return replace(PRESETS["dba3c-catch"], stop=stop, tracker=tracker, sidecars=beside)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mean", "games", "over"), [(9.0, 49, False), (4.0, 50, False), (6.0, 50, True)]
)
def test_a_goal_that_all_games_reach_ends_the_run_while_the_tracker_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mean: float, games: int, over: bool
) -> None:
    news = {"kind": "evaluation", "steps": 10, "version": 1}
    news |= {"mean": mean, "games": games, "asked": 50}

    def lost(*_: object) -> None:
        raise Lost("the tracker is away")

    monkeypatch.setattr("colobus.training.run.SidecarProcesses", telling(news))
    monkeypatch.setattr("colobus.roles.tracker.Tracker.evaluated", lost)
    steps = 10**9 if over else 500
    wanted = evaluated(StopRule(steps=steps, until_evaluated=5.0))
    result = train(wanted, tmp_path / "run")
    assert (result.steps < steps) == over


@pytest.mark.processes
def test_the_evaluated_score_ends_the_run(tmp_path: Path) -> None:
    stop = StopRule(until_evaluated=-1.0)  # any score of Catch will do
    result = train(evaluated(stop), tmp_path / "run")
    assert result.status.evaluated is not None
    assert result.status.evaluated >= -1.0
    files = list((tmp_path / "run" / "eval").glob("*-dba3c-50-greedy-seed0.json"))
    about = [json.loads(path.read_text()) for path in files]
    assert result.status.evaluated in [one["mean"] for one in about]
    assert {one["episodes"] for one in about} == {50}
    assert {one["protocol"] for one in about} == {"dba3c"}
    _, checkpoint, passed_over = newest_checkpoint(tmp_path / "run" / "checkpoints")
    assert passed_over == []
    assert checkpoint.version.number >= max(one["version"] for one in about)
