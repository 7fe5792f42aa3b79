"""Tracker: score, metrics, checkpoints and stop rule of a run."""

from colobus.roles.tracker.reports import (
    ResumePoint,
    RunFacts,
    Status,
    StopRule,
    TrackerFiles,
    TrackerSettings,
    WorkersStatus,
)
from colobus.roles.tracker.score import WINDOW, Exactly, Resume
from colobus.roles.tracker.tracker import Tracker

__all__ = [
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
