"""Searches learning rate and entropy weight on Catch with Optuna; hopeless runs are pruned."""

import optuna

import colobus

EVERY = 5_000  # steps between two reports: trials are compared at the same number of steps


def objective(trial):
    """Train with the settings of a trial; return the score."""
    reported = set()

    def report(status):
        number = status.steps // EVERY
        if status.score is None or number in reported:
            return
        reported.add(number)
        trial.report(status.score, number)
        if trial.should_prune():
            raise colobus.StopTraining("pruned")

    result = colobus.train(
        "catch",
        name=f"trial-{trial.number}",
        steps=20_000,
        seed=trial.number,
        lr=trial.suggest_float("lr", 5e-5, 4e-3, log=True),
        entropy=trial.suggest_float("entropy", 1e-4, 3e-2, log=True),
        on_update=report,
    )
    if result.interrupted:  # by Ctrl-C, which ends the sweep
        trial.study.stop()
    if result.stopped or result.interrupted:
        raise optuna.TrialPruned
    return result.score


study = optuna.create_study(
    direction="maximize",
    sampler=optuna.samplers.TPESampler(seed=1),
    pruner=optuna.pruners.MedianPruner(n_startup_trials=2),
)
study.optimize(objective, n_trials=4)
if study.get_trials(states=[optuna.trial.TrialState.COMPLETE]):
    print(study.best_value, study.best_params)
