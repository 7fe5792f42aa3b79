"""The package as Python code sees it: names, completion, types."""

from __future__ import annotations

import ast
import inspect
import rlcompleter
from pathlib import Path

import colobus

SOURCE = ast.parse(Path(colobus.__file__).read_text(encoding="utf-8"))


def typed_names() -> dict[str, str]:
    """Return the names that type checkers see, with their modules."""
    (block,) = (node for node in SOURCE.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    own = [node for node in imports if str(node.module).startswith("colobus.")]
    return {alias.name: str(node.module) for node in own for alias in node.names}


def test_every_name_is_there_typed_and_completed() -> None:
    typed = typed_names()
    assert sorted(colobus.__all__) == sorted([*typed, "__version__"])
    assert dir(colobus) == sorted(colobus.__all__)
    assert {name: f"colobus.{module}" for name, module in colobus._HOME.items()} == typed
    for name, module in typed.items():
        value = getattr(colobus, name)
        assert value.__doc__, name
        assert getattr(value, "__module__", module).startswith("colobus."), name
        assert vars(colobus)[name] is value  # the second time it is found at once


def test_functions_settings_and_errors_are_exported() -> None:
    wanted = {"train", "load", "evaluate", "record", "preset", "Experiment", "APPO", "StopRule"}
    errors = {"ColobusError", "Diverged", "Stalled", "RoleFailed", "CannotWrite", "StopTraining"}
    assert wanted | errors < set(colobus.__all__)
    for error in errors - {"ColobusError", "StopTraining"}:
        assert issubclass(getattr(colobus, error), colobus.ColobusError)


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(colobus, "trane")


def test_a_shell_completes_names_and_shows_signatures() -> None:
    """As IPython and Python's own shell do, from ``dir`` and docstrings."""
    shell = rlcompleter.Completer({"colobus": colobus})
    assert shell.complete("colobus.ev", 0) == "colobus.evaluate("
    assert shell.complete("colobus.StopR", 0) == "colobus.StopRule("
    assert {"steps", "make_env", "on_episode"} <= inspect.signature(colobus.train).parameters.keys()
    assert {"policy", "state"} <= inspect.signature(colobus.Agent.act).parameters.keys()
