"""DQN's loss, its gradient and its targets against the papers' sums in float64."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from colobus.algorithms.dqn import DQN, LOSSES_SEEN
from colobus.core.types import AlgorithmState, Batch, Trajectory
from colobus.nets.network import Scratch
from colobus.roles.replay.queue import as_batch
from conftest import make_net, random_trajectory
from helpers.gradients import Array, as_float32, stacks_of
from helpers.outputs import assert_same_bits, loss_of, numbers, whole

GAMES, LENGTH, K, A = 3, 12, 2, 4  # of the streams that windows are cut from
N, T = 9, 5  # windows, and their steps for Q(lambda)
FIELDS = ("actions", "rewards", "terminated", "truncated", "mask", "log_probs")
ONE = DQN(gamma=0.9, reward_clip="none")
LAMBDA = replace(ONE, returns="q_lambda", lam=0.9)
WAYS = {
    "one step": ONE,
    "three steps": replace(ONE, n=3),
    "double": replace(ONE, double=True),
    "three steps, double": replace(ONE, n=3, double=True),
    "squared": replace(ONE, n=3, error="squared"),
    "signs of rewards": replace(ONE, n=3, reward_clip="sign"),
    "lambda 0": replace(LAMBDA, lam=0.0),
    "lambda 0.9": LAMBDA,
    "lambda 1": replace(LAMBDA, lam=1.0),
    "lambda, double": replace(LAMBDA, double=True),
    "lambda, squared": replace(LAMBDA, error="squared"),
    "munchausen": replace(LAMBDA, munchausen=0.9, temperature=0.3),
    "munchausen 0 to 1": replace(LAMBDA, munchausen=0.0, munchausen_end=1.0, temperature=0.3),
}


class Table(nn.Module):
    """A network whose values for observation i are row i of its parameters.

    The newest frame of an observation is filled with its number.
    """

    stack = K
    block, masks, scratch = 1, 0, Scratch()

    def __init__(self, table: Array) -> None:
        super().__init__()
        self.q = nn.Parameter(as_float32(table))

    def preprocess(self, frames: torch.Tensor) -> torch.Tensor:
        return frames.float()

    def black(self) -> torch.Tensor:
        return torch.zeros(2, 3)

    def forward(self, stacks: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"q": self.q[stacks[:, -1, 0, 0].long()]}

    def gradients(self) -> list[Any]:
        return [self.q.grad]


def cut(stream: Trajectory, b: int, start: int, steps: int) -> Trajectory:
    """Return ``steps`` steps of game ``b``, from any step on."""
    row, window = slice(b, b + 1), slice(start, start + steps)
    return stream._replace(
        frames=stream.frames[row, start : start + steps + K],
        ages=stream.ages[row, start : start + steps + 1],
        state=stream.state[row],
        **{name: getattr(stream, name)[row, window] for name in FIELDS},
    )


def numbered(stream: Trajectory) -> Trajectory:
    numbers = np.arange(GAMES * (LENGTH + 1), dtype=np.uint8).reshape(GAMES, LENGTH + 1)
    frames = np.full((GAMES, LENGTH + K, 2, 3), 250, dtype=np.uint8)
    frames[:, K - 1 :] = numbers[:, :, None, None]
    return stream._replace(frames=frames)


class Case:
    """Windows cut anywhere from streams, and two networks' values of all observations."""

    def __init__(self, seed: int, algorithm: DQN) -> None:
        rng = np.random.default_rng(seed)
        self.stream = numbered(random_trajectory(rng, games=GAMES, length=LENGTH, actions=A))
        self.steps = algorithm.window(T)
        starts = LENGTH - self.steps + 1
        self.places = [(int(rng.integers(GAMES)), int(rng.integers(starts))) for _ in range(N)]
        self.weights = rng.uniform(0.3, 1.0, N)
        self.algorithm = algorithm
        self.current, self.frozen = rng.normal(scale=2.0, size=(2, GAMES * (LENGTH + 1), A))

    def batch(self) -> Batch:
        windows = as_batch([cut(self.stream, b, s, self.steps) for b, s in self.places])
        return windows._replace(weights=torch.from_numpy(self.weights).float())

    def algorithm_state(self, target: bool) -> AlgorithmState:
        frozen = {"target/q": as_float32(self.frozen)} if target else {}
        own = self.algorithm.start()
        self.algorithm.after(own, {}, self.algorithm.anneal_steps // 2)
        return own | frozen

    def run(self, target: bool = True) -> Any:
        """Return the loss, its terms, the network with gradients and the batch after the loss."""
        net, state = Table(self.current), self.algorithm_state(target)
        minibatch = whole(self.algorithm, net, self.batch(), state)
        return *loss_of(self.algorithm, net, minibatch, state), minibatch


class Slow:
    """The same step by step in float64, with gradients by hand."""

    def __init__(self, case: Case, target: bool) -> None:
        self.case, self.algorithm, self.stream = case, case.algorithm, case.stream
        start, end = self.algorithm.munchausen, self.algorithm.munchausen_end
        self.alpha = start if end is None else (start + end) / 2  # see `Case.algorithm_state`
        self.current = case.current
        self.frozen = case.frozen if target else case.current
        self.gradient = np.zeros_like(case.current)
        self.loss = 0.0
        self.rows: list[tuple[float, float]] = []  # absolute error and value of each step
        self.priorities = np.zeros(N)
        learned = 1 if self.algorithm.returns == "n_step" else T
        steps = [(w, b, s + i) for w, (b, s) in enumerate(case.places) for i in range(learned)]
        mask = [step for step in steps if self.stream.mask[step[1], step[2]]]
        errors: list[list[float]] = [[] for _ in range(N)]
        for w, b, t in mask:
            errors[w].append(self.learn(w, b, t, len(mask)))
        for w, found in enumerate(errors):
            if found:
                self.priorities[w] = 0.9 * max(found) + 0.1 * np.mean(found)

    def best(self, b: int, t: int) -> float:
        """max_a Q'(x, a), or double: Q'(x, argmax_a Q(x, a)) (Hasselt et al. 2016)."""
        row = b * (LENGTH + 1) + t
        if self.alpha:
            policy = self.policy(row)
            entropic = self.frozen[row] - self.algorithm.temperature * np.log(policy)
            return float((policy * entropic).sum())
        action = (self.current if self.algorithm.double else self.frozen)[row].argmax()
        return float(self.frozen[row, action])

    def policy(self, row: int) -> Array:
        """Return the softmax of Q' divided by the temperature (Vieillard et al. 2020)."""
        weights = np.exp(self.frozen[row] / self.algorithm.temperature)
        policy: Array = weights / weights.sum()
        return policy

    def extra(self, b: int, t: int) -> float:
        """Return alpha times the scaled log-policy of the action taken, which is at least -1."""
        if not self.alpha:
            return 0.0
        policy = self.policy(b * (LENGTH + 1) + t)
        scaled = self.algorithm.temperature * math.log(policy[self.stream.actions[b, t]])
        return self.alpha * max(scaled, -1.0)

    def n_step(self, b: int, t: int, n: int) -> tuple[float, int]:
        """Return r_t + … + gamma^k max Q(x_{t+k}), and k, which is at most n."""
        total = 0.0
        for k in range(n):
            if self.stream.truncated[b, t + k]:
                return total + self.algorithm.gamma**k * self.best(b, t + k), k
            reward = float(self.stream.rewards[b, t + k])
            reward = float(np.sign(reward)) if self.algorithm.reward_clip == "sign" else reward
            total += self.algorithm.gamma**k * reward
            if self.stream.terminated[b, t + k]:
                return total, k + 1
        return total + self.algorithm.gamma**n * self.best(b, t + n), n

    def target(self, b: int, t: int, end: int) -> float:
        """The n-step return, or (1 - lam) sum_n lam^(n-1) G^(n), the last with all that is left.

        Munchausen's reward is that of step t only.
        """
        if self.algorithm.returns == "n_step":
            return self.n_step(b, t, end - t)[0]
        lam, total = self.algorithm.lam, self.extra(b, t)
        _, longest = self.n_step(b, t, end - t)
        for n in range(1, longest):
            total += (1 - lam) * lam ** (n - 1) * self.n_step(b, t, n)[0]
        return total + lam ** (longest - 1) * self.n_step(b, t, longest)[0]

    def learn(self, w: int, b: int, t: int, count: int) -> float:
        """Add one step's loss and gradient; return its absolute error."""
        row, action = b * (LENGTH + 1) + t, int(self.stream.actions[b, t])
        value = self.current[row, action]
        error = self.target(b, t, self.case.places[w][1] + self.case.steps) - value
        weight = self.case.weights[w] / count
        clipped = float(np.clip(error, -1, 1))
        if self.algorithm.error == "squared":
            clipped = error
        self.loss += weight * (clipped * error - clipped**2 / 2)
        self.rows.append((abs(error), value))
        self.gradient[row, action] -= weight * clipped
        return float(abs(error))


@pytest.mark.parametrize("target", [True, False])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(3))
def test_loss_terms_and_gradient_are_the_papers(seed: int, way: str, target: bool) -> None:
    case = Case(seed, WAYS[way])
    total, terms, net, minibatch = case.run(target)
    slow = Slow(case, target)
    errors, values = np.array(slow.rows).T
    want = {"value_loss": slow.loss, "td_error": errors.mean(), "q": values.mean()}
    assert numbers(terms) == pytest.approx(want, rel=1e-4, abs=1e-5)
    assert total.item() == terms["value_loss"].item()
    assert errors.max() > 1.0  # so that huber is not half the square
    np.testing.assert_allclose(net.q.grad, slow.gradient, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(minibatch.priorities, slow.priorities, rtol=1e-4, atol=1e-6)


def test_observations_are_stacks_without_frames_of_the_game_before() -> None:
    net, algorithm = make_net(heads={"q": 3}), DQN(n=3)
    played = random_trajectory(np.random.default_rng(5), games=40, length=3)
    shown: list[torch.Tensor] = []
    net.register_forward_pre_hook(lambda _, given: shown.append(given[0]))
    minibatch = whole(algorithm, net, as_batch([played]), {})
    algorithm.loss(net, minibatch, {})
    plain = net.preprocess(stacks_of(played, 3))
    after = minibatch.partial.after.tolist()
    assert torch.equal(shown[0], plain[:, 0])
    assert torch.equal(shown[1], torch.stack([plain[b, t] for b, t in enumerate(after)]))
    young = [played.ages[b, t] < 2 for b, t in enumerate(after)]
    assert len(set(after)) == 4
    assert any(young)
    assert not all(young)


@pytest.mark.parametrize("garbage", [1e30, np.inf, np.nan])
@pytest.mark.parametrize("way", ["one step", "three steps", "lambda 0.9"])
def test_what_was_cut_off_moves_nothing_whatever_it_holds(way: str, garbage: float) -> None:
    case, spoilt = Case(1, WAYS[way]), Case(1, WAYS[way])
    assert spoilt.stream.truncated.any()
    spoilt.stream.rewards[spoilt.stream.truncated] = garbage
    found, other = case.run(), spoilt.run()
    assert_same_bits(found, other)
    assert torch.equal(found[3].priorities, other[3].priorities)


@pytest.mark.parametrize("way", ["one step", "lambda 0.9"])
def test_a_batch_in_which_nothing_counts_moves_nothing(way: str) -> None:
    case = Case(0, WAYS[way])
    case.stream.mask[:] = False
    total, terms, net, minibatch = case.run()
    assert total.item() == terms["td_error"].item() == terms["q"].item() == 0.0
    assert not net.gradients()[0].any()
    assert minibatch.priorities.tolist() == [0.0] * N


def after_losses(algorithm: DQN, losses: Array) -> AlgorithmState:
    algorithm_state = algorithm.start()
    for loss in losses:
        algorithm.after(algorithm_state, {"value_loss": float(loss)}, 0)
    return algorithm_state


def test_the_running_mean_and_deviation_begin_as_plain_ones_and_forget() -> None:
    losses = np.random.default_rng(3).exponential(size=500)
    algorithm_state = after_losses(DQN(), losses)
    assert float(algorithm_state["loss_count"]) == 500
    assert float(algorithm_state["loss_mean"]) == pytest.approx(losses.mean())
    assert float(algorithm_state["loss_variance"]) == pytest.approx(losses.var())
    rng = np.random.default_rng(4)
    losses = np.concatenate([rng.normal(50.0, 9.0, 2000), rng.normal(4.0, 0.5, 20_000)])
    algorithm_state = after_losses(DQN(), losses)
    assert float(algorithm_state["loss_mean"]) == pytest.approx(4.0, abs=0.1)
    assert float(algorithm_state["loss_variance"]) ** 0.5 == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(
    ("outlier", "seen", "loss", "dropped"),
    [  # the mean is 3 and the deviation 2
        (2.0, LOSSES_SEEN, 7.1, True),
        (2.0, LOSSES_SEEN, 6.9, False),
        (2.0, LOSSES_SEEN, -7.1, True),  # the absolute loss
        (2.0, LOSSES_SEEN, 0.0, False),  # only what is too large
        (3.0, LOSSES_SEEN, 8.9, False),
        (3.0, LOSSES_SEEN, 9.1, True),
        (2.0, LOSSES_SEEN, np.inf, True),
        (0.0, LOSSES_SEEN, 1e9, False),
        (2.0, LOSSES_SEEN - 2, 1e9, False),
        (2.0, 0, 1e9, False),
    ],
)
def test_which_loss_is_an_outlier(outlier: float, seen: int, loss: float, dropped: bool) -> None:
    algorithm = DQN(outlier=outlier)
    algorithm_state = after_losses(algorithm, np.tile([1.0, 5.0], seen // 2))
    before = {name: tensor.clone() for name, tensor in algorithm_state.items()}
    assert algorithm.is_outlier(algorithm_state, loss) is dropped
    assert all(torch.equal(algorithm_state[name], before[name]) for name in before)


def test_a_lasting_rise_of_the_loss_is_not_dropped_for_ever() -> None:
    algorithm = DQN(outlier=3.0)
    algorithm_state = after_losses(algorithm, np.tile([0.9, 1.1], 1000))
    dropped = 0
    for _ in range(2000):
        dropped += algorithm.is_outlier(algorithm_state, 10.0)
        algorithm.after(algorithm_state, {"value_loss": 10.0}, 0)
    assert 1 < dropped < 500
    assert not algorithm.is_outlier(algorithm_state, 10.0)
