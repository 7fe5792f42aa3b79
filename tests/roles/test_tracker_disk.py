"""The tracker when writing fails: nothing ends in silence, nothing waits for ever."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from colobus.core.checkpoint import list_checkpoints, newest_checkpoint, read_checkpoint
from colobus.core.files import read_lines
from colobus.core.types import Params, Update, Version
from colobus.ops.flat import Layout
from colobus.roles.tracker import RunFacts, StopRule, Tracker, TrackerSettings
from colobus.roles.tracker.writer import END_SECONDS, Writer
from colobus.training.role_factory import tracker_files
from conftest import make_net
from helpers.launching import wait_until

LAYOUT = Layout(make_net())


def make_tracker(folder: Path, every: int | None = None, **settings: Any) -> Tracker:
    fields = {"tensorboard": False, "disk_patience": 60.0} | settings
    facts = RunFacts(every=every)
    return Tracker(tracker_files(folder), TrackerSettings(**fields), StopRule(), LAYOUT, {}, facts)


def save(tracker: Tracker, number: int) -> None:
    params = Params(Version(0, number), torch.full((LAYOUT.size,), float(number)))
    tracker.checkpoint([params], [{"count": torch.tensor(1.0)}], {}, 10 * number)


def report(tracker: Tracker, *numbers: int) -> None:
    for number in numbers:
        tracker.report(Update(0, Version(0, number), 10, (1.0, 1.0, 1.0), {"loss": 1.0}))


def lines_of(folder: Path) -> list[int]:
    return [line["version"] for line in read_lines(folder / "metrics.jsonl")]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Stands for the disk below `write_checkpoint`: its side effect is how it fails."""
    disk = Mock()
    monkeypatch.setattr(os, "fsync", disk)
    monkeypatch.setattr("colobus.roles.tracker.writer.RETRY_SECONDS", 0.01)
    return disk


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (FULL, "No space left on device"),
        (OSError(errno.ESTALE, "Stale file handle"), "Stale file handle"),
        (MemoryError(), "not enough memory to write"),
    ],
)
def test_what_may_pass_is_told_at_once_and_tried_again(
    tmp_path: Path, disk: Mock, error: Exception, said: str
) -> None:
    tracker = make_tracker(tmp_path, every=1)
    disk.side_effect = error
    save(tracker, 1)
    wait_until(lambda: tracker.status().trouble)
    assert tracker.status().trouble == said
    assert tracker.failure() is None  # within the patience
    for number in range(2, 20):
        save(tracker, number)
        report(tracker, number)
    disk.side_effect = None
    tracker.finish()
    assert tracker.status().trouble == ""
    paths = list_checkpoints(tmp_path / "checkpoints")
    found = [read_checkpoint(path).version.number for path in paths]
    assert found[-1] == 19  # the newest; of those that waited no other
    assert len(found) <= 2
    assert lines_of(tmp_path) == list(range(2, 20))


@pytest.mark.parametrize(
    "error", [RuntimeError("a bug"), ImportError("no module"), ValueError("odd"), RecursionError()]
)
def test_other_errors_end_the_run_by_name(tmp_path: Path, disk: Mock, error: Exception) -> None:
    tracker = make_tracker(tmp_path)
    save(tracker, 1)
    wait_until(lambda: tracker.status().last_checkpoint)
    disk.side_effect = error
    save(tracker, 2)
    wait_until(tracker.failure)
    assert type(error).__name__ in str(tracker.failure())
    disk.side_effect = None  # the last save of the run still works
    save(tracker, 3)
    tracker.finish()
    assert newest_checkpoint(tmp_path / "checkpoints")[1].version.number == 3


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_writer_whose_thread_is_gone_is_seen_at_once(tmp_path: Path, disk: Mock) -> None:
    tracker = make_tracker(tmp_path)
    disk.side_effect = SystemExit()  # ends a thread without a word
    save(tracker, 1)
    wait_until(tracker.failure)
    assert "the writing thread has ended" in str(tracker.failure())
    with pytest.raises(OSError, match="the writing thread has ended"):
        tracker.finish()


def test_a_run_folder_that_was_deleted_is_named_and_not_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    tracker = make_tracker(folder, disk_patience=0.0)
    report(tracker, 1)
    wait_until((folder / "metrics.jsonl").exists)
    (folder / "metrics.jsonl").unlink()
    folder.rmdir()
    save(tracker, 2)
    wait_until(tracker.failure)
    with pytest.raises(FileNotFoundError):
        tracker.finish()
    assert not folder.exists()


class Slow:
    def __init__(self) -> None:
        self.begun, self.goes_on = threading.Event(), threading.Event()

    def write(self) -> None:
        self.begun.set()
        self.goes_on.wait(60)


def test_a_disk_that_hangs_is_told_and_ends_the_run_after_the_patience() -> None:
    now = [100.0]
    work = Slow()
    writer = Writer([work], patience=50.0, now=lambda: now[0])
    writer.wake()
    assert work.begun.wait(60)
    assert (writer.trouble(), writer.failure) == ("", None)
    now[0] += 25
    wait_until(writer.trouble)
    assert (writer.trouble(), writer.failure) == ("the disk gives no answer", None)
    now[0] += 26
    assert str(writer.failure) == "[Errno 110] the disk gives no answer for 50 s"
    work.goes_on.set()
    writer.close()


def test_the_end_waits_for_a_disk_for_its_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float | None] = []
    real = threading.Thread.join

    def join(self: threading.Thread, timeout: float | None = None) -> None:
        waited.append(timeout)
        real(self, 0.05)

    for patience in (0.0, 100.0):
        work = Slow()
        writer = Writer([work], patience=patience)
        writer.wake()
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "join", join)
            with pytest.raises(OSError, match="the last write did not end"):
                writer.close()
        work.goes_on.set()
    assert waited == [END_SECONDS, 100.0]


@pytest.mark.parametrize("deleted", [False, True])
def test_a_version_saved_twice_is_complete(tmp_path: Path, disk: Mock, deleted: bool) -> None:
    """At the end of a run its newest version is saved again: a kill must not cost the only one."""
    tracker = make_tracker(tmp_path, keep_checkpoints=1)
    save(tracker, 1)
    save(tracker, 2)
    wait_until(lambda: tracker.status().last_checkpoint == "00000002.safetensors")
    if deleted:
        for path in (tmp_path / "checkpoints").iterdir():
            path.unlink(missing_ok=True)
    else:
        disk.side_effect = RuntimeError("killed")  # nothing has to be written
    save(tracker, 2)
    tracker.finish()
    assert newest_checkpoint(tmp_path / "checkpoints")[1].version.number == 2


def test_what_others_cannot_write_ends_the_run_too(tmp_path: Path, disk: Mock) -> None:
    tracker = make_tracker(tmp_path, checkpoint_seconds=1000.0)
    tracker.beside(None)  # as always
    assert tracker.status().trouble == ""
    error = OSError(errno.EIO, "the replay buffer cannot be saved")
    tracker.beside(error)
    wait_until(lambda: tracker.status().trouble)
    assert tracker.status().trouble == "the replay buffer cannot be saved"
    assert tracker.failure() is None
    assert not tracker.wants_checkpoint()  # in ten seconds
    tracker.beside(None)
    wait_until(lambda: not tracker.status().trouble)
    tracker.finish()
    tracker = make_tracker(tmp_path, disk_patience=0.0)
    tracker.beside(error)
    wait_until(tracker.failure)
    with pytest.raises(OSError, match="the replay buffer cannot be saved"):
        tracker.finish()


def test_lines_survive_partial_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = os.write, [0]

    def write(descriptor: int, data: bytes) -> int:
        calls[0] += 1
        if calls[0] % 2:
            return real(descriptor, data[:7])
        raise FULL if calls[0] < 12 else OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("colobus.roles.tracker.writer.RETRY_SECONDS", 0.001)
    tracker = make_tracker(tmp_path, every=1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        report(tracker, 1, 2, 3)
        wait_until(lambda: calls[0] > 12)
    tracker.finish()
    assert lines_of(tmp_path) == [1, 2, 3]


@pytest.mark.parametrize("what", ["raises", "hangs", "import"])
def test_tensorboard_can_neither_stop_nor_hold_up_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    hang = threading.Event()

    def add_scalar(*_: Any) -> None:
        if what == "raises":
            raise RuntimeError("the thread is dead")
        hang.wait(30)

    def writer(folder: str) -> Mock:
        assert folder.startswith("/")  # never an address such as s3://x
        if what == "import":
            raise ImportError("no boto3")
        return Mock(spec=["add_text", "add_scalar", "close"], add_scalar=add_scalar)

    monkeypatch.setattr("tensorboardX.SummaryWriter", writer)
    monkeypatch.setattr("colobus.roles.tracker.tensorboard.END_SECONDS", 0.05)
    monkeypatch.setattr("colobus.roles.tracker.tensorboard.MOST", 3 if what == "hangs" else 100)
    tracker = make_tracker(tmp_path, every=1, tensorboard=True)
    for number in range(1, 9):
        report(tracker, number)
        save(tracker, number)
    if what != "hangs":
        wait_until(lambda: tracker.status().no_events)
        wanted = {"raises": "RuntimeError: the thread is dead", "import": "ImportError: no boto3"}
        assert tracker.status().no_events == wanted[what]
    assert tracker.status().trouble == ""
    assert tracker.failure() is None
    tracker.finish()
    hang.set()
    assert newest_checkpoint(tmp_path / "checkpoints")[1].version.number == 8


def test_the_age_of_what_is_unsaved(tmp_path: Path, now: list[float]) -> None:
    tracker = make_tracker(tmp_path)
    now[0] += 500
    assert tracker.status().unsaved == 0.0  # nothing was learned: a replay buffer may be filling
    report(tracker, 1)
    now[0] += 30
    assert tracker.status().unsaved == 30.0
    save(tracker, 1)
    wait_until(lambda: tracker.status().last_checkpoint)
    now[0] += 400
    assert tracker.status().unsaved == 0.0
    report(tracker, 2)
    assert tracker.status().unsaved == 400.0
    now[0] += 5
    assert tracker.status().unsaved == 405.0
    tracker.finish()
