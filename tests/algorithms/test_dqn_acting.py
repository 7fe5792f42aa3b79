"""How DQN explores, acts and plays without learning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from conftest import make_net
from gelada.algorithms.api import Explore
from gelada.algorithms.dqn import DQN
from gelada.core.checkpoint import Checkpoint
from gelada.core.errors import GeladaError
from gelada.core.types import Version
from gelada.evaluation.agent import Agent
from gelada.evaluation.evaluator import evaluate
from players import CATCH, make_experiment

DUELLING = DQN(duelling=True)
SCHEDULE = DQN(epsilon_start=1.0, epsilon_end=0.1, epsilon_steps=1000)
LADDER = DQN(explore="ladder")
STACKS = torch.randn(64, 3, 10, 5, generator=torch.Generator().manual_seed(6))


@pytest.mark.parametrize(
    ("steps", "epsilon"),
    [(0, 1.0), (1, 0.9991), (500, 0.55), (999, 0.1009), (1000, 0.1), (10**9, 0.1)],
)
def test_the_schedule_falls_in_a_straight_line_alike_for_all(steps: int, epsilon: float) -> None:
    found = SCHEDULE.epsilons(Explore(actor=2, actors=5, steps=steps), 3)
    assert found.tolist() == pytest.approx([epsilon] * 3, rel=1e-5)
    at_once = replace(SCHEDULE, epsilon_steps=0)
    assert at_once.epsilons(Explore(steps=1), 1).item() == pytest.approx(0.1)


@pytest.mark.parametrize(("actors", "games"), [(8, 1), (360, 1), (2, 8), (3, 5)])
def test_the_ladder_is_the_papers(actors: int, games: int) -> None:
    """epsilon_i = 0.4^(1 + 7 i / (N - 1)) (Horgan et al. 2018, section 4), whatever the steps."""
    found = [
        epsilon
        for actor in range(actors)
        for epsilon in LADDER.epsilons(Explore(actor, actors, 1000 * actor), games).tolist()
    ]
    number = actors * games
    assert found == pytest.approx([0.4 ** (1 + 7 * i / (number - 1)) for i in range(number)], 1e-4)
    assert found[0] == pytest.approx(0.4)
    assert found[-1] == pytest.approx(0.00065536, rel=1e-3)


def test_a_ladder_of_one_game_is_its_first_rung() -> None:
    assert LADDER.epsilons(Explore(), 1).tolist() == pytest.approx([0.4])


def test_each_game_acts_with_its_own_epsilon() -> None:
    """A random action is the best one, too, once in A times."""
    count, games, actions = 4000, 4, 3
    explore = Explore(actor=1, actors=3)
    noise = LADDER.noise((count, games, actions), torch.Generator().manual_seed(2), explore)
    best = torch.tensor([0.5, -1.0, 0.2])
    others = ((best + noise).argmax(dim=2) != 0).double().mean(dim=0).numpy()
    want = LADDER.epsilons(explore, games).double().numpy() * (actions - 1) / actions
    assert (np.abs(others - want) < 5 * np.sqrt(want * (1 - want) / count)).all()
    assert want[0] > 4 * want[-1]


@pytest.mark.parametrize("algorithm", [DQN(), DUELLING])
def test_acting_takes_the_best_value_after_the_noise(algorithm: DQN) -> None:
    net = make_net(heads=algorithm.heads(3))
    nothing = torch.zeros(64, 3)
    actions, scores = algorithm.act(net, STACKS, nothing)
    outputs = net(STACKS)
    if algorithm.duelling:
        torch.testing.assert_close(scores.mean(dim=1, keepdim=True), outputs["value"])
        differences = outputs["advantage"] - outputs["advantage"][:, :1]
        torch.testing.assert_close(scores - scores[:, :1], differences)
    else:
        assert torch.equal(scores, outputs["q"])
    assert torch.equal(actions, scores.argmax(dim=1))
    assert actions.dtype == torch.int64
    assert len(set(actions.tolist())) > 1
    noise = algorithm.noise((64, 3), torch.Generator().manual_seed(1), Explore())
    assert torch.equal(algorithm.act(net, STACKS, noise)[0], noise.argmax(dim=1))  # epsilon is 1
    assert torch.equal(algorithm.log_probs(scores, actions), torch.zeros(64))


def make_player(algorithm: DQN = DUELLING) -> Agent:
    """Return an agent of Catch with random parameters."""
    experiment = replace(make_experiment(CATCH), algorithm=algorithm)
    net = make_net(experiment.network, heads=algorithm.heads(3))
    tensors = {f"parameter/{k}": p.detach().clone() for k, p in net.named_parameters()}
    tensors |= {
        "input/mean": torch.full((10, 5), 90.0),
        "input/deviation": torch.full((10, 5), 40.0),
    }
    return Agent(experiment, Checkpoint(Version(0, 7), 1000, tensors, {}), 3)


def test_an_agent_without_probabilities_is_epsilon_greedy() -> None:
    agent, count = make_player(), 40_000
    one = np.random.default_rng(0).integers(0, 256, (1, 4, 10, 5), dtype=np.uint8)
    seen = np.repeat(one, count, axis=0)
    best = agent.act(seen[:100], "greedy")
    assert len(set(best.tolist())) == 1
    for actions in (agent.act(seen), agent.act(seen, "epsilon")):
        found = np.bincount(actions, minlength=3) / count
        want = np.where(np.arange(3) == best[0], 1 - 0.05 * 2 / 3, 0.05 / 3)
        assert (np.abs(found - want) < 5 * np.sqrt(want * (1 - want) / count)).all()


def test_an_agent_without_probabilities_cannot_sample() -> None:
    agent = make_player()
    observation = np.zeros((4, 10, 5), dtype=np.uint8)
    with pytest.raises(
        GeladaError, match=r"policy sampled: .*no probabilities; take epsilon or greedy"
    ):
        agent.act(observation, "sampled")
    with pytest.raises(GeladaError, match="no probabilities"):
        evaluate(agent, episodes=2, policy="sampled")


@pytest.mark.parametrize(
    ("changes", "epsilon"),
    [
        ({"epsilon_end": 0.1}, 0.05),
        ({"epsilon_end": 0.005}, 0.005),
        ({"epsilon_end": 0.0}, 0.0),
        ({"explore": "ladder"}, 0.4**8),
        ({"explore": "ladder", "ladder_base": 0.9, "ladder_alpha": 1.0}, 0.05),
    ],
)
def test_an_agent_plays_with_the_last_epsilon_of_training_but_no_more_than_the_papers(
    changes: dict[str, Any], epsilon: float
) -> None:
    agent = make_player(replace(DUELLING, **changes))
    assert agent.epsilon == pytest.approx(epsilon)
    found = evaluate(agent, episodes=2)
    assert f", epsilon-greedy {epsilon:.2g}, 3 actions" in found.lines()[1]
    assert found.as_dict()["epsilon"] == agent.epsilon
    count = 4_000
    one = np.random.default_rng(0).integers(0, 256, (1, 4, 10, 5), dtype=np.uint8)
    actions = agent.act(np.repeat(one, count, axis=0))
    others = np.mean(actions != agent.act(one, "greedy"))
    want = epsilon * 2 / 3
    assert abs(others - want) <= 5 * np.sqrt(want / count)


def test_an_evaluation_is_epsilon_greedy_by_nature_and_says_so() -> None:
    agent = make_player()
    found = evaluate(agent, episodes=3)
    assert found.policy == agent.policy == "epsilon"
    assert ", epsilon-greedy 0.05, 3 actions" in found.lines()[1]
    greedy = evaluate(agent, "dba3c", episodes=3)
    assert (greedy.policy, greedy.as_dict()["epsilon"]) == ("greedy", None)
    assert ", greedy policy, 3 actions" in evaluate(agent, "dba3c", episodes=3).lines()[1]
