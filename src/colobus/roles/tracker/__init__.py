"""Tracker: score, metrics, checkpoints and stop rule of a run."""

from colobus.roles.tracker.reports import ResumePoint as ResumePoint
from colobus.roles.tracker.reports import RunFacts as RunFacts
from colobus.roles.tracker.reports import Status as Status
from colobus.roles.tracker.reports import StopRule as StopRule
from colobus.roles.tracker.reports import TrackerFiles as TrackerFiles
from colobus.roles.tracker.reports import TrackerSettings as TrackerSettings
from colobus.roles.tracker.reports import WorkersStatus as WorkersStatus
from colobus.roles.tracker.score import WINDOW as WINDOW
from colobus.roles.tracker.score import Exactly as Exactly
from colobus.roles.tracker.score import Resume as Resume
from colobus.roles.tracker.tracker import Tracker as Tracker
