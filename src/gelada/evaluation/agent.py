"""A trained agent: the network of a run's checkpoint, ready to play."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal, overload

import numpy as np
import torch

from gelada.algorithms.exploration import epsilon_noise, gumbel
from gelada.core.checkpoint import Checkpoint, newest_checkpoint, read_checkpoint
from gelada.core.errors import GeladaError, nearest
from gelada.core.types import Bytes, Floats, Ints
from gelada.envs.api import GameSettings
from gelada.envs.make import action_names, planes
from gelada.envs.names import known_games
from gelada.nets.network import InputStatistics, Network
from gelada.training.config import Config, read_config
from gelada.training.experiment import Experiment

Policy = Literal["sampled", "greedy", "epsilon"]
"""sampled draws from the policy's probabilities, greedy takes the best action, epsilon the best one
or, with probability `Agent.epsilon`, any: what is natural where an algorithm knows values only."""

EPSILON = 0.05
"""Largest share of random actions under the policy epsilon (Mnih et al. 2015)."""


class Agent:
    """Plays with the parameters of one checkpoint.

    ``act`` takes what any Gymnasium Atari environment gives with the same preprocessing:
    ``AtariPreprocessing(env, screen_size=agent.games.size)`` and a frame stack of
    ``agent.stack``. A recurrent agent also takes and returns its state:

        state = agent.initial_state(games)
        actions, state = agent.act(observations, state=state)
        state[over] = 0.0  # where a game is over and the next one begins
    """

    def __init__(self, experiment: Experiment, checkpoint: Checkpoint, actions: int) -> None:
        self.games: GameSettings = experiment.games
        self.stack = experiment.network.stack
        self.actions = actions
        self.checkpoint = checkpoint
        statistics = checkpoint.group("input")
        height, width = statistics["mean"].shape
        self.net = Network(
            experiment.network,
            (height, width),
            partial(experiment.algorithm.heads, actions),
            InputStatistics(statistics["mean"].numpy(), statistics["deviation"].numpy()),
            "float32",
            planes=planes(experiment.games),
        )
        _fill(self.net, checkpoint.group("parameter"))
        self.net.requires_grad_(False)
        self._algorithm = experiment.algorithm
        self._random = torch.Generator().manual_seed(experiment.seed)

    @property
    def policy(self) -> Policy:
        """Default policy: sampled, or epsilon for an agent without probabilities."""
        return self._algorithm.acting_policy

    @property
    def epsilon(self) -> float:
        """Share of random actions under the policy epsilon.

        That of the end of training, but at most `EPSILON`: an agent that learned to play with
        fewer random actions than the published ones did plays worse with as many.
        """
        own = self._algorithm
        return min(EPSILON, own.last_epsilon) if own.acting_policy == "epsilon" else EPSILON

    def seed(self, seed: int) -> None:
        """Make sampled actions repeatable."""
        self._random.manual_seed(seed)

    def initial_state(self, count: int = 1) -> Floats:
        """Return the state of ``count`` games at their beginning: zeros float32[count, S].

        S is 0 for an agent that is not recurrent.
        """
        state = self.net.initial_state(count)
        found: Floats = np.zeros((count, 0), dtype=np.float32) if state is None else state.numpy()
        return found

    @overload
    def act(
        self,
        observations: Bytes,
        policy: Policy | None = None,
        random: torch.Generator | None = None,
        *,
        state: None = None,
    ) -> Ints: ...

    @overload
    def act(
        self,
        observations: Bytes,
        policy: Policy | None = None,
        random: torch.Generator | None = None,
        *,
        state: Floats,
    ) -> tuple[Ints, Floats]: ...

    def act(
        self,
        observations: Bytes,
        policy: Policy | None = None,
        random: torch.Generator | None = None,
        *,
        state: Floats | None = None,
    ) -> Ints | tuple[Ints, Floats]:
        """Return actions int64[N] for observations uint8[N, K, H, W] (or one, without N).

        With ``state`` it returns the actions and the state after them, for any agent.

        Args:
            observations: stacks, the newest frame last; black frames before a game's start.
            policy: how the action is chosen; the agent's own by default.
            random: to draw with; the agent's own by default. Threads that share an agent need
                one each.
            state: float32[N, S], of each game before the observation (N is 1 for one observation):
                `initial_state`, or what `act` returned for the game's observation before. It is
                not changed. A recurrent agent needs it.

        Raises:
            GeladaError: if actions are to be sampled and the algorithm has no probabilities, or a
                recurrent agent gets no state.
            ValueError: if the observations or the state have another shape or type than in
                training.
        """
        want = (self.stack, *self.net.mean.shape)
        single = observations.shape == want
        stacks = observations[None] if single else observations
        if stacks.shape[1:] != want or stacks.dtype != np.uint8:
            raise ValueError(
                f"observations are {observations.dtype}{list(observations.shape)}, the agent was "
                f"trained on uint8[N, {', '.join(map(str, want))}]"
            )
        before = self._recurrent_state(state, len(stacks))
        with torch.inference_mode():
            observed = self.net.preprocess(torch.from_numpy(np.ascontiguousarray(stacks)))
            noise = self._noise(len(stacks), policy or self.policy, random or self._random)
            scores, after = self._algorithm.act(self.net, observed, before)
            chosen = (scores + noise).argmax(dim=1)
        actions: Ints = chosen.numpy()
        if single:
            actions = actions[0]
        if state is None:
            return actions
        return actions, state if after is None else after.numpy()

    def _recurrent_state(self, state: Floats | None, count: int) -> torch.Tensor | None:
        """Return a state of ``count`` games as the network takes it."""
        want = self.initial_state(count)
        if state is None and want.size:
            raise GeladaError(
                "this agent is recurrent: begin with state = agent.initial_state(N), then "
                "actions, state = agent.act(observations, state=state)"
            )
        if state is not None and (state.shape != want.shape or state.dtype != want.dtype):
            raise ValueError(
                f"the state is {state.dtype}{list(state.shape)}, for these observations it must be "
                f"float32{list(want.shape)}"
            )
        return torch.from_numpy(state) if state is not None and want.size else None

    def _noise(self, count: int, policy: Policy, random: torch.Generator) -> torch.Tensor:
        """Return what is added to the scores [count, A]: the best one then is the action."""
        shape = (count, self.actions)
        if policy == "greedy":
            return torch.zeros(shape)
        if policy == "epsilon":
            return epsilon_noise(shape, self.epsilon, random)
        if self._algorithm.acting_policy != "sampled":
            raise GeladaError(
                "policy sampled: this agent knows values of actions and no probabilities; take "
                "epsilon or greedy"
            )
        return gumbel(shape, random)


def describe(policy: Policy, epsilon: float) -> str:
    """Return a policy in words, as it is printed with scores."""
    return f"epsilon-greedy {epsilon:.2g}" if policy == "epsilon" else f"{policy} policy"


def _fill(net: Network, parameters: dict[str, torch.Tensor]) -> None:
    """Copy parameters by name into a network.

    Raises:
        GeladaError: if they are those of another network.
    """
    own = dict(net.named_parameters())
    for name in sorted(own.keys() | parameters.keys()):
        wanted = list(own[name].shape) if name in own else None
        found = list(parameters[name].shape) if name in parameters else None
        if wanted != found:
            raise GeladaError(
                f"the checkpoint does not fit the network of its config.json: {name} is "
                f"{found or 'missing'}, want {wanted or 'none'}; play it with the version of "
                "Gelada that trained it"
            )
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(parameters[name])


def _check_game(config: Config, file: Path) -> None:
    """Check that the game is known and has the run's actions.

    An action is an index into the game's action set, so with another set the agent would play
    other actions than it learned, or the emulator would wait for ever.

    Raises:
        GeladaError: if not.
    """
    games = config.experiment.games
    if games.game not in known_games():
        raise GeladaError(
            f"{file}: unknown game {games.game!r}: {nearest(games.game, known_games())}"
        )
    actions = len(action_names(games))
    if actions != config.actions:
        kind = "full" if games.full_actions else "minimal"
        raise GeladaError(
            f"{file}: the run has {config.actions} actions, the {kind} action set of {games.game} "
            f"has {actions}; play it with the version of ale-py that trained it"
        )


def load(run: str | Path) -> Agent:
    """Return the agent of a run's newest complete checkpoint, or of one checkpoint file.

    Raises:
        GeladaError: if there is no such run or no complete checkpoint, or the emulator does not
            know the run's game or has another number of actions for it.
    """
    path = Path(run)
    if path.suffix == ".safetensors":
        folder, checkpoint = path.parent.parent, read_checkpoint(path)
    else:
        folder = path
        if not (folder / "config.json").is_file():
            raise GeladaError(f"{str(run)!r} is no run: it has no config.json")
        _, checkpoint, _ = newest_checkpoint(folder / "checkpoints")
    config = read_config(folder)
    _check_game(config, folder / "config.json")
    return Agent(config.experiment, checkpoint, config.actions)
