# What is imported here is only in the environment that this runs in.
# mypy: disable-error-code="import-not-found"
"""Tianshou PPO on an Atari game, counted; runs in its own environment.

Settings are those of Tianshou's own example for Atari (examples/atari/atari_ppo.py, version 2): 10
games, 1000 steps a batch, minibatches of 256, 4 passes. Left out are the first 2560 steps that only
fill its buffer and the evaluations between epochs of 100,000 steps; frames are scaled in the
network alone, not in the games as well. Games are played by EnvPool, as its
examples/atari/README.md advises. Of torch's threads one is used: two were slower.
EnvPool gives the usual preprocessing: up to 30 no-ops, 4 frames a step, the maximum of the last
two, 84x84 grey, FIRE at the start, signs of rewards; a lost life ends a return.

The network is `DQNet`: three convolutions (32 8x8/4, 64 4x4/2, 64 3x3/1), 512 units, float32.
Policy and value share it, and Tianshou evaluates it once for each.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import ale_py
import gymnasium
import torch
from counting import Counts, parser, report
from tianshou.algorithm import PPO
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory, LRSchedulerFactoryLinear
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env.atari.atari_network import DQNet, ScaledObsInputActionReprNet, layer_init
from tianshou.env.atari.atari_wrapper import envpool_is_available, make_atari_env
from tianshou.trainer import OnPolicyTrainerParams
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

gymnasium.register_envs(ale_py)  # here, because the processes of the games read this file too

GAMES, COLLECTED, PASSES, EPOCHS, EPOCH_STEPS = 10, 1000, 4, 100, 100_000


class Enough(Exception):
    """Ends the training."""


def main() -> None:
    chosen = parser(__doc__).parse_args()
    torch.set_num_threads(1)
    counts = Counts(chosen.seconds, chosen.score)
    task = f"{chosen.game}NoFrameskip-v4"
    env, games, others = make_atari_env(task, 1, GAMES, 1, scale=False, frame_stack=4)
    others.close()
    channels, height, width = env.observation_space.shape
    actions = int(env.action_space.n)
    net = ScaledObsInputActionReprNet(
        DQNet(
            c=channels,
            h=height,
            w=width,
            action_shape=actions,
            features_only=True,
            output_dim_added_layer=512,
            layer_init=layer_init,
        )
    )
    optimizer = AdamOptimizerFactory(lr=2.5e-4, eps=1e-5)
    optimizer.with_lr_scheduler_factory(
        LRSchedulerFactoryLinear(
            max_epochs=EPOCHS,
            epoch_num_steps=EPOCH_STEPS,
            collection_step_num_env_steps=COLLECTED,
        )
    )
    actor = DiscreteActor(preprocess_net=net, action_shape=actions, softmax_output=False)
    algorithm = PPO(
        policy=DiscreteActorPolicy(actor=actor, action_space=env.action_space),
        critic=DiscreteCritic(preprocess_net=net),
        optim=optimizer,
        gamma=0.99,
        gae_lambda=0.95,
        max_grad_norm=0.5,
        vf_coef=0.25,
        ent_coef=0.01,
        return_scaling=False,
        eps_clip=0.1,
        value_clip=True,
        dual_clip=None,
        advantage_normalization=True,
        recompute_advantage=False,
    )
    buffer = VectorReplayBuffer(
        100_000, buffer_num=GAMES, ignore_obs_next=True, save_only_last_obs=True, stack_num=4
    )
    ended: list[float] = []

    class Told(Collector):
        """Keeps the returns of the games that ended."""

        def _collect(self, *args: Any, **more: Any) -> Any:
            stats = super()._collect(*args, **more)
            ended.extend(float(one) for one in stats.returns)
            return stats

    collector = Told(algorithm, games, buffer, exploration_noise=True)
    collector.reset()

    def before_collecting(_epoch: int, steps: int) -> None:
        if counts.see(steps, ended):  # all steps so far have been learned by now
            raise Enough

    try:
        algorithm.run_training(
            OnPolicyTrainerParams(
                training_collector=collector,
                test_collector=None,
                max_epochs=EPOCHS,
                epoch_num_steps=EPOCH_STEPS,
                update_step_num_repetitions=PASSES,
                batch_size=256,
                collection_step_num_env_steps=COLLECTED,
                training_fn=before_collecting,
                test_in_training=False,
                show_progress=False,
                verbose=False,
            )
        )
    except Enough:
        games.close()
    played = "EnvPool" if envpool_is_available else "gymnasium"
    report(
        counts,
        peer="tianshou-ppo",
        version=version("tianshou"),
        network="DQNet, 512 units, float32",
        input=f"84x84 grey, 4 stacked ({played})",
        passes=PASSES,
    )


if __name__ == "__main__":
    main()
