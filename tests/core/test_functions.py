"""Functions by name: each has one of its own, and none is taken from the folder of an agent."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from gelada.core.errors import GeladaError
from gelada.core.functions import find_function, is_function, name_of


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
    with pytest.raises(GeladaError, match="unknown here; give the function itself"):
        find_function(name)


@pytest.mark.parametrize("name", [".x:make", "no.such:make", "json.tool:main", "this:s"])
def test_what_is_no_module_of_the_user_is_one_line(name: str) -> None:
    with pytest.raises(GeladaError) as error:
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
    with pytest.raises(GeladaError, match=r"helper\.py lies in|lies in the folder of a run or"):
        find_function(name)
    assert not (path / "ran").exists()


def test_in_the_folder_of_an_agent_its_code_is_not_run_either(path: Path) -> None:
    (path / "helper.py").write_text(CODE)
    (path / "config.json").write_text(json.dumps({"actions": 6}))
    with pytest.raises(GeladaError, match="code from there is not run; if you trust it, move it"):
        find_function("helper:make")
    assert not (path / "ran").exists()
