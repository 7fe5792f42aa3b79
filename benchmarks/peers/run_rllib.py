# What is imported here is only in the environment that this runs in.
# mypy: disable-error-code="import-not-found"
"""RLlib APPO on an Atari game, counted; runs in its own environment.

Settings are those of RLlib's own example for Atari (rllib/examples/algorithms/appo/atari_appo.py in
Ray's source): 20 games, batches of 500 steps, a circular buffer of 4 batches that are used twice
each, its network, 64x64. The example has 4 env runners of 5 games and 2 aggregators, which is more
processes than a small machine has cores; here as many env runners as cores share the 20 games, and
there are no aggregators.
`wrap_atari_for_new_api_stack` gives the preprocessing: up to 30 no-ops, 4 frames a step, of which
the last two make the maximum, grey, FIRE at the start, a lost life ends a return; `clip_rewards`
signs rewards.

`--network nature` runs three convolutions (32 8x8/4, 64 4x4/2, 64 3x3/1, no padding) on 84x84.
RLlib has a hidden layer for the policy and one for the value: 256 units each are as many
multiplications as the 512 shared units that others have.

RLlib counts what was sampled and what was trained on, where a batch counts once for each use and
with a step too many for each fragment of a game. What is reported is the smaller of both counts,
which is at most too high: its learner drops batches that it has no time for. `passes` is the ratio
of both: how often a sampled step was used on average (2 if nothing were dropped).
"""

from __future__ import annotations

import os
from typing import Any

import ale_py
import gymnasium
import ray
from counting import Counts, parser, report, steady
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.connectors.env_to_module.frame_stacking import FrameStackingEnvToModule
from ray.rllib.connectors.learner.frame_stacking import FrameStackingLearner
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.wrappers.atari_wrappers import wrap_atari_for_new_api_stack
from ray.tune.registry import register_env

GAMES = 20

OWN = [(16, 4, 2), (32, 4, 2), (64, 4, 2), (128, 4, 2)]

NATURE = [(32, 8, 4, "valid"), (64, 4, 2, "valid"), (64, 3, 1, "valid")]

ABOUT = {
    "own": ("16, 32, 64, 128 filters 4x4/2 padded, 256 units for policy and value each", 64),
    "nature": ("Nature convolutions, 256 units for policy and value each", 84),
}


RETURNS = "returns"
"""The metric that holds the return of each game that ended since the last result. RLlib's own mean
is of these games only, however few, and not a number where none ended."""


def keep_return(
    *, episode: Any, prev_episode_chunks: Any, metrics_logger: Any, **_others: Any
) -> None:
    """Note the return of a game that ended, of which RLlib has sent off parts before."""
    whole = sum(part.get_return() for part in (*prev_episode_chunks, episode))
    metrics_logger.log_value(RETURNS, float(whole), reduce="item_series")


def make(game: str, network: str, runners: int) -> Any:
    """Return the algorithm, ready to learn the game."""
    side = ABOUT[network][1]

    def environment(settings: dict[str, Any]) -> Any:
        gymnasium.register_envs(ale_py)
        game_id = f"ALE/{game}-v5"
        return wrap_atari_for_new_api_stack(gymnasium.make(game_id, **settings), dim=side)

    register_env("atari", environment)
    config = (
        APPOConfig()
        .environment(
            "atari",
            env_config={
                "frameskip": 1,
                "full_action_space": False,
                "repeat_action_probability": 0.0,
            },
            clip_rewards=True,
        )
        .env_runners(
            num_env_runners=runners,
            num_envs_per_env_runner=GAMES // runners,
            env_to_module_connector=lambda *_: FrameStackingEnvToModule(num_frames=4),
        )
        .training(
            learner_connector=lambda *_: FrameStackingLearner(num_frames=4),
            train_batch_size_per_learner=500,
            target_network_update_freq=2,
            lr=0.0005,
            vf_loss_coeff=1.0,
            entropy_coeff=[[0, 0.01], [3_000_000, 0.0]],
            broadcast_interval=5,
            circular_buffer_num_batches=4,
            circular_buffer_iterations_per_batch=2,
        )
        .rl_module(
            model_config=DefaultModelConfig(
                vf_share_layers=True,
                conv_filters=OWN if network == "own" else NATURE,
                conv_activation="relu",
                head_fcnet_hiddens=[256],
            )
        )
        .callbacks(on_episode_end=keep_return)
        .reporting(min_time_s_per_iteration=2)
    )
    return config.build_algo()


def main() -> None:
    flags = parser(__doc__)
    flags.add_argument("--network", choices=("own", "nature"), default="own")
    chosen = flags.parse_args()
    cores = os.cpu_count() or 1
    runners = max(n for n in range(1, GAMES + 1) if n <= cores and GAMES % n == 0)
    ray.init(num_cpus=runners + 2, include_dashboard=False, logging_level="error")
    algorithm = make(chosen.game, chosen.network, runners)
    learned, sampled, trained = (Counts(chosen.seconds, chosen.score) for _ in range(3))
    ended: list[float] = []
    enough = False
    while not enough:
        result = algorithm.train()
        acted = int(result["env_runners"].get("num_env_steps_sampled_lifetime", 0))
        learners = result.get("learners", {}).get("__all_modules__", {})
        used = int(learners.get("num_env_steps_trained_lifetime", 0))
        sampled.see(acted)
        trained.see(used)
        more = result["env_runners"].get(RETURNS, [])
        ended += more if isinstance(more, list) else [more]  # one game's comes without its list
        enough = learned.see(min(acted, used), ended)
    algorithm.stop()
    ray.shutdown()
    name, side = ABOUT[chosen.network]
    uses, acts = (steady(counts.points)["steps_per_s"] for counts in (trained, sampled))
    report(
        learned,
        peer="rllib-appo",
        version=ray.__version__,
        network=f"{name}, float32",
        input=f"{side}x{side} grey, 4 stacked",
        passes=round(uses / acts, 2),
    )


if __name__ == "__main__":
    main()
