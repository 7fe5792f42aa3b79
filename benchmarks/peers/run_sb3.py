# What is imported here is only in the environment that this runs in.
# mypy: disable-error-code="import-not-found, misc"
"""Stable-Baselines3 PPO and DQN on an Atari game, counted; runs in its own environment.

Settings are those of the project's own zoo for Atari (DLR-RM/rl-baselines3-zoo,
hyperparams/ppo.yml and dqn.yml, section "atari"); n_timesteps, 10 million, sets the schedules.
`SubprocVecEnv` is what its documentation of A2C advises on a CPU ("modules/a2c", note on
performance); with one thread of torch it is the fastest of what it offers on two cores. Its
`AtariWrapper` gives the usual preprocessing: up to 30 no-ops, 4 frames a step, the maximum of the
last two, 84x84 grey, FIRE at the start, signs of rewards; a lost life ends a return.

The network is `NatureCNN`: three convolutions (32 8x8/4, 64 4x4/2, 64 3x3/1), 512 units, float32.
With ``--keep`` it is kept now and then under the names that its layers have in ours.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import ale_py
import gymnasium
import numpy
import torch
from counting import Counts, parser, report
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack

gymnasium.register_envs(ale_py)  # here, because the processes of the games read this file too

TIMESTEPS = 10_000_000

ENVIRONMENTS, PASSES = {"ppo": 8, "dqn": 1}, {"ppo": 4, "dqn": 1}

LAYERS = {
    "cnn.0": "torso.convolutions.0",
    "cnn.2": "torso.convolutions.1",
    "cnn.4": "torso.convolutions.2",
    "linear.0": "torso.hidden",
    "action_net": "heads.policy",
    "value_net": "heads.value",
    "q_net.q_net.0": "heads.q",
}
"""The ends of its layers' names, and what ours are called."""


class Watch(BaseCallback):
    """Counts at the start of a rollout: everything before it has been learned by then."""

    def __init__(self, counts: Counts) -> None:
        super().__init__()
        self._counts = counts
        self._enough = False

    def _on_rollout_start(self) -> None:
        if place := self._counts.place_to_keep(self.num_timesteps):
            state = self.model.policy.state_dict()
            kept = {
                f"{ours}.{kind}": state[name].numpy()
                for name in state
                for own, ours in LAYERS.items()
                for kind in ("weight", "bias")
                if name.endswith(f"{own}.{kind}") and "target" not in name
            }
            numpy.savez(place, **kept)
        ended = [game["r"] for game in self.model.ep_info_buffer]
        self._enough = self._counts.see(self.num_timesteps, ended)  # agent decisions, not frames

    def _on_step(self) -> bool:
        return not self._enough


def make(algorithm: str, game: str) -> Any:
    """Return the algorithm, ready to learn the game."""
    games = make_atari_env(
        f"{game}NoFrameskip-v4",
        n_envs=ENVIRONMENTS[algorithm],
        seed=1,
        vec_env_cls=SubprocVecEnv if ENVIRONMENTS[algorithm] > 1 else DummyVecEnv,
    )
    stacked = VecFrameStack(games, n_stack=4)
    if algorithm == "dqn":
        return DQN(
            "CnnPolicy",
            stacked,
            buffer_size=100_000,
            learning_rate=1e-4,
            batch_size=32,
            learning_starts=100_000,
            target_update_interval=1_000,
            train_freq=4,
            gradient_steps=1,
            exploration_fraction=0.1,
            exploration_final_eps=0.01,
            device="cpu",
        )
    return PPO(
        "CnnPolicy",
        stacked,
        n_steps=128,
        n_epochs=4,
        batch_size=256,
        learning_rate=lambda left: left * 2.5e-4,
        clip_range=lambda left: left * 0.1,
        vf_coef=0.5,
        ent_coef=0.01,
        device="cpu",
    )


def main() -> None:
    flags = parser(__doc__)
    flags.add_argument("--algorithm", choices=tuple(PASSES), required=True)
    chosen = flags.parse_args()
    torch.set_num_threads(1 if ENVIRONMENTS[chosen.algorithm] > 1 else 2)
    counts = Counts(chosen.seconds, chosen.score, keep=chosen.keep)
    model = make(chosen.algorithm, chosen.game)
    model.learn(TIMESTEPS, callback=Watch(counts))
    model.get_env().close()
    report(
        counts,
        peer=f"sb3-{chosen.algorithm}",
        version=version("stable-baselines3"),
        network="NatureCNN, 512 units, float32",
        input="84x84 grey, 4 stacked",
        passes=PASSES[chosen.algorithm],
    )


if __name__ == "__main__":
    main()
