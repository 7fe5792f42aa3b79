"""A run whose folder is deleted while it goes on, and a run whose end cannot be saved, say so."""

from __future__ import annotations

import shutil
from pathlib import Path

from gelada.cli.train import how_to_resume
from launching import CATCH, complete, finish, start, wait_until


def test_a_run_whose_folder_was_deleted_ends_with_5_and_leaves_nothing(tmp_path: Path) -> None:
    run = tmp_path / "run"
    often = ("--checkpoint-seconds", 0.2, "--disk-patience", 0.5)
    process = start(*CATCH, "--out", run, "--minutes", 5, *often)
    wait_until(lambda: bool(complete(run)), process)
    while run.exists():  # the run may be writing into it
        shutil.rmtree(run, ignore_errors=True)
    code, out, err = finish(process)
    assert code == 5
    assert err.startswith(f"gelada: cannot write to {run}: No such file or directory; ")
    assert err.count("\n") == 1
    assert "all saved" not in out
    assert not run.exists()


def test_what_was_not_saved_is_not_called_saved(tmp_path: Path) -> None:
    nothing = how_to_resume(tmp_path, 700, "Ctrl-C")
    assert nothing.endswith("before anything was learned: there is nothing to go on with")
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "00000001.safetensors").touch()
    assert "at 700 steps, all saved; go on with: " in how_to_resume(tmp_path, 700, "Ctrl-C")
    lost = how_to_resume(tmp_path, 700, "Ctrl-C", saved=False)
    assert "at 700 steps, what was learned after that could not be saved; go on with: " in lost
    assert "all saved" not in lost
