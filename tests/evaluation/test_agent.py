"""Loading an agent, also of the zoo, and choosing actions, also by what others call of a model."""

from __future__ import annotations

import json
import math
import re
import tarfile
from pathlib import Path
from statistics import pstdev
from typing import Any

import numpy as np
import pytest
import torch

from colobus.core.checkpoint import write_checkpoint
from colobus.core.errors import ColobusError
from colobus.core.functions import name_of
from colobus.core.types import Bytes
from colobus.envs.api import GameSettings
from colobus.evaluation.agent import Agent, load
from colobus.evaluation.evaluator import evaluate
from colobus.evaluation.scores import baselines
from colobus.report.statistics import plus_minus
from colobus.runs.config import Config, write_config
from colobus.runs.folder import CLONE, place_of
from helpers.gym_toys import Doors
from helpers.players import (
    CATCH,
    add_checkpoint,
    decoded,
    make_agent,
    make_checkpoint,
    make_experiment,
    write_run,
)


def stacks(count: int, seed: int = 0) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, (count, 4, 10, 5), dtype=np.uint8)


def logits(agent: Agent, observations: Bytes) -> Any:
    with torch.no_grad():
        return agent.net(agent.net.preprocess(torch.from_numpy(observations)))["policy"]


def test_greedy_takes_the_most_probable_action() -> None:
    agent, seen = make_agent(), stacks(64)
    actions = agent.act(seen, "greedy")
    assert actions.dtype == np.int64
    np.testing.assert_array_equal(actions, logits(agent, seen).argmax(dim=1).numpy())
    assert len(set(actions.tolist())) == 3
    np.testing.assert_array_equal(agent.act(seen, "greedy"), actions)


def test_sampled_actions_follow_the_policy() -> None:
    agent = make_agent()
    seen = stacks(64)
    sure = torch.softmax(logits(agent, seen), dim=1).amax(dim=1)
    one = seen[int((sure - 0.6).abs().argmin())][None]
    wanted = torch.softmax(logits(agent, one), dim=1)[0].double().numpy()
    count = 20_000
    actions = agent.act(np.repeat(one, count, axis=0))
    found = np.bincount(actions, minlength=3) / count
    assert (np.abs(found - wanted) < 4 * np.sqrt(wanted * (1 - wanted) / count) + 1e-6).all()


def test_a_seed_repeats_the_sampled_actions() -> None:
    agent = make_agent()
    seen = np.zeros((200, 4, 10, 5), dtype=np.uint8)
    agent.seed(5)
    first, second = agent.act(seen), agent.act(seen)
    agent.seed(5)
    np.testing.assert_array_equal(agent.act(seen), first)
    assert not np.array_equal(first, second)
    own = torch.Generator().manual_seed(5)
    np.testing.assert_array_equal(agent.act(seen, random=own), first)
    np.testing.assert_array_equal(agent.act(seen), second)  # the agent's own was not touched


@pytest.mark.parametrize(
    ("observations", "shown"),
    [
        (np.zeros((2, 3, 10, 5), dtype=np.uint8), r"uint8\[2, 3, 10, 5\]"),
        (np.zeros((10, 5), dtype=np.uint8), r"uint8\[10, 5\]"),
        (np.zeros((2, 4, 5, 10), dtype=np.uint8), r"uint8\[2, 4, 5, 10\]"),
        (np.zeros((2, 4, 10, 5), dtype=np.float32), r"float32\[2, 4, 10, 5\]"),
        (np.zeros((4, 10, 5), dtype=np.float32), r"float32\[4, 10, 5\]"),
    ],
)
def test_other_observations_are_refused(observations: Bytes, shown: str) -> None:
    with pytest.raises(ValueError, match=rf"{shown}.*trained on uint8\[N, 4, 10, 5\]"):
        make_agent().act(observations)


def test_load_takes_a_run_or_one_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = write_run(tmp_path)
    newer = make_checkpoint(experiment, 3, steps=2000)
    newer.tensors["parameter/heads.policy.weight"].neg_()
    newer = newer._replace(version=newer.version._replace(number=9))
    path = write_checkpoint(tmp_path / "checkpoints", newer)
    seen = stacks(64)
    agent, old = load(tmp_path), load(path.with_name("00000007.safetensors"))
    assert (agent.checkpoint.steps, old.checkpoint.steps) == (2000, 1000)
    assert (agent.actions, agent.stack, agent.games) == (3, 4, CATCH)
    assert torch.equal(logits(load(str(path)), seen), logits(agent, seen))
    assert torch.allclose(logits(agent, seen), -logits(old, seen), atol=1e-4)
    np.testing.assert_array_equal(old.act(seen, "greedy"), make_agent().act(seen, "greedy"))
    monkeypatch.chdir(path.parent)
    assert load(Path(path.name)).checkpoint.steps == 2000  # named from inside its folder


def test_load_passes_over_a_damaged_checkpoint_and_says_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(ColobusError, match=r"is no run: it has no config\.json"):
        load(tmp_path / "nothing")
    write_run(tmp_path)
    path = add_checkpoint(tmp_path, 9)
    path.write_bytes(path.read_bytes()[:-5])
    assert load(tmp_path).checkpoint.steps == 1000
    with pytest.raises(ColobusError, match=r"00000009\.safetensors is truncated or damaged"):
        load(path)
    for file in path.parent.iterdir():
        file.unlink()
    with pytest.raises(ColobusError, match="no complete checkpoint"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("parameter/heads.policy.bias", None, r"heads\.policy\.bias is missing, want \[3\]"),
        ("parameter/heads.policy.bias", torch.ones(5), r"heads\.policy\.bias is \[5\], want \[3\]"),
        ("parameter/torso.9.weight", torch.ones(2), r"torso\.9\.weight is \[2\], want none"),
        ("input/deviation", torch.zeros(10, 5), "an input/deviation that does not fit"),
    ],
)
def test_tensors_of_another_network_are_refused(name: str, value: Any, said: str) -> None:
    experiment = make_experiment(CATCH)
    checkpoint = make_checkpoint(experiment, 3)
    checkpoint.tensors.pop(name, None)
    if value is not None:
        checkpoint.tensors[name] = value
    with pytest.raises(ColobusError, match=said):
        Agent(experiment, checkpoint, 3)


def test_an_agent_computes_in_float32_whatever_the_run_used() -> None:
    agent = make_agent(GameSettings(game="pong"), precision="bfloat16")
    assert agent.net.precision == "float32"
    seen = torch.zeros(1, 4, 42, 42, dtype=torch.uint8)
    assert agent.net.preprocess(seen).dtype == torch.float32
    assert not any(parameter.requires_grad for parameter in agent.net.parameters())


@pytest.mark.parametrize(
    ("game", "full", "own", "kind"),
    [("pong", False, 6, "minimal"), ("pong", True, 18, "full"), ("catch", False, 3, "minimal")],
)
@pytest.mark.parametrize("difference", [-1, 1])
def test_another_action_set_than_the_runs_is_refused(
    tmp_path: Path, game: str, full: bool, own: int, kind: str, difference: int
) -> None:
    """Also where the network fits the config: the emulator itself has other actions."""
    settings = CATCH if game == "catch" else GameSettings(game=game, full_actions=full)
    experiment = make_experiment(settings)
    actions = own + difference
    write_config(tmp_path, Config(game, experiment, actions, {}))
    write_checkpoint(tmp_path / "checkpoints", make_checkpoint(experiment, actions))
    said = f"the run has {actions} actions, the {kind} action set of {game} has {own}; play it"
    with pytest.raises(ColobusError, match=said) as error:
        load(tmp_path)
    assert "\n" not in str(error.value)


def test_a_recurrent_agent_takes_and_returns_its_state() -> None:
    agent, net = make_agent(recurrent="lstm"), make_agent(recurrent="lstm").net
    state, want = agent.initial_state(5), net.initial_state(5)
    assert (state.shape, state.dtype) == ((5, 32), np.dtype(np.float32))
    assert not state.any()
    for t in range(6):
        seen, before = stacks(5, seed=t), state.copy()
        actions, after = agent.act(seen, "greedy", state=state)
        with torch.no_grad():
            hidden, want = net.step(net.preprocess(torch.from_numpy(seen)), want)
            scores = net.outputs(hidden)["policy"]
        np.testing.assert_array_equal(actions, scores.argmax(dim=1).numpy())
        np.testing.assert_array_equal(state, before)  # it is the caller's
        assert want is not None
        np.testing.assert_array_equal(after, want.numpy())
        assert not np.array_equal(after, before)
        state = after
        over = np.array([t == 2, False, t == 4, False, False])
        state[over] = 0.0
        want = want.masked_fill(torch.from_numpy(over).unsqueeze(1), 0.0)


def test_a_recurrent_agent_without_its_state_is_refused() -> None:
    agent = make_agent(recurrent="lstm")
    with pytest.raises(ColobusError, match=r"this agent is recurrent: .*initial_state\(N\)"):
        agent.act(stacks(2))
    with pytest.raises(ValueError, match=r"the state is float32\[3, 32\], .* float32\[2, 32\]"):
        agent.act(stacks(2), state=agent.initial_state(3))
    with pytest.raises(ValueError, match=r"the state is float64\[2, 32\]"):
        agent.act(stacks(2), state=agent.initial_state(2).astype(np.float64))


@pytest.mark.parametrize("recurrent", ["none", "lstm"])
@pytest.mark.parametrize("policy", ["greedy", "sampled"])
def test_the_loop_of_stable_baselines_plays_as_act_does(recurrent: str, policy: Any) -> None:
    """That of its ``evaluate_policy``, over two games in each of three environments."""
    agent, other = make_agent(recurrent=recurrent), make_agent(recurrent=recurrent)
    env = agent.make_env(num_envs=3)
    seen, _ = env.reset(seed=1)
    state, begins, carried = None, np.ones(3, dtype=bool), other.initial_state(3)
    for _ in range(2 * 9):
        how: Any = {"state": state, "episode_start": begins, "deterministic": policy == "greedy"}
        actions, state = agent.predict(seen, **how)
        wanted, carried = other.act(seen, policy, state=carried)
        np.testing.assert_array_equal(actions, wanted)
        seen, rewards, ended, cut, _ = env.step(actions)
        begins, carried = ended | cut, carried.copy()
        carried[begins] = 0.0
    assert begins.all()
    assert set(np.abs(rewards)) == {1.0}


def test_one_observation_and_stacks_with_their_frames_last() -> None:
    agent = make_agent()
    seen = stacks(32)
    wanted = agent.act(seen, "greedy")
    last = np.moveaxis(seen, 1, -1)  # as VecFrameStack has them
    for batch in (seen, last):
        actions, state = agent.predict(batch, deterministic=True)
        np.testing.assert_array_equal(actions, wanted)
        assert state is None
        one, state = agent.predict(batch[5], deterministic=True)
        assert (np.shape(one), int(one), state) == ((), wanted[5], None)
    with pytest.raises(ValueError, match=r"observations are uint8\[3, 10, 5, 5\]"):
        agent.predict(np.zeros((3, 10, 5, 5), np.uint8))


@pytest.mark.parametrize("picture", [False, True])
def test_masks_that_are_given_take_the_place_of_those_that_are_seen(picture: bool) -> None:
    games = GameSettings(game=name_of(lambda: Doors(key=True, picture=picture)))
    agent = make_agent(games, stack=1, torso="tiny")
    seen = agent.make_env(num_envs=3).reset(seed=1)[0]  # doors 0 and 2 are open
    assert set(agent.predict(np.repeat(seen, 50, 0))[0].tolist()) == {0, 2}
    one = np.eye(4, dtype=bool)[[3, 1, 0]]
    assert agent.predict(seen, action_masks=one)[0].tolist() == [3, 1, 0]
    assert agent.predict(seen[0], action_masks=one[1])[0] == 1
    with pytest.raises(ValueError, match=r"\[3, 2\], the agent was trained with masks of 3 x 4$"):
        agent.predict(seen, action_masks=one[:, :2])
    with pytest.raises(ValueError, match=r"\[1, 3\], the agent was trained with no masks$"):
        make_agent().predict(np.zeros((4, 10, 5), np.uint8), action_masks=np.ones(3))


def test_the_state_of_a_game_that_begins_does_not_count() -> None:
    agent = make_agent(recurrent="lstm")
    seen = stacks(2)

    def after(observations: Bytes, state: Any = None, begins: Any = None) -> Any:
        return agent.predict(observations, state, begins, True)[1]

    state = after(seen)
    kept = state.copy()
    found = after(seen, state, np.array([True, False]))
    np.testing.assert_array_equal(state, kept)  # it is the caller's
    np.testing.assert_array_equal(found[0], after(seen)[0])
    np.testing.assert_array_equal(found[1], agent.act(seen, "greedy", state=state)[1][1])
    one = after(seen[0], kept[:1], np.array([True]))
    np.testing.assert_allclose(one[0], found[0], atol=1e-6)
    with pytest.raises(ValueError, match="broadcast"):
        after(seen, state, np.ones(3, bool))


ZOO = Path(__file__).resolve().parents[2] / "zoo"
NAMES = sorted(path.parent.name for path in ZOO.glob("*/config.json"))
MOST_BYTES, GAMES = 1_000_000, 100
LOGS = CLONE / "benchmarks" / "results" / "logs" / "zoo.tar.xz"


def scores_of(name: str) -> Any:
    return json.loads((ZOO / name / "evaluation.json").read_text(encoding="utf-8"))


def text_of(name: str) -> str:
    return (ZOO / name).read_text(encoding="utf-8")


def test_the_zoo_has_two_agents_and_a_list_of_them() -> None:
    assert CLONE / "zoo" == ZOO
    assert NAMES == ["breakout", "pong"]
    row = r"^\| `zoo:(\w+)` \|.*?\| ([\d.]+) ± ([\d.]+) \|"
    scores = [(scores_of(name)["mean"], scores_of(name)["standard_error"]) for name in NAMES]
    want = [(n, f"{mean:.2f}", f"{e:.2f}") for n, (mean, e) in zip(NAMES, scores, strict=True)]
    assert sorted(re.findall(row, text_of("README.md"), re.MULTILINE)) == want


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_agent_is_small_its_card_has_its_score_and_it_plays_well(name: str) -> None:
    """Far better than random play."""
    folder = place_of(Path(f"zoo:{name}"))
    files = [path for path in folder.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= MOST_BYTES
    saved, card = scores_of(name), text_of(f"{name}/README.md")
    assert saved["episodes"] == len(saved["scores"]) == GAMES
    assert saved["mean"] == pytest.approx(sum(saved["scores"]) / len(saved["scores"]))
    assert f"{saved['mean']:.2f} +/- {pstdev(saved['scores']):.2f}" in card
    assert f"protocol {saved['protocol']}" in card
    assert len(decoded(folder / "replay.mp4")[0]) > 100
    agent = load(f"zoo:{name}")
    assert (agent.games.game, agent.checkpoint.steps) == (name, saved["steps"])
    random, human = baselines(name) or (0.0, math.inf)
    assert evaluate(agent, "training", 1).mean > (random + human) / 2


@pytest.mark.parametrize("name", NAMES)
def test_the_report_has_the_score_of_the_card(name: str) -> None:
    report, saved = text_of(f"{name}/report.md"), scores_of(name)
    assert f" | {plus_minus(saved['mean'], saved['standard_error'])} | " in report
    assert f"noop: {GAMES} games, actions sampled, sticky actions 0," in report
    assert "## Published scores" in report
    assert f"({name}/report.md)" in text_of("README.md")


def test_the_score_before_rounding_is_in_the_logs() -> None:
    with tarfile.open(LOGS) as logs:
        file = logs.extractfile("breakout-float32.json")
        assert file is not None
        log = json.loads(file.read())
    said = " ".join(text_of("README.md").split())
    assert (log["protocol"], log["episodes"], log["seed"]) == ("noop", GAMES, 1)
    assert log["mean"] == pytest.approx(sum(log["scores"]) / GAMES)
    assert log["steps"] == scores_of("breakout")["steps"]
    assert f"{log['mean']:.2f} ± {log['standard_error']:.2f}" in said
