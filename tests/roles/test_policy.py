"""The policy of an actor: both forms of its stacks show the network the same, step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from conftest import make_net
from gelada.algorithms.appo import APPO
from gelada.core.types import Frames
from gelada.nets.config import NetworkSettings
from gelada.roles.policy import MovingPolicy, Policy, SlicedPolicy
from gelada.runtime.devices import CPU

B, T = 5, 6


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_moving_stacks_show_what_slices_show(depth: int) -> None:
    net = make_net(NetworkSettings(torso="tiny", width=8, stack=depth))
    numbers = np.random.default_rng(3)
    height, width = net.mean.shape
    shown: list[torch.Tensor] = []

    class Mean(APPO):
        def act(self, net: Any, observations: torch.Tensor, state: Any) -> Any:
            shown.append(observations.clone())
            return observations.flatten(1).float().mean(dim=1, keepdim=True), state

    def drawn(*shape: int) -> Frames:
        return numbers.integers(0, 255, (B, *shape, height, width), dtype=np.uint8)

    first, ages = drawn(depth), np.array([0, 1, 2, 3, 40])
    forms: list[Policy] = [
        SlicedPolicy(net, Mean()),
        MovingPolicy(net, Mean(), CPU, cuda_graphs=False),
    ]
    for form in forms:
        form.begin(first, ages, T)
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
