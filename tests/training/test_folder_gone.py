"""A run whose folder is deleted while it goes on, and a run whose end cannot be saved, say so."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gelada.cli.first_and_last import how_it_stopped
from helpers.launching import CATCH, complete, finish, start, wait_until


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
    assert err.startswith(f"gelada: cannot write to {run}: No such file or directory; ")
    assert err.count("\n") == 1
    assert "all saved" not in out
    assert not run.exists()


def test_what_was_not_saved_is_not_called_saved(tmp_path: Path) -> None:
    again = "gelada train --resume there"
    nothing = how_it_stopped(tmp_path, again, 700, "Ctrl-C")
    assert nothing.endswith("before anything was learned: there is nothing to go on with")
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "00000001.safetensors").touch()
    kept = how_it_stopped(tmp_path, again, 700, "Ctrl-C")
    assert kept.endswith(f"at 700 steps, all saved; go on with: {again}")
    lost = how_it_stopped(tmp_path, again, 700, "Ctrl-C", saved=False)
    assert f"learned after that could not be saved; go on with: {again}" in lost
    assert "all saved" not in lost
