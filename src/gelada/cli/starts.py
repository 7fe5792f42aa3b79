"""``gelada starts``: a file of start states for ``gelada eval --protocol human``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from gelada.cli.evaluate import find_checkpoint
from gelada.cli.flags import parse
from gelada.core.errors import GeladaError
from gelada.core.fields import Range
from gelada.core.program import program


@dataclass(frozen=True)
class Starts:
    """Save start states from an agent's games, for evaluations that begin there."""

    run: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]
    """Folder of the run, whose newest complete checkpoint plays, or the file of a checkpoint."""
    out: Path
    """File to write; it must not exist yet."""
    count: Annotated[int, Range(1)] = 100
    """Number of start states; about 45 seconds of play lie between two."""
    seed: Annotated[int, Range(0)] = 1
    """Seed of the games, of sampled actions and of the choice of states."""


def main(args: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    flags = parse(Starts, "starts", args)
    source = find_checkpoint(flags.run)
    if flags.out.exists():
        raise GeladaError(f"--out {flags.out}: the file exists; name a new file")
    if not flags.out.parent.is_dir():
        raise GeladaError(
            f"--out {flags.out}: there is no folder {flags.out.parent}; make it first"
        )
    from gelada.cli.display import Printer
    from gelada.evaluation.agent import load
    from gelada.evaluation.start_states import make_starts, write_starts

    printer = Printer()
    agent = load(source)
    with printer.progress(f"playing {agent.games.game}", "starts") as bar:
        starts = make_starts(agent, str(flags.run), flags.count, flags.seed, progress=bar)
    written = write_starts(flags.out, starts)
    printer.line(
        f"{flags.out}: {written.count} starts of {agent.games.game}, {written.frames.min():,} to "
        f"{written.frames.max():,} frames into their games; sha256 {written.sha256}"
    )
    printer.line(f"play from them: {program()} eval RUN --protocol human --starts {flags.out}")
    return 0
