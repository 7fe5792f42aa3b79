"""``gelada play``: an agent plays live in the browser, and a person may take over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from gelada.cli.evaluate import find_checkpoint
from gelada.cli.flags import parse
from gelada.cli.watch import show_link
from gelada.core.errors import GeladaError
from gelada.core.fields import Range
from gelada.evaluation.zoo import place_of


@dataclass(frozen=True)
class Play:
    """Show a trained agent in the browser as it plays, game after game."""

    run: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]
    """Folder of the run or of an exported agent, or zoo:NAME."""
    human: bool = False
    """Let a person take over with the keyboard: arrows and space, or digits."""
    policy: Literal["sampled", "greedy", "epsilon"] | None = None
    """Sample actions from the policy, take the best one, or (epsilon) the best one and sometimes a
    random one (default: what the algorithm trains with)."""
    checkpoint: str = ""
    """File in the run's checkpoints (default: the newest complete one)."""
    seed: Annotated[int, Range(0)] = 1
    """Seed of the games and of sampled actions."""
    port: Annotated[int, Range(0, 65535)] = 0
    """Port to listen at, on this machine only (0: any that is free)."""
    open: bool = False
    """Open the page in the browser."""


def main(args: Sequence[str]) -> int:
    """Run the command until Ctrl-C; return its exit code."""
    flags = parse(Play, "play", args)
    source = find_checkpoint(place_of(flags.run), flags.checkpoint)
    try:
        from gelada.page.live import serve_game
        from gelada.page.server import HOST, listen, new_token
    except ImportError as error:
        raise GeladaError(
            f"gelada play: {error}; install what it needs with: pip install 'gelada-rl[page]'"
        ) from None
    from gelada.evaluation.agent import load
    from gelada.page.live import LiveGame

    game = LiveGame(load(source), flags.seed, flags.policy, flags.human)
    token, once = new_token(), new_token() if flags.open else ""
    with listen(flags.port) as listening:
        show_link(listening, HOST, token, once)
        serve_game(game, token, listening, once)
    return 0
