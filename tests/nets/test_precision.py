"""Choosing a precision by measuring: what is decided, given times."""

from __future__ import annotations

import itertools
import time

import pytest
import torch

from conftest import heads_of
from gelada.nets import network as precision
from gelada.nets.network import NetworkSettings

HEADS = heads_of({"policy": 3})
SETTINGS = NetworkSettings(torso="tiny", width=8, stack=1)


@pytest.mark.parametrize(
    ("float32", "bfloat16", "want"),
    [(2.0, 1.0, "bfloat16"), (1.05, 1.0, "float32"), (1.0, 1.0, "float32"), (1.0, 9.0, "float32")],
)
def test_bfloat16_is_taken_only_if_it_is_clearly_faster(
    monkeypatch: pytest.MonkeyPatch, float32: float, bfloat16: float, want: str
) -> None:
    passes = 3  # one to build kernels and two that count
    ticks = [t for step in (float32, bfloat16) for _ in range(passes) for t in (0.0, step)]
    now = itertools.chain(itertools.accumulate(ticks), itertools.repeat(1e9))
    monkeypatch.setattr(time, "thread_time", lambda: next(now))
    found = precision.faster_precision(SETTINGS, (4, 4), HEADS, samples=2, repeats=2)
    assert found == want


def test_measuring_leaves_torchs_randomness_alone() -> None:
    before = torch.get_rng_state()
    precision.faster_precision(SETTINGS, (4, 4), HEADS, samples=2)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_planes_of_a_frame_reach_the_measured_network() -> None:
    found = precision.faster_precision(SETTINGS, (12, 4), HEADS, samples=2, planes=3)
    assert found in ("float32", "bfloat16")
    with pytest.raises(ValueError, match=r"\(10, 4\) cannot be cut into 3 planes"):
        precision.faster_precision(SETTINGS, (10, 4), HEADS, samples=2, planes=3)
