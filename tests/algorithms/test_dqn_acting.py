"""How DQN explores, acts and plays without learning."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from colobus.algorithms.action_values import ladder
from colobus.algorithms.dqn import DQN
from colobus.algorithms.exploration import Player
from colobus.core.errors import ColobusError
from colobus.evaluation.evaluator import evaluate
from conftest import make_net
from helpers.players import make_agent

DUELLING = DQN(duelling=True)
LADDER = DQN(explore="ladder")
STACKS = torch.randn(64, 3, 10, 5, generator=torch.Generator().manual_seed(6))


def test_each_game_acts_with_its_own_epsilon() -> None:
    """A random action is the best one, too, once in A times."""
    count, games, actions = 4000, 4, 3
    player = Player(actor=1, actors=3, games=games, actions=actions)
    exploration = LADDER.exploration(player)
    net: Any = None
    exploration.begin(net, count, 0, torch.Generator().manual_seed(2))
    best = torch.tensor([0.5, -1.0, 0.2]).expand(games, actions)
    chosen = torch.stack([exploration.choose(t, best) for t in range(count)])
    others = (chosen != 0).double().mean(dim=0).numpy()
    epsilons = ladder(player, LADDER.ladder_base, LADDER.ladder_alpha)(0)
    want = epsilons.double().numpy() * (actions - 1) / actions
    assert (np.abs(others - want) < 5 * np.sqrt(want * (1 - want) / count)).all()
    assert want[0] > 4 * want[-1]


@pytest.mark.parametrize("algorithm", [DQN(), DUELLING])
def test_acting_gives_the_values_of_actions(algorithm: DQN) -> None:
    net = make_net(heads=partial(algorithm.heads, 3))
    scores, state = algorithm.act(net, STACKS, None)
    assert state is None
    assert torch.equal(scores, net(STACKS)["q"])


def test_an_agent_without_probabilities_is_epsilon_greedy() -> None:
    agent, count = make_agent(algorithm=DUELLING), 40_000
    one = np.random.default_rng(0).integers(0, 256, (1, 4, 10, 5), dtype=np.uint8)
    seen = np.repeat(one, count, axis=0)
    best = agent.act(seen[:100], "greedy")
    assert len(set(best.tolist())) == 1
    for actions in (agent.act(seen), agent.act(seen, "epsilon")):
        found = np.bincount(actions, minlength=3) / count
        want = np.where(np.arange(3) == best[0], 1 - 0.05 * 2 / 3, 0.05 / 3)
        assert (np.abs(found - want) < 5 * np.sqrt(want * (1 - want) / count)).all()


def test_an_agent_without_probabilities_cannot_sample() -> None:
    agent = make_agent(algorithm=DUELLING)
    observation = np.zeros((4, 10, 5), dtype=np.uint8)
    with pytest.raises(
        ColobusError, match=r"policy sampled: .*no probabilities; take epsilon or greedy"
    ):
        agent.act(observation, "sampled")
    with pytest.raises(ColobusError, match="no probabilities"):
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
def test_an_agent_plays_with_the_last_epsilon(changes: dict[str, Any], epsilon: float) -> None:
    agent = make_agent(algorithm=replace(DUELLING, **changes))
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
    agent = make_agent(algorithm=DUELLING)
    assert evaluate(agent, episodes=3).policy == agent.policy == "epsilon"
    greedy = evaluate(agent, "dba3c", episodes=3)
    assert (greedy.policy, greedy.as_dict()["epsilon"]) == ("greedy", None)
    assert ", greedy policy, 3 actions" in greedy.lines()[1]
