"""``gelada record``: a film of a game."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from gelada.cli.evaluate import find_checkpoint
from gelada.cli.flags import parse
from gelada.core.errors import GeladaError
from gelada.core.settings import POSITIVE, Range

SUFFIXES = (".mp4", ".gif")


@dataclass(frozen=True)
class Record:
    """Film a game in the emulator's own colours."""

    run: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]
    """Folder of the run."""
    out: Path | None = None
    """A .mp4 or .gif file (default: RUN/videos/STEPS.mp4)."""
    seconds: Annotated[float, POSITIVE] = 60.0
    """Length of the film at most; it ends with the game."""
    policy: Literal["sampled", "greedy", "epsilon"] | None = None
    """Sample actions from the policy, take the best one, or (epsilon) the best one and sometimes a
    random one (default: what the algorithm trains with)."""
    checkpoint: str = ""
    """File in the run's checkpoints (default: the newest complete one)."""
    seed: Annotated[int, Range(0)] = 1
    """Seed of the game and of sampled actions."""
    device: str = "cpu"
    """Device of the agent's network: cpu, cuda, or cuda:N for one of several GPUs."""


def main(args: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    flags = parse(Record, "record", args)
    if flags.out and flags.out.suffix not in SUFFIXES:
        raise GeladaError(f"--out {flags.out}: must end in {' or '.join(SUFFIXES)}")
    source = find_checkpoint(flags.run, flags.checkpoint)
    from gelada.cli.display import Printer
    from gelada.evaluation.agent import load
    from gelada.evaluation.video import record

    printer = Printer()
    agent = load(source, device=flags.device)
    out = flags.out or flags.run / "videos" / f"{agent.checkpoint.steps}.mp4"
    out.parent.mkdir(parents=True, exist_ok=True)
    with printer.progress(f"filming {agent.games.game}", "s") as bar:
        film = record(agent, out, flags.seconds, flags.seed, flags.policy, progress=bar)
    end = "the game was over" if film.over else "the game went on"
    printer.line(f"{film.path}: {film.steps:,} steps, score {film.score:g}; {end}")
    return 0
