"""PQN: its loss against a slow transcription of the paper, and Catch.

Its targets are those of `test_value_distributions` and `test_cut_off_games`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from colobus.algorithms.batches import Minibatch
from colobus.algorithms.pqn import PQN, Steps
from colobus.experiment.presets import PRESETS
from helpers.gradients import as_float32
from helpers.outcomes import learn, learn_in_turns
from helpers.outputs import loss_of

ALGORITHM = PQN(gamma=0.9, lam=0.7, reward_clip="none", minibatch=4)


def test_the_loss_is_half_the_mean_squared_error_of_steps_that_count() -> None:
    rng = np.random.default_rng(1)
    values, targets = rng.normal(size=(7, 3)), rng.normal(size=7)
    actions, weights = rng.integers(3, size=7), np.array([1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0])
    spoilt = np.where(weights == 0.0, np.inf, targets)
    q = as_float32(values).requires_grad_(True)
    steps = Steps(torch.from_numpy(actions), as_float32(spoilt), as_float32(weights))
    net, minibatch = (lambda _seen: {"q": q}), Minibatch(torch.zeros(7), steps)
    total, terms, _ = loss_of(ALGORITHM, net, minibatch, ALGORITHM.start())
    chosen = values[np.arange(7), actions]
    errors = (chosen - targets) * weights
    assert total.item() == pytest.approx(0.5 * (errors**2).sum() / weights.sum(), rel=1e-5)
    want = np.zeros((7, 3))
    want[np.arange(7), actions] = errors / weights.sum()
    np.testing.assert_allclose(np.asarray(q.grad), want, rtol=1e-4, atol=1e-6)
    assert all(term.isfinite() for term in terms.values())


@pytest.mark.slow
def test_catch_is_learned(tmp_path: Path) -> None:
    """In a deterministic run, and in one whose actors take the newest version."""
    experiment = PRESETS["pqn-catch"]
    learn(replace(experiment, deterministic=True), tmp_path / "run", log=pytest.fail)
    learn_in_turns(experiment)
