"""The page that trains without a launcher still trains."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "examples" / "one_page.py"


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


def said(*words: str) -> tuple[int, str, str]:
    """Return exit code, stdout and stderr of the page with these words."""
    command = [sys.executable, str(PAGE), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def test_help_says_what_the_page_does() -> None:
    code, out, err = said("--help")
    assert (code, err) == (0, "")
    assert out.startswith("One page that trains an agent with Gelada's parts")
    assert "GAME" in out


def test_an_unknown_game_is_one_line() -> None:
    for word in ("pongg", "CartPole-v1", "--steps"):
        code, out, err = said(word)
        assert (code, out) == (2, "")
        assert err.startswith("one_page.py: error: ")
        assert word in err
        assert err.count("\n") == 1
