"""The model card of an exported agent: its score with the protocol, its settings, how to load it.

It is Markdown that begins with metadata between two lines of dashes, which hubs read. The metadata
is YAML; its values are written as JSON, which YAML contains.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from gelada import __version__
from gelada.core.markdown import plain
from gelada.evaluation.agent import Agent
from gelada.evaluation.exported import Weights
from gelada.evaluation.protocols import Evaluation
from gelada.training.config import Config
from gelada.training.experiment import algorithm_name

GROUPS = ("games", "network", "algorithm", "optimizer", "shape", "replay", "stop")
"""Groups of settings that the card shows: those that decide what is learned."""

WEIGHTS = {
    "float32": "as they were learned, float32",
    "int8": "rounded to 8 bits, with a scale for each unit or filter; the score is that of the "
    "rounded weights",
}


def model_card(
    config: Config,
    agent: Agent,
    weights: Weights,
    evaluation: Evaluation | None,
    film: bool,
) -> str:
    """Return the text of the model card.

    Args:
        config: of the run.
        agent: as it was exported.
        weights: how its weights were saved.
        evaluation: its scores; None if it was not evaluated.
        film: whether there is a film beside the card.
    """
    game, algorithm = config.experiment.games.game, algorithm_name(config.experiment)
    parts = [
        _metadata(game, algorithm, evaluation),
        f"# {game}, learned by {algorithm.upper()}",
        f"This agent plays {game}. It was trained for {agent.checkpoint.steps:,} steps (decisions) "
        f"with Gelada {plain(str(config.about.get('gelada-rl', __version__)))}"
        f"{_learned_in(agent)}.",
    ]
    if film:
        parts.append("[A film of the agent](replay.mp4)")
    parts += ["## Score", _score(evaluation), "## How to load it", _loading(config)]
    parts += ["## Files", _files(weights, evaluation, film)]
    parts += ["## Settings", _settings(config), "## Trained on", _machine(config)]
    return "\n\n".join(parts) + "\n"


def _learned_in(agent: Agent) -> str:
    seconds = agent.checkpoint.counters.get("seconds")
    return f", in {seconds / 60:.1f} minutes" if isinstance(seconds, float) else ""


def _metadata(game: str, algorithm: str, evaluation: Evaluation | None) -> str:
    """Return what hubs read, with the score as they show it for reinforcement learning."""
    task = "reinforcement-learning"
    values: dict[str, Any] = {
        "library_name": "gelada-rl",
        "pipeline_tag": task,
        "tags": [task, "gelada", game, algorithm],
    }
    if evaluation is not None:
        score = f"{evaluation.mean:.2f} +/- {evaluation.standard_error:.2f}"
        metric = {"type": "mean_reward", "name": "mean_reward", "value": score, "verified": False}
        result = {
            "task": {"type": task, "name": task},
            "dataset": {"type": game, "name": game},
            "metrics": [metric],
        }
        values["model-index"] = [{"name": f"{algorithm}-{game}", "results": [result]}]
    lines = [f"{name}: {json.dumps(value)}" for name, value in values.items()]
    return "\n".join(["---", *lines, "---"])


def _score(evaluation: Evaluation | None) -> str:
    if evaluation is None:
        return "The exported agent was not evaluated. `gelada eval FOLDER` does it."
    lines = "\n".join(evaluation.lines())
    return (
        f"Mean **{evaluation.mean:.2f}** ± {evaluation.standard_error:.2f} (standard error) over "
        f"{len(evaluation.games)} full games. How they were played, and every score:\n\n"
        f"```\n{lines}\n```"
    )


def _loading(config: Config) -> str:
    extra = ""
    if ":" in config.experiment.games.game or config.experiment.network.own_torso:
        extra = "\n\nIts environment or network is made by a function of the run's own code."
    return (
        "These commands need Gelada, the Python package `gelada-rl`. FOLDER is this folder on your "
        "machine:\n\n"
        "```\ngelada eval FOLDER\ngelada record FOLDER --out film.mp4\ngelada play FOLDER\n```\n\n"
        "From Python:\n\n"
        "```python\nimport gelada\n\n"
        'agent = gelada.load("FOLDER")\n'
        "env = agent.make_env()\n"
        "observation, info = env.reset(seed=1)\n"
        "action = agent.act(observation)\n```" + extra
    )


def _files(weights: Weights, evaluation: Evaluation | None, film: bool) -> str:
    rows = [
        ("model.safetensors", f"weights, {WEIGHTS[weights]}; mean and deviation of the input"),
        ("model.json", "steps, counters and checksums"),
        ("config.json", "all settings of the run, and the machine it ran on"),
    ]
    rows += [("evaluation.json", "every game of the score above")] if evaluation else []
    rows += [("replay.mp4", "the agent plays")] if film else []
    return "\n".join(["| file | contents |", "|---|---|", *(f"| `{a}` | {b} |" for a, b in rows)])


def _settings(config: Config) -> str:
    """Return the settings that differ from the defaults of the classes, and those of the game."""
    rows = []
    for group in GROUPS:
        part = getattr(config.experiment, group)
        for field in dataclasses.fields(part):
            value = getattr(part, field.name)
            if group == "games" or value != field.default:
                rows.append(f"| {group} | {field.name} | {json.dumps(value)} |")
    rows.append(f"| | seed | {config.experiment.seed} |")
    head = ["| group | setting | value |", "|---|---|---|"]
    said = f"Settings that differ from the defaults of Gelada {__version__}, and all of the game:"
    return "\n".join([f"{said}\n", *head, *rows])


def _machine(config: Config) -> str:
    about = {name: plain(str(value)) for name, value in config.about.items()}
    cores, memory = about.get("cores", "?"), about.get("memory_gib", "?")
    versions = [f"{k} {about[k]}" for k in ("gelada-rl", "torch", "ale-py", "python") if k in about]
    machine = f"{about.get('processor', 'an unknown processor')}, {cores} cores, {memory} GiB"
    return ". ".join([machine, ", ".join(versions)]) + "."
