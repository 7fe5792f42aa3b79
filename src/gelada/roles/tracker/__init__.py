"""Tracker: score, metrics, checkpoints and stop rule of a run."""

from gelada.roles.tracker.reports import (
    ACTIVE_SECONDS,
    ResumePoint,
    RunFacts,
    Status,
    StopRule,
    TrackerFiles,
    TrackerSettings,
    WorkersStatus,
)
from gelada.roles.tracker.score import WINDOW, Exactly, Resume
from gelada.roles.tracker.tracker import Tracker

__all__ = [
    "ACTIVE_SECONDS",
    "WINDOW",
    "Exactly",
    "Resume",
    "ResumePoint",
    "RunFacts",
    "Status",
    "StopRule",
    "Tracker",
    "TrackerFiles",
    "TrackerSettings",
    "WorkersStatus",
]
