"""One version of all slices, whatever the workers and servers are doing meanwhile.

Workers with backups run under a schedule drawn at random: one thread at a time, switched before
every call to a server. No pull waits in these tests: a server without patience says Deadline, and
the worker gives its turn away and asks again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gelada.errors import Deadline
from gelada.ops.optimizers import OptimizerSettings
from gelada.roles.parameter_server import ANY, ParameterServer, Quorum
from gelada.roles.pulling import pull_whole
from gelada.types import Answer, Gradient, Params, Version

SIZE = 64
ROUNDS = 6
Pull = Callable[[Sequence[Any], int], tuple[Version, torch.Tensor]]


class Baton:
    """Lets one of several threads run at a time and draws who is next."""

    def __init__(self, seed: int, workers: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._running = list(range(workers))
        self._turn = 0
        self._changed = threading.Condition()

    def wait(self, me: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._turn == me, 60)

    def switch(self, me: int) -> None:
        with self._changed:
            self._turn = int(self._rng.choice(self._running))
            self._changed.notify_all()
        self.wait(me)

    def leave(self, me: int) -> None:
        with self._changed:
            self._running.remove(me)
            if self._running:
                self._turn = int(self._rng.choice(self._running))
                self._changed.notify_all()


class Remote:
    """A server as one worker sees it: others may run before each call."""

    def __init__(self, world: World, index: int, worker: int) -> None:
        self.world, self.index, self.worker = world, index, worker

    def pull(self, at_least: Version = ANY, exactly: bool = False) -> Params:
        while True:
            self.world.baton.switch(self.worker)
            try:
                return self.world.servers[self.index].pull(at_least, exactly)
            except Deadline:
                continue

    def push(self, gradient: Gradient) -> Answer:
        self.world.baton.switch(self.worker)
        answer = self.world.servers[self.index].push(gradient)
        self.world.look(self.index)
        return answer


class World:
    """Servers with a quorum, and workers that pull, compute and push."""

    def __init__(self, seed: int, servers: int, workers: int, backups: int, pull: Pull) -> None:
        self.baton = Baton(seed, workers)
        self.servers = [
            ParameterServer(
                torch.full((SIZE,), float(i)),
                OptimizerSettings(),
                Quorum(workers - backups),
                Version(0, 0),
                patience=0.0,
            )
            for i in range(servers)
        ]
        self.published: dict[tuple[int, Version], torch.Tensor] = {}
        self.pulled: list[tuple[Version, torch.Tensor]] = []
        self.widest = 0
        self._pull = pull
        for index in range(servers):
            self.look(index)
        threads = [
            threading.Thread(target=self._work, args=(w, seed), daemon=True) for w in range(workers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)

    def look(self, index: int) -> None:
        """Note what a server has published, and how far the servers are apart."""
        params = self.servers[index].state()[0]
        self.published[index, params.version] = params.values
        newest = [s.state()[0].version.number for s in self.servers]
        self.widest = max(self.widest, max(newest) - min(newest))

    def whole(self, version: Version) -> torch.Tensor:
        return torch.cat([self.published[i, version] for i in range(len(self.servers))])

    def mixed(self) -> int:
        """Return how many pulls were not one version."""
        return sum(not torch.equal(vector, self.whole(version)) for version, vector in self.pulled)

    def _work(self, me: int, seed: int) -> None:
        rng = np.random.default_rng((seed, me))
        remotes = [Remote(self, i, me) for i in range(len(self.servers))]
        self.baton.wait(me)
        wanted = ANY
        while wanted.number <= ROUNDS:
            version, vector = self._pull(remotes, wanted)
            self.pulled.append((version, vector))
            for i in rng.permutation(len(remotes)):
                values = torch.from_numpy(rng.normal(size=SIZE).astype(np.float32))
                remotes[i].push(Gradient(me, version, 0, 1, 1, 0.0, 0.1, values))
            wanted = version._replace(number=version.number + 1)
        self.baton.leave(me)


def naive(servers: Sequence[Any], at_least: Version) -> tuple[Version, torch.Tensor]:
    """Take anything new enough from each server."""
    slices = [server.pull(at_least) for server in servers]
    return slices[0].version, torch.cat([params.values for params in slices])


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32 - 1),
    servers=st.integers(2, 4),
    workers=st.integers(1, 4),
    data=st.data(),
)
def test_a_pull_is_never_mixed_and_servers_never_differ_by_more_than_one(
    seed: int, servers: int, workers: int, data: st.DataObject
) -> None:
    backups = data.draw(st.integers(0, workers - 1))
    world = World(seed, servers, workers, backups, pull_whole)
    assert len(world.pulled) >= ROUNDS
    assert max(version.number for version, _ in world.pulled) >= ROUNDS
    assert world.mixed() == 0
    assert world.widest <= 1


def test_these_schedules_would_mix_versions_in_a_naive_pull() -> None:
    worlds = [World(seed, 3, 3, 1, naive) for seed in range(10)]
    assert sum(world.mixed() for world in worlds) > 10


def test_one_server_is_asked_once() -> None:
    server = ParameterServer(
        torch.ones(SIZE), OptimizerSettings(), Quorum(1), Version(2, 5), patience=0.0
    )
    version, values = pull_whole([server], Version(0, 5))
    assert version == Version(2, 5)
    assert values is server.pull().values  # the snapshot itself: nothing is copied
    with pytest.raises(Deadline):
        pull_whole([server], Version(2, 6))


def test_exactly_finds_the_older_version_at_all_servers() -> None:
    servers = [
        ParameterServer(torch.ones(SIZE), OptimizerSettings(), Quorum(1), Version(0, 0), 0.0)
        for _ in range(2)
    ]
    for number, who in [(0, servers), (1, servers[:1])]:
        for server in who:
            server.push(Gradient(0, Version(0, number), 0, 1, 1, 0.0, 0.1, torch.ones(SIZE)))
    # the first is at 2, the second at 1
    version, values = pull_whole(servers, Version(0, 1), exactly=True)
    assert version == Version(0, 1)
    assert torch.equal(values[:SIZE], values[SIZE:])
    with pytest.raises(Deadline):
        pull_whole(servers)  # version 2 of the second is not there yet


def test_a_server_that_went_on_meanwhile_still_has_the_version_the_others_are_at() -> None:
    """The first server says 0, the second 1, and by then the first is at 2: the answer is 1."""
    servers = [
        ParameterServer(torch.ones(SIZE), OptimizerSettings(), Quorum(1), Version(0, 0), 0.0)
        for _ in range(2)
    ]

    def go_on(server: ParameterServer) -> None:
        version = server.pull().version
        server.push(Gradient(0, version, 0, 1, 1, 0.0, 0.1, torch.ones(SIZE)))

    class Busy:
        def pull(self, at_least: Version = ANY, exactly: bool = False) -> Params:
            answer = servers[0].pull(at_least, exactly)
            if answer.version.number == 0:
                go_on(servers[0])
                go_on(servers[0])
            return answer

    go_on(servers[1])
    remotes: Any = [Busy(), servers[1]]
    version, values = pull_whole(remotes)
    assert version == Version(0, 1)
    assert torch.equal(values[:SIZE], values[SIZE:])
