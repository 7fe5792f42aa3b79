"""A folder with everything that another person needs to play a trained agent, ready for a hub."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from gelada.core.checkpoint import write_pair
from gelada.core.errors import GeladaError
from gelada.envs.own import NoPictures
from gelada.evaluation.agent import Agent, load
from gelada.evaluation.evaluator import Progress, evaluate
from gelada.evaluation.export.card import model_card
from gelada.evaluation.exported import MODEL, Weights, find_files, packed
from gelada.evaluation.protocols import Evaluation
from gelada.evaluation.video import Film, record
from gelada.training.config import read_config

FILM = "replay.mp4"
"""Film of the agent in an exported folder, under the name that hubs show."""

EVALUATION = "evaluation.json"
"""Scores of the exported agent, with their protocol."""

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
        weights: how the weights are saved, see `gelada.evaluation.exported.packed`.
        protocol: of the evaluation in the model card; None for no evaluation.
        episodes: games to play; by default those of the protocol.
        film_seconds: length of the film at most; 0 for none.
        progress: called with `EVALUATING` or `FILMING`; returns what is called with the progress.

    Raises:
        GeladaError: if ``folder`` is there already or cannot be written, or the protocol does not
            suit the game.
        KeyboardInterrupt: if Ctrl-C ended the evaluation.
    """
    if folder.exists():
        raise GeladaError(f"{folder}: is there already; name a new folder, or delete it first")
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.mkdir(parents=True)
        shutil.copyfile(find_files(source)[0] / "config.json", temporary / "config.json")
        write_pair(temporary / MODEL, packed(agent.checkpoint, weights))
        player, say = load(temporary), progress or (lambda _what: lambda _done, _all: None)
        evaluation: Evaluation | None = None
        film: Film | None = None
        if protocol:
            evaluation = _evaluate(player, temporary, protocol, episodes, say(EVALUATING))
        if film_seconds:
            film = _film(player, temporary, film_seconds, say(FILMING))
        card = model_card(read_config(temporary), player, weights, evaluation, bool(film))
        (temporary / "README.md").write_text(card, encoding="utf-8")
        temporary.replace(folder)
    except OSError as error:
        raise GeladaError(
            f"cannot write {folder}: {error.strerror or error}; name another folder or make room"
        ) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    size = sum(file.stat().st_size for file in folder.iterdir())
    return Exported(folder, size, evaluation, film)


def _evaluate(
    agent: Agent, folder: Path, protocol: str, episodes: int | None, progress: Progress
) -> Evaluation:
    """Play the games of a protocol and write their scores.

    Raises:
        KeyboardInterrupt: if Ctrl-C ended it.
    """
    found = evaluate(agent, protocol, episodes, progress=progress)
    if found.interrupted:
        raise KeyboardInterrupt
    text = json.dumps(found.as_dict(), indent=1) + "\n"
    (folder / EVALUATION).write_text(text, encoding="utf-8")
    return found


def _film(agent: Agent, folder: Path, seconds: float, progress: Progress) -> Film | None:
    """Film the agent; None if its environment has no pictures."""

    def tell(done: float, whole: float) -> None:
        progress(round(done), round(whole))

    try:
        return record(agent, folder / FILM, seconds, progress=tell)
    except NoPictures:
        return None
