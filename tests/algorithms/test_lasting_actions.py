"""Random actions that last several steps: the share of such steps, and how long each lasts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gelada.algorithms.action_values import (
    EpsilonGreedy,
    LastingEpsilonGreedy,
    epsilon_greedy,
    falling,
)
from gelada.algorithms.exploration import Lasting, Player

GAMES, LENGTH, ACTIONS = 400, 500, 4
NET: Any = None  # exploration leaves the network alone
Array = np.ndarray[Any, Any]


def made(epsilon: float, longest: int) -> LastingEpsilonGreedy:
    player = Player(0, 1, GAMES, ACTIONS)
    return LastingEpsilonGreedy(player, falling(epsilon, epsilon, 1, GAMES), longest)


def rollout(exploration: LastingEpsilonGreedy, seed: int) -> Array:
    """Play a rollout; return the random actions int[T, B], -1 where an action is not random."""
    exploration.begin(NET, LENGTH, 0, torch.Generator().manual_seed(seed))
    values = torch.randn(GAMES, ACTIONS, generator=torch.Generator().manual_seed(seed))
    found = []
    for t in range(LENGTH):  # what is taken with these values and with opposite ones is random
        one, other = exploration.choose(t, values), exploration.choose(t, -values)
        greedy = (one == values.argmax(dim=1)) & (other == values.argmin(dim=1))
        assert ((one == other) | greedy).all()
        found.append(one.masked_fill(one != other, -1))
    return torch.stack(found).numpy()


@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.3, 1.0])
@pytest.mark.parametrize("longest", [5, 50])
def test_the_share_of_random_steps_is_epsilon(epsilon: float, longest: int) -> None:
    exploration = made(epsilon, longest)
    rollout(exploration, 1)  # all games begin without an action
    actions = rollout(exploration, 2)
    assert (actions >= 0).mean() == pytest.approx(epsilon, rel=0.1)
    if epsilon:
        counts = np.bincount(actions[actions >= 0], minlength=ACTIONS)
        np.testing.assert_allclose(counts / counts.sum(), 1 / ACTIONS, atol=0.05)


def test_how_long_an_action_lasts_is_a_zeta_distribution() -> None:
    """At a small epsilon two actions seldom follow each other, so runs are their lengths."""
    exploration = made(0.02, 8)
    actions = np.concatenate([rollout(exploration, seed) for seed in range(4)])
    lengths = []
    for game in actions.T:
        length = 0
        for action in game:
            if action >= 0:
                length += 1
            elif length:
                lengths.append(length)
                length = 0
    counts = np.bincount(lengths, minlength=9)[1:9] / len(lengths)
    want = np.arange(1, 9) ** -2.0
    np.testing.assert_allclose(counts, want / want.sum(), atol=0.02)


def test_an_action_goes_on_in_the_next_rollout_of_a_restored_exploration() -> None:
    exploration = made(0.5, 50)
    first = rollout(exploration, 1)
    saved = exploration.save()
    second = rollout(exploration, 2)
    restored = made(0.5, 50)
    restored.restore(saved)
    assert np.array_equal(rollout(restored, 2), second)
    assert not np.array_equal(rollout(made(0.5, 50), 2), second)
    across = first[-1] >= 0
    assert (first[-1, across] == second[0, across]).mean() > 0.6  # by chance an eighth


@pytest.mark.parametrize(
    ("part", "spoil"),
    [
        ("left", lambda left: left - 1),
        ("left", lambda left: left + 50),
        ("left", lambda left: left.astype(np.float64)),
        ("left", lambda left: left[:1]),
        ("left", lambda left: left[None]),
        ("actions", lambda actions: actions + ACTIONS),
        ("actions", lambda actions: actions - ACTIONS),
        ("actions", lambda actions: actions[:1]),
    ],
)
def test_a_saved_state_that_cannot_be_is_refused(part: str, spoil: Callable[[Any], Any]) -> None:
    exploration = made(0.5, 50)
    rollout(exploration, 1)
    saved = exploration.save()
    made(0.5, 50).restore(saved)
    with pytest.raises(ValueError, match=f"^{part} is not a whole number below "):
        made(0.5, 50).restore(saved | {part: spoil(saved[part])})


def test_actions_of_one_step_are_plain_epsilon_greedy_and_keep_nothing() -> None:
    player = Player(0, 1, 3, 2)
    plain = epsilon_greedy(player, falling(1.0, 0.1, 10, 3), 1)
    assert type(plain) is EpsilonGreedy
    assert not isinstance(plain, Lasting)
    assert isinstance(epsilon_greedy(player, falling(1.0, 0.1, 10, 3), 2), Lasting)
