"""Damaged and hostile files: each is refused in one line, passed over, or harmless.

`hostile` has thousands of kinds; a part of them is tried here, another one of each place, and
``make fuzz`` tries them all.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colobus.evaluation.start_states import StartStates, make_starts, write_starts
from colobus.experiment.presets import PRESETS
from helpers.hostile import (
    LEDGER,
    NEWEST,
    STARTS,
    Kind,
    all_kinds,
    make_ledger,
    make_run,
    outcome,
    paths_of,
    signed,
    with_value,
)
from helpers.launching import refused
from helpers.players import make_agent

pytestmark = pytest.mark.slow

STEP = 13 if settings().max_examples < 1000 else 1
"""Every so many of the kinds are tried. It is prime, so all values meet all files."""


@pytest.fixture(scope="module")
def starts() -> StartStates:
    return make_starts(make_agent(PRESETS["pong"].games), "runs/some", count=2)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, starts: StartStates) -> Path:
    folder = tmp_path_factory.mktemp("hostile") / "base"
    make_run(folder)
    make_ledger(folder)
    write_starts(folder / STARTS, starts)
    return folder


def test_no_kind_is_a_traceback_or_a_hang(base: Path, starts: StartStates, tmp_path: Path) -> None:
    every = all_kinds(base, starts)
    kinds = [k for k in every if not k.place] + [k for k in every if k.place][::STEP]
    wrong: list[str] = []
    for number, kind in enumerate(kinds):
        try:
            outcome(kind, base, tmp_path / str(number))
        except Exception as error:
            wrong.append(f"{kind}: {type(error).__name__}: {str(error)[:200]}")
    assert wrong == []
    assert len(kinds) > 400


def test_a_refusal_names_the_file_and_the_setting(base: Path, tmp_path: Path) -> None:
    """All that was refused or passed over in config.json and a checkpoint's JSON."""
    unnamed: list[str] = []
    for number, kind in enumerate(k for k in all_kinds(base, None)[3::31] if k.names):
        if kind.file not in ("config.json", f"{NEWEST}.json"):
            continue
        said = outcome(kind, base, tmp_path / str(number))
        field = kind.place.split(".")
        if said and not any(name in said for name in (*field, "damaged", "another run", "actions")):
            unnamed.append(f"{kind}: {said[:200]}")
        if said and Path(kind.file).stem not in said:
            unnamed.append(f"{kind}: {said[:200]}")
    assert unnamed == []


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["pong", "appo", "float32", "auto", "noop", "tiny"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(data=st.data())
def test_fuzz_values_of_json(base: Path, data: st.DataObject, tmp_path_factory: Any) -> None:
    """Any values at up to three places of a file of JSON, with a right checksum."""
    file = data.draw(st.sampled_from(["config.json", f"{NEWEST}.json", "eval/100-noop.json"]))
    values = json.loads((base / file).read_text())
    paths = list(paths_of(values))
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(paths))
        try:
            values = with_value(copy.deepcopy(values), path, data.draw(VALUES))
        except (KeyError, TypeError):  # a place that is no more
            continue
    kind = Kind(file, "", "fuzz", lambda there: (there / file).write_text(signed(values)))
    outcome(kind, base, tmp_path_factory.mktemp("fuzz") / "run")


@given(data=st.data())
def test_fuzz_bytes_of_files(base: Path, data: st.DataObject, tmp_path_factory: Any) -> None:
    """Bytes of any file are changed, cut out or put in at any place."""
    files = ["config.json", f"{NEWEST}.json", f"{NEWEST}.safetensors", "metrics.jsonl"]
    file = data.draw(st.sampled_from([*files, LEDGER, STARTS]))
    whole = (base / file).read_bytes()
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(whole)))
        cut = data.draw(st.integers(0, 12))
        whole = whole[:place] + data.draw(st.binary(max_size=12)) + whole[place + cut :]
    kind = Kind(file, "", "fuzz", lambda there: (there / file).write_bytes(whole))
    outcome(kind, base, tmp_path_factory.mktemp("fuzz") / "run")


@pytest.mark.parametrize("words", ["train --resume", "eval", "record", "follow --once"])
def test_commands_say_one_line_and_end_with_2(
    base: Path, tmp_path: Path, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("colobus.cli.follow.lower_priority", lambda by: None)  # stays with pytest
    run = Path(shutil.copytree(base, tmp_path / "a[red]\x1b[31mrun"))
    for path in (run / "checkpoints").glob("*.json"):
        path.write_text('{"format": 2, "epoch": "\x1b[2J"}')
    before = sorted(path.name for path in run.rglob("*"))
    said = refused(*words.split(), run)
    assert said.startswith("colobus: no complete checkpoint in ")
    assert "\x1b" not in said
    assert sorted(path.name for path in run.rglob("*")) == before


NUMBERS = ("1" * 400, "1e308", "inf", "-inf", "nan", "-1", "", "1e400", "0x10", "\x1b[31m")

FLAGS = ("--steps", "--minutes", "--games", "--actors", "--servers", "--width", "--lr", "--seed",
         "--checkpoint-seconds", "--disk-patience", "--deadline", "--random-steps")  # fmt: skip


@pytest.mark.parametrize("flag", FLAGS)
def test_absurd_numbers_are_one_line(flag: str, tmp_path: Path) -> None:
    for number in NUMBERS[FLAGS.index(flag) % 3 :: 3]:
        said = refused("train", "catch", "--out", tmp_path / "run", f"{flag}={number}")
        assert len(said) < 1000
        assert "\x1b" not in said
        assert not (tmp_path / "run").exists()


WORDS = {
    "train pong --actors 256 --games 4096": "this run needs about [0-9,.]+ GiB of memory, most of "
    "it for stacks, and .* are available; lower --actors, --games or --length",
    "train pong --random-steps 1000000000000": "most of it for input statistics, .*--random-steps",
    "train pong --servers 32 --width 1 --torso tiny --stack 1 --size 14": "--servers 32: the "
    "network has only [0-9,]+ parameters, enough for [0-9]+; use fewer servers",
    "suite pong --seeds 1000000000": "--seeds 1000000000: must be at least 1 and at most 1,000",
    "train dba3c-pong --on ray --silence inf": "--silence inf: must be at least 1 and at most",
    "train --resume RUN --on virtual": "--costs: no machine was measured yet",
    "train --resume RUN --out elsewhere": "--out elsewhere: has an effect only in a new run",
    "eval RUN --checkpoint OTHER/checkpoints/00000009.safetensors": "is not in RUN/checkpoints; "
    "name its own run",
}


@pytest.mark.parametrize("words", WORDS)
def test_what_cannot_be_is_said_before_anything_starts(words: str, base: Path, here: Path) -> None:
    for name in ("RUN", "OTHER"):
        shutil.copytree(base, here / name)
    before = sorted(path.name for path in here.iterdir())
    assert re.search(WORDS[words], refused(*words.split()))
    assert sorted(path.name for path in here.iterdir()) == before
