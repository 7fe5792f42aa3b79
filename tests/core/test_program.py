"""Commands in messages begin with what starts this program where the reader is."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from colobus.core.errors import program


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    script = "from colobus.core.errors import program\nprint(program())\n"
    path.write_text(f"#!{sys.executable}\n{script}")
    path.chmod(0o755)
    return path


def test_what_the_shell_finds_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = executable(tmp_path / "bin" / "colobus")
    monkeypatch.setenv("PATH", str(own.parent))
    monkeypatch.setattr(sys, "argv", [str(own), "train", "pong"])
    assert program() == "colobus"


@pytest.mark.processes
@pytest.mark.parametrize("where", [".venv/bin", ".", "with spaces"])
def test_another_is_called_by_its_path(where: str, tmp_path: Path) -> None:
    """The program is started as a person would, and then as it says."""
    executable(tmp_path / where / "colobus")
    elsewhere = executable(tmp_path / "other" / "colobus")  # of another installation
    source = str(Path(__file__).resolve().parents[2] / "src")
    for path in ("/usr/bin:/bin", f"{elsewhere.parent}:/usr/bin:/bin"):
        env = {**os.environ, "PATH": path, "PYTHONPATH": source}
        run = partial(subprocess.run, shell=True, cwd=tmp_path, env=env, text=True, check=True)
        command = f"'./{where}/colobus'"
        for _ in range(2):  # what it says starts it, too
            command = run(command, capture_output=True).stdout.strip()
        assert "colobus" in command
        assert command != "colobus"
        assert not command.strip("'").startswith("/")


@pytest.mark.processes
def test_as_a_module_it_is_called_like_that() -> None:
    words = [sys.executable, "-m", "colobus", "games", "pang", "--oops"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    again = done.stderr.partition("; see ")[2].split()
    assert again == [Path(sys.executable).name, "-m", "colobus", "games", "--help"]


def test_in_python_it_is_the_one_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = executable(tmp_path / "venv" / "bin" / "colobus")
    monkeypatch.setattr(sys, "argv", ["my_script.py"])
    monkeypatch.setattr(sys, "executable", str(own.with_name("python")))
    monkeypatch.setenv("PATH", "/nowhere")
    assert program() == str(own)
    monkeypatch.chdir(tmp_path)
    assert program() == "venv/bin/colobus"
    own.unlink()
    assert program() == "colobus"
