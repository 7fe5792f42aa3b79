"""The recipes that `halving.py` tries: what may differ between them, and the first ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Settings = dict[str, Any]
"""Of a candidate: a value of `SPACE` for each name in `OF` of its family."""

SPACE: dict[str, tuple[Any, ...]] = {
    "family": ("dqn", "pqn", "appo"),
    "frames": ("42 small", "42 pooled", "60 small", "84 dqn2013", "84 pooled"),
    "lr": (5e-4, 1e-3, 2e-3),
    "values": ("numbers", "histograms", "quantiles"),
    "duelling": (False, True),
    "munchausen": (0.0, 0.9),
    "lam": ("0.95", "0.9", "0.7", "0.95 to 0.7"),
    "gamma": ("0.99", "0.97 to 0.995"),
    "longest": (1, 20),
    "anneal": (500_000, 1_500_000),
    "learn": (2, 4, 8),
    "target": (0, 100),
    "capacity": (8_000, 50_000),
    "epochs": (1, 2, 3, 4),
    "kl": ("0.02 to 0.01 in 6", "0.06 to 0.005 in 1.5"),
    "predict": (False, True),
}
"""``learn`` is how often a step is learned from; the steps of ``kl`` are in millions. A candidate
of DQN without ``anneal`` or ``predict`` is older than that name."""

VALUES = ("values", "duelling", "munchausen", "lam", "gamma", "longest")

OF = {
    "dqn": ("frames", "lr", *VALUES, "anneal", "learn", "target", "capacity", "predict"),
    "pqn": ("frames", "lr", *VALUES, "epochs"),
    "appo": ("frames", "lr", "values", "epochs", "kl", "predict"),
}
"""What may differ within each family."""

PLAIN: Settings = {"frames": "42 small", "lr": 2e-3, "values": "numbers", "duelling": False}
PLAIN |= {"munchausen": 0.0, "lam": "0.95", "gamma": "0.99", "longest": 1}
DQN: Settings = {"family": "dqn", **PLAIN, "anneal": 1_500_000, "learn": 4, "target": 100}
DQN |= {"capacity": 8_000, "predict": False}
PQN: Settings = {"family": "pqn", **PLAIN, "lr": 1e-3, "lam": "0.9", "epochs": 2}
APPO: Settings = {"family": "appo", "frames": "84 dqn2013", "lr": 1e-3, "epochs": 3}
APPO |= {"values": "numbers", "kl": SPACE["kl"][0], "predict": False}
LARGE: Settings = {"frames": "84 dqn2013", "lr": 1e-3}

FIRST: tuple[Settings, ...] = (
    APPO,
    DQN,
    DQN | {"values": "histograms"},
    DQN | LARGE | {"values": "histograms"},
    DQN | {"values": "quantiles", "munchausen": 0.9, "longest": 20},
    DQN | {"values": "histograms", "learn": 8, "target": 0, "lam": "0.95 to 0.7"},
    PQN | {"values": "histograms", "epochs": 3},
    APPO | {"frames": "60 small", "values": "histograms", "kl": SPACE["kl"][1]},
)
"""The first round. The first two are the recipes of version 0.1 for any game, the default and
``dqn-``, whose lost lives now end returns."""

OTHERWISE = FIRST[4]
"""It was trained with Munchausen's rewards of all later steps in each return, which no setting does
today: what it reached tells nothing of Munchausen as it is now."""

BEST = (FIRST[2], FIRST[7])
"""The best of the first round of each family, but for the default of version 0.1 itself, which came
between them."""

SECOND: tuple[Settings, ...] = (
    *(BEST[0] | {name: value} for name, value in (
        ("target", 0), ("frames", "60 small"), ("duelling", True), ("munchausen", 0.9),
        ("anneal", 500_000),
    )),
    *(BEST[1] | {name: value} for name, value in (
        ("frames", "42 small"), ("epochs", 4), ("predict", True),
    )),
)  # fmt: skip
"""The second round: single changes to these two."""

ROUNDS = (FIRST, SECOND)


def words_of(settings: Settings) -> tuple[str, list[str]]:
    """Return what stands before the game in the preset's name, and the flags."""
    size, torso = settings["frames"].split()
    lr, family = settings["lr"], settings["family"]
    words = ["--size", size, "--torso", torso, "--life-loss-ends", "--lr", f"{lr:g}"]
    if family == "appo":
        start, _, end, _, millions = settings["kl"].split()
        steps = str(round(float(millions) * 1e6))
        words += ["--kl", start, "--kl-end", end, "--anneal-steps", steps]
        words += ["--epochs", str(settings["epochs"]), "--values", settings["values"]]
        return "ppo-", words + ["--autoencoder", "predict"] * settings["predict"]
    words += ["--lr-end", f"{lr / 10:g}", "--values", settings["values"]]
    weight, *last = str(settings["munchausen"]).split(" to ")
    words += ["--munchausen", weight]
    if family == "dqn":  # the rule --hold-after is younger than the search
        words += ["--munchausen-end", *(last or [weight]), "--hold-after", "0"]
    words += ["--longest-random", str(settings["longest"])]
    words += ["--duelling" if settings["duelling"] else "--no-duelling"]
    for flag in ("lam", "gamma"):
        start, *end = settings[flag].split(" to ")
        words += [f"--{flag}", start, f"--{flag}-end", *(end or [start])]
    if family == "pqn":
        return "pqn-", [*words, "--epochs", str(settings["epochs"])]
    words += ["--anneal-steps", str(whole(settings)["anneal"])]
    words += ["--autoencoder", "predict"] * whole(settings)["predict"]
    words += ["--target-every", str(settings["target"]), "--capacity", str(settings["capacity"])]
    return "dqn-", [*words, "--samples-per-insert", f"{settings['learn'] / 32:g}"]  # windows of 32


def proposed(tried: Sequence[tuple[Settings, dict[int, float]]], many: int) -> list[Settings]:
    """Return new candidates that Optuna proposes (TPE, Bergstra et al. 2011).

    Args:
        tried: all candidates so far, each with its value at the levels that it has played. One
            that did not reach the last of them counts as pruned.
        many: how many.
    """
    import optuna
    from optuna.distributions import CategoricalDistribution
    from optuna.trial import TrialState, create_trial

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(n_startup_trials=len(FIRST), seed=len(tried))
    study = optuna.create_study(direction="maximize", sampler=sampler)
    last = max((level for _, values in tried for level in values), default=0)
    for given, values in tried:
        settings = whole(given)
        if not values or not fits(settings) or settings == OTHERWISE:
            continue
        ended = last in values
        known_trial = create_trial(
            state=TrialState.COMPLETE if ended else TrialState.PRUNED,
            value=values[last] if ended else None,
            params=settings,
            distributions={name: CategoricalDistribution(SPACE[name]) for name in settings},
            intermediate_values=values,
        )
        study.add_trial(known_trial)
    known = [whole(settings) for settings, _ in tried]
    while len(known) < len(tried) + many:
        trial = study.ask()
        family = str(trial.suggest_categorical("family", SPACE["family"]))
        names = OF[family]
        new = {name: trial.suggest_categorical(name, SPACE[name]) for name in names}
        if (settings := {"family": family, **new}) not in known:
            known.append(settings)
    return known[len(tried) :]


def whole(settings: Settings) -> Settings:
    """Return a candidate's settings with names that are newer than it."""
    newer = {name: DQN[name] for name in ("anneal", "predict")}
    return newer | settings if settings["family"] == "dqn" else settings


def fits(settings: Settings) -> bool:
    """Say whether a candidate lies in the space of today."""
    names = {"family", *OF.get(settings["family"], ())}
    return settings.keys() == names and all(settings[name] in SPACE[name] for name in names)
