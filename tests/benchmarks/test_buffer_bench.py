"""The comparison of stores: who fails is named and gets no figure; medians of all rounds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import stores

BENCHMARKS = Path(stores.__file__).parent


def line(store: str, rate: float, mode: str = "uniform") -> dict[str, Any]:
    return {"what": "speed", "store": store, "mode": mode, "batches_per_s": rate}


def test_the_table_has_medians_and_the_share_of_the_fastest_peer() -> None:
    lines = [line("gelada", r) for r in (10.0, 400.0, 300.0)]
    lines += [line("sb3", r) for r in (100.0, 150.0, 1.0)]
    lines += [
        line("cpprb", 50.0),
        {**line("torchrl", 0.0), "failed": "torchrl: run: out of memory"},
    ]
    del lines[-1]["batches_per_s"]
    rows = [row.split() for row in stores.summary(lines).splitlines()]
    assert rows == [
        ["uniform", "batches_per_s", "gelada", "300", "3.00"],
        ["uniform", "batches_per_s", "sb3", "100", "1.00"],
        ["uniform", "batches_per_s", "cpprb", "50", "0.50"],
        ["uniform", "batches_per_s", "failed:", "torchrl:", "run:", "out", "of", "memory"],
    ]


def peer(tmp_path: Path, script: str) -> str:
    """Return an interpreter that runs a script whatever it is asked for."""
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo fine; echo 'no module named x' >&2; exit 3", "run: exit code 3: no module named x"),
        ("exit 1", "run: exit code 1: no output"),
        ("echo garbage", "run: Expecting value"),
        ("true", "run: list index out of range"),
    ],
)
def test_a_peer_that_fails_is_named_and_gets_no_figure(
    tmp_path: Path, script: str, said: str
) -> None:
    found = stores.measure("sb3", "uniform", 1000, 1.0, lambda _: peer(tmp_path, script))
    assert list(found) == ["failed"]
    assert found["failed"].startswith(f"sb3: {said}")


def test_a_peer_that_cannot_be_installed_is_named() -> None:
    def install(name: str) -> str:
        raise stores.PeerFailed("exit code 1: no such version")

    found = stores.measure("cpprb", "uniform", 1000, 1.0, install)
    assert found == {"failed": "cpprb: install: exit code 1: no such version"}


def test_a_peer_that_hangs_is_named(tmp_path: Path) -> None:
    with pytest.raises(stores.PeerFailed, match=r"no answer within 0\.2 s"):
        stores.run([peer(tmp_path, "exec sleep 60")], timeout=0.2)


@pytest.mark.parametrize("mode", ["uniform", "prioritized"])
def test_gelada_is_measured_by_the_same_script(mode: str) -> None:
    script = str(BENCHMARKS / "store_contestants.py")
    done = subprocess.run(
        [sys.executable, script, "gelada", mode, "8000", "0.05"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    figures = json.loads(done.stdout)
    assert figures["transitions"] == 8000
    assert 7000 < figures["resident_per_transition"] < 12_000  # with libraries' own first pages
    assert figures["batches_per_s"] > 0
    assert ("with_update_per_s" in figures) == (mode == "prioritized")
