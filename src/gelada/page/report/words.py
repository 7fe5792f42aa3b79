"""Numbers of a report in words."""

from __future__ import annotations

from gelada.page.report.statistics import Interval


def plus_minus(value: float, error: float | None) -> str:
    """Return a number with its standard error, if that is known."""
    digits = 1 if abs(value) >= 100 else 2
    said = f"{value:,.{digits}f}"
    return said if error is None else f"{said} ± {error:,.{digits}f}"


def with_interval(found: Interval) -> str:
    """Return a number with its confidence interval."""
    return f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"


def count(number: int, what: str) -> str:
    """Return such as "1 run" or "2 runs"."""
    return f"{number} {what}{'' if number == 1 else 's'}"
