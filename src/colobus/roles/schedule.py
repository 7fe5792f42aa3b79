"""When an algorithm's own state moves, and after how many environment steps.

The state holds learning rate, entropy weight and the like. It belongs to a learner, and its
schedules are functions of the environment steps behind the parameters. Who counts those steps
depends on who else learns.
"""

from __future__ import annotations

from dataclasses import dataclass

from colobus.algorithms.api import Algorithm
from colobus.core.timing import now
from colobus.core.types import AlgorithmState, Batch, Version
from colobus.roles.replay.buffer import ReplayBuffer
from colobus.roles.tracker import ResumePoint, StopRule

ENDLESS = StopRule()
"""Of a run that only a person ends."""


def annealed(algorithm: Algorithm, budget: StopRule, steps: int, seconds: float) -> int:
    """Return the environment steps that an algorithm's schedules have come.

    They are the steps of the run, or with ``anneal_share`` as many as its budget has come; an
    endless run has none.

    Args:
        algorithm: whose schedules.
        budget: steps and minutes of the run.
        steps: of them that are over.
        seconds: that the run has trained.
    """
    share, used = algorithm.anneal_share, budget.used(steps, seconds)
    follows = share and algorithm.anneal_steps and budget.ends
    return int(algorithm.anneal_steps * used / share) if follows else steps


@dataclass(eq=False)
class Schedule:
    """An algorithm's state, moved along with the steps that the only learner has learned from."""

    algorithm: Algorithm  # whose state is moved
    algorithm_state: AlgorithmState  # new or restored
    steps: int  # environment steps behind the newest parameters
    budget: StopRule = ENDLESS  # steps and minutes of the run, for ``anneal_share``

    def __post_init__(self) -> None:
        self._begun = now()

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
        steps = annealed(self.algorithm, self.budget, self.steps, now() - self._begun)
        self.algorithm.after(self.algorithm_state, values, steps)


@dataclass(eq=False, kw_only=True)
class SharedSchedule(Schedule):
    """For one of several learners, which needs the steps of all.

    If each step is learned from once and each gradient counts, versions since the start count the
    batches of all. With a replay buffer, and where gradients may be dropped or learners be faster
    than others, the tracker says the steps.
    """

    first: Version  # of the parameters at the start of the run, with ``steps`` behind it
    learners: int  # that the run has
    told: bool = False  # whether the tracker says the steps (`hear`)
    buffer: ReplayBuffer | None = None
    """It is lost with this learner, and one of as many as there are learners."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._first_steps = self.steps

    def begin(self, begun: ResumePoint) -> None:
        """Count the new steps on from those that the run has when this learner begins."""
        super().begin(begun)
        if self.told:
            self.steps = begun.steps
        if self.buffer is not None:
            self.buffer.begin((begun.steps - self._first_steps) / self.learners)
        if self.algorithm.source == "buffer":
            self._first_steps = begun.steps

    def before(self, batch: Batch, version: Version) -> None:
        """Move the state to the steps behind the batch."""
        if not self.told:
            own = (version.number - self.first.number) * batch.actions.numel()
            self.steps = self._first_steps + self.learners * own
        self._move({})

    def hear(self, steps: int) -> None:
        """Take the steps of the run: with dropped gradients, without learners that are lost."""
        if self.told:
            self.steps = steps
        else:  # versions are of fewer batches, by --shrink
            self._first_steps -= max(self.steps - steps, 0)

    def after(self, batch: Batch, values: dict[str, float]) -> None:
        """Take in the batch's values."""
        self._move(values)
