"""Rules that stand beside a setting: its range, and what it has an effect with.

Settings are frozen dataclasses. A numeric field is annotated with its `Range`, as in
``gamma: Annotated[float, Range(0, 1)] = 0.99``, and a field that some runs do not use with
`OnlyWith`. pydantic reads and checks types and ranges; it is imported when the first value is read.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import cache, lru_cache
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import annotated_types

from colobus.core.errors import ColobusError, nearest

Name = Callable[[str], str]
"""Returns how a message names a setting, such as its flag; takes ``name`` or ``group.name``."""


@dataclasses.dataclass(frozen=True)
class Range(annotated_types.GroupedMetadata):
    """The allowed values of a number; infinity and NaN never are."""

    low: float | None = None  # least value
    high: float | None = None  # greatest value
    _: dataclasses.KW_ONLY
    above: float | None = None  # limit that is not itself allowed, instead of ``low``
    below: float | None = None  # likewise, instead of ``high``

    def __iter__(self) -> Iterator[Any]:
        """Yield the constraints that pydantic knows; that of all numbers comes first."""
        yield annotated_types.Predicate(is_number)
        yield annotated_types.Interval(gt=self.above, ge=self.low, lt=self.below, le=self.high)

    def __str__(self) -> str:
        words = {"at least": self.low, "above": self.above, "at most": self.high}
        words["below"] = self.below
        said = [f"{word} {_digits(end, ',')}" for word, end in words.items() if end is not None]
        return " and ".join(said) or "any finite number"


def is_number(value: float) -> bool:
    """Return whether a number is finite, and has at most 18 digits if it is a whole one."""
    return math.isfinite(value) if isinstance(value, float) else abs(value) < 10**18


class OnlyWith(NamedTuple):
    """Says when a setting has an effect at all."""

    what: str  # completes "it has an effect only …"
    holds: Callable[[Any], bool]  # takes the dataclass that the setting is in


POSITIVE = Range(above=0)
SHARE = Range(0, 1)
DECAY = Range(0, below=1)
NUMBER = Range()
"""Any finite number."""


@cache
def hints_of(kind: Any) -> dict[str, Any]:
    """Return the types of a dataclass's fields by name, with their annotations."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def range_of(hint: Any) -> Range | None:
    """Return the range in a field's type, if it has one."""
    return next((rule for rule in _annotations(hint) if isinstance(rule, Range)), None)


def only_with(hint: Any) -> OnlyWith | None:
    """Return what a field of this type has an effect with; None if it always has one."""
    return next((rule for rule in _annotations(hint) if isinstance(rule, OnlyWith)), None)


def whole_if(value: Any, hint: Any) -> Any:
    """Return a float such as 1e6 as a whole number where a field of this type takes no others."""
    if isinstance(value, float) and value.is_integer() and "float" not in str(hint):
        return int(value)
    return value


def whole(text: str) -> int:
    """Return a whole number as people write it: 20000, 1_000_000, 1,000,000, 1e6, 500k, 1.5M, 2B.

    Raises:
        ValueError: if it is none.
    """
    grouped = re.fullmatch(r"\d{1,3}(,\d{3})+", text)
    number, unit = (text[:-1], text[-1].lower()) if text[-1:].lower() in UNITS else (text, "")
    try:
        value = Decimal(text.replace(",", "") if grouped else number) * UNITS.get(unit, 1)
    except ArithmeticError:
        raise ValueError(text) from None
    if not value.is_finite() or value.adjusted() > DIGITS or value != int(value):
        raise ValueError(text)
    return int(value)


UNITS = {"k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}
DIGITS = 1000
"""A whole number has no more: 1e999999999 would take all memory."""


def read(kind: Any, data: Any, name: Name, own: str = "") -> Any:
    """Return plain data as a value of a type; a dataclass from a dictionary.

    Nothing is converted but what JSON cannot tell apart: a whole number may stand for a float.

    Args:
        kind: type of the value.
        data: dictionaries, lists, strings, numbers, booleans and None.
        name: how messages name a setting.
        own: name of the value itself; "" for a dataclass, whose fields are named.

    Raises:
        ColobusError: if a type or range does not fit, or a name is unknown.
    """
    from pydantic import ValidationError

    try:
        # bytes of a path that are no UTF-8 would make it no JSON
        text = json.dumps(data, default=str, ensure_ascii=False).encode(errors="replace")
        return _adapter(kind).validate_json(text, strict=True, extra="forbid")
    except ValidationError as error:
        raise ColobusError(_in_words(error.errors(), kind, name, own)) from None
    except RecursionError:
        raise ColobusError(f"{name(own)}: is nested too deeply") from None


def argument(kind: Any, value: Any, name: str) -> Any:
    """Check an argument of a function as `read` does.

    A number of numpy's becomes one of Python's own, as JSON takes no others.
    """
    return read(kind, getattr(value, "tolist", lambda: value)(), lambda _: name, name)


@lru_cache(maxsize=256)
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def check(settings: Any, name: Name) -> None:
    """Raise ColobusError if a field of a dataclass has a value of another type or out of range."""
    read(type(settings), dataclasses.asdict(settings), name)


def shown(value: Any) -> str:
    """Return a value as it is written in messages and on the command line."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return _digits(value) if isinstance(value, float) else str(value)


def _digits(value: float, grouped: str = "") -> str:
    """Return a number as short as it can be without being rounded."""
    short = f"{value:{grouped}g}"
    return short if float(short.replace(",", "")) == value else f"{value:{grouped}}"


def digits_of(error: float | None) -> int:
    """Return the decimals of a number beside its standard error: two, or more if that is small."""
    if error is None or not 1e-6 <= error < 0.01:  # less is the rounding of floats
        return 2
    return 1 - math.floor(math.log10(error))


def with_error(value: float, error: float) -> str:
    """Return a number with its standard error; alone if that is nan."""
    digits = digits_of(error)
    return f"{value:.{digits}f}" + f" ± {error:.{digits}f}" * (not math.isnan(error))


def given(flag_name: str, value: Any) -> str:
    """Return a flag as it is given: ``--lr 0.1``, ``--colour`` or ``--no-colour``."""
    if isinstance(value, bool):
        return flag_name if value else f"--no-{flag_name.removeprefix('--')}"
    return f"{flag_name} {shown(value)}"


def _annotations(hint: Any) -> Iterator[Any]:
    """Yield what stands in ``Annotated`` anywhere in a type."""
    if get_origin(hint) is Annotated:
        yield from get_args(hint)[1:]
    if get_origin(hint) is not Literal:
        for part in get_args(hint):
            yield from _annotations(part)


def _in_words(errors: list[Any], kind: Any, name: Name, own: str) -> str:
    """Return pydantic's first complaint, and those about the same setting, in one line."""
    hint, path = kind, []
    for part in map(str, errors[0]["loc"]):
        if not dataclasses.is_dataclass(hint):
            break  # the rest of the location names members of a union
        path.append(part)
        hints = hints_of(hint) if isinstance(hint, type) else {}
        if part not in hints:
            return f"{name('.'.join(path))}: unknown setting; {nearest(part, hints)}"
        hint = hints[part]
    same = [error for error in errors if [*map(str, error["loc"])][: len(path)] == path]
    rules = [_rule(error, hint) for error in same]
    out_of_range = [rule for rule in rules if rule.endswith(str(range_of(hint)))]
    rule = " or ".join(dict.fromkeys(out_of_range or rules))
    setting = name(".".join(path) or own)
    if errors[0]["type"] in ("missing", "missing_argument"):
        return f"{setting}: is missing"
    text = shown(errors[0]["input"])
    text = text if len(text) <= 60 else f"{text[:30]}…{text[-30:]}"
    return f"{setting} {text}: must be {rule}"


def _rule(error: Mapping[str, Any], hint: Any) -> str:
    if (kind := str(error["type"])) in _KINDS:
        return _KINDS[kind]
    if kind == "literal_error":
        return f"one of {error['ctx']['expected'].replace(' or ', ', ')}"
    if kind == "predicate_failed" and isinstance(error["input"], int):
        return "a number of at most 18 digits"
    own = str(range_of(hint) or error["msg"])
    said = kind != "predicate_failed" or "finite" in own  # limits say why infinity is refused
    said |= ("most" in own or "below" in own) and error["input"] in (math.inf, -math.inf)
    return own if said else f"a finite number {own}"


_KINDS = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a text",
    "dataclass_type": "a group of settings",
    "dict_type": "an object with names and values",
    "list_type": "a list",
}
