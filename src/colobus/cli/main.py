"""The command line: ``colobus train | eval | suite | starts | record | play | export``,
``colobus follow | watch | report | games | runs | show | bench | plan | slurm``.

Nothing heavy is imported before it is needed: ``colobus --version`` and ``colobus --help`` answer
at once. Exit codes: 0 done; 1 a role or a file failed; 2 a mistake in what was asked; 3 a role
hung; 4 training diverged; 5 the run's folder cannot be written; 129, 130, 131, 138 and 143
stopped by SIGHUP, Ctrl-C, SIGQUIT, SIGUSR1 and SIGTERM. Whatever ends a command is one line on
stderr, never a traceback.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import sys
import threading
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from colobus import __version__
from colobus.cli.interrupts import Interrupted, Interrupts
from colobus.core.errors import ColobusError, nearest, printable, program, quoted
from colobus.experiment.aliases import algorithm_hint, command_hint

TYPE_CHECKING = False  # `typing` takes a third of the time of ``colobus --help`` to import
if TYPE_CHECKING:
    from typing import NoReturn

HELP = """\
usage: colobus COMMAND ...

Distributed deep reinforcement learning that learns Atari games from the screen.

  colobus train pong              learn a game and watch it being learned
  colobus train CartPole-v1       learn an environment of Gymnasium
  colobus train --resume RUN      continue a run that was stopped
  colobus eval RUN                play full games without learning, with a printed protocol
  colobus suite pong,breakout     the same settings on many games, one table (atari49, atari57)
  colobus starts RUN --out FILE   save start states for: colobus eval --protocol human
  colobus record RUN              film a game (--milestones: before, half way, after)
  colobus play RUN                watch a trained agent live in the browser; --human takes over
  colobus export RUN              take an agent along: --onnx, --hub FOLDER
  colobus follow RUN              evaluate and film a run while it learns
  colobus watch                   show runs in the browser while they learn
  colobus report RUN ... --out report.html    one file with curves, intervals, published scores
  colobus games                   list the names of games and presets
  colobus runs                    list runs: their tags, what they learn, how far they are
  colobus show pong               print the settings and roles of a run without starting it
  colobus slurm dba3c-pong        write the job of a run for Slurm (--submit: and hand it in)
  colobus bench pong              measure how fast this machine could learn, and how fast it does
  colobus plan dba3c-pong --nodes 64 --costs costs.json    say how fast a cluster would be
  colobus --version

Each command has its own help, such as: colobus train pong --help (--help-all: all flags)
With --trust a command runs code that the folder of somebody else names.
"""

COMMANDS = {
    "train": "colobus.cli.train:main",
    "eval": "colobus.cli.evaluate:main",
    "suite": "colobus.cli.suite:main",
    "starts": "colobus.cli.evaluate:make_starts_file",
    "record": "colobus.cli.record:main",
    "play": "colobus.cli.watch:play",
    "export": "colobus.cli.export:main",
    "games": "colobus.cli.games:main",
    "runs": "colobus.cli.games:list_runs",
    "show": "colobus.cli.show:main",
    "bench": "colobus.cli.bench:main",
    "plan": "colobus.cli.plan:main",
    "follow": "colobus.cli.follow:main",
    "watch": "colobus.cli.watch:main",
    "report": "colobus.cli.report:main",
    "slurm": "colobus.cli.slurm:main",
}
"""Functions from the words after a command to its exit code."""

HELPS = {"-h", "--help", "--help-all", "help"}

NAMING = ["--resume", "--from", "--out", "--checkpoint", "--hub", "--csv", "--env", "--preset"]
NAMING += ["--algorithm", "--address", "--name", "--track", "--cores", "--place", "--act-device"]
NAMING += ["--partition", "--account", "--protocol", "--own-torso", "--own-heads", "--observe"]
"""Flags that would have no effect if their value was empty."""


def run(args: Sequence[str]) -> int:
    """Run one command; return its exit code."""
    try:
        code = _dispatch(args)
        sys.stdout.flush()
        return code
    except ColobusError as error:
        return _complain(str(error), error.exit_code)
    except BrokenPipeError:  # as in: colobus show pong | head
        _drop_output()
        return 141
    except OSError as error:
        code = 2 if error.errno == errno.ENAMETOOLONG else 1  # no file has such a name
        return _complain(f"{error.filename or 'a file'}: {error.strerror or error}", code)
    except MemoryError:
        return _complain("not enough memory", 1)
    except KeyboardInterrupt as stop:
        return _complain("stopped", stop.exit_code if isinstance(stop, Interrupted) else 130)


def main() -> NoReturn:
    """Run the command line of this process and leave it.

    A role that hangs cannot be joined, and the interpreter would wait for it or crash in it, so
    with such a thread alive the process leaves at once.
    """
    _open_output()
    interrupts = Interrupts().__enter__()  # for as long as the process lives
    if "--json" in sys.argv and HELPS.isdisjoint(sys.argv):
        _keep_apart()
    code = run(sys.argv[1:])
    code = interrupts.exit_code if code == 130 else code  # of another signal
    if any(t.daemon and t is not threading.current_thread() for t in threading.enumerate()):
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _dispatch(args: Sequence[str]) -> int:
    first = args[0] if args else "--help"
    if first == "help" and args[1:]:
        first, args = args[1], [args[1], "--help"]
    if first in HELPS:
        sys.stdout.write(HELP)
        return 0
    if first in ("--version", "-V", "version"):
        sys.stdout.write(f"colobus {__version__}\n")
        return 0
    if first not in COMMANDS:
        raise ColobusError(f"unknown command {first!r}: {_meant(first)}")
    from colobus.cli.flags import split_flag  # not for what is answered at once

    for before, word in pairwise(part for one in args for part in split_flag(one)):
        if not word and (before in NAMING or not before.startswith("-")):
            what = before if before in NAMING else "''"
            raise ColobusError(f"{what} is empty; give it a value, or leave it out")
    module, name = COMMANDS[first].split(":")
    command = getattr(importlib.import_module(module), name)
    try:
        words = [word for word in args[1:] if word != "--trust"]
        if len(words) < len(args) - 1:
            from colobus.core.trust import trust_everything

            trust_everything()
        return int(command(words))
    except SystemExit as end:  # tyro has printed help
        return int(end.code or 0)


TYPED_WRONG = 0.75
"""Likeness from which a word is a command: that of pong and plan is 0.5, of trian and train 0.8."""


def _meant(word: str) -> str:
    """Return what somebody may have wanted who gave a word that is no command."""
    if word.startswith("-"):
        return f"the command comes first, such as: {program()} train pong {word}"
    if said := command_hint(word) or algorithm_hint(word):
        return said
    from difflib import get_close_matches  # most runs never need it

    near = nearest(word, COMMANDS)
    if get_close_matches(word, COMMANDS, cutoff=TYPED_WRONG):
        return near
    from colobus.experiment.presets import preset
    from colobus.runs.folder import is_run

    if is_run(Path(word)):
        return f"to evaluate this run: {program()} eval {quoted(word)}"
    try:
        preset(word)
    except ColobusError:
        return near
    return f"to learn it: {program()} train {word}"


def _complain(line: str, code: int) -> int:
    try:
        sys.stdout.flush()
    except OSError:  # a full disk, or a terminal that is closed
        _drop_output()
    with contextlib.suppress(OSError):
        sys.stderr.write(f"colobus: {printable(' '.join(line.split()))}\n")
        sys.stderr.flush()
    return code


def _keep_apart() -> None:
    """Send to stderr what environments and their libraries print, so that stdout has JSON only."""
    from colobus.cli import flags

    with contextlib.suppress(OSError):  # it is closed
        flags.answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)


def _open_output() -> None:
    """Make stdout and stderr take any character, and be there."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed, as by >&-
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - stays open
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _drop_output() -> None:
    """Let what is still to be written to stdout go nowhere."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
