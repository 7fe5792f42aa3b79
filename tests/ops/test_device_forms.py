"""Operations that have another form on a GPU: both give the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from conftest import random_ends
from gelada.nets.observations import blank, blank_by_age
from gelada.ops import losses, returns


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


@pytest.mark.parametrize("length", [1, 2, 5, 64, 100])
def test_sums_at_once_are_those_of_the_loop(rng: np.random.Generator, length: int) -> None:
    terms = rng.normal(size=(3, length))
    factors = rng.choice([0.0, 0.5, 0.99], size=(3, length))
    want, after = np.zeros_like(terms), np.zeros(3)
    for t in reversed(range(length)):
        after = want[:, t] = terms[:, t] + factors[:, t] * after
    found = returns.backward_sums(*(torch.from_numpy(x).float() for x in (terms, factors)))
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [1, 3, 5, 20, 50])
def test_n_step_returns_at_once_are_those_of_the_loop(rng: np.random.Generator, n: int) -> None:
    terminated, truncated = map(torch.from_numpy, random_ends(rng, (6, 20)))
    rewards = torch.from_numpy(rng.normal(size=(6, 20))).float()
    values = torch.from_numpy(rng.normal(size=(6, 21))).float()
    want = returns.n_step(rewards, values, terminated, truncated, 0.97, n)
    decay = returns.discounts(terminated, 0.97)
    found = returns.n_step_at_once(rewards, values, decay, truncated, n)
    torch.testing.assert_close(found, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 1.0])
def test_the_median_in_order_is_torchs(rng: np.random.Generator, share: float) -> None:
    for count in (1, 2, 7, 64):
        values = torch.from_numpy(rng.normal(size=count)).float()
        ignored = torch.from_numpy(rng.random(count) < share)
        found = losses.median_in_order(values, ignored)
        assert torch.equal(found, losses.median_of(values, ignored))


def test_frames_of_the_game_before_are_blanked_alike(rng: np.random.Generator) -> None:
    ages = torch.from_numpy(rng.integers(0, 6, 50))
    stacks = torch.from_numpy(rng.normal(size=(50, 4, 2, 3)))
    black = torch.full((2, 3), -7.0, dtype=stacks.dtype)
    want, found = blank(stacks.clone(), ages, black), blank_by_age(stacks.clone(), ages, black)
    assert torch.equal(found, want)
    assert not torch.equal(found, stacks)
