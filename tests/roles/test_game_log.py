"""The log of games stays short, and counts all games."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from colobus.core.files import BLOCK, backwards, read_lines
from colobus.roles.tracker import game_log
from colobus.roles.tracker.game_log import GameLog, stands_for, thin
from colobus.training.saving import cut_lines


def game(number: int) -> dict[str, Any]:
    return {"steps": 10 * number, "seconds": 0.5, "score": float(number), "length": 10, "actor": 0}


def play(log: GameLog, numbers: range, at_once: int) -> None:
    for number in numbers:
        log.put_game(number, game(number))
        if number % at_once == 0:
            log.write()
    log.write()
    log.close()


def size(count: int, games: int) -> int:
    """Return the bytes of some lines, which are all as long as this one."""
    return count * len(json.dumps({**game(1000), "games": games}) + "\n")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "episodes.jsonl"


@pytest.mark.parametrize("at_once", [1, 7, 5000])
def test_every_game_has_a_line_until_there_are_too_many(path: Path, at_once: int) -> None:
    play(GameLog(path, size(1000, 8)), range(1, 501), at_once)
    assert read_lines(path) == [game(number) for number in range(1, 501)]
    play(GameLog(path, size(1000, 8)), range(501, 5001), at_once)
    lines = read_lines(path)
    # 5,000 lines are too many, 2,500 and 1,250 too; 625 are not
    assert lines == [{**game(number), "games": 8} for number in range(8, 5001, 8)]
    assert sum(line["games"] for line in lines) == 5000


def test_a_log_of_an_earlier_version_is_thinned_at_once(path: Path) -> None:
    path.write_text("".join(json.dumps(game(number)) + "\n" for number in range(1, 5001)) + '{"st')
    assert stands_for(path) == 1
    assert thin(path, size(1000, 8))
    assert stands_for(path) == 8
    assert [line["steps"] for line in read_lines(path)] == [80 * i for i in range(1, 626)]
    assert not thin(path, size(1000, 8))
    assert not thin(path.with_name("no such file"))


def test_a_run_that_goes_on_before_it_was_thinned_has_the_same_lines(path: Path) -> None:
    whole = path.with_name("whole.jsonl")
    play(GameLog(whole, size(300, 4)), range(1, 1001), 50)
    play(GameLog(path, size(300, 4)), range(1, 801), 50)
    cut_lines(path.parent, 0, 10 * 501)  # back to the checkpoint after game 501
    assert [line["steps"] for line in read_lines(path)][-1] == 5000
    play(GameLog(path, size(300, 4)), range(502, 1001), 50)
    assert path.read_bytes() == whole.read_bytes()


def test_what_a_full_disk_does_not_take_is_thinned_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, most: int) -> bool:
        raise OSError(errno.ENOSPC, "No space left on device")

    log = GameLog(path, size(10, 4))
    with monkeypatch.context() as patch:
        patch.setattr(game_log, "thin", full)
        for number in range(1, 16):
            log.put_game(number, game(number))
        with pytest.raises(OSError, match="No space"):
            log.write()
    assert len(read_lines(path)) == 15
    play(log, range(16, 18), 1)
    assert [line["steps"] for line in read_lines(path)] == [20, 40, 60, 80, 100, 120, 140, 160]


def written(path: Path, *pieces: bytes) -> list[bytes]:
    path.write_bytes(b"".join(pieces))
    with path.open("rb") as file:
        found = list(backwards(file))
    ends = [end for end, _ in found]
    assert ends == [len(b"".join(pieces[: i + 1])) for i in reversed(range(len(pieces)))]
    return [line for _, line in found]


@pytest.mark.parametrize("length", [1, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK])
def test_lines_are_read_from_the_end(path: Path, length: int) -> None:
    first, second, third = b"a" * length + b"\n", b"\n", b"b" * length + b"\n"
    assert written(path, first, second, third) == [third, second, first]
    assert written(path, first, third[:-1]) == [third[:-1], first]
    assert written(path) == []


def test_a_file_above_two_gibibytes_is_cut(path: Path) -> None:
    last = b'{"steps": 10}\n{"steps": 20}\n{"steps": 30}\n{"ste'
    with path.open("wb") as file:
        file.truncate(3 << 30)  # what is before is not read
        file.seek(3 << 30)
        file.write(b"\n" + last)
    cut_lines(path.parent, 0, 20)
    assert path.stat().st_size == (3 << 30) + 1 + len(b'{"steps": 10}\n{"steps": 20}\n')
