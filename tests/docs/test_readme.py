"""The Python of README.md runs as it stands there."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from colobus.envs.api import GameSettings
from helpers.launching import python
from helpers.players import write_run

ROOT = Path(__file__).resolve().parents[2]


def scripts(page: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "pong-1").mkdir(parents=True)
    write_run(tmp_path / "runs" / "pong-1", GameSettings(game="pong"))
    blocks = scripts("README.md")
    assert ["make_env" in blocks[0], "make_vec" in blocks[1]] == [True, True]
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    assert re.search(r"^score -?\d+$", capsys.readouterr().out, re.MULTILINE)


def test_the_first_screen_says_what_for_whom_how_to_begin_and_what_is_missing() -> None:
    before_pictures = (ROOT / "README.md").read_text(encoding="utf-8").partition("![")[0]
    assert len(before_pictures.splitlines()) <= 25
    said = " ".join(before_pictures.split())
    for words in (
        "Colobus is a reinforcement learning library",
        "It is for people who",
        "``` make train ```",
        "It needs Python 3.11",
        "([all limits](#limits))",
    ):
        assert words in said


PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
(CHANGE,) = re.findall(r"^```diff\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.processes
def test_the_change_of_the_torso_makes_it_a_choice_that_trains(tmp_path: Path) -> None:
    source = tmp_path / "src"
    shutil.copytree(ROOT / "src" / "colobus", source / "colobus")
    for part in re.split(r"^--- a/\S+\n", CHANGE, flags=re.MULTILINE)[1:]:
        name, _, lines = part.partition("\n@@\n")
        file = tmp_path / name.removeprefix("+++ b/")
        rows = lines.splitlines()
        before = "\n".join(row[1:] for row in rows if row[0] in " -")
        after = "\n".join(row[1:] for row in rows if row[0] in " +")
        text = file.read_text(encoding="utf-8")
        assert text.count(before) == 1, name
        file.write_text(text.replace(before, after), encoding="utf-8")
    words = ["-m", "colobus.cli.main", "train", "catch", "--torso", "squares", "--steps", "3000"]
    more = ["--no-finish", "--out", "run"]
    python(*words, *more, folder=tmp_path, PYTHONPATH=str(source))
    assert (tmp_path / "run" / "checkpoints").is_dir()
