"""The recorder: it plays without learning and films the game in the emulator's colours."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from gelada.core.seeding import game_seeds, generator
from gelada.core.types import Bytes
from gelada.evaluation.agent import Agent, Policy, as_agent
from gelada.evaluation.films.file import Film as Film  # part of the public API
from gelada.evaluation.films.file import Progress, filming, format_of
from gelada.evaluation.films.player import Player
from gelada.evaluation.films.screens import make_screen


def record(
    agent: Agent | str | Path,
    out: str | Path,
    seconds: float = 60.0,
    seed: int = 1,
    policy: Policy | None = None,
    progress: Progress | None = None,
    several: bool = False,
    stuck: int | None = None,
) -> Film:
    """Film one game from its start until it is over, at most ``seconds`` at the game's own speed.

    The file appears whole or not at all. Every second emulator frame is kept for .mp4, every
    fourth for .gif.

    Args:
        agent: that plays, with its training's settings; or the run or checkpoint to load it from.
        out: file to write; its suffix says which kind. An older one is replaced.
        seconds: of film, at most.
        seed: of the game and the sampled actions.
        policy: the agent's own by default.
        progress: called after every step with the seconds filmed and ``seconds``.
        several: begin another game whenever one is over, until ``seconds`` are filmed.
        stuck: limit of a `StuckGuard`, as in the protocol that the agent is scored by; None for
            no guard.

    Raises:
        GeladaError: if the suffix is another, ``seconds`` is not positive, ``out`` cannot be
            written, or the environment has no pictures.
    """
    agent, out = as_agent(agent), Path(out)
    form = format_of(out, seconds)
    screen = make_screen(agent.games, int(game_seeds(seed, "film", 1)[0]))
    player = Player(agent, screen, generator(seed, "film actions"), policy, stuck)
    with closing(screen), filming(out, screen.rate) as film:

        def show(picture: Bytes) -> None:
            film.show(picture, screen.zoom or form.zoom, exact=screen.zoom is None)

        limit = seconds * screen.rate
        while film.seen < limit and (several or not player.games):
            player.begin(show)
            while not player.over and film.seen < limit:
                player.step(show)
                if progress:
                    progress(min(film.seen / screen.rate, seconds), seconds)
    filmed = film.seen / screen.rate
    return Film(out, player.score, player.steps, filmed, player.over, player.games)
