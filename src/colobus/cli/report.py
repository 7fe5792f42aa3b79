"""``colobus report``: one file with what runs reached, how sure that is and how it was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from colobus.cli.flags import RunPaths, check_file, parse
from colobus.core.errors import ColobusError, program
from colobus.core.files import write_whole
from colobus.report.format import as_html, as_markdown
from colobus.report.statistics import count


@dataclass(frozen=True)
class Report:
    """Write scores, intervals, curves and how they were measured into one file."""

    runs: RunPaths
    """Runs, or folders with runs below them, such as a suite's."""
    out: Path = Path("report.html")
    """File to write: .html (one file with everything in it) or .md (without pictures)."""
    csv: Path | None = None
    """Write a line for each run into this file, too (default: no such file)."""
    protocol: str = ""
    """Protocol of the evaluations that count (default: the one that most runs have)."""


def main(args: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    flags = parse(Report, "report", args)
    if not flags.runs:
        raise ColobusError(f"which runs? such as: {program()} report runs --out report.html")
    check_file("--out", flags.out, ".html", ".md")
    check_file("--csv", flags.csv)
    if flags.csv and flags.csv.resolve() == flags.out.resolve():
        raise ColobusError(f"--csv {flags.csv}: is the file of the report; name another")
    from colobus.cli.display import Printer

    write_report(flags.runs, flags.out, Printer().line, flags.protocol, flags.csv)
    return 0


def write_report(
    runs: Sequence[Path], out: Path, say: Callable[[str], None], protocol: str, csv: Path | None
) -> None:
    """Write a report of runs, and if asked a line for each into another file; see `Report`."""
    from colobus.evaluation.protocols import find_protocol
    from colobus.report.compose import compose
    from colobus.report.provenance import results_csv
    from colobus.report.results import read_results

    if protocol:
        find_protocol(protocol)
    results = read_results(tuple(runs), protocol)
    title, blocks = compose(results)
    write = as_html if out.suffix == ".html" else as_markdown
    write_whole(out.resolve(), write(title, blocks).encode(errors="replace"))
    say(f"{out}: {count(len(results.all), 'run')} of {count(len(results.games), 'game')}")
    if csv:
        write_whole(csv.resolve(), results_csv(results).encode(errors="replace"))
        say(str(csv))
