"""When an algorithm's own state moves, and after how many environment steps.

The state holds learning rate, entropy weight and the like. It belongs to a learner, and its
schedules are functions of the environment steps behind the parameters. Who counts those steps
depends on who else learns.
"""

from __future__ import annotations

from colobus.algorithms.api import Algorithm
from colobus.core.timing import now
from colobus.core.types import AlgorithmState, Batch, Version
from colobus.roles.replay.buffer import ReplayBuffer
from colobus.roles.tracker import ResumePoint, StopRule

ENDLESS = StopRule()
"""Of a run that only a person ends."""


def annealed(algorithm: Algorithm, used: float, steps: int) -> int:
    """Return the environment steps that an algorithm's schedules have come.

    They are the steps of the run, or with ``anneal_share`` as many as its budget has come.

    Args:
        algorithm: whose schedules.
        used: share of the run's steps or minutes that is over (`StopRule.used`).
        steps: environment steps of the run.
    """
    share = algorithm.anneal_share
    return int(algorithm.anneal_steps * used / share) if share else steps


class Schedule:
    """An algorithm's state, moved along with the steps that the only learner has learned from.

    Args:
        algorithm: whose state is moved.
        algorithm_state: the state, new or restored.
        steps: environment steps behind the newest parameters.
        stop: of the run: its steps or minutes are the budget of ``anneal_share``.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        algorithm_state: AlgorithmState,
        steps: int,
        stop: StopRule = ENDLESS,
    ) -> None:
        self.algorithm_state, self.steps = algorithm_state, steps
        self._algorithm, self._stop, self._begun = algorithm, stop, now()

    def begin(self, begun: ResumePoint) -> None:
        """Go on where the run is; called once, before the first batch.

        The only learner goes on with its own steps: when it is lost, the whole run starts from a
        checkpoint.
        """
        self._begun = now() - begun.seconds

    def before(self, batch: Batch, version: Version) -> None:
        """Move the state before a batch that is learned from with parameters of ``version``.

        That of the only learner follows from the batches before.
        """

    def hear(self, steps: int) -> None:
        """Take the environment steps of the run, of which the only learner needs no word."""

    def after(self, batch: Batch, values: dict[str, float]) -> None:
        """Count the batch's steps and move the state, given its losses and statistics."""
        self.steps += int(batch.fresh)
        self._move(values)

    def _move(self, values: dict[str, float]) -> None:
        seconds = now() - self._begun
        steps = annealed(self._algorithm, self._stop.used(self.steps, seconds), self.steps)
        self._algorithm.after(self.algorithm_state, values, steps)


class SharedSchedule(Schedule):
    """For one of several learners, which needs the steps of all.

    If each step is learned from once and each gradient counts, versions since the start count the
    batches of all. With a replay buffer the steps that were new in this learner's batches are
    multiplied. Where gradients may be dropped, or learners be faster than others, the tracker says
    the steps.

    Args:
        algorithm: whose state is moved.
        steps: environment steps behind the parameters at the start of the run.
        first: version of the parameters at the start of the run.
        learners: that the run has.
        told: whether the tracker says the steps (`hear`).
        buffer: that is lost with this learner, one of as many as there are learners.
        stop: as in `Schedule`.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        steps: int,
        first: Version,
        learners: int,
        told: bool = False,
        buffer: ReplayBuffer | None = None,
        stop: StopRule = ENDLESS,
    ) -> None:
        super().__init__(algorithm, algorithm.start(), steps, stop)
        self._first, self._learners, self._told, self._buffer = first, learners, told, buffer
        self._first_steps = steps
        self._fresh = 0  # environment steps that came with this learner's batches

    def begin(self, begun: ResumePoint) -> None:
        """Count the new steps on from those that the run has when this learner begins."""
        super().begin(begun)
        if self._told:
            self.steps = begun.steps
        if self._buffer is not None:
            self._buffer.begin((begun.steps - self._first_steps) / self._learners)
        if self._algorithm.source == "buffer":
            self._first_steps = begun.steps

    def before(self, batch: Batch, version: Version) -> None:
        """Move the state to the steps behind the batch."""
        if self._algorithm.source == "buffer":
            own = self._fresh + int(batch.fresh)
        else:
            own = (version.number - self._first.number) * batch.actions.numel()
        if not self._told:
            self.steps = self._first_steps + self._learners * own
        self._move({})

    def hear(self, steps: int) -> None:
        """Take the steps of the run: with dropped gradients, without learners that are lost."""
        if self._told:
            self.steps = steps
        elif self._algorithm.source == "queue":  # versions are of fewer batches, by --shrink
            self._first_steps -= max(self.steps - steps, 0)

    def after(self, batch: Batch, values: dict[str, float]) -> None:
        """Take in the batch's values."""
        self._fresh += int(batch.fresh)
        self._move(values)
