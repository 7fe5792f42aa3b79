"""The replay buffer of a deterministic run is saved with each checkpoint: what a bad disk costs."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import catch
from gelada.algorithms.dqn import DQN
from gelada.core.checkpoint import list_checkpoints
from gelada.core.errors import CannotWrite, GeladaError
from gelada.experiment.settings import Experiment, ReplaySettings
from gelada.roles.replay.buffer import write_arrays
from gelada.training.run import train
from helpers.launching import complete
from helpers.unbroken import assert_same_run

pytestmark = pytest.mark.slow

FULL = "the replay buffer cannot be saved to it: No space left on device"


def experiment(rounds: int = 8, patience: float = 60.0) -> Experiment:
    """Return deterministic DQN on Catch that saves as often as it can."""
    base = catch(512 + rounds * 512)
    tracker = replace(base.tracker, checkpoint_seconds=1e-9, keep_checkpoints=0, tensorboard=False)
    return replace(
        base,
        algorithm=DQN(n=3, target_every=7, epsilon_steps=2_000, anneal_steps=3_000),
        replay=ReplaySettings(capacity=900, minimum=200, windows=8, samples_per_insert=0.25),
        tracker=replace(tracker, disk_patience=patience),
        deterministic=True,
    )


class Disk:
    """Writes a replay buffer, or fails as it is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self.fails: range = range(0)  # calls
        self.slow = 0.0  # seconds that the third call takes
        monkeypatch.setattr("gelada.roles.replay.buffer.write_arrays", self.write)
        monkeypatch.setattr("gelada.training.saving.RETRY_SECONDS", 0.01)
        monkeypatch.setattr("gelada.roles.tracker.writer.RETRY_SECONDS", 0.01)
        monkeypatch.setattr("gelada.training.run.LOOK_SECONDS", 0.005)

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


def test_the_end_of_a_run_waits_for_its_disk(tmp_path: Path, disk: Disk) -> None:
    train(experiment(), tmp_path / "whole", log=lambda _: None)
    last, lines = disk.calls, list[str]()
    disk.calls, disk.fails = 0, range(4, last + 3)
    assert train(experiment(), tmp_path / "run", log=lines.append).saved
    assert disk.calls == last + 3
    (said,) = (line for line in lines if line.startswith("waiting at most 60 s to save into "))
    assert FULL in said
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_after_the_patience_the_run_ends_with_what_it_had_saved(tmp_path: Path, disk: Disk) -> None:
    disk.fails = range(4, 10**9)
    lines: list[str] = []
    with pytest.raises(CannotWrite, match="No space left on device"):
        train(experiment(10**6, patience=2.0), tmp_path / "run", log=lines.append)
    assert not any(line.startswith("waiting at most") for line in lines)  # once was enough
    newest = complete(tmp_path / "run")[-1]["version"]
    assert newest <= 3
    rows = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(rows[-1])["version"] > newest
    disk.fails = range(0)
    train(experiment(), tmp_path / "run", resume=True, log=lines.append)
    train(experiment(), tmp_path / "whole", log=lines.append)
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_a_disk_that_hangs_for_longer_than_the_deadline_is_no_role_that_hangs(
    tmp_path: Path, disk: Disk
) -> None:
    disk.slow, base = 9.0, experiment()
    patient = replace(base, shape=replace(base.shape, deadline=8.0))
    assert train(patient, tmp_path / "run", log=lambda _: None).saved
    assert disk.calls > 3


def test_a_damaged_buffer_is_named_with_what_to_do(tmp_path: Path) -> None:
    train(experiment(), tmp_path / "run", log=lambda _: None)
    newest = list_checkpoints(tmp_path / "run" / "checkpoints")[-1]
    folder = tmp_path / "run" / "stores" / "replay" / newest.stem
    (folder / "store.safetensors").write_bytes(b"nothing")
    longer = experiment(rounds=12)
    with pytest.raises(GeladaError, match=rf"cannot be read: .*; or delete {folder}, to begin"):
        train(longer, tmp_path / "run", resume=True, log=lambda _: None)
    shutil.rmtree(folder)
    lines: list[str] = []
    train(longer, tmp_path / "run", resume=True, log=lines.append)
    assert any("goes on with new games" in line for line in lines)
