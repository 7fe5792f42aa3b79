"""How many versions are made of how many rounds, in deterministic runs.

A *round* is one trajectory of every actor. The learner of a trajectory queue makes one version of
each round. The learner of a replay buffer makes none until the buffer has its minimum, and then as
many as the number of samples for each step asks for. Actors and the replay count alike, so nobody
has to tell anybody.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class UpdateSchedule:
    """Versions and rounds, both counted from where the run's counting began.

    By default there is one version of each round, with a replay buffer one of each batch sampled.
    """

    steps: int = 1  # of a round
    minimum: int = 0  # steps before the first batch; nothing is sampled for them
    ratio: float = 1.0  # windows sampled for each step
    windows: int = 1  # of a batch

    def versions(self, rounds: int) -> int:
        """Return how many versions are made of the first ``rounds`` rounds."""
        return max(int((rounds * self.steps - self.minimum) * self.ratio // self.windows), 0)

    def rounds(self, versions: int) -> int:
        """Return the least rounds of which so many versions are made."""
        if not versions:
            return 0
        rounds = int((versions * self.windows / self.ratio + self.minimum) // self.steps)
        while self.versions(rounds) < versions:
            rounds += 1
        while rounds and self.versions(rounds - 1) >= versions:
            rounds -= 1
        return rounds


ONE_EACH = UpdateSchedule()


def is_kept(version: int, every: int) -> bool:
    """Return whether servers keep a copy of a version for checkpoints.

    They keep those divisible by ``every`` (0: none), and the first: a run that is killed soon after
    its beginning can then be resumed.
    """
    return every > 0 and (version == 1 or version % every == 0)
