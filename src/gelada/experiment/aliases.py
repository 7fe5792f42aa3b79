"""What settings are called in CleanRL, Stable-Baselines3, RLlib and Sample Factory, and here."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import NamedTuple


class Ours(NamedTuple):
    """What stands here for a setting of another library."""

    names: tuple[str, ...]  # of our settings
    note: str = ""  # what differs


LR = Ours(("lr",))
GAMES = Ours(("games", "actors"), "each of so many actors plays so many games")
STEPS = Ours(("steps",))
LENGTH = Ours(("length",))
MINIBATCH = Ours(("minibatch",), "in samples; a batch is one trajectory of each actor, or {batch}")
EPOCHS = Ours(("epochs",))
CLIP = Ours(("clip",))
ENTROPY = Ours(("entropy", "entropy_end"))
VALUE = Ours(("value_coefficient",))
GRADIENT = Ours(("gradient_clip",))
KL = Ours(("kl",))
LAM = Ours(("lam",))
WORKERS = Ours(("actors", "workers"), "actors around one learner, or workers that learn each")
GAME = Ours((), "the game is named first, such as pong")
PRESET = Ours((), "the preset is named first, such as: vector --env Acrobot-v1")
BUFFER = Ours(("capacity",), "with DQN")
STARTS = Ours(("minimum",), "steps in the replay buffer before learning begins, with DQN")
EPSILON = Ours(
    ("epsilon_start", "epsilon_end", "epsilon_steps"),
    "exploration, with DQN; the optimizer's is {optimizer_epsilon}",
)

OUT = Ours(("out",), "the folder of the run")
DEVICE = Ours((), "--device cuda takes a GPU (device='cuda' from Python)")
MINUTES = Ours(("minutes",))

ELSEWHERE: dict[str, Ours] = {
    "learning_rate": LR,
    "lr_rate": LR,
    "num_envs": GAMES,
    "n_envs": GAMES,
    "num_envs_per_worker": GAMES,
    "num_envs_per_env_runner": GAMES,
    "total_timesteps": STEPS,
    "total_steps": STEPS,
    "timesteps": STEPS,
    "n_timesteps": STEPS,
    "num_timesteps": STEPS,
    "train_for_env_steps": Ours(("steps",), "in decisions, of four frames each"),
    "num_steps": LENGTH,
    "n_steps": Ours(("length",), "of a rollout; n-step returns have {n}, with A3C and DQN"),
    "rollout": LENGTH,
    "rollout_length": LENGTH,
    "rollout_fragment_length": LENGTH,
    "num_minibatches": MINIBATCH,
    "minibatch_size": MINIBATCH,
    "sgd_minibatch_size": MINIBATCH,
    "batch_size": MINIBATCH,
    "train_batch_size": Ours(("batch",)),
    "update_epochs": EPOCHS,
    "n_epochs": EPOCHS,
    "num_epochs": EPOCHS,
    "num_sgd_iter": EPOCHS,
    "clip_coef": CLIP,
    "clip_range": CLIP,
    "clip_param": CLIP,
    "ppo_clip_ratio": CLIP,
    "ent_coef": ENTROPY,
    "entropy_coef": ENTROPY,
    "entropy_coeff": ENTROPY,
    "exploration_loss_coeff": ENTROPY,
    "vf_coef": VALUE,
    "value_loss_coeff": VALUE,
    "vf_loss_coeff": VALUE,
    "max_grad_norm": GRADIENT,
    "grad_clip": GRADIENT,
    "target_kl": KL,
    "gae_lambda": LAM,
    "lambda": LAM,
    "num_workers": WORKERS,
    "n_workers": WORKERS,
    "num_env_runners": WORKERS,
    "env_id": GAME,
    "env_name": GAME,
    "preset": PRESET,
    "game": GAME,
    "rom": GAME,
    "algo": Ours((), "the algorithm is part of the name that comes first, such as dqn-pong"),
    "buffer_size": BUFFER,
    "learning_starts": STARTS,
    "num_steps_sampled_before_learning_starts": STARTS,
    "target_network_frequency": Ours(("target_every",), "in updates"),
    "target_update_interval": Ours(("target_every",), "in updates"),
    "epsilon": EPSILON,
    "start_e": EPSILON,
    "end_e": EPSILON,
    "exploration_fraction": EPSILON,
    "exploration_final_eps": EPSILON,
    "frame_stack": Ours(("stack",)),
    "frameskip": Ours(("frame_skip",)),
    "torch_deterministic": Ours(("deterministic",)),
    "capture_video": Ours(("recorder",)),
    "save_freq": Ours(("checkpoint_seconds",), "in seconds"),
    "track": Ours((), "docs/tracking.md has Weights & Biases, MLflow and TensorBoard"),
    "with_wandb": Ours((), "docs/tracking.md has Weights & Biases"),
    "exp_name": OUT,
    "train_dir": OUT,
    "wandb": Ours((), "docs/tracking.md has Weights & Biases"),
    "use_wandb": Ours((), "docs/tracking.md has Weights & Biases"),
    "output": OUT,
    "output_dir": OUT,
    "save_dir": OUT,
    "save_path": OUT,
    "logdir": OUT,
    "log_dir": OUT,
    "gpu": DEVICE,
    "gpus": DEVICE,
    "num_gpus": DEVICE,
    "cuda": DEVICE,
    "use_cuda": DEVICE,
    "time": MINUTES,
    "max_time": MINUTES,
    "time_limit": MINUTES,
    "max_steps": STEPS,
    "max_timesteps": STEPS,
    "frames": Ours(("steps",), "in decisions, of four frames each"),
    "n_eval_episodes": Ours(("episodes",), "of gelada eval"),
}
"""By the other name, in lower case with underscores."""


def hint(name: str, shown: Callable[[str], str], known: Collection[str]) -> str:
    """Return what a setting of another library is called here; "" if that is not known.

    Args:
        name: as it was given: a flag or an argument, with dashes or underscores.
        shown: returns how one of our settings is written, such as its flag.
        known: what can be given where the name was given, written like that.
    """
    ours = ELSEWHERE.get(name.strip("-").replace("-", "_").lower())
    if ours is None:
        return ""
    names = [shown(own) for own in ours.names]
    fits = not names or bool(set(names) & set(known))
    if not fits and shown("lr") not in known:
        return ""  # of a command that trains nothing
    note = re.sub(r"\{(\w+)\}", lambda own: shown(own[1]), ours.note)
    if not names:
        return note
    note = note or ("" if fits else "with another algorithm")
    listed = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    return f"here it is {listed}{f' ({note})' if note else ''}"
