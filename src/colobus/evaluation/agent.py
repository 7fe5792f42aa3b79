"""A trained agent: the network of a run's checkpoint, ready to play."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, overload

import numpy as np
import torch
from numpy.typing import NDArray

from colobus.algorithms.exploration import best_allowed, epsilon_noise, gumbel
from colobus.core.arrays import apart, joined
from colobus.core.checkpoint import Checkpoint, read_checkpoint
from colobus.core.errors import ColobusError
from colobus.core.functions import Function, MakeEnv, check_callable, name_of
from colobus.core.notebook import html_table
from colobus.core.types import Floats, Frames, Ints
from colobus.envs.api import GameSettings
from colobus.envs.make import frame_type, is_gym
from colobus.experiment.settings import Experiment
from colobus.nets.network import Network
from colobus.runs.best import pick_checkpoint
from colobus.runs.config import check_of, read_config
from colobus.runs.exported import unpacked
from colobus.runs.folder import CONFIG, find_files
from colobus.runtime.devices import CPU, find_device, torch_threads
from colobus.training.start import Start, check_frames, check_game, make_network, statistics_of


def load_parameters(net: Network, parameters: dict[str, torch.Tensor]) -> None:
    """Copy parameters by name into a network.

    Raises:
        ColobusError: if they are those of another network.
    """
    own = dict(net.named_parameters())
    for name in sorted(own.keys() | parameters.keys()):
        wanted = list(own[name].shape) if name in own else None
        found = list(parameters[name].shape) if name in parameters else None
        if found is not None and parameters[name].dtype != torch.float32:
            raise ColobusError(f"has {name} in {parameters[name].dtype}, want float32")
        if wanted != found:
            raise ColobusError(
                f"does not fit the network of its config.json: {name} is "
                f"{found or 'missing'}, want {wanted or 'none'}; play it with the version of "
                "Colobus that trained it"
            )
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(parameters[name])


if TYPE_CHECKING:
    from colobus.envs.playing import Env, Envs

PolicyName = Literal["sampled", "greedy", "epsilon"]
"""sampled draws from the policy's probabilities, greedy takes the best action, epsilon the best one
or, with probability `Agent.epsilon`, any: what is natural where an algorithm knows values only."""

EPSILON = 0.05
"""Largest share of random actions under the policy epsilon (Mnih et al. 2015)."""

SMALL = 64
"""Up to so many observations are computed by one thread of torch: more threads only wait there."""


class Agent:
    """Plays with the parameters of one checkpoint.

    `make_env` makes an environment of Gymnasium whose observations `act` takes. Other Atari
    environments need the same preprocessing, which few have (docs/python.md). A recurrent agent
    also takes and returns its state:

        state = agent.initial_state(games)
        actions, state = agent.act(observations, state=state)
        state[over] = 0.0  # where a game is over and the next one begins
    """

    def __init__(
        self,
        experiment: Experiment,
        checkpoint: Checkpoint,
        actions: int,
        device: torch.device = CPU,
    ) -> None:
        self.games: GameSettings = experiment.games
        self.stack = experiment.network.stack
        self.actions = actions
        self.checkpoint = checkpoint
        self._frame_type = frame_type(experiment.games)
        start = Start(statistics_of(checkpoint), actions, "float32")
        self.net = make_network(experiment, start)
        load_parameters(self.net, checkpoint.playing())
        self.device = device
        self.net.requires_grad_(False).eval().to(device)  # own torsos may differ in training
        self.algorithm = experiment.algorithm
        self._random = torch.Generator().manual_seed(experiment.seed)

    @property
    def policy(self) -> PolicyName:
        """Default policy: sampled, or epsilon for an agent without probabilities."""
        return self.algorithm.acting_policy

    @property
    def epsilon(self) -> float:
        """Share of random actions under the policy epsilon.

        That of the end of training, but at most `EPSILON`: an agent that learned to play with
        fewer random actions than the published ones did plays worse with as many.
        """
        own = self.algorithm
        return min(EPSILON, own.last_epsilon) if own.acting_policy == "epsilon" else EPSILON

    def _repr_html_(self) -> str:
        height, width = self.net.mean.shape
        observed = f"float32[{width}]" if height == 1 and self.stack == 1 else ""
        rows = {
            "learned": f"{self.checkpoint.steps:,} steps by {type(self.algorithm).__name__}",
            "observes": observed or f"[{self.stack}, {height}, {width}]",
            "actions": self.actions,
            "policy": describe(self.policy, self.epsilon),
            "parameters": f"{sum(each.numel() for each in self.net.parameters()):,}",
        }
        return html_table(f"Agent that plays {self.games.game}", rows)

    def seed(self, seed: int) -> None:
        """Make sampled actions repeatable."""
        self._random.manual_seed(int(seed))

    def guarded(self, stuck: int | None) -> int | None:
        """Return a protocol's limit of the stuck guard; None if this agent plays without it.

        It does where actions are masked, and outside of Atari games and Catch: there to do the same
        for long is often right, and no game waits for FIRE.
        """
        return None if self.net.masks or is_gym(self.games.game) else stuck

    def initial_state(self, count: int = 1) -> Floats:
        """Return the state of ``count`` games at their beginning: zeros float32[count, S].

        S is 0 for an agent that is not recurrent.
        """
        state = self.net.initial_state(count)
        if state is None:
            return np.zeros((count, 0), dtype=np.float32)
        found: Floats = state.cpu().numpy()
        return found

    @overload
    def make_env(self, num_envs: None = None, render_mode: str | None = None) -> Env: ...

    @overload
    def make_env(self, num_envs: int, render_mode: str | None = None) -> Envs: ...

    def make_env(self, num_envs: int | None = None, render_mode: str | None = None) -> Any:
        """Return a `gymnasium.Env` that shows what the agent was trained on.

        Rewards are raw, and a lost life does not end a game. With ``num_envs`` it is a
        `gymnasium.vector.SyncVectorEnv` of so many, whose games begin again in the same step.

        Args:
            num_envs: None for a single environment.
            render_mode: such as "human" or "rgb_array", if the environment has it.

        Raises:
            ColobusError: if the environment cannot be made or has no such render mode.
        """
        from colobus.envs.playing import make_env, make_vector

        if num_envs is None:
            return make_env(self.games, self.stack, render_mode)
        return make_vector(self.games, self.stack, num_envs, render_mode)

    @overload
    def act(
        self,
        observations: NDArray[Any],
        policy: PolicyName | None = None,
        random: torch.Generator | None = None,
        *,
        state: None = None,
    ) -> Ints: ...

    @overload
    def act(
        self,
        observations: NDArray[Any],
        policy: PolicyName | None = None,
        random: torch.Generator | None = None,
        *,
        state: Floats,
    ) -> tuple[Ints, Floats]: ...

    @overload
    def act(
        self,
        observations: torch.Tensor,
        policy: PolicyName | None = None,
        random: torch.Generator | None = None,
        *,
        state: None = None,
    ) -> torch.Tensor: ...

    @overload
    def act(
        self,
        observations: torch.Tensor,
        policy: PolicyName | None = None,
        random: torch.Generator | None = None,
        *,
        state: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]: ...

    def act(
        self,
        observations: Any,
        policy: PolicyName | None = None,
        random: torch.Generator | None = None,
        *,
        state: Any = None,
    ) -> Any:
        """Return actions int64[N] for observations [N, …], or one action for one observation.

        Arrays give arrays, tensors give tensors on the same device. With ``state`` it returns the
        actions and the state after them, for any agent.

        Args:
            observations: pictures uint8[N, K, H, W], stacks with the newest frame last and black
                frames before a game's start; or vectors float32[N, D].
            policy: how the action is chosen; the agent's own by default.
            random: to draw with; the agent's own by default. Threads that share an agent need
                one each.
            state: float32[N, S], of each game before the observation (N is 1 for one observation):
                `initial_state`, or what `act` returned for the game's observation before. It is
                not changed. A recurrent agent needs it.

        Raises:
            ColobusError: if there is no such policy, actions are to be sampled and the algorithm
                has no probabilities, or a recurrent agent gets no state.
            ValueError: if the observations or the state have another shape or type than in
                training.
        """
        if isinstance(observations, torch.Tensor):
            carried: Any = None if state is None else torch.as_tensor(state).detach().cpu().numpy()
            found: Any = self.act(
                observations.detach().cpu().numpy(), policy, random, state=carried
            )
            given = partial(torch.as_tensor, device=observations.device)
            return given(found) if state is None else tuple(map(given, found))
        if isinstance(state, torch.Tensor):
            state = state.detach().cpu().numpy()
        stacks, single = self._stacks(np.asarray(observations))
        before = self._recurrent_state(state, len(stacks))
        few: AbstractContextManager[None] = nullcontext()
        if len(stacks) <= SMALL:
            few = torch_threads(1)
        with torch.inference_mode(), few:
            observed = self.net.preprocess(torch.from_numpy(stacks).to(self.device))
            random = random or self._random
            noise = self._noise(len(stacks), policy or self.policy, random)
            scores, after = self.algorithm.scores(self.net, observed, before)
            chosen: Ints = best_allowed(scores.cpu(), noise, random).numpy()
        actions = chosen[0] if single else chosen
        if state is None:
            return actions
        return actions, state if after is None else after.cpu().numpy()

    def predict(
        self,
        observation: Any,
        state: Floats | None = None,
        episode_start: Any = None,
        deterministic: bool = False,
        action_masks: Any = None,
    ) -> tuple[Any, Floats | None]:
        """Return actions and the next state, called as a model of Stable-Baselines3 is.

        So its ``evaluate_policy(agent, env)`` plays an agent. Observations are those of `act`, of
        one game or of N, as `make_env` shows them; stacks may have their frames last, as those of
        Stable-Baselines3's Atari environments.

        Args:
            observation: of one game or of N.
            state: float32[N, S], as the call before returned it; None at the beginning.
            episode_start: bool[N], whose games begin with this observation; the state before it
                does not count for these.
            deterministic: take the best action, instead of playing by the agent's own policy.
            action_masks: bool[A] or bool[N, A], which actions are allowed, instead of the masks in
                the observations (an argument of sb3-contrib's agents).

        Returns:
            The actions, and the state float32[N, S] of a recurrent agent, else None.

        Raises:
            ValueError: if the observations, the state or the masks have another shape or type
                than in training.
        """
        policy: PolicyName | None = "greedy" if deterministic else None
        stacks, single = self._stacks(np.asarray(observation))
        if action_masks is not None:
            allowed, count = np.atleast_2d(np.asarray(action_masks, bool)), self.net.masks
            if allowed.shape != (wanted := (len(stacks), count)):
                said = f"masks of {wanted[0]} x {wanted[1]}" if count else "no masks"
                raise ValueError(
                    f"action_masks are {list(allowed.shape)}, the agent was trained with {said}"
                )
            newest = joined(apart(stacks[:, -1], count)[0], allowed)
            stacks = np.concatenate([stacks[:, :-1], newest[:, None]], axis=1)
        if not self.initial_state().size:
            actions: Any = self.act(stacks, policy)
            return (actions[0] if single else actions), None
        before = self.initial_state(len(stacks)) if state is None else np.array(state, np.float32)
        if episode_start is not None:
            before[np.broadcast_to(np.asarray(episode_start, bool), len(stacks))] = 0.0
        actions, after = self.act(stacks, policy, state=before)
        return (actions[0] if single else actions), after

    def _stacks(self, observations: Frames) -> tuple[Frames, bool]:
        """Return observations [N, K, H, W], and whether there was only one, without N.

        Raises:
            ValueError: if they have another shape or type than in training.
        """
        height, width = self.net.mean.shape
        whole = (self.stack, height, width)
        vector, shape = height == 1, observations.shape
        wanted = (width,) if vector and self.stack == 1 else whole
        floats = vector or self._frame_type == np.float32
        kind = observations.dtype.kind in "fiu" if floats else observations.dtype == np.uint8
        for each in (wanted, whole):
            if kind and shape[-len(each) :] == each and len(shape) - len(each) in (0, 1):
                stacks = np.ascontiguousarray(observations, np.float32 if floats else np.uint8)
                return stacks.reshape(-1, *whole), len(shape) == len(each)
        if kind and not vector and shape[-3:] == (height, width, self.stack) and len(shape) < 5:
            return self._stacks(np.moveaxis(observations, -1, -3))
        numbers = ", ".join(map(str, wanted))
        raise ValueError(
            f"observations are {observations.dtype}{list(shape)}, the agent was trained on "
            f"{'float32' if floats else 'uint8'}[N, {numbers}]; agent.make_env() makes an "
            "environment that has them"
        )

    def _recurrent_state(self, state: Floats | None, count: int) -> torch.Tensor | None:
        """Return a state of ``count`` games as the network takes it."""
        want = self.initial_state(count)
        if state is None and want.size:
            raise ColobusError(
                "this agent is recurrent: begin with state = agent.initial_state(N), then "
                "actions, state = agent.act(observations, state=state)"
            )
        if state is not None and (state.shape != want.shape or state.dtype != want.dtype):
            raise ValueError(
                f"the state is {state.dtype}{list(state.shape)}, for these observations it must be "
                f"float32{list(want.shape)}"
            )
        return torch.from_numpy(state).to(self.device) if state is not None and want.size else None

    def _noise(self, count: int, policy: PolicyName, random: torch.Generator) -> torch.Tensor:
        """Return what is added to the scores [count, A]: the best one then is the action."""
        if policy not in get_args(PolicyName):
            raise ColobusError(
                f"policy {policy!r}: must be one of {', '.join(get_args(PolicyName))}"
            )
        shape = (count, self.actions)
        if policy == "greedy":
            return torch.zeros(shape)
        if policy == "epsilon":
            return epsilon_noise(shape, self.epsilon, random)
        if self.algorithm.acting_policy != "sampled":
            raise ColobusError(
                "policy sampled: this agent knows values of actions and no probabilities; take "
                "epsilon or greedy"
            )
        return gumbel(shape, random)


def describe(policy: PolicyName, epsilon: float) -> str:
    """Return a policy in words, as it is printed with scores."""
    return f"epsilon-greedy {epsilon:.2g}" if policy == "epsilon" else f"{policy} policy"


def as_agent(agent: Agent | str | Path) -> Agent:
    """Return an agent; that of a run or checkpoint if a path is given (see `load`)."""
    return agent if isinstance(agent, Agent) else load(agent)


def load(
    run: str | Path,
    make_env: MakeEnv | None = None,
    own_torso: Function | None = None,
    own_heads: Function | None = None,
    device: str = "cpu",
    checkpoint: str | int = "",
    log: Callable[[str], None] = print,
    trust: bool = False,
) -> Agent:
    """Return the agent of a run, of one of its checkpoints, or an exported one.

    Of a run it is the newest complete checkpoint; or the best one, if the newest is worse by more
    than the interval (docs/running.md), which ``log`` is told.

    Args:
        run: folder of the run or of an exported agent, a checkpoint's ``.safetensors`` file, or
            ``zoo:NAME`` in a clone of the repository.
        make_env: the function that made the environments of the run, if it is in no module.
        own_torso, own_heads: likewise, the functions that made its torso and heads.
        device: of the network: "cpu", "cuda", "cuda:N" or "auto", whichever the run was trained on.
        checkpoint: of the run, instead: "best", "last", or the number of a version.
        log: takes a line for the user.
        trust: run code that the folder names, though no training of this user was given it.

    Raises:
        ColobusError: if there is no such run, no such checkpoint or no such device, the folder
            names code that is not trusted, or the emulator does not know the run's game or has
            another number of actions for it.
    """
    place = find_device(device)
    folder, file = find_files(run)
    own = {"game": make_env, "own_torso": own_torso, "own_heads": own_heads}
    config = read_config(folder, trust, [name for name, made in own.items() if made is not None])
    check_callable(make_env=make_env, own_torso=own_torso, own_heads=own_heads)
    names: dict[str, Any] = {name: name_of(made) for name, made in own.items() if made is not None}
    games, network = config.experiment.games, config.experiment.network
    if make_env is not None:
        games = replace(games, game=names.pop("game"))
    experiment = replace(config.experiment, games=games, network=replace(network, **names))
    check_game(config._replace(experiment=experiment), folder / CONFIG)
    if file and checkpoint != "":
        raise ColobusError(f"checkpoint {checkpoint}: {run} is one already; leave one out")
    if file:
        found = read_checkpoint(file, check_of(config))
    else:
        file, found = pick_checkpoint(folder, str(checkpoint), check_of(config), log)
    try:
        check_frames(found, experiment)
        return Agent(experiment, unpacked(found), config.actions, place)
    except (ColobusError, ValueError) as error:
        raise ColobusError(f"checkpoint {file.name} {error}") from None
