"""The names of metrics in TensorBoard: those that CleanRL and others use."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from gelada.core.types import Episode

OTHER = {
    "kl": "losses/approx_kl",
    "clipped": "losses/clipfrac",
    "learning_rate": "charts/learning_rate",
}
"""Names that others call differently, or have in another group."""

EVALUATED = "eval/episodic_return"
"""Name of the mean score of an evaluation beside the run."""

NO_METRICS = ("steps", "version")
"""Of a line: its time axis, and what is no measurement."""


class Lately:
    """What happened since the line of metrics before.

    Args:
        steps: environment steps at the beginning.
        seconds: of training then.
    """

    def __init__(self, steps: int, seconds: float) -> None:
        self._steps, self._seconds = steps, seconds
        self._episodes: list[Episode] = []

    def add(self, episodes: Sequence[Episode]) -> None:
        """Count episodes that have ended."""
        self._episodes += episodes

    def rate(self, steps: int, seconds: float) -> float:
        """Return the environment steps per second since the line before, and begin anew."""
        rate = (steps - self._steps) / max(seconds - self._seconds, 1e-9)
        self._steps, self._seconds = steps, seconds
        return rate

    def tagged(
        self, line: Mapping[str, Any], reported: Collection[str], rate: float
    ) -> dict[str, float]:
        """Return what TensorBoard shows for a new line of metrics, by the names there.

        Args:
            line: of ``metrics.jsonl``.
            reported: names in it that the algorithm reports.
            rate: environment steps per second since the line before.
        """
        found: dict[str, float] = {
            OTHER.get(name) or f"{'losses' if name in reported else 'charts'}/{name}": value
            for name, value in line.items()
            if name not in NO_METRICS and value is not None
        }
        found["charts/SPS"] = rate
        if count := len(self._episodes):
            found["charts/episodic_return"] = sum(e.score for e in self._episodes) / count
            found["charts/episodic_length"] = sum(e.steps for e in self._episodes) / count
        self._episodes.clear()
        return found


def episode_line(episode: Episode, steps: int, seconds: float) -> dict[str, Any]:
    """Return a line of ``episodes.jsonl``, for the steps and seconds of the run at its end."""
    own = {"score": episode.score, "length": episode.steps, "actor": episode.actor}
    return {"steps": steps, "seconds": round(seconds, 3), **own}
