"""Observations of a batch against the slow and plain stack."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import make_net, random_trajectory
from gelada.envs.stacking import stack_at
from gelada.nets.network import Network, NetworkSettings
from gelada.nets.windows import Windows
from gelada.roles.replay import as_batch
from gelada.types import Batch


def windows_of(net: Network, batch: Batch) -> Windows:
    return Windows(net, batch.frames, batch.ages)


@given(
    seed=st.integers(0, 2**32 - 1),
    depth=st.integers(1, 5),
    length=st.integers(1, 7),
    trajectories=st.integers(1, 3),
)
def test_every_observation_is_the_plain_stack_once_seen(
    seed: int, depth: int, length: int, trajectories: int
) -> None:
    rng = np.random.default_rng(seed)
    net = make_net(NetworkSettings(torso="tiny", width=4, stack=depth), (3, 4))
    sent = [
        random_trajectory(rng, i, games=2, length=length, stack=depth, frame_shape=(3, 4))
        for i in range(trajectories)
    ]
    batch = as_batch(sent)
    windows = Windows(net, batch.frames, batch.ages)
    assert windows.shape == (2 * trajectories, length + 1)
    frames = np.concatenate([t.frames for t in sent])
    ages = np.concatenate([t.ages for t in sent])
    plain = np.stack([stack_at(frames, ages, t, depth) for t in range(length + 1)], axis=1)
    want = net.see(torch.from_numpy(plain)).flatten(0, 1)
    index = torch.from_numpy(rng.permutation(len(want)))
    assert torch.equal(windows.stacks(index), want[index])
    assert torch.equal(windows.stacks(index), want[index])  # asking changes nothing


def test_chunks_are_all_observations_in_order() -> None:
    rng = np.random.default_rng(1)
    windows = windows_of(make_net(), as_batch([random_trajectory(rng, games=3, length=6)]))
    chunks = windows.chunks(4)
    assert [len(c) for c in chunks] == [4, 4, 4, 4, 4, 1]
    assert torch.equal(torch.cat(chunks), windows.stacks(torch.arange(21)))


def test_a_bfloat16_network_gets_the_same_observations_rounded() -> None:
    rng = np.random.default_rng(2)
    batch = as_batch([random_trajectory(rng, games=3, length=6)])
    exact, rounded = make_net(), make_net(precision="bfloat16")
    index = torch.arange(21)
    found = windows_of(rounded, batch).stacks(index)
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, windows_of(exact, batch).stacks(index).to(torch.bfloat16))
