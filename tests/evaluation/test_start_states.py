"""Start states: what a file holds, where games begin, what counts, what is refused."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save

from colobus.core.errors import ColobusError
from colobus.envs.ale import AleGame
from colobus.envs.api import GameSettings
from colobus.evaluation import start_states
from colobus.evaluation.evaluator import evaluate
from colobus.evaluation.protocols import PROTOCOLS
from colobus.evaluation.start_states import StartStates, make_starts, read_starts, write_starts
from helpers.launching import printed, refused, told
from helpers.players import CATCH, Clock, Scripted, make_agent, played_by_hand, write_run

pytestmark = pytest.mark.slow

BREAKOUT = GameSettings(game="breakout")
SEAQUEST = GameSettings(game="seaquest")


@pytest.fixture(scope="module", autouse=True)
def short_gaps() -> Iterator[None]:
    """One to two seconds of play between starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(start_states, "GAP", (1, 2))
        yield


@pytest.fixture(scope="module")
def seaquest(short_gaps: None) -> StartStates:
    """Eight starts of Seaquest."""
    return make_starts(make_agent(SEAQUEST), "runs/some", count=8, seed=3)


def test_starts_are_moments_of_games_apart_by_the_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one long game the frames between neighbours are those of a gap and the history."""
    pong = GameSettings(game="pong")
    monkeypatch.setattr(start_states, "GAP", (2, 4))
    got = make_starts(make_agent(pong), "run", count=20, seed=5)
    assert got.count == 20
    between = np.diff(got.frames)
    same = between[between > 0]  # the others are in a new game
    assert len(same) >= 15
    steps, rest = np.divmod(same, 4)
    assert not rest.any()
    gaps = steps - start_states.HISTORY
    assert gaps.min() >= 30
    assert gaps.max() <= 60
    assert len(set(gaps)) >= 10
    assert gaps.mean() == pytest.approx(45, abs=3 * 9 / np.sqrt(len(gaps)))


def test_the_seed_decides_the_starts(seaquest: StartStates) -> None:
    again = make_starts(make_agent(SEAQUEST), "runs/some", count=3, seed=3)
    assert again.states == seaquest.states[:3]
    np.testing.assert_array_equal(again.actions, seaquest.actions[:3])
    other = make_starts(make_agent(SEAQUEST), "runs/some", count=3, seed=4)
    assert other.states != again.states


def test_a_file_gives_back_every_bit(seaquest: StartStates, tmp_path: Path) -> None:
    path = tmp_path / "there" / "seaquest.starts"
    written = write_starts(path, seaquest)
    got = read_starts(path, SEAQUEST)
    assert got.states == seaquest.states
    np.testing.assert_array_equal(got.actions, seaquest.actions)
    np.testing.assert_array_equal(got.frames, seaquest.frames)
    assert got.about == seaquest.about
    assert (got.file, got.sha256) == ("seaquest.starts", written.sha256)
    assert len(written.sha256) == 64
    made_by = {"run": "runs/some", "steps": 1000, "policy": "sampled", "seed": 3}
    assert got.about["made_by"] == made_by
    before = path.read_bytes()
    with pytest.raises(ColobusError, match="the file exists"):
        write_starts(path, seaquest)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("game", "colour"),
    [("seaquest", False), ("breakout", False), ("ms_pacman", True), ("pong", False)],
)
def test_games_go_on_from_a_start_as_they_went_on(game: str, colour: bool) -> None:
    """The last 16 frames, lives, forced FIRE, and 150 steps of frames and rewards afterwards.

    The game replayed is another one, with another seed, in the midst of a game of its own.
    """
    settings = GameSettings(game=game, size=84, colour=colour, noop_max=31)
    first, other = AleGame(settings, 7), AleGame(settings, 8)
    other.reset()
    for _ in range(20):
        other.step(1)
    rng = np.random.default_rng(2)
    first.reset()
    for action in rng.integers(first.actions, size=60):
        assert not first.step(int(action)).over
    state, seen, codes = first.save(), [], []
    for action in rng.integers(first.actions, size=start_states.HISTORY):
        step = first.step(int(action))
        seen.append(step.frame)
        codes.append(step.code)
    np.testing.assert_array_equal(other.replay(state, np.array(codes)), np.stack(seen))
    for action in rng.integers(first.actions, size=150):
        mine, theirs = first.step(int(action)), other.step(int(action))
        np.testing.assert_array_equal(mine.frame, theirs.frame)
        assert mine[1:] == theirs[1:]
        if mine.over:
            break


def test_a_game_that_ends_on_the_way_is_no_start() -> None:
    game = AleGame(replace(BREAKOUT, max_frames=200), 1)
    game.reset()
    with pytest.raises(ValueError, match="ended during the replay"):
        game.replay(game.save(), np.zeros(60, dtype=np.int64))


@pytest.mark.parametrize("stack", [1, 4, 16])
def test_the_first_stack_is_what_was_seen_before_the_start(
    seaquest: StartStates, stack: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a deep stack as for a shallow one, against the frames of the games themselves."""
    agent = make_agent(SEAQUEST, stack)
    seen: list[Any] = []
    chosen = agent.act

    def act(stacks: Any, *args: Any, **state: Any) -> Any:
        seen.append(stacks.copy())
        return chosen(stacks, *args, **state)

    monkeypatch.setattr(agent, "act", act)
    evaluate(agent, "human", episodes=1, starts=seaquest)
    game = AleGame(replace(SEAQUEST, noop_max=0), 5)
    wanted = game.replay(seaquest.states[0], seaquest.actions[0])[-stack:]
    np.testing.assert_array_equal(seen[0][0], wanted)
    assert len({frame.tobytes() for frame in wanted}) > stack // 2


def test_each_start_is_played_once_and_only_later_rewards_count(
    seaquest: StartStates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against games by hand; the 108,000 frames are cut down so that some games reach them."""
    short = replace(PROTOCOLS["human"], max_frames=1400)
    monkeypatch.setitem(PROTOCOLS, "human", short)
    agent = Scripted(SEAQUEST)
    got = evaluate(agent, "human", starts=seaquest)
    settings = short.settings(SEAQUEST)
    assert (settings.sticky, settings.noop_max, settings.max_frames) == (0, 0, 1400)
    wanted: list[Any] = []
    for state, actions in zip(seaquest.states, seaquest.actions, strict=True):
        emulator = AleGame(settings, 99)
        stack = emulator.replay(state, actions)[-agent.stack :]
        wanted.append(played_by_hand(agent, emulator, stack)._replace(start=len(wanted)))
    assert list(got.games) == wanted
    assert max(got.scores) > 0
    cut = [game for game, played in enumerate(got.games) if played.truncated]
    assert cut
    for game in cut:  # the limit counts from the game's own beginning
        assert got.lengths[game] == -(-(1400 - seaquest.frames[game]) // 4)
    twice = evaluate(agent, "human", episodes=19, starts=seaquest)
    assert list(twice.games) == [*wanted, *wanted, *wanted[:3]]


def test_the_protocol_names_the_file_and_what_it_is(seaquest: StartStates, tmp_path: Path) -> None:
    path = tmp_path / "moments"
    written = write_starts(path, seaquest)
    got = evaluate(make_agent(SEAQUEST), "human", starts=read_starts(path, SEAQUEST))
    text = "\n".join(got.lines())
    for part in (
        "protocol human: from moments of games (Nair et al. 2015); 8 games, each from one start "
        "instead of 100, raw rewards, sampled policy",
        f"start states: moments (sha256 {written.sha256}): 8 points of seaquest "
        "as runs/some played it after 1,000 steps (sampled policy, seed 3, ale-py ",
        "not of a human's games; frames before a start state count for the frame limit, "
        "rewards do not",
        "sticky actions 0, no no-ops at the start, cut off at 108,000 frames",
        "(random play, 215.5, is 0 %; a human, 40425.8, is 100 %)",
    ):
        assert part in text
    data = json.loads(got.save(tmp_path).read_text())
    assert data["starts"]["file"] == "moments"
    assert data["starts"]["sha256"] == written.sha256
    assert (data["full_games"], data["episodes"], data["random_score"]) == (False, 8, 215.5)
    share = 100 * (got.mean - 215.5) / (40425.8 - 215.5)
    assert data["human_normalised"] == pytest.approx(share)


def test_a_file_that_does_not_fit_is_refused(seaquest: StartStates, tmp_path: Path) -> None:
    path = tmp_path / "good"
    write_starts(path, seaquest)
    for settings, said in (
        (GameSettings(game="pong"), "game is seaquest, want pong"),
        (replace(SEAQUEST, frame_skip=3), "frame skip is 4, want 3"),
        (CATCH, "for Atari games and this run plays catch"),  # which has no ROM to compare
        (GameSettings(game="CartPole-v1"), "for Atari games and this run plays CartPole-v1"),
    ):
        with pytest.raises(ColobusError, match=said):
            read_starts(path, settings)
    for name, value, said in (
        ("ale_py", "0.7.0", r"ale-py is 0\.7\.0, want "),
        ("rom", "00", "ROM, sha256 is 00, want "),
        ("format", 2, "format is 2, want 1"),
    ):
        write_starts(tmp_path / name, replace(seaquest, about=seaquest.about | {name: value}))
        with pytest.raises(ColobusError, match=said):
            read_starts(tmp_path / name, SEAQUEST)


@pytest.mark.parametrize("harm", ["cut", "flipped", "empty", "other", "missing"])
def test_a_damaged_file_is_refused(harm: str, seaquest: StartStates, tmp_path: Path) -> None:
    path = tmp_path / "starts"
    write_starts(path, seaquest)
    data = bytearray(path.read_bytes())
    if harm == "missing":
        path.unlink()
    elif harm == "other":
        path.write_bytes(save(load(bytes(data))))  # the same tensors, nothing said about them
    else:
        data[-1000] ^= harm == "flipped"
        path.write_bytes({"cut": bytes(data[:-1000]), "flipped": bytes(data), "empty": b""}[harm])
    why = {"missing": "cannot be read: No such file", "flipped": "is damaged"}
    with pytest.raises(ColobusError, match=why.get(harm, "is no file of start states, or damaged")):
        read_starts(path, SEAQUEST)


def test_protocol_and_starts_belong_together(seaquest: StartStates) -> None:
    agent = make_agent(SEAQUEST)
    with pytest.raises(ColobusError, match="protocol 'human' needs start states"):
        evaluate(agent, "human")
    with pytest.raises(ColobusError, match="protocol 'noop' begins games at their beginning"):
        evaluate(agent, "noop", starts=seaquest)
    with pytest.raises(ColobusError, match="this run plays catch"):
        make_starts(make_agent(CATCH), "run")


def test_the_commands(tmp_path: Path) -> None:
    folder, out = tmp_path / "run", tmp_path / "b.starts"
    write_run(folder, BREAKOUT)
    words = ["starts", str(folder), "--out", str(out), "--count", "3", "--seed", "2"]
    assert f"{out}: 3 starts of breakout, " in " ".join(printed(*words).split())
    assert f"--out {out}: the file exists" in refused(*words)
    away = tmp_path / "away" / "b.starts"
    said = f"--out {away}: there is no folder {away.parent}; make it"
    assert said in refused(*words[:3], away)
    play = ["eval", str(folder), "--protocol", "human"]
    data = told(*play[:2], "--starts", out, "--compare")  # means human
    assert (data["episodes"], data["starts"]["made_by"]["run"]) == (3, str(folder))
    verdicts = {row["comparable"] for row in data["compare"] if "human" in row["protocol"]}
    assert verdicts == {"except the starts"}
    others = [row["comparable"] for row in data["compare"] if "human" not in row["protocol"]]
    assert all(verdict.startswith("no: ") for verdict in others)
    for mistake, line in (
        (play, "--protocol human: needs start states; give --starts FILE"),
        ([*play[:3], "noop", "--starts", str(out)], "only --protocol human begins there"),
        ([*play, "--starts", "nowhere"], "--starts nowhere: cannot be read: No such file"),
        (["starts", str(folder)], "--out"),
        ([*words[:4], "--count", "0"], "--count 0: must be at least 1"),
    ):
        assert line in refused(*mistake)


def test_the_state_begins_with_the_agents_first_step(seaquest: StartStates) -> None:
    """Games end one by one: as many steps with the state n as there are games longer than n."""
    agent = Clock(SEAQUEST)
    got = evaluate(agent, "human", episodes=8, starts=seaquest)
    found = sorted(step for steps in agent.states for step in steps)
    assert found == sorted(step for length in got.lengths for step in range(length))
    assert max(map(len, agent.states)) > 1
    agent = Clock(SEAQUEST)  # starts are made with the state of the game, too
    make_starts(agent, "run", count=2, seed=3)
    steps = [state for (state,) in agent.states]
    assert steps[:30] == list(range(30))
    assert all(after in (before + 1, 0) for before, after in itertools.pairwise(steps))


def test_a_person_gives_starts_too(tmp_path: Path) -> None:
    """What a person plays is kept after each gap, and leads there again; the agent's steps do not
    count, and a game that ends begins the history anew."""
    settings = replace(BREAKOUT, life_loss_ends=False)
    game, path = AleGame(settings, 7), tmp_path / "mine.starts"
    keeper = start_states.StartKeeper(path, game, settings, seed=2)
    game.reset()
    frames: list[Any] = []
    for step in range(400):
        person = step >= 100 and step != 150
        keeper.before(person)
        played = game.step(step % 4)
        keeper.after(played.code, played.over)
        if played.over:
            game.reset()
        if keeper.count > len(frames):
            assert step >= 115
            assert not 150 <= step < 166
            frames.append(played.frame)
    found = read_starts(path, settings)
    assert found.count == keeper.count == len(frames) >= 5
    assert np.diff(found.frames)[np.diff(found.frames) > 0].min() >= 4 * 15  # the gap of a second
    for state, actions, frame in zip(found.states, found.actions, frames, strict=True):
        again = AleGame(settings, 1)
        again.reset()
        np.testing.assert_array_equal(again.replay(state, actions)[-1], frame)
    said = start_states.summary_line(found.summary())
    assert "points of breakout as a person played it (ale-py " in said
    evaluation = evaluate(make_agent(BREAKOUT), "human", 2, starts=found)
    assert evaluation.starts is not None
    assert evaluation.starts["made_by"]["policy"] == "person"
    with pytest.raises(ColobusError, match="the file exists; name a new file"):
        start_states.StartKeeper(path, game, settings, seed=2)
