"""Parameter servers that never wait, and the replay and tracker of one actor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from colobus.core.errors import Deadline
from colobus.core.types import Episode, Trajectory, Version
from colobus.ops.optimizers import OptimizerSettings
from colobus.roles.parameters.server import Admission, ParameterServer, ServerSettings
from colobus.roles.tracker import ResumePoint

ADAM = OptimizerSettings()
FIRST = Version(0, 0)
ALONE = Admission(1)


def server_of(
    values: torch.Tensor,
    admission: Admission = ALONE,
    version: Version = FIRST,
    optimizer: OptimizerSettings = ADAM,
    kind: Any = ParameterServer,
    state: Any = None,
    **settings: Any,
) -> Any:
    """Return a server over these parameters, of another ``kind`` if a test watches it."""
    given = ServerSettings(**{"patience": 0.0, **settings})
    return kind(values, optimizer, admission, version, given, state)


class Sink:
    """Replay and tracker of one actor."""

    def __init__(self) -> None:
        self.trajectories: list[Trajectory] = []
        self.games: list[Episode] = []
        self.full = 1000
        self.lives = self.steps = 0

    def wait_for_room(self, actor: int = 0) -> None:
        if len(self.trajectories) >= self.full:
            raise Deadline("no room")

    def add(self, trajectory: Trajectory) -> None:
        self.trajectories.append(trajectory)

    def episodes(self, ended: Sequence[Episode]) -> None:
        self.games.extend(ended)

    def begin(self, name: str) -> ResumePoint:
        self.lives += 1
        return ResumePoint(self.lives - 1, self.steps)
