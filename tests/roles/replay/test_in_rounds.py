"""The replay buffer of deterministic runs: the order of arrival makes no difference."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
import torch

from gelada.core.errors import Closed, Deadline
from gelada.core.types import Batch, Trajectory, Version
from gelada.roles.replay.in_rounds import BufferInRounds, SaveWithCheckpoints, folder_of
from gelada.roles.replay.rate_limiter import MinimumSize
from gelada.roles.update_schedule import SampledUpdates
from helpers.streams import BY_ERROR, Player, make_store

RHYTHM = SampledUpdates(steps=32, minimum=60, ratio=0.75, windows=8)  # 2 actors x 2 games x 8 steps


def make(patience: float = 0.0) -> BufferInRounds:
    limiter = MinimumSize(RHYTHM.minimum)
    store = make_store(200, streams=4, sampling=BY_ERROR, limiter=limiter, seed=5)
    return BufferInRounds(store, range(2), RHYTHM, patience)


def play(rounds: int) -> list[Trajectory]:
    players = [Player(actor, games=2) for actor in range(2)]
    return [player.play(8) for _ in range(rounds) for player in players]


def learn(replay: BufferInRounds, count: int) -> list[Batch]:
    """Sample, and tell errors, as a learner does."""
    batches = []
    for _ in range(count):
        batches.append(replay.sample())
        errors = batches[-1].rewards.abs().amax(dim=1)
        replay.update(batches[-1].keys, batches[-1].generations, errors)
    return batches


def assert_same(mine: list[Batch], theirs: list[Batch]) -> None:
    for one, other in zip(mine, theirs, strict=True):
        for name in one._fields:
            assert torch.equal(getattr(one, name), getattr(other, name)), name


def test_batches_do_not_depend_on_when_trajectories_arrive() -> None:
    sent = play(12)
    early, late = make(), make()
    for trajectory in random.Random(1).sample(sent, len(sent)):
        early.add(trajectory)
    count = RHYTHM.versions(12)
    batches = learn(early, count)
    with pytest.raises(Deadline, match="it needs 13 rounds of all actors, 12 are complete"):
        early.sample()
    seen: list[Batch] = []
    for first, second in zip(sent[::2], sent[1::2], strict=True):
        late.add(second)
        late.wait_for_room()
        if len(seen) < count:
            with pytest.raises(Deadline):
                late.sample()
        late.add(first)
        seen += learn(late, RHYTHM.versions(first.round + 1) - len(seen))
    assert_same(seen, batches)
    assert sum(int(batch.fresh) for batch in batches) <= 12 * 32
    assert early.depth == late.depth


@pytest.mark.parametrize("at", [1, 6, 17])
def test_a_saved_buffer_goes_on_as_if_it_had_never_been_away(tmp_path: Path, at: int) -> None:
    sent, whole, broken, again = play(12), make(), make(), make()
    for trajectory in sent:
        whole.add(trajectory)
        if trajectory.round < RHYTHM.rounds(at):
            broken.add(trajectory)
    batches = learn(whole, RHYTHM.versions(12))
    assert_same(learn(broken, at), batches[:at])
    save = SaveWithCheckpoints(broken, tmp_path, tmp_path)
    save(Version(0, at))
    again.load(folder_of(tmp_path, Version(9, at)))
    for trajectory in sent:
        if trajectory.round >= RHYTHM.rounds(at):
            again.add(trajectory)
    assert_same(learn(again, len(batches) - at), batches[at:])


def test_buffers_of_the_newest_two_checkpoints_stay(tmp_path: Path) -> None:
    replay = make()
    for trajectory in play(4):
        replay.add(trajectory)
    folder, checkpoints = tmp_path / "stores", tmp_path / "checkpoints"
    checkpoints.mkdir()
    save = SaveWithCheckpoints(replay, folder, checkpoints)
    for number in (30, 5, 6, 7, 8, 9):  # 30: of a run that was killed later than it was resumed
        save(Version(0, number))
        if number not in (7, 9):  # their checkpoints are not written yet
            (checkpoints / f"{number:08d}.json").touch()
    kept = sorted(int(path.name) for path in folder.iterdir())
    assert kept == [6, 7, 8, 9, 30]
    save(Version(0, 10))
    assert sorted(int(path.name) for path in folder.iterdir()) == [6, 7, 8, 9, 10, 30]


def test_a_learner_that_waits_is_woken_by_a_round_and_by_the_end() -> None:
    replay, found = make(60.0), list[object]()

    def sample() -> None:
        try:
            found.append(replay.sample())
            while True:
                replay.sample()
        except Closed as closed:
            found.append(closed)

    thread = threading.Thread(target=sample)
    thread.start()
    for trajectory in play(3):
        replay.add(trajectory)
    while not found:
        thread.join(0.01)
    replay.close()
    thread.join(60)
    assert not thread.is_alive()
    for call in (replay.sample, replay.wait_for_room, lambda: replay.add(play(1)[0])):
        with pytest.raises(Closed):
            call()
