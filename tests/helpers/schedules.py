"""Workers and servers under a schedule drawn at random.

One thread runs at a time, switched before every call to a server. No pull waits: a server without
patience says Deadline, and the worker gives its turn away and asks again. Workers may die before
any call and begin again as new ones.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from colobus.core.errors import Deadline
from colobus.core.types import Answer, Gradient, Params, Version
from colobus.roles.parameters.published import ANY, Pulled, pull_common
from colobus.roles.parameters.server import Admission, ParameterServer
from helpers.servers import server_of

SIZE = 64
ROUNDS = 6
PATIENCE = 2000  # pulls in a row that have to wait, until nobody can ever go on
Pull = Callable[[Sequence[Any], Version], Pulled]


class Died(Exception):
    """What ends a worker between two calls."""


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
            self.world.perhaps_die("pull")
            try:
                return self.world.servers[self.index].pull(at_least, exactly)
            except Deadline:
                self.world.idle += 1
                assert self.world.idle < PATIENCE, "nobody can go on"

    def push(self, gradient: Gradient) -> Answer:
        self.world.baton.switch(self.worker)
        self.world.perhaps_die("push")
        self.world.idle = 0
        server = self.world.servers[self.index]
        before = bits(server)
        answer = server.push(gradient)
        if answer.counted:
            self.world.counted.append((self.index, before[0], gradient))
        else:
            assert bits(server) == before
        self.world.look(self.index)
        return answer


def bits(server: ParameterServer) -> tuple[Any, ...]:
    """Return everything a push could change, to be compared exactly."""
    params, optimizer = server.state()
    tensors = [params.values, server.values, *optimizer.values()]
    waiting = sorted((i, g.values.numpy().tobytes()) for i, g in server._waiting.items())
    return (params.version, [t.numpy().tobytes() for t in tensors], waiting)


class World:
    """Servers, and workers that pull, compute and push until they have learned from ROUNDS.

    Args:
        seed: of the schedule and of the gradients.
        repeats: workers send gradients again that they have sent before.
        restores: all servers, one after the other, are built anew at an older version.
        deaths: so many times a worker dies before a call and begins again, with the same number.
    """

    def __init__(
        self,
        seed: int,
        servers: int,
        workers: int,
        admission: Admission,
        pull: Pull,
        repeats: bool = False,
        restores: bool = False,
        deaths: int = 0,
    ) -> None:
        self.baton = Baton(seed, workers + restores)
        self._admission = admission
        self.servers: list[ParameterServer] = [
            server_of(torch.full((SIZE,), float(i)), admission) for i in range(servers)
        ]
        self.published: dict[tuple[int, Version], torch.Tensor] = {}
        self.pulled: list[Pulled] = []
        self.counted: list[tuple[int, Version, Gradient]] = []  # server, its version, what it took
        self.answers: list[Answer] = []  # to gradients that were sent again
        self.died: list[str] = []  # what each was about to do
        self.begun: list[tuple[Version, Version]] = []  # version begun again with, and the newest
        self.idle = 0  # pulls in a row that had to wait
        self.widest = 0
        self._pull, self._repeats, self._last_incarnation = pull, repeats, int(restores)
        self._deaths = deaths
        self._fate = np.random.default_rng((seed, workers))
        self._seed = seed
        self._errors: list[BaseException] = []
        for index in range(servers):
            self.look(index)
        jobs: list[tuple[Callable[[int], None], int]] = [(self._work, w) for w in range(workers)]
        if restores:
            jobs.append((self._restore, workers))
        threads = [threading.Thread(target=self._run, args=job, daemon=True) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert self._errors == [], self._errors
        assert not any(thread.is_alive() for thread in threads)

    def look(self, index: int) -> None:
        """Note what a server has published, and how far servers of one incarnation are apart."""
        params = self.servers[index].state()[0]
        self.published[index, params.version] = params.values
        newest = [s.state()[0].version for s in self.servers]
        for incarnation in {v.incarnation for v in newest}:
            numbers = [v.number for v in newest if v.incarnation == incarnation]
            self.widest = max(self.widest, max(numbers) - min(numbers))

    def unpublished(self) -> int:
        """Return how many pulls were not, slice by slice, what a server had published."""
        return sum(not torch.equal(p.vector, self._join(p.versions)) for p in self.pulled)

    def mixed(self) -> int:
        """Return how many pulls were not of one version."""
        whole = [self._join([p.version] * len(self.servers)) for p in self.pulled]
        return sum(not torch.equal(p.vector, w) for p, w in zip(self.pulled, whole, strict=True))

    def _join(self, versions: Sequence[Version]) -> torch.Tensor:
        nothing = torch.full((SIZE,), torch.nan)
        return torch.cat([self.published.get((i, v), nothing) for i, v in enumerate(versions)])

    def _run(self, job: Callable[[int], None], me: int) -> None:
        try:
            self.baton.wait(me)
            job(me)
        except BaseException as error:
            self._errors.append(error)
        self.baton.leave(me)

    def perhaps_die(self, call: str) -> None:
        """Raise Died before one call in ten, until all deaths are used up."""
        if len(self.died) < self._deaths and self._fate.random() < 0.1:
            self.died.append(call)
            raise Died

    def _work(self, me: int) -> None:
        rng = np.random.default_rng((self._seed, me))
        remotes = [Remote(self, i, me) for i in range(len(self.servers))]
        pull = self._pull
        while True:
            try:
                self._live(me, rng, remotes, pull)
                return
            except Died:
                pull = self._first
                for _ in range(rng.integers(40)):  # others go on, as far as they can
                    self.baton.switch(me)

    def _first(self, remotes: Sequence[Any], at_least: Version) -> Pulled:
        """Pull as a worker that begins again, then as all others."""
        if at_least != ANY:
            return self._pull(remotes, at_least)
        pulled = pull_common(remotes)
        newest = max(server.state()[0].version for server in self.servers)
        self.begun.append((pulled.version, newest))
        return pulled

    def _live(
        self, me: int, rng: np.random.Generator, remotes: Sequence[Remote], pull: Pull
    ) -> None:
        """Work until the last round, or until it dies."""
        wanted, sent = ANY, list[tuple[Remote, Gradient]]()
        while wanted.incarnation < self._last_incarnation or wanted.number <= ROUNDS:
            pulled = pull(remotes, wanted)
            self.pulled.append(pulled)
            for i in rng.permutation(len(remotes)):
                values = torch.from_numpy(rng.normal(size=SIZE).astype(np.float32))
                gradient = Gradient(me, pulled.versions[i], 0, 1, 1, 0.1, values)
                remotes[i].push(gradient)
                sent.append((remotes[i], gradient))
            if self._repeats:
                remote, gradient = sent[rng.integers(len(sent))]
                self.answers.append(remote.push(gradient))
            wanted = pulled.version._replace(number=pulled.version.number + 1)

    def _restore(self, me: int) -> None:
        """Wait for version 3 everywhere, then take all servers back to version 2."""
        while min(server.state()[0].version.number for server in self.servers) < 3:
            self.baton.switch(me)
        for i in range(len(self.servers)):
            for _ in range(self._seed % 7):
                self.baton.switch(me)
            values = self.published[i, Version(0, 2)].clone()
            self.servers[i] = server_of(values, self._admission, Version(1, 2))
            self.look(i)
