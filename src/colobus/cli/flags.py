"""From the words of a command to its frozen dataclass; every mistake is one line.

Imports no torch, so that help and wrong words are answered at once.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import shutil
import sys
from collections.abc import Callable, Collection, Sequence
from itertools import takewhile
from pathlib import Path
from textwrap import TextWrapper
from typing import Annotated, Any, TextIO, TypeVar

import tyro
from tyro import _errors as tyro_errors  # private; docs/dependencies.md says why

from colobus.core.errors import ColobusError, nearest, program
from colobus.core.fields import Name, check, given, hints_of, only_with, whole
from colobus.experiment.aliases import hint, renamed
from colobus.runs.folder import is_run, runs_in

T = TypeVar("T")

CONFIG = (tyro.conf.OmitArgPrefixes, tyro.conf.DisallowNone)
"""Flags are ``--lr``, not ``--algorithm.lr``; an absent value is said by leaving the flag out."""

EVERYTHING = "--help-all"
"""Asks for the help of all flags, where --help has those that most people want."""

HELP = {"-h", "--help", EVERYTHING}
"""Words that ask for help. What stands beside them is left out: help tells of what is not given."""

WIDEST = 100
"""Columns of what help says about a command."""

RunPath = Annotated[Path, tyro.conf.arg(metavar="RUN"), tyro.conf.Positional]
RunPaths = Annotated[tuple[Path, ...], tyro.conf.arg(metavar="RUN ..."), tyro.conf.Positional]
"""What stands first after a command: a run, or several."""


def flag_of(name: str) -> str:
    """Return the flag of a field; of ``group.name`` that of the name alone."""
    return "--" + name.rpartition(".")[2].replace("_", "-")


def parse(
    kind: type[T],
    command: str,
    args: Sequence[str],
    default: T | None = None,
    flag: Name = flag_of,
    about: str = "",
    who_has: Callable[[str], str] = lambda _: "",
) -> T:
    """Return ``args`` as a ``kind``, starting from ``default``.

    Args:
        kind: the command's dataclass.
        command: its name, for messages.
        args: the words after it.
        default: values of flags that are not given.
        flag: names the flag of a field ``name`` or ``group.name``.
        about: what help says beside the docstring of ``kind``.
        who_has: returns what has an unknown flag, from the name of its field; "" if nothing has.

    Raises:
        ColobusError: on an unknown flag, a value that cannot be read or is out of range, or a flag
            without what it has an effect with.
        SystemExit: with code 0, when ``--help`` was printed.
    """
    extra: dict[str, Any] = {} if default is None else {"default": default}
    shown: Any = quiet(kind) if default is None else kind
    paragraphs = [*(inspect.getdoc(kind) or "").split("\n\n"), about]
    width = min(shutil.get_terminal_size().columns, WIDEST)
    # the parser puts lines that begin with a letter together again, so further ones are indented
    wrapper = TextWrapper(
        width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    said = "\n\n".join(wrapper.fill(" ".join(text.split())) for text in paragraphs if text)

    def refuse(event: tyro_errors.ParseErrorEvent) -> None:
        wrong = _in_words(event, args, flags_of(kind, flag), who_has)
        raise ColobusError(f"{wrong}; see {program()} {command} --help")

    with tyro_errors.on_parse_error(refuse):
        flags: T = tyro.cli(
            shown,
            prog=f"colobus {command}",
            description=said,
            args=["--help"] if HELP & set(args) else [modern(word) for word in args],
            config=CONFIG,
            registry=WHOLE_NUMBERS,
            **extra,
        )
    check(flags, flag)
    for name, own in hints_of(shown).items():
        rule, value = only_with(own), getattr(flags, name)
        if rule and value != getattr(shown, name) and not rule.holds(flags):
            raise ColobusError(f"{given(flag(name), value)}: has an effect only {rule.what}")
    return flags


WHOLE_NUMBERS = tyro.constructors.ConstructorRegistry()
"""Lets the parser read whole numbers with `whole`."""


@WHOLE_NUMBERS.primitive_rule
def _whole_number(
    kind: tyro.constructors.PrimitiveTypeInfo,
) -> tyro.constructors.PrimitiveConstructorSpec[int] | None:
    if kind.type is not int:
        return None
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=lambda words: whole(words[0]),
        is_instance=lambda value: isinstance(value, int) and not isinstance(value, bool),
        str_from_instance=lambda value: [str(value)],
    )


def modern(word: str) -> str:
    """Return a word of a command with today's name of its flag; say so if it had an old one."""
    if (found := renamed(word)) != word:
        sys.stderr.write(f"colobus: {word.partition('=')[0]} is {found.partition('=')[0]} now\n")
    return found


ANNOTATED: Any = Annotated
UNSAID = tyro.conf.arg(
    help_behavior_hint=lambda label: "" if label in ("None", "", "''") else f"(default: {label})"
)


def quiet(
    kind: Any,
    hidden: Callable[[str], bool] = lambda _: False,
    named: Name = lambda _: "",
    groups: Collection[tuple[str, Any]] = (),
) -> Any:
    """Return a frozen dataclass whose help does not print defaults that are None or empty.

    What holds then stands in the text of the setting.

    Args:
        kind: a dataclass of settings.
        hidden: tells whether help leaves out a field.
        named: tells what its flag is called ("": like the field).
        groups: dataclasses that take the place of those of fields, by name; they stay as they are.
    """
    fields: list[Any] = []
    for each in dataclasses.fields(kind):
        own = hints_of(kind)[each.name]
        if isinstance(own, type) and dataclasses.is_dataclass(own):
            inner: Any = dict(groups).get(each.name) or quiet(own, hidden)
            fields.append((each.name, inner, dataclasses.field(default_factory=inner)))
            continue
        needed = each.default is each.default_factory is dataclasses.MISSING
        marks: list[Any] = [UNSAID] if needed or each.default in (None, "", ()) else []
        if hidden(each.name):
            marks = [tyro.conf.Suppress]
        elif named(each.name):
            marks.append(tyro.conf.arg(name=named(each.name)))
        if marks:
            default = () if needed else (each.default,)
            fields.append((each.name, ANNOTATED[(own, *marks)], *default))
    if not fields:
        return kind
    made = dataclasses.make_dataclass(
        kind.__name__, fields, bases=(kind,), frozen=True, kw_only=True
    )
    made.__doc__, made.__module__ = kind.__doc__, kind.__module__
    return made


def split_flag(word: str) -> list[str]:
    """Return a flag with dashes, and its value if it has one behind "="; another word as it is."""
    flag, *value = word.split("=", word.startswith("--"))
    return [flag.replace("_", "-") if word.startswith("--") else flag, *value]


def value_of(flag_name: str, args: Sequence[str]) -> str:
    """Return the value that follows a flag the last time, which is the one that counts, or ""."""
    return next(iter(values_of(flag_name, args)), "")


def values_of(flag_name: str, args: Sequence[str]) -> tuple[str, ...]:
    """Return the words that follow a flag of several values, up to the next flag."""
    names = [split_flag(word)[0] for word in args]
    if flag_name not in names:
        return ()
    place = len(names) - 1 - names[::-1].index(flag_name)  # the last one counts
    after = takewhile(lambda word: not word.startswith("--"), args[place + 1 :])
    return tuple(filter(None, [*split_flag(args[place])[1:], *after]))


def without(args: Sequence[str], valued: Sequence[str], alone: Sequence[str] = ()) -> list[str]:
    """Return words without some flags and their values, and without some that stand ``alone``."""
    left, skip = list[str](), False
    gone = {*valued, *alone, *(flag.replace("--", "--no-", 1) for flag in alone)}
    for word in args:
        name, *value = split_flag(word)
        if not skip and name not in gone:
            left.append(word)
        skip = not skip and name in valued and not value
    return left


def flags_of(kind: Any, flag: Name = flag_of, group: str = "") -> list[str]:
    """Return the flags of a command's dataclass, those of its groups included."""
    found: list[str] = []
    for name, own in hints_of(kind).items():
        inner = dataclasses.is_dataclass(own)
        found += flags_of(own, flag, f"{name}.") if inner else [flag(group + name)]
    return found


def check_run(run: Path) -> None:
    """Raise ColobusError if ``run`` is no run's folder; the message has the nearest known runs."""
    if is_run(run):
        return
    if below := runs_in(run):
        raise ColobusError(
            f"{str(run)!r} is a folder of runs: name one of them, such as {below[0]}"
        )
    runs = [str(path) for path in (*runs_in(run.parent), *runs_in(Path("runs")))]
    near = f"; {nearest(str(run), runs)}" if runs else ""
    raise ColobusError(
        f"{str(run)!r} is no run: it has no config.json; name a folder that colobus train "
        f"made{near}"
    )


def check_file(flag: str, file: Path | None, *suffixes: str) -> None:
    """Raise ColobusError if a file that was asked for by a flag cannot be made."""
    if file and suffixes and file.suffix not in suffixes:
        raise ColobusError(f"{flag} {file}: must end in {' or '.join(suffixes)}")
    if file and not file.parent.is_dir():
        raise ColobusError(f"{flag} {file}: there is no folder {file.parent}; make it first")
    if file and file.exists() and not file.is_file():
        raise ColobusError(f"{flag} {file}: is no regular file; name another")


answers: TextIO | None = None
"""Where `print_json` prints if stdout, on which environments may print, was sent to stderr."""


def print_json(data: dict[str, Any], indent: int | None = 2) -> None:
    """Print one JSON object on stdout; without ``indent`` in one line."""
    stream = answers or sys.stdout
    stream.write(json.dumps(data, indent=indent) + "\n")
    try:
        stream.flush()
    except BrokenPipeError:  # nobody reads; what is left goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise


def _in_words(
    event: tyro_errors.ParseErrorEvent,
    args: Sequence[str],
    flags: list[str],
    who_has: Callable[[str], str],
) -> str:
    """Return what the parser complains about."""
    match event:
        case tyro_errors.UnrecognizedArgs(tokens=tokens):
            word = next((token for token in tokens if token.startswith("-")), tokens[0])
            word = word.partition("=")[0]
            if not word.startswith("-"):
                return f"unknown argument {word!r}"
            said = who_has(word.strip("-").replace("-", "_"))
            said = said or hint(word, flag_of, flags) or nearest(word, flags)
            return f"unknown flag {word!r}: {said}"
        case tyro_errors.MissingArgs(missing_arguments=[missing, *_]):
            return f"{_name(missing.arg)} is missing: name it first"
        case tyro_errors.BadValue(argument=argument):
            return f"{_name(argument)}: a value is missing"
        case tyro_errors.InvalidChoice(argument=argument, value=value, choices=choices):
            some = [choice for choice in choices if choice != "None"]  # see CONFIG
            some = sorted(some) if len(some) < len(choices) else some  # these have no order
            return f"{_name(argument)} {value}: must be one of {', '.join(map(repr, some))}"
        case tyro_errors.InstantiationFailure(argument=argument) if argument is not None:
            name = _name(argument)
            kind = "whole number, such as 20000, 1e6, 500k or 2M"
            kind = "number" if "FLOAT" in str(argument.lowered.metavar) else kind
            return f"{name} {value_of(name, args)}: not a {kind}"
    return f"the command line cannot be read ({type(event).__name__})"


def _name(argument: Any) -> str:
    """Return a parser's argument by its flag, or by what help calls it."""
    flags = [word for word in argument.lowered.name_or_flags if word.startswith("--")]
    return str(flags[0] if flags else argument.lowered.metavar)
