"""Games that a time limit cuts off: every step of theirs is learned, against values by hand.

An observation is a number that tells game and step (`helpers.cut_games`), and the network of the
learner takes that number for the value.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from colobus.algorithms.a3c import A3C
from colobus.algorithms.action_values import PRIORITY_MIX
from colobus.algorithms.api import Algorithm
from colobus.algorithms.appo import APPO
from colobus.algorithms.batches import evaluate
from colobus.algorithms.dqn import DQN
from colobus.algorithms.iqn import IQN
from colobus.algorithms.pqn import PQN
from colobus.core.functions import MakeEnv, name_of
from colobus.core.types import Episode, Trajectory
from colobus.envs.api import GameSettings
from colobus.envs.gym import GymGames
from colobus.nets.network import Network, NetworkSettings, Scratch
from colobus.nets.observations import Observations
from colobus.roles.replay.buffer import ReplayBuffer
from colobus.roles.replay.frame_ring import BufferShape
from colobus.roles.replay.queue import as_batch
from colobus.roles.replay.sampling import Prioritized, RateLimiter
from conftest import make_net
from helpers import cut_games
from helpers.cut_games import SEEDS, STEPS, Row, kind, reward, row_of, seen
from helpers.outputs import whole
from helpers.servers import played

GAMMA, LAM = 0.9, 0.8
BASIC = [cut_games.alone, cut_games.same_step, cut_games.next_step]
PROCESSES = [cut_games.in_processes, cut_games.in_processes_disabled]
MAKERS: list[Any] = [*BASIC, cut_games.disabled, *cut_games.FOREIGN]
MAKERS += [pytest.param(make, marks=pytest.mark.processes) for make in PROCESSES]


def vector_net(stack: int = 1, recurrent: Literal["none", "lstm"] = "none") -> Network:
    settings = NetworkSettings(torso="mlp", width=8, stack=stack, recurrent=recurrent)
    return make_net(settings, (1, 1), {"policy": 2, "value": 1, "q": 2})


def sent_in(
    make: MakeEnv, length: int, algorithm: Algorithm, net: Network | None = None
) -> tuple[list[Trajectory], list[Episode]]:
    """Return what an actor sends in `STEPS` steps, and the games that it tells of."""
    games, rounds = GymGames(GameSettings(name_of(make)), SEEDS), STEPS // length
    sink = played(net or vector_net(), algorithm, lambda _: games, len(SEEDS), length, rounds)
    return sink.trajectories, sink.games


class Number(nn.Module):
    """A network for which the value of an observation is its number."""

    stack = block = policies = 1
    scratch, recurrent, auxiliary, masks = Scratch(), None, None, 0

    def __init__(self, quantiles: bool = False) -> None:
        super().__init__()
        self.quantiles = quantiles
        self.still = nn.Parameter(torch.zeros(1))
        self.heads = {"q": self}

    def preprocess(self, frames: torch.Tensor) -> torch.Tensor:
        return frames.float()

    def black(self) -> torch.Tensor:
        return torch.zeros(1, 1)

    def features(self, stacks: torch.Tensor) -> torch.Tensor:
        return stacks.flatten(1) + self.still

    def at(self, numbers: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
        return numbers.unsqueeze(2).expand(-1, 2, shares.shape[1])

    def forward(self, stacks: torch.Tensor) -> dict[str, torch.Tensor]:
        value = self.features(stacks)
        q = value.expand(-1, 2)
        policy = torch.zeros(len(value), 2)
        return {"value": value, "policy": policy, "q": q.unsqueeze(2) if self.quantiles else q}


NUMBER: Any = Number()
QUANTILES: Any = Number(quantiles=True)


class Target(NamedTuple):
    """Of one step, by hand."""

    gae: float  # advantage
    vtrace: float  # target
    vtrace_advantage: float
    n_step: float  # fragments of N steps
    q_lambda: float


N, RHO, C = 3, 1.1, 0.9


def by_hand(row: Row, begin: int, end: int, log_ratios: Any = None) -> dict[int, Target]:
    """Return the targets of the learned steps from ``begin`` to ``end`` (without), backwards."""
    found: dict[int, Target] = {}
    for p in reversed(range(begin, end)):
        step = row.learned[p]
        if step is None:
            continue
        game, t = step
        (length, kind_of_end), value, gained = kind(game), seen(game, t), reward(game, t)
        over = t == length - 1
        after = 0.0 if over and kind_of_end != "cut" else seen(game, t + 1)
        next_ = None if over else found.get(p + 1)
        ratio = 1.0 if log_ratios is None else float(np.exp(log_ratios[p - begin]))
        delta = gained + GAMMA * after - value
        following = next_.vtrace if next_ else after
        found[p] = Target(
            delta + GAMMA * LAM * (next_.gae if next_ else 0.0),
            value
            + min(ratio, RHO) * delta
            + GAMMA * LAM * min(ratio, C) * (following - after if next_ else 0.0),
            min(ratio, 1.0) * (gained + GAMMA * following - value),
            gained + GAMMA * (after if (p - begin + 1) % N == 0 or not next_ else next_.n_step),
            gained + GAMMA * ((1 - LAM) * after + LAM * (next_.q_lambda if next_ else after)),
        )
    return found


RATES: dict[str, Any] = {"gamma": GAMMA, "reward_clip": "none"}
ON_POLICY = APPO(lam=LAM, **RATES)
OFF_POLICY = replace(ON_POLICY, advantage="vtrace", rho_bar=RHO, c_bar=C)
SAMPLED = (ON_POLICY, OFF_POLICY, PQN(lam=LAM, **RATES))
FRAGMENTS = A3C(n=N, **RATES)


@pytest.mark.parametrize("length", [1, 3, 16])
@pytest.mark.parametrize("make", MAKERS)
def test_every_step_has_the_target_by_hand(make: MakeEnv, length: int) -> None:
    """At the first and the last step of a rollout too, with several cuts in one."""
    sent, games = sent_in(make, length, ON_POLICY)
    rows = [row_of(make, int(first)) for first in SEEDS]
    learned: list[tuple[int, int]] = []
    for number, one in enumerate(sent):
        begin, batch = number * length, as_batch([one])
        ratios = np.log(0.5) - one.log_probs  # the learner's policy is even
        gae, off, pqn = (whole(each, NUMBER, batch).steps for each in SAMPLED)
        samples = whole(FRAGMENTS, NUMBER, batch)
        terms = FRAGMENTS.loss(NUMBER, samples, FRAGMENTS.start())[1]
        columns = (gae.advantages, off.targets, off.advantages, pqn.targets)
        errors = []
        for b, row in enumerate(rows):
            shown = row.shown[begin : begin + length + 1]
            np.testing.assert_array_equal(one.frames[b, :, 0, 0], shown)
            want = by_hand(row, begin, begin + length, ratios[b])
            for t in range(length):
                i, target = b * length + t, want.get(begin + t)
                assert bool(one.mask[b, t]) == (target is not None)
                assert gae.weights[i] == pqn.weights[i] == float(target is not None)
                if target is None:
                    continue
                found, named = [float(x[i]) for x in columns], [*target[:3], target.q_lambda]
                assert found == pytest.approx(named, abs=1e-4)
                errors.append((target.n_step - shown[t]) ** 2)
                learned.append(row.learned[begin + t] or (0, 0))
        if errors:
            assert float(terms["value_loss"]) == pytest.approx(np.mean(errors) / 2, rel=1e-4)
    wanted = [step for row in rows for step in row.learned if step]
    assert sorted(learned) == sorted(wanted)
    lasts = {end for game, t in wanted for steps, end in [kind(game)] if t == steps - 1}
    assert lasts == {"cut", "end", "both"}
    assert {0, 1, 3} <= {t for _, t in wanted}
    told = sorted((game.score, game.steps) for game in games)
    assert told == sorted(episode for row in rows for episode in row.episodes)


@pytest.mark.parametrize("make", BASIC)
@pytest.mark.parametrize("sampling", [None, Prioritized()], ids=["uniform", "prioritized"])
@pytest.mark.parametrize(
    "algorithm",
    [
        DQN(n=N, target_every=0, **RATES),
        IQN(n=N, target_every=0, **RATES),
        DQN(returns="q_lambda", lam=LAM, target_every=0, **RATES),
    ],
    ids=["n-step", "IQN", "Q(lambda)"],
)
def test_windows_have_the_errors_by_hand(make: MakeEnv, sampling: Any, algorithm: Any) -> None:
    sent, _ = sent_in(make, 8, ON_POLICY)
    length, first_only = algorithm.window(5), algorithm.learned(5) == 1
    shape = BufferShape(1000, len(SEEDS), 64, length, 1, (1, 1), "float32", first_only)
    buffer = ReplayBuffer(shape, sampling, RateLimiter(1), patience=0.0)
    for trajectory in sent:
        buffer.add(trajectory)
    places = {
        value: (row, p)
        for row in (row_of(make, int(first)) for first in SEEDS)
        for p, value in enumerate(row.shown)
    }
    kinds = set()
    for _ in range(3):
        batch = buffer.sample()
        net = QUANTILES if isinstance(algorithm, IQN) else NUMBER
        samples = whole(algorithm, net, batch)
        algorithm.loss(net, samples, algorithm.start(), torch.Generator().manual_seed(1))
        buffer.update(batch.keys, batch.generations, samples.priorities)
        for n in range(len(batch.frames)):
            row, begin = places[float(batch.frames[n, 0, 0, 0])]
            want = errors_by_hand(row, begin, length, first_only)
            assert float(samples.priorities[n]) == pytest.approx(want, abs=1e-4)
            step = row.learned[begin]
            assert bool(batch.mask[n, 0]) == (step is not None)
            assert float(batch.weights[n]) <= 1.0
            if sampling == Prioritized():
                assert (float(batch.weights[n]) > 0.0) == (step is not None)
            if step is not None:
                kinds.add((kind(step[0])[1], kind(step[0])[0] - step[1] == 1))
    assert kinds >= {("cut", True), ("cut", False), ("end", True), ("both", True)}


def errors_by_hand(row: Row, begin: int, length: int, first_only: bool) -> float:
    """Return the priority of a window, of its steps until the first end of a game."""
    sizes: list[float] = []
    for p in range(begin, begin + (1 if first_only else length)):
        step = row.learned[p]
        if step is None:
            break
        if first_only:  # fragments of N steps begin with the window
            target = by_hand(row, begin, begin + N)[p].n_step
        else:
            target = by_hand(row, begin, begin + length)[p].q_lambda
        sizes.append(abs(target - row.shown[p]))
        if step[1] == kind(step[0])[0] - 1:
            break
    if not sizes:
        return 0.0
    return float(PRIORITY_MIX * max(sizes) + (1 - PRIORITY_MIX) * np.mean(sizes))


@pytest.mark.parametrize("make", BASIC)
@torch.no_grad()
def test_the_state_of_a_game_reaches_its_last_observation_and_no_other_game(make: MakeEnv) -> None:
    """Values of the learner, and probabilities of the actor, game by game from a state of zeros."""
    net, algorithm = vector_net(recurrent="lstm"), APPO(sequence=4, minibatch=8)
    sent, _ = sent_in(make, 4, algorithm, net)
    for b, first in enumerate(SEEDS):
        row = row_of(make, int(first))
        state: Any = None
        for p in range(STEPS):
            begins = round(row.shown[p] % 1 * 8) == 0
            state = torch.zeros(1, 16) if begins else state
            given = torch.tensor([[[[row.shown[p]]]]])
            hidden, state = net.step(net.preprocess(given), state)
            outputs = net.outputs(hidden)
            number, t = divmod(p, 4)
            one, batch = sent[number], as_batch([sent[number]])
            observations = Observations(net, batch.frames, batch.ages)
            values = evaluate(net, observations, batch, 100, 4).outputs["value"].view(2, 5)
            assert float(values[b, t]) == pytest.approx(float(outputs["value"]), abs=1e-5)
            log_policy = outputs["policy"].log_softmax(1)[0, one.actions[b, t]]
            assert float(one.log_probs[b, t]) == pytest.approx(float(log_policy), abs=1e-5)


@pytest.mark.parametrize("length", [4, 8])
@pytest.mark.parametrize(("stack", "recurrent"), [(1, "none"), (4, "none"), (1, "lstm")])
@pytest.mark.parametrize("make", [cut_games.alone, cut_games.same_step, *cut_games.FOREIGN])
def test_learners_see_as_actors_do(make: MakeEnv, stack: int, recurrent: Any, length: int) -> None:
    """With the same parameters both have the same odds of each step that is learned."""
    net = vector_net(stack, recurrent)
    with torch.no_grad():
        for parameter in net.heads["policy"].parameters():
            parameter.mul_(100.0)  # else the odds are nearly even whatever is seen
    algorithm = APPO(sequence=4, minibatch=8)
    sent, _ = sent_in(make, length, algorithm, net)
    learned = 0
    for one in sent:
        batch = as_batch([one])
        outputs = evaluate(net, Observations(net, batch.frames, batch.ages), batch, 100, 4).outputs
        policy = outputs["policy"].log_softmax(1).view(2, length + 1, 2)[:, :-1]
        found = policy.gather(2, batch.actions.unsqueeze(2)).squeeze(2)
        kept = batch.mask.bool()
        torch.testing.assert_close(found[kept], batch.log_probs[kept], atol=1e-4, rtol=0.0)
        learned += int(kept.sum())
    assert learned > 20


def test_a_vector_that_gives_no_last_observation_is_told() -> None:
    def silent(num_envs: int) -> Any:
        return cut_games.Foreign(cut_games.Counting, num_envs, word="")

    with pytest.warns(UserWarning, match="its vector gives no final_obs"):
        sent, _ = sent_in(silent, 16, ON_POLICY)
    for one in sent:
        assert one.truncated.any()
        np.testing.assert_array_equal(one.mask, ~one.truncated)
