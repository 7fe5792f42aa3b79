"""The node of the tracker: what it is told about the run at its beginning."""

from __future__ import annotations

from pathlib import Path

import torch

from gelada.ops.flat import FlatParameters
from gelada.roles.tracker import Exactly, GoingOn, RunFacts, Tracker
from gelada.runtime.graph import Graph
from gelada.training.exact import DETERMINISTIC_EVERY, rhythm_of
from gelada.training.experiment import Experiment, settings_of
from gelada.training.start import Start


def add_tracker(
    graph: Graph,
    experiment: Experiment,
    start: Start,
    flat: FlatParameters,
    folder: Path | None,
    began: float | None,
) -> Tracker:
    """Add the tracker. The checkpoints that it writes hold the input statistics too."""
    statistics = {
        "input/mean": torch.from_numpy(start.statistics.mean),
        "input/deviation": torch.from_numpy(start.statistics.deviation),
    }
    return graph.add(
        "tracker",
        "tracker",
        "tracker",
        Tracker,
        folder,
        experiment.tracker,
        experiment.stop,
        flat.layout,
        statistics,
        RunFacts(
            began,
            start.counters,
            start.version.number,
            start.steps,
            learners=experiment.shape.learning if experiment.shape.apart else 1,
            every=DETERMINISTIC_EVERY if experiment.deterministic else None,
            marked=experiment.shape.keep_every if experiment.shape.apart else 0,
            going_on=GoingOn(
                experiment.shape.players,
                start.saved or {},
                Exactly(start.origin, rhythm_of(experiment)) if experiment.deterministic else None,
            ),
            settings=settings_of(experiment),
            about=start.run,
        ),
    )
