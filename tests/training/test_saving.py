"""Checkpoints of servers that own the parameters: whole, of one version, and resumed exactly."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from colobus.algorithms.a3c import A3C
from colobus.core.checkpoint import list_checkpoints
from colobus.core.errors import CannotWrite, ColobusError, Lost
from colobus.core.types import Gradient, Version
from colobus.experiment.presets import PRESETS
from colobus.experiment.settings import Experiment, Shape
from colobus.roles.parameters.server import Admission
from colobus.roles.replay.buffer import write_arrays
from colobus.roles.tracker import Status, StopRule
from colobus.roles.tracker.writer import Writer
from colobus.runs.curves import read_metrics
from colobus.training.run import train
from colobus.training.saving import LearnerSaver, SliceSaver, aux_at, save_last
from conftest import catch, distributed_catch, dqn, often, reshaped, stand_in
from helpers.launching import complete
from helpers.outcomes import assert_same_run, finished
from helpers.servers import server_of

SIZE = 64
LEARNERS = ("learner-0", "learner-1")
FIRST = Version(2, 10)
ALGORITHM = A3C(lr=0.01, lr_end=0.0, anneal_steps=1000)


class Scene:
    """Three servers that put every third version aside, who saves them, and a tracker for it."""

    def __init__(self, mixed: bool = False) -> None:
        rule = Admission(1, 9) if mixed else Admission(1)
        self.servers = [
            server_of(torch.full((SIZE,), float(i)), rule, FIRST, keep_every=3) for i in range(3)
        ]
        self.saved: list[tuple[Any, ...]] = []
        self.due = True
        self.marks: dict[int, int] = {}
        self.lines: list[str] = []
        experiment = Experiment(algorithm=ALGORITHM, shape=Shape(asynchronous=mixed))
        self.saver = SliceSaver(
            self.servers, LEARNERS, stand_in(self), experiment, FIRST, self.lines.append
        )

    def wants_checkpoint(self) -> bool:
        return self.due

    def steps_at(self, version: int) -> int | None:
        return self.marks.get(version)

    def status(self) -> Status:
        return Status(steps=777)

    def checkpoint(self, *what: Any, mixed: bool) -> None:
        self.saved.append((*what, mixed))

    def go_on(self, *steps: int) -> None:
        """Make so many versions of the slice of each server."""
        for server, count in zip(self.servers, steps, strict=True):
            for _ in range(count):
                version = server.pull().version
                values = torch.randn(SIZE, generator=torch.Generator().manual_seed(version.number))
                server.push(Gradient(0, version, 0, 1, 1, 0.1, values))

    def numbers(self) -> list[list[int]]:
        return [[params.version.number for params in saved[0]] for saved in self.saved]


def test_only_what_all_have_put_aside_is_saved_once_it_is_due() -> None:
    scene = Scene()
    scene.marks = {12: 1200, 15: 1500}
    for steps in ((2, 0, 0), (0, 1, 0), (0, 0, 1)):  # 12, 11, 11: the first has put 12 aside
        scene.go_on(*steps)
        scene.saver.look()
    assert scene.numbers() == []
    scene.due = False
    for steps in ((0, 1, 0), (0, 0, 1)):
        scene.go_on(*steps)
        scene.saver.look()
    assert scene.numbers() == []
    scene.due = True
    scene.saver.look()
    scene.saver.look()
    assert scene.numbers() == [[12, 12, 12]]
    for steps in ((3, 0, 0), (0, 3, 0), (0, 0, 3)):  # in between some have 12 and some 15
        scene.go_on(*steps)
        scene.saver.look()
    assert scene.numbers() == [[12, 12, 12], [15, 15, 15]]
    assert [saved[3] for saved in scene.saved] == [1200, 1500]
    for slices, optimizers, algorithm_state, steps, mixed in scene.saved:
        assert [params.values.numel() for params in slices] == [SIZE] * 3
        count = 2.0 if steps == 1200 else 5.0
        assert [state["count"].item() for state in optimizers] == [count] * 3
        assert not mixed
        assert float(algorithm_state["learning_rate"]) == 0.0  # of those steps: after anneal_steps


@pytest.mark.parametrize(
    ("mixed", "made", "saved"),
    [
        (False, (1, 1, 1), [[11, 11, 11]]),
        (False, (4, 3, 4), [[12, 12, 12]]),  # an older one is put aside
        (False, (2, 0, 0), []),
        (True, (4, 3, 7), [[14, 13, 17]]),  # asynchronous servers may differ
    ],
)
def test_the_last_save_is_the_newest_that_all_have_and_not_the_first_again(
    mixed: bool, made: tuple[int, ...], saved: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("colobus.training.saving.sleep", lambda _: None)
    scene = Scene(mixed)
    scene.saver.last([])
    assert scene.numbers() == []
    scene.go_on(*made)
    scene.saver.last([])
    assert scene.numbers() == saved
    for _, _, algorithm_state, steps, told in scene.saved:
        assert (steps, told) == (777, mixed)  # nobody marked it: the steps of now
        assert float(algorithm_state["learning_rate"]) == pytest.approx(0.01 * 0.223)
    there = ", ".join(f"server-{i} at {10 + steps}" for i, steps in enumerate(made))
    said = f"the newest parameters have different versions ({there}): not saved"
    assert scene.lines == [said] * (len(set(made)) > 1 and not mixed)


def test_the_last_save_waits_for_gradients_on_their_way(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    scene.go_on(0, 1, 1)
    monkeypatch.setattr("colobus.training.saving.sleep", lambda _: scene.go_on(1, 0, 0))
    assert scene.saver.last([])
    assert scene.numbers() == [[11, 11, 11]]
    assert scene.lines == []


@pytest.mark.slow
def test_parameters_that_are_not_finite_are_not_saved() -> None:
    scene = Scene()
    scene.go_on(2, 2, 2)
    broken = torch.full((SIZE,), torch.nan)
    scene.servers[1].push(Gradient(0, Version(2, 12), 0, 1, 1, 0.1, broken))
    scene.saver.last([])
    assert scene.numbers() == []


@pytest.mark.parametrize(
    ("hung", "slices", "learner"),
    [([], False, False), (["actor-1"], False, False), (["learner-0", "actor-1"], True, True),
     (["learner-1"], True, False)],
)  # fmt: skip
def test_who_has_to_end_before_the_last_save(hung: list[str], slices: bool, learner: bool) -> None:
    mine = stand_in(SimpleNamespace(name="learner-0"))
    assert Scene().saver.needs(hung) is slices
    assert LearnerSaver(mine, "learner-0").needs(hung) is learner


@pytest.mark.parametrize(("steps", "rate"), [(0, 0.01), (250, 0.0075), (5000, 0.0)])
def test_an_algorithms_own_state_follows_from_the_steps(steps: int, rate: float) -> None:
    assert float(aux_at(ALGORITHM, steps)["learning_rate"]) == pytest.approx(rate)


@pytest.mark.parametrize("lost", [False, True])
def test_what_a_lost_tracker_was_writing_is_not_called_saved(lost: bool, tmp_path: Path) -> None:
    def finish() -> None:
        if lost:
            raise Lost("the tracker gave no answer for 60 s")

    scene, lines = Scene(), list[str]()
    scene.go_on(1, 1, 1)
    tracker = SimpleNamespace(finish=finish, failure=lambda: None, status=Status)
    runtime = stand_in(SimpleNamespace(roles={"tracker": tracker}))
    found = save_last(scene.saver, runtime, [], PRESETS["a3c-pong"], tmp_path, lines.append)
    assert found[:2] == (None, not lost)
    said = "the newest version could not be saved: the tracker gave no answer for 60 s"
    assert lines == [said] * lost


FULL = "the replay buffer cannot be saved to it: No space left on device"


def experiment(rounds: int = 8, patience: float = 60.0) -> Experiment:
    return often(dqn(catch(512 + rounds * 512)), deterministic=True, disk_patience=patience)


class Disk:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self.fails: range = range(0)  # calls
        self.slow = 0.0  # seconds that the third call takes
        monkeypatch.setattr("colobus.roles.replay.buffer.write_arrays", self.write)
        monkeypatch.setattr("colobus.training.saving.RETRY_SECONDS", 0.01)
        monkeypatch.setattr("colobus.roles.tracker.writer.RETRY_SECONDS", 0.01)
        monkeypatch.setattr("colobus.training.run.LOOK_SECONDS", 0.005)

    def write(self, *args: Any) -> None:
        self.calls += 1
        if self.calls == 3:
            time.sleep(self.slow)
        if self.calls in self.fails:
            raise CannotWrite(FULL)
        write_arrays(*args)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.mark.slow
def test_a_disk_that_is_full_for_a_while_changes_nothing(tmp_path: Path, disk: Disk) -> None:
    lines: list[str] = []
    disk.fails = range(4, 100)
    assert train(experiment(20), tmp_path / "run", log=lines.append).saved
    begins, ends = (line for line in lines if "run's folder can" in line)
    assert FULL in begins
    assert "training goes on for 60 s (--disk-patience)" in begins
    assert ends == "the run's folder can be written to again"
    versions = {about["version"] for about in complete(tmp_path / "run")}
    assert not versions & set(disk.fails)  # a checkpoint for each call
    assert max(versions) > 100


@pytest.mark.slow
def test_the_end_of_a_run_waits_for_its_disk(tmp_path: Path, disk: Disk) -> None:
    train(experiment(), tmp_path / "whole")
    last, lines = disk.calls, list[str]()
    disk.calls, disk.fails = 0, range(4, last + 3)
    assert train(experiment(), tmp_path / "run", log=lines.append).saved
    assert disk.calls == last + 3
    (said,) = (line for line in lines if line.startswith("waiting at most 60 s to save into "))
    assert FULL in said
    assert_same_run(tmp_path / "run", tmp_path / "whole")


@pytest.mark.slow
def test_after_the_patience_the_run_ends_with_what_it_had_saved(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_over = Writer._is_final

    def is_final(writer: Writer) -> bool:
        return disk.calls > 20 and is_over(writer)  # on a slow machine, too, it has learned on

    monkeypatch.setattr(Writer, "_is_final", is_final)
    disk.fails = range(4, 10**9)
    lines: list[str] = []
    with pytest.raises(CannotWrite, match="No space left on device"):
        train(experiment(10**6, patience=2.0), tmp_path / "run", log=lines.append)
    assert not any(line.startswith("waiting at most") for line in lines)  # once was enough
    newest = complete(tmp_path / "run")[-1]["version"]
    assert newest <= 3
    assert read_metrics(tmp_path / "run")[-1]["version"] > newest
    disk.fails = range(0)
    train(experiment(), tmp_path / "run", resume=True, log=lines.append)
    train(experiment(), tmp_path / "whole", log=lines.append)
    assert_same_run(tmp_path / "run", tmp_path / "whole")


@pytest.mark.slow
def test_a_disk_that_hangs_is_no_role_that_hangs(tmp_path: Path, disk: Disk) -> None:
    disk.slow, patient = 9.0, reshaped(experiment(), deadline=8.0)
    assert train(patient, tmp_path / "run").saved
    assert disk.calls > 3


@pytest.mark.slow
def test_a_damaged_buffer_is_named_with_what_to_do(tmp_path: Path) -> None:
    train(experiment(), tmp_path / "run")
    newest = list_checkpoints(tmp_path / "run" / "checkpoints")[-1]
    folder = tmp_path / "run" / "stores" / "replay" / newest.stem
    (folder / "store.safetensors").write_bytes(b"nothing")
    longer = experiment(rounds=12)
    with pytest.raises(ColobusError, match=rf"cannot be read: .*; or delete {folder}, to begin"):
        train(longer, tmp_path / "run", resume=True)
    shutil.rmtree(folder)
    lines: list[str] = []
    train(longer, tmp_path / "run", resume=True, log=lines.append)
    assert any("goes on with new games" in line for line in lines)


@pytest.mark.slow
def test_an_asynchronous_run_saves_its_servers_versions_and_goes_on(tmp_path: Path) -> None:
    base = distributed_catch(1, workers=3, asynchronous=True)
    experiment = replace(base, deterministic=False, stop=StopRule(steps=5000))
    folder = tmp_path / "run"
    train(experiment, folder, log=pytest.fail)
    first, _ = finished(folder)
    versions = first.counters["server_versions"]
    assert len(versions) == 2
    assert first.version == Version(0, max(versions))
    assert 5000 <= first.steps == 504 + (first.steps - 504) // 72 * 72
    longer = replace(experiment, stop=StopRule(steps=first.steps + 1000))
    train(longer, folder, resume=True)
    second, _ = finished(folder)
    assert second.version.incarnation == 1
    assert second.version.number > first.version.number
    assert second.steps >= first.steps + 1000
