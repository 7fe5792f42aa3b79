"""Logs a run to MLflow, here into a database in the working folder."""

import mlflow

import colobus

experiment = colobus.preset("catch", steps=20_000)
mlflow.set_tracking_uri("sqlite:///mlflow.db")
mlflow.set_experiment("catch")


def log(status):
    """Log the score and the losses at the steps of the run."""
    score = {} if status.score is None else {"score": status.score}
    mlflow.log_metrics(score | status.values, step=status.steps)


with mlflow.start_run():
    mlflow.log_params(colobus.settings(experiment))
    result = colobus.train(experiment, "runs/with-mlflow", on_update=log)
    mlflow.set_tag("folder", str(result.folder))
