"""The lock of a folder: one holder at a time, whatever becomes of the one before.

So one process writes into a run's folder at a time, and nothing of a failed start stays there.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from colobus.cli.flags import parse
from colobus.cli.suite import Flags, suite_of
from colobus.core.errors import ColobusError
from colobus.core.files import LOCK, locked, read_lines, whole_file, write_whole
from colobus.runs.config import Config, write_config
from colobus.runs.folder import cannot_write, held
from colobus.training.run import train
from conftest import catch
from helpers.launching import colobus

HOLDER = """
import sys, time
from pathlib import Path
from colobus.core.files import locked
with locked(Path(sys.argv[1]), "it"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_link_is_no_lock_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / LOCK).symlink_to(tmp_path / "precious")
    with pytest.raises(ColobusError, match="lock: is a link"), locked(tmp_path, "the run x"):
        pytest.fail("it was held")
    assert (tmp_path / "precious").read_text() == "mine"


@pytest.mark.processes
def test_a_second_holder_is_refused_with_the_number_of_the_first(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    process: Any = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    message = rf"^the run x is in use by process {process.pid} on \S+; wait until it has ended"
    with pytest.raises(ColobusError, match=message) as raised, locked(tmp_path, "the run x"):
        pytest.fail("it was held twice")
    assert raised.value.exit_code == 2
    process.send_signal(signal.SIGKILL)  # leaves the file behind, without a lock
    process.communicate()
    assert (tmp_path / LOCK).exists()
    with locked(tmp_path, "the run x"):
        assert (tmp_path / LOCK).read_text().startswith(f"process {os.getpid()} on ")
        with pytest.raises(ColobusError, match="in use"), locked(tmp_path, "the run x"):
            pytest.fail("it was held twice by one process")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_gone_is_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, first = fcntl.flock, [True]

    def flock(descriptor: int, operation: int) -> None:
        real(descriptor, operation)
        if first.pop() if first else False:  # the holder before deletes it just now
            (tmp_path / LOCK).unlink()

    monkeypatch.setattr(fcntl, "flock", flock)
    with locked(tmp_path, "it"):
        assert (tmp_path / LOCK).read_text().startswith(f"process {os.getpid()}")


def test_who_renames_a_folder_leaves_the_lock_of_a_new_one_alone(tmp_path: Path) -> None:
    """A run is set aside under its lock, and another process may begin anew at once."""
    run = tmp_path / "run"
    run.mkdir()
    with ExitStack() as other:
        with locked(run, "the run that was"):
            run.rename(tmp_path / "aside")
            run.mkdir()
            other.enter_context(locked(run, "the new run"))
        assert (run / LOCK).exists()
    assert not (run / LOCK).exists()


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK])
def test_a_file_system_without_locks_is_named_and_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def flock(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    lines: list[str] = []
    with locked(tmp_path, "the run x", lines.append):
        pass
    assert len(lines) == 1
    assert lines[0].startswith("the run x: its file system has no locks")


def test_a_folder_that_cannot_be_written_to_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"), locked(tmp_path / "gone", "it"):
        pass


def test_a_file_is_complete_or_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_whole(path, b"first")

    def fail() -> None:
        with whole_file(path) as temporary:
            temporary.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_bytes() == b"first"
    with whole_file(path) as temporary:
        temporary.write_bytes(b"second")
        assert path.read_bytes() == b"first"
    assert path.read_bytes() == b"second"
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]


def test_lines_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"steps": 1}\n[]\n{"st\xff\n{"steps": 2}\n{"steps": 3')
    assert read_lines(path) == [{"steps": 1}, {"steps": 2}]


def test_two_that_write_the_same_file_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    with whole_file(path) as slow:
        slow.write_bytes(b"slow")
        with whole_file(path) as quick:
            quick.write_bytes(b"quick")
        assert path.read_bytes() == b"quick"
    assert path.read_bytes() == b"slow"
    assert list(tmp_path.iterdir()) == [path]


def test_an_unwritable_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as error:
        write_whole(tmp_path / "report.html", b"x")
    assert error.value.filename == str(tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_refused_before_the_work_that_fills_the_file(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError), whole_file(tmp_path):
        raise AssertionError


def test_what_was_written_before_a_run_began_is_deleted_but_no_checkpoint(tmp_path: Path) -> None:
    """On Ray the first processes may write while the last ones cannot be made."""
    for name, files in {
        "empty": (),
        "unbegun": ("metrics.jsonl", "tensorboard/events"),
        "begun": ("metrics.jsonl", "config.json"),
        "learned": ("metrics.jsonl", "checkpoints/00000001.json"),  # somebody deleted config.json
        "shared": ("metrics.jsonl", "notes.txt", "data/mine"),  # somebody put files there meanwhile
    }.items():
        folder = tmp_path / name
        folder.mkdir()
        with suppress(ZeroDivisionError), held(folder, resume=False, log=print):
            for file in files:
                (folder / file).parent.mkdir(exist_ok=True)
                (folder / file).touch()
            raise ZeroDivisionError
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {
        *("begun/metrics.jsonl", "begun/config.json"),
        *("learned/metrics.jsonl", "learned/checkpoints/00000001.json"),
        *("shared/notes.txt", "shared/data/mine"),
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["begun", "learned", "shared"]


@pytest.mark.slow
def test_what_is_written_late_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a process that still writes while the folder of a failed start is cleaned."""
    folder, late = tmp_path / "run", ["tensorboard/late", "tensorboard/later"]
    folder.mkdir()
    remove = shutil.rmtree

    def written_meanwhile(path: Path) -> None:
        remove(path)
        if late:
            path.mkdir()
            (folder / late.pop(0)).touch()
            raise OSError(errno.ENOTEMPTY, "Directory not empty", str(path))

    monkeypatch.setattr("colobus.runs.folder.shutil.rmtree", written_meanwhile)
    with suppress(ZeroDivisionError), held(folder, resume=False, log=print):
        (folder / "tensorboard").mkdir()
        raise ZeroDivisionError
    assert (late, folder.exists()) == ([], False)


@pytest.mark.slow
def test_a_resume_removes_what_killed_processes_have_left(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(catch(3000), run)
    checkpoints, videos = run / "checkpoints", run / "videos"
    videos.mkdir()
    strays = [checkpoints / ".00000009.json.tmp", run / ".config.json.tmp", videos / ".5.mp4.tmp"]
    for stray in strays:
        stray.write_bytes(b"half")
    for stray in strays[1:]:
        os.utime(stray, (time.time() - 3600,) * 2)
    os.utime(strays[0], (time.time() + 3600,) * 2)  # the clock was set back
    films = [videos / ".6.mp4.tmp", run / ".film.mp4.tmp"]
    for film in films:
        film.write_bytes(b"somebody films, or the command before does")
    (checkpoints / "00009999.safetensors").write_bytes(b"killed before its JSON was there")
    (checkpoints / "00009998.json").write_text("{}")
    train(catch(6000), run, resume=True)
    assert not any(stray.exists() for stray in strays)
    assert all(film.exists() for film in films)
    assert "00009999" not in {path.stem for path in checkpoints.iterdir()}
    assert {path.suffix for path in checkpoints.iterdir()} == {".safetensors", ".json"}


def test_a_suite_is_not_begun_twice_and_leaves_the_others_run_alone(tmp_path: Path) -> None:
    out = tmp_path / "suite"
    words = ["suite", "catch", "--preset", "catch", "--protocol", "training", "--episodes", "2"]
    words += ["--steps", "3000", "--out", str(out)]
    young = out / "runs" / "catch-1"  # of the other suite; no checkpoint in its first minute
    young.mkdir(parents=True)
    with locked(out, "it"):
        code, _, err = colobus(*words)
        assert code == 2
        assert f"the suite {out} is in use by process {os.getpid()} on" in err
    with locked(young, "it"):  # somebody resumes that run by itself
        experiment = suite_of(parse(Flags, "suite", words[1:])).experiment("catch", 1)
        write_config(young, Config("catch", experiment, 3, {"precision": "float32"}))
        code, _, err = colobus(*words)
        assert code == 2
        assert "the run " in err
        assert (young / "config.json").exists()


@pytest.mark.parametrize("there", [False, True])
def test_a_full_disk_offers_a_checkpoint_only_if_there_is_one(there: bool, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    if there:
        (tmp_path / "checkpoints" / "00000001.json").touch()
    said = str(cannot_write(tmp_path, OSError(errno.ENOSPC, "No space left on device")))
    assert ("checkpoint is kept" in said, "--resume " in said) == (there, there)
    assert ("begin it anew with --resume-or-start --out" in said) != there
