"""``colobus export``: a trained agent as an ONNX file, or as a folder that is ready for a hub."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from colobus.cli.evaluate import check_source
from colobus.cli.flags import RunPath, parse, print_json
from colobus.core.errors import ColobusError, program, quoted
from colobus.core.fields import OnlyWith, Range

if TYPE_CHECKING:
    from colobus.cli.display import Printer
    from colobus.evaluation.agent import Agent

OBSERVATIONS = 1000
"""For which ONNX Runtime is compared with torch."""

CLOSE = 1e-3
"""Largest difference between two scores that is no error."""

HUB = OnlyWith("with --hub FOLDER", lambda flags: flags.hub is not None)


@dataclass(frozen=True)
class Export:
    """Take a trained agent along, as an ONNX file or as a folder for a hub."""

    run: RunPath
    """Folder of the run or of an exported agent, or zoo:NAME."""
    onnx: bool = False
    """Write the policy as an ONNX file, and compare it with torch over 1,000 observations."""
    out: Annotated[Path | None, OnlyWith("with --onnx", lambda flags: flags.onnx)] = None
    """The ONNX file (default: RUN/export/STEPS.onnx)."""
    hub: Path | None = None
    """Make this folder with the weights, the settings, a score, a film and a model card."""
    weights: Annotated[Literal["float32", "int8"], HUB] = "float32"
    """With --hub: save the weights as they are, or rounded to 8 bits in a quarter of the space."""
    protocol: Annotated[Literal["training", "noop", "sticky", "dba3c", "none"], HUB] = "training"
    """With --hub: protocol of the score in the model card (see colobus eval); none: no games."""
    episodes: Annotated[Annotated[int, Range(1)] | None, HUB] = None
    """With --hub: games to play (default: as the protocol says)."""
    film_seconds: Annotated[float, Range(0), HUB] = 20.0
    """With --hub: length of the film at most; 0 makes none."""
    checkpoint: str = ""
    """Checkpoint of the run: best, last, or the number of a version (default: the newest complete
    one, or the best if the newest is worse by more than chance would have it)."""
    json: bool = False
    """Print one JSON object on stdout; all else goes to stderr."""


def main(args: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    flags = parse(Export, "export", args)
    if not (flags.onnx or flags.hub):
        raise ColobusError("export as what? give --onnx, --hub FOLDER or both")
    if flags.out and flags.out.suffix != ".onnx":
        raise ColobusError(f"--out {flags.out}: must end in .onnx")
    if flags.protocol == "none" and flags.episodes:
        raise ColobusError(f"--episodes {flags.episodes}: --protocol none plays no games")
    source = check_source(flags.run)
    from colobus.cli.display import Printer
    from colobus.evaluation.agent import load
    from colobus.runs.folder import find_files

    printer = Printer(to_stderr=flags.json)
    agent = load(source, checkpoint=flags.checkpoint, log=printer.line)
    said: dict[str, Any] = {}
    if flags.onnx:
        out = flags.out or find_files(source)[0] / "export" / f"{agent.checkpoint.steps}.onnx"
        said["onnx"] = _onnx(agent, out, printer)
    if flags.hub:
        said["hub"] = _hub(agent, source, flags.hub, flags, printer)
    if flags.json:
        print_json(said)
    return 0


def _onnx(agent: Agent, out: Path, printer: Printer) -> dict[str, Any]:
    """Write the ONNX file and compare it; return what was found."""
    from colobus.evaluation.export.onnx_file import FLAG, compare, export_onnx
    from colobus.nets.onnx import packages

    packages(FLAG)
    made = not out.parent.exists()
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        export_onnx(agent, out)
    except ColobusError:
        if made:
            out.parent.rmdir()
        raise
    parity = compare(agent, out, OBSERVATIONS)
    printer.line(f"{out}: {out.stat().st_size:,} bytes")
    printer.line(
        f"ONNX Runtime and torch over {parity.observations:,} observations: the scores differ by "
        f"{parity.difference:.1e} at most, the best action is the same in {parity.same_actions:,}"
    )
    if not parity.difference <= CLOSE:  # also nan
        raise ColobusError(
            f"{out}: the scores differ by {parity.difference:.1e}, more than {CLOSE:g}: do not use "
            "it; other versions of torch, onnxscript or onnxruntime may do better"
        )
    return {"file": str(out), **parity._asdict()}


def _hub(agent: Agent, source: Path, folder: Path, flags: Export, printer: Printer) -> Any:
    """Make the folder; return what is in it."""
    from colobus.evaluation.export.hub import export_folder

    protocol = None if flags.protocol == "none" else flags.protocol
    with ExitStack() as bars:

        def progress(what: str) -> Callable[[float, float], None]:
            bars.close()
            unit = "s" if what.startswith("filming") else "games"
            return bars.enter_context(printer.progress(what, unit))

        rest = (protocol, flags.episodes, flags.film_seconds, progress)
        done = export_folder(agent, source, folder, flags.weights, *rest)
    printer.line(f"{done.folder}: {done.size:,} bytes")
    if done.evaluation:
        printer.line(done.evaluation.lines()[0])
    if flags.film_seconds and not done.film:
        printer.line("no film: the environment has no pictures")
    printer.line(f"load it again: {program()} eval {quoted(str(folder))}")
    score = done.evaluation.as_dict() if done.evaluation else None
    return {"folder": str(done.folder), "bytes": done.size, "evaluation": score}
