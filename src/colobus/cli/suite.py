"""``colobus suite``: the same settings on many games, one table of results."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from colobus.cli.flags import parse, print_json
from colobus.cli.interrupts import Interrupts
from colobus.cli.report import write_report
from colobus.core.errors import ColobusError
from colobus.core.fields import Range
from colobus.core.files import locked, write_whole
from colobus.core.timing import clock

if TYPE_CHECKING:
    from colobus.cli.display import Printer
    from colobus.evaluation.protocols import Evaluation
    from colobus.report.ledger import Suite
    from colobus.report.results import LedgerLine
    from colobus.training.tracking import TrackerName

WIDTH = 120
"""Columns of the table where output is no terminal."""

GENERAL = "alien"
"""A game without a preset of its own: its settings are the general recipe's."""


@dataclass(frozen=True)
class Flags:
    """Learn many games with the same settings; called again, go on where it stopped."""

    games: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="GAMES")]]
    """Such as pong,breakout; atari49 for the games of DQN 2015 and Gorila, atari57 for all with
    published scores."""
    preset: str = ""
    """Preset whose settings all games get (default: DQN as in games without one, in pong too)."""
    seeds: Annotated[int, Range(1, 1000)] = 1
    """Runs of each game, with seeds 1, 2 and so on."""
    minutes: Annotated[float, Range(above=0, high=10_000_000)] | None = None
    """Stop each run after this many minutes (default: after the steps of the preset)."""
    steps: Annotated[int, Range(1, 10**15)] | None = None
    """Stop each run after this many environment steps."""
    out: Path | None = None
    """Folder of the ledger and all runs (default: runs/suite-PRESET)."""
    protocol: Literal["training", "noop", "sticky"] = "noop"
    """How the last checkpoint of each run is evaluated; see colobus eval --help."""
    episodes: Annotated[int, Range(1)] | None = None
    """Games of each evaluation (default: as the protocol says)."""
    json: bool = False
    """Print one JSON object on stdout; all else goes to stderr."""


def main(args: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    flags = parse(Flags, "suite", args)
    return run_suite(suite_of(flags), flags.json)


def run_suite(suite: Suite, json: bool, report: bool = False, **how: Any) -> int:
    """Play what is left of a suite, and show all of it; return the exit code.

    Args:
        suite: whose folder is made, or goes on.
        json: print a JSON object on stdout.
        report: write a report of all runs at the end.
        how: further arguments of `colobus.training.run.train`.
    """
    from colobus.cli.display import Printer
    from colobus.report.ledger import read_ledger

    suite.check()
    read_ledger(suite)  # nothing is made if it is of other settings
    printer = Printer(to_stderr=json)
    suite.folder.mkdir(parents=True, exist_ok=True)
    held = locked(suite.folder, f"the suite {suite.folder}", printer.line)
    with Interrupts() as interrupts, held:
        done = {(entry.game, entry.seed) for entry in read_ledger(suite)}
        left = [pair for pair in suite.pairs if pair not in done]
        stopped = False
        try:
            play(suite, left, printer, interrupts, **how)
        except KeyboardInterrupt:
            stopped = True
        _show(suite, json, printer)
        if stopped:
            printer.line(f"stopped by {interrupts.name}, all is kept; go on with the same command")
            return interrupts.exit_code
        if report:
            out = suite.folder / "report.html"
            write_report((suite.folder,), out, printer.line, suite.protocol, None)
        return 0


def suite_of(flags: Flags) -> Suite:
    """Return what the flags ask for.

    Raises:
        ColobusError: for an unknown game or preset, a number out of range, or without a stop rule
            that suits any game: runs of a suite have no score to reach.
    """
    from colobus.evaluation.protocols import find_protocol
    from colobus.experiment.presets import preset
    from colobus.report.ledger import Suite, parse_games
    from colobus.roles.tracker import StopRule

    games = parse_games(flags.games)
    episodes = find_protocol(flags.protocol).episodes if flags.episodes is None else flags.episodes
    base, steps, minutes = preset(flags.preset or GENERAL)[0], flags.steps, flags.minutes
    if steps is not None and minutes is not None:
        raise ColobusError(f"--steps {steps} with --minutes {minutes:g}: give one of them")
    if steps is None and minutes is None:
        steps, minutes = base.stop.steps, base.stop.minutes
    if steps is None and minutes is None:
        raise ColobusError("the preset ends at a score, which games do not share: give --minutes")
    base = replace(base, stop=StopRule(steps=steps, minutes=minutes))
    folder = flags.out or Path("runs") / f"suite-{flags.preset or 'general'}"
    return Suite(folder, games, flags.seeds, base, flags.preset, flags.protocol, episodes)


def play(
    suite: Suite,
    pairs: Sequence[tuple[str, int]],
    printer: Printer,
    interrupts: Interrupts,
    **how: Any,
) -> None:
    """Train and evaluate each (game, seed), and write its line; Ctrl-C is a KeyboardInterrupt."""
    from colobus.report.ledger import append, entry_of

    for number, (game, seed) in enumerate(pairs, len(suite.pairs) - len(pairs) + 1):
        printer.line(f"{number} of {len(suite.pairs)}: {game}, seed {seed}")
        try:
            evaluation = _one(suite, game, seed, printer, interrupts, **how)
        except ColobusError as error:
            raise type(error)(f"{game}, seed {seed}: {error}") from error
        entry = entry_of(suite, seed, evaluation)
        append(suite, entry)
        printer.line(f"{game}, seed {seed}: {_in_words(entry)}")


def _one(
    suite: Suite,
    game: str,
    seed: int,
    printer: Printer,
    interrupts: Interrupts,
    track: TrackerName = "",
    **how: Any,
) -> Evaluation:
    """Train one run from where it is to its end, and evaluate it; Ctrl-C saves it."""
    from colobus.cli.display import Display, earlier_curve
    from colobus.evaluation.agent import load
    from colobus.evaluation.evaluator import evaluate
    from colobus.training.run import train
    from colobus.training.start import may_go_on
    from colobus.training.tracking import tracking
    from colobus.training.words import already_over

    folder, experiment = suite.run(game, seed), suite.experiment(game, seed)
    title = f"{game}, seed {seed} · {folder}"
    interrupts.gentle = True
    try:
        resume = may_go_on(folder, printer.line)
        if not (resume and already_over(folder, experiment.stop)):
            earlier, then = earlier_curve(folder), interrupts.raise_if_any
            display = Display(title, experiment.stop, printer, earlier, then)
            with display, tracking(track, experiment, folder, printer.line) as how["callbacks"]:
                result = train(experiment, folder, game, resume, display.watch, printer.line, **how)
            if result.interrupted:
                raise KeyboardInterrupt
    finally:
        interrupts.gentle = False
    interrupts.raise_if_any()
    with printer.progress(f"playing {game}, protocol {suite.protocol}", "games") as bar:
        agent = load(folder, checkpoint="last")  # chosen by no score, as in published tables
        evaluation = evaluate(agent, suite.protocol, suite.episodes, progress=bar)
    if evaluation.interrupted:
        raise KeyboardInterrupt
    evaluation.save(folder)
    return evaluation


def _in_words(entry: LedgerLine) -> str:
    share = entry.human_normalised
    human = "" if share is None else f", {share:.1f} % of a human"
    time = "" if entry.seconds is None else f" in {clock(entry.seconds)}"
    return f"score {entry.score:.2f} after {entry.frames:,} frames{time}{human}"


def _show(suite: Suite, json: bool, printer: Printer) -> None:
    """Print the table and write it as suite.csv, if there are runs; print the JSON if asked."""
    from colobus.cli.display import on_terminal
    from colobus.report import ledger

    entries = ledger.read_ledger(suite)
    if found := ledger.summarize(suite, entries):
        if not printer.console.is_terminal:
            printer.console.width = max(printer.console.width, WIDTH)
        printer.table(on_terminal(ledger.suite_table(suite, found)), soft_wrap=False)
        write_whole(suite.folder / "suite.csv", ledger.suite_csv(suite, found).encode())
    if json:
        both = ledger.human_normalised(found) or (None, None)
        wanted = set(suite.pairs)
        runs = [dataclasses.asdict(e) for e in entries if (e.game, e.seed) in wanted]
        print_json(
            {
                "folder": str(suite.folder),
                "preset": suite.preset,
                "settings": suite.settings,
                "protocol": suite.protocol,
                "episodes": suite.episodes,
                "complete": len(runs) == len(wanted),
                "median_human_normalised": both[0],
                "mean_human_normalised": both[1],
                "games": [ledger.as_dict(one) for one in found],
                "runs": runs,
            }
        )
