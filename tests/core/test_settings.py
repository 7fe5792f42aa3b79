"""Ranges beside the fields: every number has one, and what is read is checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest

from colobus.algorithms.api import Algorithm
from colobus.core.errors import ColobusError
from colobus.core.fields import DECAY, NUMBER, POSITIVE, Range, check, hints_of, read
from colobus.core.timing import PIECE_SECONDS, Condition, Gaps, Patience, wait_for
from colobus.envs.api import GameSettings
from colobus.experiment.settings import ALGORITHMS, Experiment, flag, groups_of


@dataclass(frozen=True)
class Some:
    share: Annotated[float, Range(0, 1)] = 0.5
    number: Annotated[int, Range(1)] = 3
    limit: Annotated[int, Range(1, 65536)] | None = None
    rate: Annotated[float, POSITIVE] = 0.1
    decay: Annotated[float, DECAY] = 0.9
    score: Annotated[float, NUMBER] | Literal["auto"] | None = None
    mode: Literal["one", "other"] = "one"
    wanted: bool = False
    where: Path | None = None


def as_flag(name: str) -> str:
    return f"--{name}"


def test_what_fits_is_read_as_it_is() -> None:
    data = {"share": 1, "number": 2, "limit": 9, "score": -2.5, "mode": "other", "wanted": True}
    want = Some(share=1.0, number=2, limit=9, score=-2.5, mode="other", wanted=True)
    assert read(Some, data, as_flag) == want
    wanted = Some(score="auto", where=Path("x/y"))
    assert read(Some, {"score": "auto", "where": "x/y"}, as_flag) == wanted
    assert read(Some, {}, as_flag) == Some()
    check(Some(where=Path("x")), as_flag)


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"share": 1.5}, "--share 1.5: must be at least 0 and at most 1"),
    ({"share": float("nan")}, "--share nan: must be a finite number at least 0 and at most 1"),
    ({"rate": float("inf")}, "--rate inf: must be a finite number above 0"),
    ({"number": "5"}, "--number 5: must be a whole number"),
    ({"number": 5.0}, "--number 5: must be a whole number"),
    ({"number": True}, "--number true: must be a whole number"),
    ({"number": 0}, "--number 0: must be at least 1"),
    ({"limit": 65537}, "--limit 65537: must be at least 1 and at most 65,536"),
    ({"rate": 0}, "--rate 0: must be above 0"),
    ({"decay": 1.0}, "--decay 1: must be at least 0 and below 1"),
    ({"share": "0.5"}, "--share 0.5: must be a number"),
    ({"score": float("inf")}, "--score inf: must be any finite number"),
    ({"score": "high"}, "--score high: must be a number or one of 'auto'"),
    ({"mode": "third"}, "--mode third: must be one of 'one', 'other'"),
    ({"wanted": 1}, "--wanted 1: must be true or false"),
    ({"numbr": 1}, "--numbr: unknown setting; nearest known: number"),
]


@pytest.mark.parametrize(("data", "line"), MISTAKES)
def test_what_does_not_fit_is_one_line(data: dict[str, Any], line: str) -> None:
    with pytest.raises(ColobusError) as raised:
        read(Some, data, as_flag)
    assert str(raised.value) == line


def test_a_value_alone_is_read_by_its_own_name() -> None:
    assert read(Annotated[int, Range(0)], 3, as_flag, "seed") == 3
    with pytest.raises(ColobusError, match=r"^--seed -1: must be at least 0$"):
        read(Annotated[int, Range(0)], -1, as_flag, "seed")


def test_a_frame_limit_is_one_that_the_emulator_can_count() -> None:
    said = r"^--max_frames 3000000000: must be at least 60 and at most 2e\+09$"
    with pytest.raises(ColobusError, match=said):
        read(GameSettings, {"max_frames": 3 * 10**9}, as_flag)


def settings_classes() -> set[Any]:
    """Return every dataclass whose fields are settings or flags."""
    from colobus.cli import bench, evaluate, follow, record, show, suite, train
    from colobus.runtime.groups import Cluster

    groups = {type(group) for group in groups_of(Experiment()).values()}
    commands = {bench.Bench, evaluate.Eval, evaluate.Starts, follow.Follow, record.Record}
    commands |= {show.Show, suite.Flags, train.Train}
    return {Experiment, Cluster, *groups, *ALGORITHMS.values(), *commands}


def bare_numbers(hint: Any) -> Iterator[Any]:
    """Yield numeric types in a type that no range stands beside."""
    if get_origin(hint) is Annotated:
        kind, *rules = get_args(hint)
        if not any(isinstance(rule, Range) for rule in rules):
            yield from bare_numbers(kind)
    elif get_origin(hint) in (Union, UnionType):
        for part in get_args(hint):
            yield from bare_numbers(part)
    elif hint in (int, float):
        yield hint


def test_no_number_is_without_a_range() -> None:
    assert list(bare_numbers(int | None)) == list(bare_numbers(Annotated[int, "none"])) == [int]
    bare = [
        f"{kind.__name__}.{name}"
        for kind in settings_classes()
        for name, hint in hints_of(kind).items()
        if list(bare_numbers(hint))
    ]
    assert bare == []


@pytest.mark.parametrize("algorithm", ALGORITHMS.values())
def test_no_two_settings_share_a_flag(algorithm: type[Algorithm]) -> None:
    groups = groups_of(Experiment(algorithm=algorithm()))
    flags = [flag(name, of) for of, group in groups.items() for name in vars(group)]
    assert len(flags) == len(set(flags))
    assert "--optimizer-epsilon" in flags
    assert "--epsilon" not in flags


class Waits(Condition):
    """A condition on which every wait ends at once, and is remembered."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[float | None] = []

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        self.waited.append(timeout)
        return predicate()


@pytest.mark.parametrize(("patience", "pieces"), [(0.0, [0]), (3.0, [3]), (12.0, [5, 5, 2])])
def test_a_patience_is_used_up_piece_by_piece(patience: float, pieces: list[float]) -> None:
    """So one pause, however long, costs at most the piece in which it came."""
    changed = Waits()
    assert not wait_for(changed, lambda: False, patience)
    assert changed.waited == pieces


def test_a_wait_ends_when_it_holds() -> None:
    changed = Waits()
    answers = [False, False, True]
    assert wait_for(changed, lambda: answers.pop(0), 1e300)
    assert changed.waited == [PIECE_SECONDS] * 3


def test_gaps_between_looks_count_from_the_moment_that_is_asked_for(now: list[float]) -> None:
    now[0] = 0.0
    gaps = Gaps()
    for passed in (1.0, 0.5, 200.0, 1.0, 30.0, 4.9):
        now[0] += passed
        gaps.look()
    assert gaps.since(0.0) == 230.0
    assert gaps.since(1.5) == 230.0
    assert gaps.since(1.6) == pytest.approx(229.9)  # a stage that began just before the pause
    assert gaps.since(201.4) == pytest.approx(30.1)  # or just after it, before the next look
    assert gaps.since(203.0) == 29.5
    assert gaps.since(233.0) == 0.0


def test_one_who_waits_in_pieces_loses_a_piece_by_a_pause(now: list[float]) -> None:
    patience = Patience(10.0)
    left = []
    for passed in (0.0, 1.0, 3600.0, 3.0, 2.0):
        now[0] += passed
        left.append(patience.left())
    assert left == [10.0, 9.0, 9.0 - PIECE_SECONDS, 1.0, 0.0]
    assert Patience(0.0).left() == 0.0
