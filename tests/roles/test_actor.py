"""What an actor sends, with which parameters it plays, and what it reports."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from colobus.algorithms.appo import APPO
from colobus.algorithms.exploration import Player, Sampled
from colobus.core.errors import Deadline
from colobus.core.types import Bytes, Episode, Gradient, Ints, Trajectory, Version
from colobus.envs.api import Step
from colobus.envs.catch import CatchGames
from colobus.nets.network import Network, NetworkSettings
from colobus.ops.flat import FlatParameters
from colobus.roles.actor import Actor, ActorSettings, Pace
from colobus.roles.policy import make_policy
from conftest import make_net, stand_in
from helpers.gradients import stack_at
from helpers.servers import FIRST, Sink, servers_of

B, T, K = 2, 6, 3
ONE_AHEAD = Pace(1)
EVENTS = {
    (0, 2): "terminated",
    (0, 3): "terminated",
    (1, 4): "life",
    (1, 5): "forced",
    (1, 8): "truncated",
    (0, 11): "terminated",
}
"""What happens in game b at its n-th step, counted from 1."""


class Script:
    """Two games whose n-th frame is filled with ``10 n + b + 1``; `EVENTS` happen."""

    count, actions, frame_shape = B, 3, (3, 4)
    action_names: tuple[str, ...] = ("LEFT", "STAY", "RIGHT")

    def __init__(self, seeds: Ints) -> None:
        self.n = 0

    def reset(self) -> Bytes:
        numbers = (10 * self.n + np.arange(1, B + 1)) % 256
        return np.full((B, 3, 4), numbers[:, None, None], dtype=np.uint8)

    def step(self, actions: Ints) -> Step:
        self.n += 1
        event = [EVENTS.get((b, self.n), "") for b in range(B)]
        return Step(
            frames=self.reset(),
            rewards=np.array([self.n, -2 * self.n], dtype=np.float32),
            terminated=np.isin(event, ["terminated", "life"]),
            truncated=np.isin(event, ["truncated"]),
            over=np.isin(event, ["terminated", "truncated"]),
            forced=np.isin(event, ["forced"]),
        )


class Scene:
    """An actor with servers that never wait, and everything it sends."""

    def __init__(
        self,
        games: Any = Script,
        index: int = 0,
        seed: int = 1,
        pace: Pace = ONE_AHEAD,
        servers: int = 1,
        precision: Any = "float32",
        start: Version = FIRST,
    ) -> None:
        settings = NetworkSettings(torso="tiny", width=16, stack=K)
        self.net: Network = make_net(settings, games.frame_shape, precision=precision)
        with torch.no_grad():
            weight = self.net.heads["policy"].get_parameter("weight")
            weight.mul_(100)  # a policy that is not uniform
        self.flat = FlatParameters(self.net)
        self.servers = servers_of(self.flat, servers, version=start)
        self.sink = stand_in(Sink())
        self.actor = self.another(APPO(), ActorSettings(index, 1, B, T, seed, pace), games)

    def another(self, algorithm: Any, settings: ActorSettings, games: Any = Script) -> Actor:
        """Return an actor of another algorithm that sends to the same sink."""
        policy = make_policy(self.net, algorithm)
        return Actor(settings, games, policy, algorithm, self.servers, self.sink, self.sink)

    def assert_recorded(self, played: Trajectory, t: int = 0, atol: float = 1e-5) -> None:
        """Compare the log-probabilities of a step with those of the network."""
        stacks = torch.from_numpy(stack_at(played.frames, played.ages, t, K))
        policy = self.net(self.net.preprocess(stacks))["policy"].log_softmax(1)
        want = policy[torch.arange(B), torch.from_numpy(played.actions[:, t])].detach()
        np.testing.assert_allclose(played.log_probs[:, t], want, atol=atol)

    def publish(self) -> None:
        cuts = self.flat.layout.cut(len(self.servers))
        for server, cut in zip(self.servers, cuts, strict=True):
            version = server.state()[0].version
            random = torch.Generator().manual_seed(version.number)
            values = torch.randn(self.flat.layout.size, generator=random)[cut]
            server.push(Gradient(0, version, 0, 1, 1, 0.1, values))

    def play(self, rounds: int) -> list[Trajectory]:
        for _ in range(rounds):
            self.actor.step()
        sent: list[Trajectory] = self.sink.trajectories
        return sent


def test_frames_are_stored_once_and_ages_and_ends_are_the_scripts() -> None:
    one, two = Scene().play(2)
    for b in range(B):
        seen = [int(f[0, 0]) for f in one.frames[b]] + [int(f[0, 0]) for f in two.frames[b][K:]]
        assert seen == [0] * (K - 1) + [10 * n + b + 1 for n in range(2 * T + 1)]
    assert np.array_equal(one.frames[:, -K:], two.frames[:, :K])  # the trajectories overlap
    assert all((f == f[:, :, :1, :1]).all() for f in (one.frames, two.frames))
    numbers = range(1, 2 * T + 1)
    events = [[EVENTS.get((b, n), "") for n in numbers] for b in range(B)]
    ages = np.zeros((B, 2 * T + 1), dtype=np.int64)
    for n, over in zip(numbers, np.isin(events, ["terminated", "truncated"]).T, strict=True):
        ages[:, n] = np.where(over, 0, ages[:, n - 1] + 1)
    assert np.array_equal(one.ages, ages[:, : T + 1])
    assert np.array_equal(two.ages, ages[:, T:])
    for name, want in {
        "terminated": np.isin(events, ["terminated", "life"]),
        "truncated": np.isin(events, ["truncated"]),
        "mask": ~np.isin(events, ["forced", "truncated"]),
        "rewards": np.array([numbers, [-2 * n for n in numbers]]),
    }.items():
        found = np.concatenate([getattr(one, name), getattr(two, name)], axis=1)
        np.testing.assert_array_equal(found, want, err_msg=name)


def test_games_are_reported_with_raw_return_and_length() -> None:
    scene = Scene()
    scene.play(2)
    assert scene.sink.games == [
        Episode(0, 0, 1 + 2, 2),
        Episode(0, 0, 3, 1),
        Episode(0, 1, -2.0 * sum(range(1, 9)), 8),  # a lost life ends no game
        Episode(0, 1, sum(range(4, 12)), 8),
    ]


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_an_actor_is_never_further_ahead_than_its_pace(ahead: int, servers: int) -> None:
    scene = Scene(pace=Pace(ahead), servers=servers, start=Version(1, 7))
    for number in range(3):
        with pytest.raises(Deadline, match=f"no parameters of version {8 + number}"):
            scene.play(10)
        assert len(scene.sink.trajectories) == 1 + ahead + number
        scene.publish()
    versions = [t.version.number for t in scene.sink.trajectories]
    assert versions == [7] * (1 + ahead) + [8, 9]
    assert [t.round for t in scene.sink.trajectories] == list(range(3 + ahead))


@pytest.mark.parametrize(("exactly", "want"), [(True, [0, 0, 1, 2]), (False, [0, 1, 2, 2])])
def test_an_actor_plays_with_the_version_it_names(exactly: bool, want: list[int]) -> None:
    """Exactly one round old, also with newer ones there; or else the newest."""
    scene = Scene(pace=Pace(1, exactly), servers=2)
    vectors = [scene.flat.values.clone()]
    scene.play(1)
    for _ in range(2):
        scene.publish()
        vectors.append(scene.flat.values.clone())
        scene.play(1)
    sent = scene.play(1)
    assert [trajectory.version.number for trajectory in sent] == want
    for trajectory in sent:
        scene.flat.values.copy_(vectors[trajectory.version.number])
        for t in range(T):
            scene.assert_recorded(trajectory, t)


def test_without_a_limit_it_takes_the_newest_and_only_waits_for_room() -> None:
    scene = Scene(pace=Pace(None), servers=2, start=Version(1, 7))
    scene.play(3)
    scene.publish()
    scene.publish()
    scene.play(1)
    scene.sink.full = 5
    with pytest.raises(Deadline, match="no room"):
        scene.play(9)
    assert [t.version.number for t in scene.sink.trajectories] == [7, 7, 7, 9, 9]
    assert scene.actor.clock.steps == 5


def on_catch(**arguments: Any) -> Scene:
    return Scene(CatchGames, pace=Pace(9), **arguments)


def same(one: Trajectory, other: Trajectory) -> bool:
    names = ("frames", "actions", "rewards", "log_probs")
    return all(np.array_equal(getattr(one, n), getattr(other, n)) for n in names)


def test_seed_index_and_round_decide_everything() -> None:
    first = on_catch().play(3)
    assert all(same(a, b) for a, b in zip(first, on_catch().play(3), strict=True))
    for other in (on_catch(seed=2), on_catch(index=1), on_catch(start=Version(1, 0))):
        assert not any(same(a, b) for a, b in zip(first, other.play(3), strict=True))


def test_a_restarted_actor_plays_fresh_games_without_noise_and_goes_on_counting() -> None:
    scene = on_catch()
    scene.play(2)
    parameter = next(scene.actor.policy.net.parameters())
    sound = parameter.clone()
    with torch.no_grad():
        parameter.add_(1.0)  # what an exploration may do until a rollout ends
    scene.actor.restart()
    sent = scene.play(1)
    assert torch.equal(parameter, sound)
    assert [t.round for t in sent] == [0, 1, 2]
    assert not sent[2].ages[:, 0].any()
    assert not np.array_equal(sent[2].frames[:, :K], sent[1].frames[:, -K:])
    assert not sent[2].frames[:, : K - 1].any()


def test_a_bfloat16_actor_acts_in_bfloat16() -> None:
    scene = on_catch(precision="bfloat16")
    (sent,) = scene.play(1)
    assert {p.dtype for p in scene.actor.policy.net.torso.parameters()} == {torch.bfloat16}
    assert sent.log_probs.dtype == np.float32
    scene.assert_recorded(sent, atol=0.1)


def test_the_exploration_is_told_who_explores_and_after_how_many_steps_of_all() -> None:
    told: list[Any] = []

    class Asking(Sampled):
        def begin(self, net: Any, length: int, steps: int, random: torch.Generator) -> None:
            told.append((length, steps))
            super().begin(net, length, steps, random)

    class Algorithm(APPO):
        def exploration(self, player: Player) -> Sampled:
            told.append(player)
            return Asking(player)

    scene = Scene()
    scene.sink.steps = 1000
    settings = ActorSettings(index=2, actors=5, games=B, length=T, seed=1, pace=Pace(None))
    actor = scene.another(Algorithm(), settings)
    for _ in range(3):
        actor.step()
    actor.restart()
    scene.sink.steps = 5000
    for _ in range(2):
        actor.step()
    player = Player(actor=2, actors=5, games=B, actions=Script.actions)
    all_actors = B * T * 5
    first = [(T, 1000 + r * all_actors) for r in range(3)]
    again = [(T, 5000 + r * all_actors) for r in range(2)]
    assert told == [player, *first, player, *again]


def test_an_actor_of_mixed_servers_waits_for_no_version_that_all_have() -> None:
    scene = Scene(pace=Pace(None, mixed=True), servers=2)
    scene.play(1)
    for index in (0, 0, 1):  # the first server is ahead
        server = scene.servers[index]
        gradient = torch.ones_like(server.values)
        assert server.push(Gradient(0, server.pull().version, 0, 1, 1.0, 0.1, gradient)).counted
        sent = scene.play(1)
        scene.assert_recorded(sent[-1])  # the servers step the scene's own parameters
    assert [trajectory.version.number for trajectory in sent] == [0, 1, 2, 2]
