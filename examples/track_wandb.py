"""Logs a run to Weights & Biases. Without `mode="offline"` it is uploaded while it learns."""

import wandb

import colobus

experiment = colobus.preset("catch", steps=20_000)
run = wandb.init(project="colobus", mode="offline", dir="runs", config=colobus.settings(experiment))


def log(status):
    """Log the score and the losses at the steps of the run."""
    values = {f"losses/{name}": value for name, value in status.values.items()}
    run.log({"score": status.score, **values}, step=status.steps)


result = colobus.train(experiment, name="with-wandb", on_update=log)
run.finish()
