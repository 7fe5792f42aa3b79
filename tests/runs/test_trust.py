"""Functions by their names: a stranger's code is not run unasked, and that of one's own is."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import colobus
from colobus.core import trust
from colobus.core.errors import ColobusError
from colobus.core.functions import Untrusted, find_function, is_function, name_of
from colobus.runs.config import read_config
from helpers.launching import colobus as command

CODE = """
from pathlib import Path
Path("ran").touch()
def make(**settings):
    return 3
"""


@pytest.fixture
def place(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a working folder with a module; what this process imports and trusts is forgotten."""
    monkeypatch.setenv("XDG_STATE_HOME", str(here / "state"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(trust, "_TRUSTED", set())
    monkeypatch.setattr(trust, "EVERYTHING", [])
    (here / "beside.py").write_text(CODE)
    (here / "package" / "inner").mkdir(parents=True)
    for folder in ("package", "package/inner"):
        (here / folder / "__init__.py").write_text(CODE)
    yield here
    for name in list(sys.modules):
        if name.partition(".")[0] in ("beside", "package", "helper", "stranger"):
            del sys.modules[name]


def folder_of(place: Path, **settings: Any) -> Path:
    folder = place / "theirs"
    folder.mkdir()
    config = {"format": 2, "name": "x", "actions": 3, "about": {}, **settings}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


COMMANDS = [
    "eval RUN",
    "eval RUN/checkpoints/00000001.safetensors",
    "record RUN",
    "record RUN --milestones",
    "play RUN",
    "export RUN --onnx",
    "export RUN --hub out",
    "starts RUN --out starts.npz",
    "show RUN",
    "train --resume RUN --steps 9",
]


@pytest.mark.parametrize("words", COMMANDS)
def test_no_command_runs_code_of_a_stranger(place: Path, words: str) -> None:
    folder = folder_of(place, games={"game": "beside:make"})
    (folder / "checkpoints").mkdir()
    for name in ("00000001.safetensors", "00000001.json"):
        (folder / "checkpoints" / name).touch()
    code, _, said = command(*words.replace("RUN", str(folder)).split())
    assert code == 2
    assert f"names the code 'beside:make' of {place / 'beside.py'}" in said
    assert "--trust" in said
    assert not (place / "ran").exists()


NAMED = {
    "an environment": {"games": {"game": "beside:make"}},
    "one of Gymnasium": {"games": {"game": "beside:Beside-v0"}},
    "in a package": {"games": {"game": "package.inner:make"}},
    "a torso": {"network": {"own_torso": "beside:make"}},
    "heads": {"network": {"own_heads": "beside:make"}},
    "an algorithm": {"algorithm": {"name": "beside:make"}},
    "of what is installed": {"games": {"game": "torch.hub:load"}},
}


@pytest.mark.parametrize("settings", NAMED.values(), ids=NAMED)
def test_nothing_that_is_named_is_imported(place: Path, settings: dict[str, Any]) -> None:
    folder = folder_of(place, **settings)
    with pytest.raises(Untrusted, match="run it with --trust"):
        read_config(folder)
    assert not (place / "ran").exists()


def test_what_is_trusted_in_so_many_words_or_given_is_run(place: Path) -> None:
    folder = folder_of(place, games={"game": "beside:make"})
    assert command("show", folder, "--trust")[0] == 2  # what it makes is no environment
    assert (place / "ran").exists()
    (place / "ran").unlink()
    del sys.modules["beside"]
    trust.EVERYTHING.clear()
    assert command("show", folder)[0] == 2
    assert not (place / "ran").exists()
    with pytest.raises(ColobusError) as error:
        colobus.load(folder, make_env=lambda: None)  # given, so it is not looked for
    assert not isinstance(error.value, Untrusted)
    assert not (place / "ran").exists()
    with pytest.raises(ColobusError):
        colobus.load(folder, trust=True)
    assert (place / "ran").exists()


def test_own_modules_are_remembered_by_place(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trust.remember_modules(["beside:make", "package.inner:make", "__main__:made", "json:x", "a:b"])
    monkeypatch.setattr(trust, "_TRUSTED", set())  # another process
    for name in ("beside:make", "beside:Other-v0", "package.inner:make", "package:other"):
        trust.check_trusted([name])
    assert not (place / "ran").exists()
    trust.remember_modules(["beside:make"])
    lines = (place / "state" / "colobus" / "trusted").read_text().splitlines()
    assert lines == [str(place / "beside.py"), str(place / "package" / "__init__.py")]
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "beside.py").write_text(CODE)
    monkeypatch.chdir(elsewhere)
    with pytest.raises(Untrusted, match="elsewhere"):
        trust.check_trusted(["beside:make"])


def test_trust_without_a_home_is_for_now(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "state").write_text("no folder")
    trust.remember_modules(["beside:make"])
    trust.check_trusted(["beside:make"])
    monkeypatch.setattr(trust, "_TRUSTED", set())
    with pytest.raises(Untrusted):
        trust.check_trusted(["beside:make"])


def test_names_of_gymnasium_may_be_of_what_is_installed() -> None:
    trust.check_trusted(["minigrid:MiniGrid-Empty-5x5-v0", "CartPole-v1", "no_such:Game-v0"])


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
    for name in ("test_functions:made.<locals>.make#7", "__main__:made_elsewhere"):
        assert is_function(name)
        with pytest.raises(ColobusError, match="unknown here; give the function itself"):
            find_function(name)


@pytest.mark.parametrize("name", [".x:make", "no.such:make", "json.tool:main", "this:s"])
def test_what_is_no_module_of_the_user_is_one_line(name: str) -> None:
    with pytest.raises(ColobusError) as error:
        find_function(name)
    assert str(error.value).startswith(repr(name))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("inside", [(), ("stranger",), ("stranger", "deep")])
def test_code_in_the_folder_of_an_agent_is_not_run(place: Path, inside: tuple[str, ...]) -> None:
    folder = place.joinpath(*inside)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "helper.py").write_text(CODE)
    name = ".".join([*inside, "helper:make"])
    assert find_function(name)() == 3  # in a folder of the user
    (place / "ran").unlink()
    for module in [*sys.modules]:
        if module.partition(".")[0] in ("stranger", "helper"):
            del sys.modules[module]
    place.joinpath(*inside[:1], "config.json").write_text(json.dumps({"actions": 6}))
    with pytest.raises(ColobusError, match="code from there is not run; if you trust it, move it"):
        find_function(name)
    assert not (place / "ran").exists()


def test_a_tag_names_no_code(place: Path) -> None:
    run = colobus.train(
        "catch", place / "run", steps=500, tags="beside:make", tensorboard=False, progress=False
    )
    assert not (place / "state" / "colobus" / "trusted").exists()
    assert read_config(run.folder).experiment.tracker.tags == "beside:make"
