"""Other names of settings: of other libraries and of older versions, in flags and config.json."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

OTHERS: tuple[tuple[str, ...], ...] = (
    ("learning_rate lr_rate", "lr"),
    (
        "num_envs n_envs num_envs_per_worker num_envs_per_env_runner",
        "games actors",
        "each of so many actors plays so many games",
    ),
    (
        "total_timesteps total_steps timesteps n_timesteps num_timesteps max_steps max_timesteps",
        "steps",
    ),
    ("train_for_env_steps frames", "steps", "in decisions, of four frames each"),
    ("num_steps rollout rollout_length rollout_fragment_length", "length"),
    ("n_steps", "length", "of a rollout; n-step returns have {n}, with A3C and DQN"),
    (
        "num_minibatches minibatch_size sgd_minibatch_size batch_size",
        "minibatch",
        "in samples; a batch is one trajectory of each actor, or {batch}",
    ),
    ("train_batch_size", "batch"),
    ("update_epochs n_epochs num_epochs num_sgd_iter", "epochs"),
    ("clip_coef clip_range clip_param ppo_clip_ratio", "clip"),
    ("ent_coef entropy_coef entropy_coeff exploration_loss_coeff", "entropy entropy_end"),
    ("vf_coef value_loss_coeff vf_loss_coeff", "value_coefficient"),
    ("max_grad_norm grad_clip", "gradient_clip"),
    ("target_kl", "kl"),
    ("gae_lambda lambda", "lam"),
    (
        "num_workers n_workers num_env_runners",
        "actors workers",
        "actors around one learner, or workers that learn each",
    ),
    ("env_id env_name game rom", "", "the game is named first, such as pong"),
    ("preset", "", "the preset is named first, such as: vector --env Acrobot-v1"),
    ("algo", "", "the algorithm is part of the name that comes first, such as dqn-pong"),
    ("buffer_size", "capacity", "with DQN"),
    (
        "learning_starts num_steps_sampled_before_learning_starts",
        "minimum",
        "steps in the replay buffer before learning begins, with DQN",
    ),
    ("target_network_frequency target_update_interval", "target_every", "in updates"),
    (
        "epsilon start_e end_e exploration_fraction exploration_final_eps",
        "epsilon_start epsilon_end epsilon_steps",
        "exploration, with DQN; the optimizer's is {optimizer_epsilon}",
    ),
    ("frame_stack", "stack"),
    ("frameskip", "frame_skip"),
    ("torch_deterministic", "deterministic"),
    ("capture_video", "recorder"),
    ("save_freq", "checkpoint_seconds", "in seconds"),
    ("track", "", "docs/tracking.md has Weights & Biases, MLflow and TensorBoard"),
    ("with_wandb wandb use_wandb", "", "docs/tracking.md has Weights & Biases"),
    (
        "exp_name train_dir output output_dir save_dir save_path logdir log_dir",
        "out",
        "the folder of the run",
    ),
    (
        "gpu gpus num_gpus cuda use_cuda",
        "",
        "--device cuda takes a GPU (device='cuda' from Python)",
    ),
    ("time max_time time_limit", "minutes"),
    ("faults chaos", "", "faults are of the repository: python -m benchmarks.lib.faults train"),
    ("dummy", "", "stubs are of the repository: python -m benchmarks.lib.stubs"),
    ("n_eval_episodes", "episodes", "of colobus eval"),
)
"""Names in CleanRL, Stable-Baselines3, RLlib and Sample Factory, in lower case with underscores,
and of flags that are gone; ours for the same, and what differs."""

ALIASES = {name: ours for names, *ours in OTHERS for name in names.split()}
"""Our names for the same, and what differs, by each of the others."""

RENAMED = {"graphs": "cuda_graphs"}
"""Names of flags and arguments in version 0.1 and 0.2, and those of today."""

GROUPS_OF_1 = {"memory": "replay", "beside": "sidecars"}
"""Names of groups in a config.json of format 1, and those of today."""

SETTINGS_OF_1 = {
    "shape": {"bundles": "workers", "stores": "replays"},
    "algorithm": {"passes": "epochs"},
}
"""Names of settings in format 1 by today's group, and those of today."""


def renamed(word: str) -> str:
    """Return a flag by today's name, such as ``--no-cuda-graphs`` for ``--no-graphs``."""
    flag, equals, value = word.partition("=")
    no = "--no-" if flag.startswith("--no-") else "--"
    name = flag.removeprefix(no).replace("-", "_")
    if not flag.startswith("--") or name not in RENAMED:
        return word
    return no + RENAMED[name].replace("_", "-") + equals + value


def hint(name: str, shown: Callable[[str], str], known: Collection[str]) -> str:
    """Return what a setting of another library is called here; "" if that is not known.

    Args:
        name: as it was given: a flag or an argument, with dashes or underscores.
        shown: returns how one of our settings is written, such as its flag.
        known: what can be given where the name was given, written like that.
    """
    found = ALIASES.get(name.strip("-").replace("-", "_").lower())
    if found is None:
        return ""
    names = [shown(own) for own in found[0].split()]
    fits = not names or bool(set(names) & set(known))
    if not fits and shown("lr") not in known:
        return ""  # of a command that trains nothing
    note = re.sub(r"\{(\w+)\}", lambda own: shown(own[1]), "".join(found[1:]))
    if not names:
        return note
    note = note or ("" if fits else "with another algorithm")
    listed = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    return f"here it is {listed}{f' ({note})' if note else ''}"
