"""A folder with everything that another person needs to play a trained agent, ready for a hub.

Its model card has the agent's score with the protocol, the settings, and how to load it. It is
Markdown that begins with metadata between two lines of dashes, which hubs read. The metadata is
YAML; its values are written as JSON, which YAML contains.
"""

from __future__ import annotations

import dataclasses
import json
import secrets
import shutil
from collections.abc import Callable
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from colobus import __version__
from colobus.core.checkpoint import write_pair
from colobus.core.errors import ColobusError
from colobus.core.fields import digits_of
from colobus.core.functions import NoPictures, is_function
from colobus.envs.make import gymnasium_id, is_atari
from colobus.evaluation.agent import Agent, load
from colobus.evaluation.evaluator import evaluate
from colobus.evaluation.films.file import Progress
from colobus.evaluation.films.player import Film, record
from colobus.evaluation.protocols import Evaluation
from colobus.evaluation.scores import plain
from colobus.experiment.settings import algorithm_name
from colobus.runs.config import Config, read_config
from colobus.runs.exported import Weights, packed
from colobus.runs.folder import CONFIG, EVALUATION, MODEL, find_files, gpu_of

FILM = "replay.mp4"
"""Film of the agent in an exported folder, under the name that hubs show."""

GROUPS = ("games", "network", "algorithm", "optimizer", "shape", "replay", "reuse", "stop")
"""Groups of settings that the card shows: those that decide what is learned."""


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
    import jinja2

    game, net = config.experiment.games.game, config.experiment.network
    algorithm = algorithm_name(config.experiment)
    versions = [n for n in ("colobus", "torch", "ale-py", "python") if n in config.about]
    card = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    card.filters["plain"] = lambda value: plain(str(value))
    source = resources.files("colobus.evaluation.export").joinpath("card.md.jinja")
    return card.from_string(source.read_text("utf-8")).render(
        metadata=metadata_of(game, algorithm, evaluation),
        game=game,
        algorithm=algorithm.upper(),
        steps=f"{agent.checkpoint.steps:,}",
        seconds=agent.checkpoint.counters.get("seconds"),
        about=config.about,
        gpu=gpu_of(config.about),
        version=__version__,
        versions=versions,
        weights=weights,
        evaluation=evaluation,
        digits=digits_of(evaluation.standard_error) if evaluation else 0,
        film=film,
        own=any(map(is_function, (game, net.own_torso, net.own_heads, algorithm))),
        settings=_settings(config),
        seed=config.experiment.seed,
    )


def metadata_of(game: str, algorithm: str, evaluation: Evaluation | None) -> str:
    """Return what hubs read, with names and score as leaderboards look for them.

    The score is the mean and the standard deviation of the games, the game has Gymnasium's name.
    """
    task, name = "reinforcement-learning", gymnasium_id(game)
    tags = [name, "deep-reinforcement-learning", task, "colobus", algorithm]
    values: dict[str, Any] = {
        "library_name": "colobus",
        "pipeline_tag": task,
        "tags": [*tags, *(["atari", game] if is_atari(game) else [])],
    }
    if evaluation is not None:
        score = f"{evaluation.mean:.2f} +/- {evaluation.standard_deviation:.2f}"
        metric = {"type": "mean_reward", "name": "mean_reward", "value": score, "verified": False}
        result = {
            "task": {"type": task, "name": task},
            "dataset": {"type": name, "name": name},
            "metrics": [metric],
        }
        values["model-index"] = [{"name": f"{algorithm.upper()}-{game}", "results": [result]}]
    lines = [f"{name}: {json.dumps(value)}" for name, value in values.items()]
    return "\n".join(["---", *lines, "---"])


def _settings(config: Config) -> list[tuple[str, str, str]]:
    """Return group, name and value of all settings of the game and of others than the default."""
    rows = []
    for group in GROUPS:
        part = getattr(config.experiment, group)
        for field in dataclasses.fields(part):
            value = getattr(part, field.name)
            if group == "games" or value != field.default:
                rows.append((group, field.name, json.dumps(value)))
    return rows


EVALUATING, FILMING = "playing games", "filming a game"
"""What `export_folder` does after it has written the weights."""


class Exported(NamedTuple):
    """What was exported."""

    folder: Path
    size: int  # bytes of all files
    evaluation: Evaluation | None
    film: Film | None


def export_folder(
    agent: Agent,
    source: Path,
    folder: Path,
    weights: Weights = "float32",
    protocol: str | None = "training",
    episodes: int | None = None,
    film_seconds: float = 20.0,
    progress: Callable[[str], Progress] | None = None,
) -> Exported:
    """Write the folder of an agent: whole, or not there at all.

    It has the weights, ``config.json``, the scores of the agent as it was exported (so with rounded
    weights, if they were rounded), a film and a model card.

    Args:
        agent: that is exported.
        source: what it was loaded from.
        folder: to make.
        weights: how the weights are saved, see `colobus.runs.exported.packed`.
        protocol: of the evaluation in the model card; None for no evaluation.
        episodes: games to play; by default those of the protocol.
        film_seconds: length of the film at most; 0 for none.
        progress: called with `EVALUATING` or `FILMING`; returns what is called with the progress.

    Raises:
        ColobusError: if ``folder`` is there already or cannot be written, or the protocol does not
            suit the game.
        KeyboardInterrupt: if Ctrl-C ended the evaluation.
    """
    if folder.exists():
        raise ColobusError(f"{folder}: is there already; name a new folder, or delete it first")
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.mkdir(parents=True)
        shutil.copyfile(find_files(source)[0] / CONFIG, temporary / CONFIG)
        if agent.checkpoint.group("int8"):  # rounded once, they stay so
            weights = "int8"
        write_pair(temporary / MODEL, packed(agent.checkpoint, weights))
        player, say = load(temporary), progress or (lambda _what: lambda _done, _all: None)
        evaluation: Evaluation | None = None
        film: Film | None = None
        if protocol:
            evaluation = evaluate(player, protocol, episodes, progress=say(EVALUATING))
            if evaluation.interrupted:
                raise KeyboardInterrupt
            text = json.dumps(evaluation.as_dict(), indent=1) + "\n"
            (temporary / EVALUATION).write_text(text, encoding="utf-8")
        if film_seconds:
            with suppress(NoPictures):
                film = record(player, temporary / FILM, film_seconds, progress=say(FILMING))
        card = model_card(read_config(temporary), player, weights, evaluation, bool(film))
        (temporary / "README.md").write_text(card, encoding="utf-8")
        temporary.replace(folder)
    except OSError as error:
        raise ColobusError(
            f"cannot write {folder}: {error.strerror or error}; name another folder or make room"
        ) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    size = sum(file.stat().st_size for file in folder.iterdir())
    return Exported(folder, size, evaluation, film)
