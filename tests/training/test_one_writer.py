"""One process writes into a run's folder at a time; nothing of a failed start stays there."""

from __future__ import annotations

import errno
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

import pytest

from colobus.cli.flags import parse
from colobus.cli.suite import Flags, suite_of
from colobus.core.files import locked
from colobus.runs.config import Config, write_config
from colobus.runs.folder import cannot_write, held
from colobus.training.run import train
from conftest import catch
from helpers.launching import colobus


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
