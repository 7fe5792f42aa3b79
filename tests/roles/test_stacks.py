"""Stacks of an actor: both forms show the network the same, step by step."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from conftest import make_net
from gelada.core.types import Frames
from gelada.nets.config import NetworkSettings
from gelada.roles.stacks import MovingStacks, Scores, SlicedStacks, Stacks

B, T = 5, 6


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_moving_stacks_show_what_slices_show(depth: int) -> None:
    net = make_net(NetworkSettings(torso="tiny", width=8, stack=depth))
    numbers = np.random.default_rng(3)
    height, width = net.mean.shape
    shown: list[torch.Tensor] = []

    def act(stacks: torch.Tensor, state: torch.Tensor | None) -> Scores:
        shown.append(stacks.clone())
        return stacks.flatten(1).float().mean(dim=1, keepdim=True), state

    def drawn(*shape: int) -> Frames:
        return numbers.integers(0, 255, (B, *shape, height, width), dtype=np.uint8)

    first, ages = drawn(depth), np.array([0, 1, 2, 3, 40])
    forms: list[Stacks] = [
        SlicedStacks(net, act, first, ages, T),
        MovingStacks(net, act, first, ages, graphs=False),
    ]
    for _ in range(2):
        for t in range(T):
            frames, over = drawn(), numbers.random(B) < 0.3
            scores = [form.evaluate(t, None)[0] for form in forms]
            one, other = shown[-2:]
            assert torch.equal(one, other)
            assert torch.equal(*scores)
            for form in forms:
                form.add(t, frames, over)
    assert len(shown) == 2 * 2 * T
