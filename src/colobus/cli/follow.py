"""``colobus follow``: evaluate and film the checkpoints of a run while it learns."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

from colobus.cli.flags import RunPath, check_run, parse, print_json, value_of, without
from colobus.cli.interrupts import Interrupts
from colobus.core.errors import ColobusError
from colobus.core.fields import POSITIVE, OnlyWith, Range, with_error
from colobus.runs.folder import find_files
from colobus.runtime.system import lower_priority

LOWEST = 19
"""What niceness is raised by: everything else on the machine goes first."""


@dataclass(frozen=True)
class Follow:
    """Evaluate and film the checkpoints of a run as it learns: the newest each time, or --every."""

    run: RunPath
    """Folder of the run."""
    evaluate: bool = True
    """Play 50 full games by protocol dba3c; saved in RUN/eval."""
    evaluate_minutes: Annotated[
        float, Range(0), OnlyWith("with --evaluate", lambda flags: flags.evaluate)
    ] = 0.0
    """Begin no further game of an evaluation after so many minutes (0: play all)."""
    record: bool = True
    """Film the games of each checkpoint; saved in RUN/videos."""
    record_length: Annotated[
        float, POSITIVE, OnlyWith("with --record", lambda flags: flags.record)
    ] = 120.0
    """Seconds of each film."""
    every: bool = False
    """Process each complete checkpoint that is there, the oldest first, and not only the newest."""
    once: bool = False
    """Process the newest complete checkpoint (with --every: all of them) and exit, instead of going
    on until Ctrl-C."""
    json: bool = False
    """Print one JSON object per line and result on stdout; all else goes to stderr."""


def main(args: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    words, parent = split_parent(args)
    flags = parse(Follow, "follow", words)
    if not (flags.evaluate or flags.record):
        raise ColobusError("--no-evaluate --no-record: nothing is left to do; leave one out")
    if parent is None:  # else the training may not have written config.json yet
        check_run(flags.run)
        if find_files(flags.run)[1]:
            raise ColobusError(f"{flags.run} is an exported agent and learns no more; name a run")
    lower_priority(LOWEST)  # before torch and the emulator start threads, which inherit it
    import torch

    torch.set_num_threads(1)
    with Interrupts() as interrupts:
        interrupts.gentle = True
        _follow(flags, lambda: bool(interrupts.signal) or parent not in (None, os.getppid()))
    return interrupts.exit_code if interrupts.signal else 0


def split_parent(args: Sequence[str]) -> tuple[list[str], int | None]:
    """Return the words of the user, and the number after ``--parent``.

    The flag is for `colobus.training.sidecars` alone and in no help: the command ends when its
    parent is no longer that process.
    """
    if "--parent" not in args:
        return [*args], None
    number = value_of("--parent", args)
    if not number.isdecimal():
        raise ColobusError(f"--parent {number}: must be a process's number; leave it out")
    return without(args, ["--parent"]), int(number)


def _follow(flags: Follow, is_over: Callable[[], bool]) -> None:
    from colobus.cli.display import Printer
    from colobus.core.checkpoint import newest_checkpoint
    from colobus.evaluation.sidecar import RunEnded, Sidecar
    from colobus.runs.folder import CHECKPOINTS, EVALUATIONS, VIDEOS

    printer = Printer(to_stderr=flags.json)

    def say(result: dict[str, Any]) -> None:
        if flags.json:
            print_json(result, indent=None)
        else:
            printer.line(in_words(result))

    sidecar = Sidecar(
        flags.run,
        flags.evaluate,
        flags.record,
        say,
        is_over,
        record_seconds=flags.record_length,
        evaluate_minutes=flags.evaluate_minutes,
        every=flags.every,
    )
    if not flags.once:
        sidecar.work()
        return
    newest, _, _ = newest_checkpoint(flags.run / CHECKPOINTS)
    with suppress(RunEnded):
        if not sidecar.do_next():
            if not sidecar.has_usable():
                raise ColobusError(f"no checkpoint of {flags.run} can be used; see the lines above")
            printer.line(
                f"{newest.name} is done already: see {flags.run}/{EVALUATIONS} and /{VIDEOS}"
            )
        while flags.every and sidecar.do_next():
            pass


def in_words(result: dict[str, Any]) -> str:
    """Return a result of `colobus.evaluation.sidecar.Sidecar` as a line."""
    if result["kind"] == "passed over":
        return f"passed over: {result['why']}"
    rest = f"{result['skipped']} checkpoints skipped; {result['file']}"
    if result["kind"] == "film":
        return (
            f"{result['steps']:,} steps, film of {result['seconds']:.0f} s: score "
            f"{result['score']:.7g} in {result['games']} games; {rest}"
        )
    fewer = f" ({result['asked']} asked for)" if result["asked"] > result["games"] else ""
    mean = with_error(result["mean"], result["standard_error"])
    mean += " (standard error)" * ("±" in mean)
    return (
        f"{result['steps']:,} steps: mean {mean}, max {result['max']:.7g} of {result['games']} "
        f"games{fewer}; {rest}"
    )
