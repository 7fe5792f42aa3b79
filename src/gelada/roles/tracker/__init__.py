"""Tracker: score, metrics, checkpoints and stop rule of a run."""

from gelada.roles.tracker.reports import (
    ACTIVE_SECONDS,
    Begun,
    RunFacts,
    Status,
    StopRule,
    TrackerSettings,
    Workers,
)
from gelada.roles.tracker.score import WINDOW, Exactly, GoingOn
from gelada.roles.tracker.tracker import Tracker

__all__ = [
    "ACTIVE_SECONDS",
    "WINDOW",
    "Begun",
    "Exactly",
    "GoingOn",
    "RunFacts",
    "Status",
    "StopRule",
    "Tracker",
    "TrackerSettings",
    "Workers",
]
