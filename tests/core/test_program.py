"""Commands in messages begin with what starts this program where the reader is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from colobus.core.errors import ColobusError, program
from colobus.core.functions import find_function, is_function, name_of


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"#!{sys.executable}\nfrom colobus.core.errors import program\nprint(program())\n"
    )
    path.chmod(0o755)
    return path


def test_a_program_that_the_shell_finds_is_called_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_from_python_it_is_the_one_beside_the_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = executable(tmp_path / "venv" / "bin" / "colobus")
    monkeypatch.setattr(sys, "argv", ["my_script.py"])
    monkeypatch.setattr(sys, "executable", str(own.with_name("python")))
    monkeypatch.setenv("PATH", "/nowhere")
    assert program() == str(own)
    monkeypatch.chdir(tmp_path)
    assert program() == "venv/bin/colobus"
    own.unlink()
    assert program() == "colobus"


def made(number: int) -> Callable[[], int]:
    def make() -> int:
        return number

    return make


def test_functions_of_the_same_lines_have_names_of_their_own() -> None:
    first, second = made(1), made(2)
    names = [name_of(function) for function in (first, second, partial(made, 3), partial(made, 4))]
    assert len(set(names)) == 4
    assert names[1] == f"{names[0]}#2"
    assert [name_of(first), name_of(second)] == names[:2]
    assert [find_function(name)() for name in names[:2]] == [1, 2]


def test_a_name_that_only_another_process_knows_is_told() -> None:
    name = "test_functions:made.<locals>.make#7"
    assert is_function(name)
    with pytest.raises(ColobusError, match="unknown here; give the function itself"):
        find_function(name)


@pytest.mark.parametrize("name", [".x:make", "no.such:make", "json.tool:main", "this:s"])
def test_what_is_no_module_of_the_user_is_one_line(name: str) -> None:
    with pytest.raises(ColobusError) as error:
        find_function(name)
    assert str(error.value).startswith(repr(name))
    assert "\n" not in str(error.value)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working folder; what is imported from it is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


CODE = "from pathlib import Path\nPath('ran').touch()\ndef make(): return 3\n"


@pytest.mark.parametrize("inside", ["stranger", "stranger/deep"])
def test_code_in_the_folder_of_an_agent_is_not_run(path: Path, inside: str) -> None:
    folder = path / inside
    folder.mkdir(parents=True)
    (folder / "helper.py").write_text(CODE)
    name = f"{inside.replace('/', '.')}.helper:make"
    assert find_function(name)() == 3  # in a folder of the user
    (path / "ran").unlink()
    for module in [module for module in sys.modules if module.startswith("stranger")]:
        del sys.modules[module]
    (path / "stranger" / "config.json").write_text(json.dumps({"actions": 6}))
    with pytest.raises(ColobusError, match=r"helper\.py lies in|lies in the folder of a run or"):
        find_function(name)
    assert not (path / "ran").exists()


def test_in_the_folder_of_an_agent_its_code_is_not_run_either(path: Path) -> None:
    (path / "helper.py").write_text(CODE)
    (path / "config.json").write_text(json.dumps({"actions": 6}))
    with pytest.raises(ColobusError, match="code from there is not run; if you trust it, move it"):
        find_function("helper:make")
    assert not (path / "ran").exists()
