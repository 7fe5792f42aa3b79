"""The page that trains without a launcher still trains."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "examples" / "one_page.py"


@pytest.mark.slow
@pytest.mark.processes
def test_the_page_learns_catch_and_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(PAGE)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *progress, last = done.stdout.splitlines()
    found = re.fullmatch(r"mean of the last 50 games: (-?\d\.\d\d)", last)
    assert found is not None, last
    assert float(found[1]) >= 0.9
    steps = [int(line.split()[0].replace(",", "")) for line in progress]
    assert steps == [5120 * i for i in range(1, 10)]
    assert float(progress[0].split()[-1]) < 0.3  # it was not so at the start
    assert list(tmp_path.iterdir()) == []


def test_the_page_is_a_page() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 119
    assert max(map(len, lines)) <= 100


def asked(patch: pytest.MonkeyPatch, *words: str) -> object:
    """Run the page in this process with words that end it at once; return its exit code."""
    patch.setattr(sys, "argv", [str(PAGE), *words])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(PAGE), run_name="__main__")
    return end.value.code


def test_help_says_what_the_page_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked(monkeypatch, "--help") == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert said.out.startswith("One page that trains an agent with Colobus's parts")
    assert "GAME" in said.out


@pytest.mark.parametrize("word", ["pongg", "CartPole-v1", "--steps"])
def test_an_unknown_game_is_one_line(
    word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked(monkeypatch, word) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("one_page.py: error: ")
    assert word in said.err
    assert said.err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.processes
def test_no_score_is_printed_before_a_game_is_over(tmp_path: Path) -> None:
    """A line each round of 4 steps; a game of Catch has 9."""
    text = PAGE.read_text(encoding="utf-8")
    for old, new in {
        "B, T, K = 16, 32,": "B, T, K = 16, 4,",
        "STEPS = 50_000": "STEPS = 320",
        "round_ % 10 == 9": "True",
    }.items():
        assert old in text
        text = text.replace(old, new)
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    steps = [line.split()[0] for line in done.stdout.splitlines()[:-1]]
    assert steps == ["192", "256", "320"]
