"""Tracker: score, metrics, checkpoints and stop rule of a run."""

from gelada.roles.tracker.facts import Begun, RunFacts, Status
from gelada.roles.tracker.going_on import Exactly, GoingOn
from gelada.roles.tracker.reports import ACTIVE_SECONDS, Workers
from gelada.roles.tracker.score import WINDOW
from gelada.roles.tracker.settings import StopRule, TrackerSettings
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
