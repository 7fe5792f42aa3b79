"""Small things that several tests need: networks, trajectories and experiments in miniature."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
import torch

from colobus.algorithms.a3c import A3C
from colobus.algorithms.appo import APPO
from colobus.algorithms.dqn import DQN
from colobus.cli.interrupts import NAMES
from colobus.core.types import Trajectory, Version
from colobus.envs.api import GameSettings
from colobus.experiment.presets import PRESETS
from colobus.experiment.settings import Experiment, ReplaySettings, Shape
from colobus.nets.heads import Linear, MakeHeads
from colobus.nets.network import InputStatistics, Network, NetworkSettings, Precision
from colobus.ops.optimizers import OptimizerSettings
from colobus.roles.tracker import StopRule, TrackerSettings

pytest_plugins = ["helpers.ray_runs", "helpers.reporting"]

hypothesis.settings.register_profile(
    "colobus", deadline=None, derandomize=True, database=None, max_examples=50
)
hypothesis.settings.register_profile("fuzz", deadline=None, max_examples=3000)
hypothesis.settings.load_profile("colobus")

# Commands in messages begin with colobus if the shell finds it (`colobus.core.errors`).
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"

# Tests raise these signals. nohup, and & in a script, have them ignored, in child processes too.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def one_torch_thread() -> Iterator[None]:
    """Keep each test on one torch thread and give the setting back."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", autouse=True)
def nothing_is_flushed_to_disk() -> Iterator[None]:
    """Files of tests need not outlive a loss of power, and many disks take long to be sure."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def what_tests_trust_is_forgotten(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The modules that tests train with are not written into the home of who runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True)
def as_nice_as_before() -> Iterator[None]:
    """No test leaves this process nicer than it was: all later ones would have to wait."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    yield
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of a clock that stands still until a test lets them pass."""
    seconds = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: seconds[0])
    return seconds


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def usual_signals() -> Iterator[None]:
    """Give signals back to whom they belonged before the test."""
    usual = {each: signal.getsignal(each) for each in NAMES}
    yield
    for each, handler in usual.items():
        signal.signal(each, handler)


@pytest.fixture
def fail_once(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what has a method raise at one of its calls, and gives their count back."""

    def patch(kind: Any, name: str, at: int) -> Iterator[int]:
        function, calls = getattr(kind, name), itertools.count(1)

        def called(*arguments: Any, **more: Any) -> Any:
            if next(calls) == at:
                raise RuntimeError("by accident")
            return function(*arguments, **more)

        monkeypatch.setattr(kind, name, called)
        return calls

    return patch


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a window; for tests marked ``browser``."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--mute-audio"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


def heads_of(heads: dict[str, int] | MakeHeads) -> MakeHeads:
    """Return what makes linear heads with so many outputs."""
    if not isinstance(heads, dict):
        return heads
    gains = {"policy": 0.01}
    return lambda width: {k: Linear(width, n, gains.get(k, 1.0)) for k, n in heads.items()}


def make_net(
    settings: NetworkSettings | None = None,
    frame_shape: tuple[int, int] = (10, 5),
    heads: dict[str, int] | MakeHeads | None = None,
    precision: Precision = "float32",
    seed: int = 0,
    planes: int = 1,
    agents: int = 1,
    masks: int = 0,
) -> Network:
    """Return a network with input statistics that differ from pixel to pixel."""
    settings = settings or NetworkSettings(torso="tiny", width=16, stack=3)
    rng = np.random.default_rng(seed)
    mean = rng.uniform(0, 255, frame_shape).astype(np.float32)
    deviation = rng.uniform(4, 90, frame_shape).astype(np.float32)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Network(
            settings,
            frame_shape,
            heads_of(heads or {"policy": 3, "value": 1}),
            InputStatistics(mean, deviation),
            precision,
            planes=planes,
            agents=agents,
            masks=masks,
        )


def recurrent_net(stack: int = 1, precision: Any = "float32") -> Any:
    """Return a tiny network with an LSTM (`make_net`)."""
    settings = NetworkSettings(torso="tiny", width=16, stack=stack, recurrent="lstm")
    return make_net(settings, precision=precision)


def autoencoder_net(form: Any, **more: Any) -> Network:
    """Return a tiny network with this form of the autoencoder (`make_net`)."""
    settings = NetworkSettings(torso="tiny", width=16, stack=3, autoencoder=form)
    return make_net(settings, **more)


def random_ends(
    rng: np.random.Generator, shape: tuple[int, int]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return (terminated, truncated), bool of ``shape``; no step is both."""
    kind = rng.choice(3, size=shape, p=[0.7, 0.15, 0.15])
    return kind == 1, kind == 2


def random_trajectory(
    rng: np.random.Generator,
    actor: int = 0,
    round: int = 0,
    games: int = 2,
    length: int = 5,
    stack: int = 3,
    frame_shape: tuple[int, int] = (10, 5),
    actions: int = 3,
    number: int = 0,
) -> Trajectory:
    """Return a trajectory of noise whose ages agree with its ends of games."""
    shape = (games, length)
    terminated, truncated = random_ends(rng, shape)
    ages = np.zeros((games, length + 1), dtype=np.int64)
    ages[:, 0] = rng.integers(0, 5, size=games)
    for t in range(length):
        ages[:, t + 1] = np.where(terminated[:, t] | truncated[:, t], 0, ages[:, t] + 1)
    return Trajectory(
        actor=actor,
        round=round,
        version=Version(0, number),
        frames=rng.integers(0, 256, (games, length + stack, *frame_shape), dtype=np.uint8),
        ages=ages,
        actions=rng.integers(actions, size=shape),
        rewards=rng.normal(size=shape).astype(np.float32),
        terminated=terminated,
        truncated=truncated,
        independent=np.ones(games, dtype=np.bool_),
        mask=~truncated & (rng.random(shape) < 0.9),
        log_probs=np.log(rng.uniform(0.1, 0.9, shape)).astype(np.float32),
        state=np.zeros((games, 0), dtype=np.float32),
    )


def catch(steps: int, **changes: Any) -> Experiment:
    """Return the Catch preset that stops after ``steps`` and writes no TensorBoard events."""
    return replace(
        PRESETS["catch"],
        stop=StopRule(steps=steps),
        tracker=TrackerSettings(tensorboard=False),
        **changes,
    )


def dqn(experiment: Experiment, **replay: Any) -> Experiment:
    """Return it with DQN and a small replay buffer."""
    settings = ReplaySettings(capacity=900, minimum=200, windows=8, samples_per_insert=0.25)
    return replace(
        experiment,
        algorithm=DQN(n=3, target_every=7, epsilon_steps=2_000, anneal_steps=3_000),
        replay=replace(settings, **replay),
    )


def often(experiment: Experiment, deterministic: bool, **tracker: Any) -> Experiment:
    """Return it with a checkpoint as often as there can be one, of which all are kept."""
    given = {"checkpoint_seconds": 1e-9, "keep_checkpoints": 0, "tensorboard": False} | tracker
    settings: Any = replace(experiment.tracker, **given)
    return replace(experiment, tracker=settings, deterministic=deterministic)


def reshaped(experiment: Experiment, **shape: Any) -> Experiment:
    """Return it with other settings of its shape."""
    return replace(experiment, shape=replace(experiment.shape, **shape))


def short_pong(rounds: int, servers: int = 1, **changes: Any) -> Experiment:
    """Return real Pong in small: rounds of 2 actors x 2 games x 16 steps, after 64 random ones."""
    shape = Shape(actors=2, games=2, length=16, servers=servers, random_steps=64)
    fields: dict[str, Any] = {
        "games": GameSettings(game="pong"),
        "network": NetworkSettings(width=32, precision="float32"),
        "algorithm": APPO(minibatch=32),
        "shape": shape,
        "stop": StopRule(steps=64 + 64 * rounds),
        "tracker": TrackerSettings(tensorboard=False),
    }
    return Experiment(**(fields | changes))


def stand_in(fake: object) -> Any:
    """Return an object of a test as what it stands in for."""
    return fake


def tuned(experiment: Experiment, **changes: Any) -> Any:
    """Return the experiment's algorithm with other settings."""
    algorithm: Any = experiment.algorithm
    return replace(algorithm, **changes)


def distributed(base: Experiment, rounds: int, **shape: Any) -> Experiment:
    """Return an experiment with workers that stops after so many rounds of all of them."""
    cut = replace(base.shape, **shape)
    games = cut.topology.players * cut.games
    steps = cut.random_steps // games * games + rounds * cut.topology.gradients * cut.datapoints
    return replace(base, shape=cut, stop=StopRule(steps=steps))


def distributed_catch(rounds: int, **shape: Any) -> Experiment:
    """Return deterministic Catch with 2 workers of 8 games x 9 steps around 2 servers."""
    tracker = TrackerSettings(tensorboard=False)
    base = replace(PRESETS["dba3c-catch"], tracker=tracker, deterministic=True)
    return distributed(base, rounds, **shape)


def distributed_pong(rounds: int, **shape: Any) -> Experiment:
    """Return deterministic real Pong in workers, in small: actors with 2 games x 5 steps."""
    base = Experiment(
        games=GameSettings(game="pong", max_frames=100),  # so that games end
        network=NetworkSettings(width=16, precision="float32"),
        algorithm=A3C(gradient_clip=1e9, lr_end=1e-4),  # no clip: each learner has its own
        optimizer=OptimizerSettings(epsilon=1e-3),
        shape=Shape(workers=1, actors=1, games=2, length=5, random_steps=48),
        tracker=TrackerSettings(tensorboard=False),
        deterministic=True,
    )
    return distributed(base, rounds, **shape)
