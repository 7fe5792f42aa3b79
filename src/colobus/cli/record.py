"""``colobus record``: a film of a game, of an agent's progress, or of several games at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from colobus.cli.evaluate import AgentFlags, check_source
from colobus.cli.flags import RunPaths, parse, print_json
from colobus.core.errors import ColobusError, program
from colobus.core.fields import POSITIVE, Range
from colobus.runs.folder import film_file, find_files

if TYPE_CHECKING:
    from colobus.cli.display import Printer
    from colobus.evaluation.films.file import Film
    from colobus.evaluation.films.grid import Cell

SUFFIXES = (".mp4", ".gif")


@dataclass(frozen=True)
class Record(AgentFlags):
    """Film a game in the emulator's own colours."""

    runs: RunPaths
    """Folder of the run or of an exported agent, the file of a checkpoint, or zoo:NAME. Of several
    runs a game of each is filmed, side by side."""
    out: Path | None = None
    """A .mp4 or .gif file (default: in RUN/videos)."""
    gif: bool = False
    """Write a .gif to RUN/videos instead of a .mp4."""
    milestones: bool = False
    """Film the agent before, half way through and after learning, side by side."""
    grid: Annotated[int, Range(0, 36)] = 0
    """Film so many games of each run in one picture."""
    seconds: Annotated[float, POSITIVE] = 60.0
    """Length of the film at most; it ends with the game."""
    json: bool = False
    """Print one JSON object on stdout; all else goes to stderr."""

    def file(self, run: Path, name: str) -> Path:
        """Return where a film goes: where it was asked for, or into the run's folder."""
        return self.out or film_file(run, name, ".gif" if self.gif else ".mp4")


def main(args: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    flags = parse(Record, "record", args)
    _check(flags)
    sources = [check_source(run) for run in flags.runs]
    runs = [find_files(source)[0] for source in sources]
    from colobus.cli.display import Printer

    printer = Printer(to_stderr=flags.json)
    if flags.milestones:
        films, titles = _film_together(flags, printer, *_of_milestones(runs[0], flags, printer))
    elif flags.grid or len(runs) > 1:
        films, titles = _film_together(flags, printer, *_of_grid(runs, sources, flags, printer))
    else:
        films, titles = [_film_one(flags, runs[0], sources[0], printer)], [""]
    if flags.json:
        games = [
            {"title": title, "score": film.score, "steps": film.steps, "over": film.over}
            for title, film in zip(titles, films, strict=True)
        ]
        first = films[0]
        print_json({"film": str(first.path), "seconds": first.seconds, "games": games})
    return 0


def _check(flags: Record) -> None:
    """Raise ColobusError if flags do not go together."""
    out = flags.out
    if not flags.runs:
        raise ColobusError(f"RUN is missing: name it first; see {program()} record --help")
    if out and out.suffix.lower() not in SUFFIXES:
        raise ColobusError(f"--out {out}: must end in {' or '.join(SUFFIXES)}")
    if out and flags.gif:
        raise ColobusError(f"--gif with --out {out}: its name says what it is; leave one out")
    if flags.milestones and flags.grid:
        raise ColobusError("--milestones with --grid: two kinds of films; leave one out")
    if flags.milestones and len(flags.runs) > 1:
        raise ColobusError(f"--milestones with {len(flags.runs)} runs: takes one run")
    if flags.milestones and find_files(check_source(flags.runs[0]))[1]:
        raise ColobusError(f"--milestones with {flags.runs[0]}: takes a run, with its checkpoints")
    if flags.milestones and flags.checkpoint:
        raise ColobusError("--milestones with --checkpoint: it takes three of them; leave one out")
    if flags.checkpoint not in ("", "best", "last") and len(flags.runs) > 1:
        raise ColobusError(f"--checkpoint with {len(flags.runs)} runs: takes one run")
    if len(flags.runs) > 1 and not out:
        raise ColobusError(f"a film of {len(flags.runs)} runs: say where with --out FILE")


def _film_one(flags: Record, run: Path, source: Path, printer: Printer) -> Film:
    from colobus.evaluation.agent import load
    from colobus.evaluation.films.player import record

    agent = load(source, device=flags.device, checkpoint=flags.checkpoint, log=printer.line)
    out = flags.file(run, str(agent.checkpoint.steps))
    with printer.progress(f"filming {agent.games.game}", "s") as bar:
        film = record(agent, out, flags.seconds, flags.seed, flags.policy, progress=bar)
    end = "the game was over" if film.over else "the game went on"
    printer.line(f"{film.path}: {film.steps:,} steps, score {film.score:.7g}; {end}")
    return film


def _of_milestones(run: Path, flags: Record, printer: Printer) -> tuple[list[Cell], Path]:
    """Return the games of an agent's progress, and the film's file."""
    from colobus.evaluation.films.grid import Cell
    from colobus.evaluation.films.milestones import milestones

    found = milestones(run, flags.device, printer.line)
    if len(found) < 3:
        printer.line("no complete checkpoint is near half way")
    cells = [Cell(one.agent, one.title, flags.seed) for one in found]
    return cells, flags.file(run, "milestones")


def _of_grid(
    runs: Sequence[Path], sources: Sequence[Path], flags: Record, printer: Printer
) -> tuple[list[Cell], Path]:
    """Return games of each run, and the film's file."""
    from colobus.evaluation.agent import load
    from colobus.evaluation.films.grid import MOST, Cell

    count = max(flags.grid, 1)
    if len(runs) * count > MOST:
        raise ColobusError(f"{len(runs)} runs with --grid {count}: at most {MOST} games in all")
    cells = []
    for run, source in zip(runs, sources, strict=True):
        agent = load(source, device=flags.device, checkpoint=flags.checkpoint, log=printer.line)
        name = run.resolve().name
        for i in range(count):
            seed = flags.seed + i
            own = f"seed {seed}" if len(runs) == 1 else f"{name}, seed {seed}"
            cells.append(Cell(agent, name if count == 1 else own, seed))
    return cells, flags.file(runs[0], f"{cells[0].agent.checkpoint.steps}-grid")


def _film_together(
    flags: Record, printer: Printer, cells: list[Cell], out: Path
) -> tuple[list[Film], list[str]]:
    """Film games in one picture; return the films and their titles."""
    from colobus.evaluation.films.grid import record_grid

    with printer.progress(f"filming {len(cells)} games", "s") as bar:
        films = record_grid(cells, out, flags.seconds, flags.policy, progress=bar)
    printer.line(f"{out}: {films[0].seconds:.0f} seconds")
    for cell, film in zip(cells, films, strict=True):
        end = "the game was over" if film.over else "the game went on"
        printer.line(f"  {cell.title}: score {film.score:.7g} in {film.steps:,} steps; {end}")
    return films, [cell.title for cell in cells]
