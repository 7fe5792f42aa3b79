"""Reports: their numbers are those of the runs, nothing is claimed that few runs cannot show."""

from __future__ import annotations

import csv
import io
import itertools
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from colobus.cli import main
from colobus.core.errors import ColobusError
from colobus.evaluation.scores import scores
from colobus.report import plots
from colobus.report.baselines import peaks
from colobus.report.compose import compose, improvements
from colobus.report.format import DASH, Block, Figure, Heading, Table, Text, as_html, as_markdown
from colobus.report.plots import SOURCES, public_curves
from colobus.report.provenance import machine_line, protocol_line, results_csv
from colobus.report.results import TRAINING_GAMES, Results, read_results, score_at
from helpers.browsing import Page
from helpers.launching import printed, refused
from helpers.made_runs import append, change_config, evaluate, make_run, rising, row

NAME = "<img src=x onerror=alert(1)>$x$"


def undrawn(results: Results) -> list[Block]:
    """Return the blocks of a report; no picture is drawn."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in vars(plots) if name.endswith(("_picture", "_pictures"))]:
            patch.setattr(plots, name, lambda *_: "")
        return compose(results)[1]


def report(results: Results) -> str:
    return as_html("Report", undrawn(results))


def opening(results: Results) -> str:
    """Return what a report says of the scores before it has any."""
    return str(undrawn(results)[1])


def tables(results: Results) -> dict[str, list[tuple[str, ...]]]:
    """Return the rows of each table by the heading before it."""
    found: dict[str, list[tuple[str, ...]]] = {}
    heading = ""
    for block in undrawn(results):
        if isinstance(block, Heading):
            heading = block.text
        elif isinstance(block, Table):
            found.setdefault(heading, []).extend(block.rows)
    return found


def test_impossible_files_leave_nothing(here: Path) -> None:
    make_run(here / "run")
    os.mkfifo("pipe")
    assert "--csv pipe: is no regular file; name another" in refused("report", "run", "--csv=pipe")
    assert "--csv run: is no regular file" in refused("report", "run", "--csv", "run")
    for name in ("X.md", "run/../X.md"):
        err = refused("report", "run", "--out", "X.md", "--csv", name)
        assert f"--csv {name}: is the file of the report; name another" in err
    assert sorted(path.name for path in here.iterdir()) == ["pipe", "run"]
    assert Path("pipe").is_fifo()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "which runs?"),
        (["{folder}", "--out", "r.pdf"], "must end in .html or .md"),
        (["{folder}", "--out", "{folder}/no/r.html"], "there is no folder"),
        (["{folder}"], "no run there"),
        (["{folder}", "--protocol", "nop"], "unknown protocol 'nop': nearest known: noop"),
    ],
)
def test_mistakes_of_report_are_one_line(tmp_path: Path, words: list[str], said: str) -> None:
    assert said in refused("report", *(word.format(folder=tmp_path) for word in words))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_report_is_written_also_where_a_link_leads(tmp_path: Path) -> None:
    for seed in (1, 2):
        run = make_run(tmp_path / f"pong-{seed}", rising(9), seed=seed)
        evaluate(run, 9_000, [1.0, 2.0])
    begins = {"r.html": "<!doctype html>", "r.md": "# Report: pong\n", "r.csv": "run,"}
    for name in begins:
        (tmp_path / name).symlink_to(f"other-{name}")
    for name in ("r.html", "r.md"):
        words = ("--out", tmp_path / name, "--csv", tmp_path / "r.csv")
        assert "2 runs of 1 game\n" in printed("report", tmp_path, *words)
    for name, begin in begins.items():
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / f"other-{name}").read_text().startswith(begin)
    assert (tmp_path / "r.csv").read_text().count("\n") == 3


@pytest.fixture
def two_seeds(tmp_path: Path) -> Path:
    for seed, scores_of in ((1, [1.0, 3.0]), (2, [5.0, 7.0])):
        run = make_run(tmp_path / f"pong-{seed}", rising(1200, kl=0.1, games=60), seed=seed)
        evaluate(run, 500_000, [-20.0, -20.0])
        evaluate(run, 1_000_000, scores_of)
    return tmp_path


def test_the_newest_evaluation_of_each_run_counts_and_its_protocol_is_told(two_seeds: Path) -> None:
    results = read_results([two_seeds])
    assert [result.score for result in results.all] == [2.0, 6.0]
    assert [result.frames for result in results.all] == [4_000_000] * 2
    (one,) = results.of("pong")
    assert (one.score, one.error, one.group) == (4.0, 2.0, "appo")
    found = tables(results)
    row = found["Scores"][0]
    assert row[:5] == ("pong", "appo", "2", "4.00 ± 2.00", "2.00, 6.00")
    assert row[5:] == ("70.0 %", "4 M", "33.3", "2")  # (4 + 20.7) / (14.6 + 20.7)
    measured = found["How every number was measured"]
    assert len(measured) == 2
    assert measured[0][-2:] == (
        "sticky: 2 games, actions sampled, sticky actions 0.25, at most 0 no-ops, at most 108,000 "
        "frames, frame skip 4, seed 1",
        "A processor, 2 cores, colobus 0.2, commit abc",
    )


def test_without_evaluations_scores_of_training_count_and_that_is_said(tmp_path: Path) -> None:
    run = make_run(tmp_path / "pong-1")
    with pytest.raises(ColobusError, match="none has a score yet"):
        read_results([tmp_path])
    append(run, *rising(49), row(50_000, 100.0, 5.0, games=12))
    results = read_results([tmp_path])
    assert results.protocol == TRAINING_GAMES
    assert (results.all[0].score, results.all[0].games) == (5.0, 12)  # it says of how many
    assert "while learning, 50 if there were as many; those that ended their run" in report(results)
    said = {row[4] for row in tables(results)["pong"][1:] if row[1] == "no-ops, 30 min"}
    assert said == {"no: not evaluated"}


def test_an_earlier_checkpoint_that_was_evaluated_is_told(tmp_path: Path) -> None:
    """Of protocols of as many runs that of later checkpoints counts: an evaluator beside a run has
    seen earlier ones, by another."""
    for name, steps in (("a", 9000), ("b", 4000)):
        run = make_run(tmp_path / name, rising(9), seed=ord(name))
        evaluate(run, 3000, [9.0, 9.0], protocol="dba3c")
        evaluate(run, steps, [1.0, 3.0], protocol="training")
    results = read_results([tmp_path])
    assert results.protocol == "training"
    said = opening(results)
    assert "Of these runs an earlier checkpoint played: b, after 4,000 of 9,000 steps." in said
    assert "different numbers of steps" not in said  # both learned from 9,000
    for name, steps in (("a", 9000), ("b", 4000)):
        evaluate(tmp_path / name, steps, [9.0, 9.0], protocol="dba3c")
    assert read_results([tmp_path]).protocol == "training"  # by the others it may have been chosen


def test_one_kind_of_number_is_never_compared_with_another(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        run = make_run(tmp_path / f"pong-{seed}", rising(10), seed=seed)
        if seed > 1:
            evaluate(run, 10_000, [1.0, 2.0], protocol="noop")
    evaluate(tmp_path / "pong-1", 10_000, [9.0, 9.0], protocol="training")
    results = read_results([tmp_path])
    assert results.protocol == "noop"
    assert [run.name for run, _, _ in results.unscored] == ["pong-1"]
    assert "pong-1" in opening(results)
    unscored = read_results([tmp_path], "training").unscored
    assert [run.name for run, _, _ in unscored] == ["pong-2", "pong-3"]
    (scores,) = tables(results)["Scores"]
    assert scores[:5] == ("pong", "appo", "2", "1.50 ± 0.00", f"1.50, 1.50, {DASH}")
    assert tables(results)["How every number was measured"][-1][:4] == ("pong-1", "appo", "1", DASH)
    with pytest.raises(ColobusError, match="none has a score by protocol human"):
        read_results([tmp_path], "human")


def test_only_an_emulator_has_frames(tmp_path: Path) -> None:
    make_run(tmp_path / "pong-1", rising(5))
    make_run(tmp_path / "cart-1", rising(5), game="CartPole-v1")
    make_run(tmp_path / "own-1", rising(5), game="__main__:<lambda>")
    assert [(r.game, r.steps, r.frames) for r in read_results([tmp_path]).all] == [
        ("CartPole-v1", 5000, 5000),
        ("own environment", 5000, 5000),
        ("pong", 5000, 20_000),
    ]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="names of folders are text there")
def test_a_folder_whose_name_is_no_text_is_in_the_report(tmp_path: Path) -> None:
    for end in (b"1", b"\xe9", b"\xe8"):
        run = make_run(tmp_path / os.fsdecode(b"caf\xe9-" + end), rising(5))
        evaluate(run, 10_000, [1.0, 3.0])
        if end != b"1":  # without settings their groups are named like the folders
            (run / "config.json").write_text("")
    for name in map(os.fsdecode, (b"caf\xe9.html", b"caf\xe9.md")):
        words = ["report", str(tmp_path), "--out", str(tmp_path / name)]
        assert main.run([*words, "--csv", str(tmp_path / "all.csv")]) == 0
        assert (tmp_path / name).stat().st_size > 0
        assert "caf?-1" in (tmp_path / "all.csv").read_text()


@pytest.mark.slow
def test_runs_without_an_evaluation_are_dashed(tmp_path: Path) -> None:
    evaluate(make_run(tmp_path / "pong-1", rising(50)), 50_000, [1.0, 2.0])
    make_run(tmp_path / "pong-2", rising(50), seed=2)
    make_run(tmp_path / "breakout-1", rising(50), game="breakout", lr=0.5)
    results = read_results([tmp_path])
    rows = [row[:5] for row in tables(results)["Scores"]]
    assert rows == [
        ("breakout", "appo, lr 0.5", *3 * [DASH]),
        ("pong", "appo, lr 0.002", "1", "1.50 ± 0.50", f"1.50, {DASH}"),
    ]
    pictures = [b for b in compose(results)[1] if isinstance(b, Figure)]
    (breakout,) = [p for p in pictures if p.caption.startswith("breakout. Mean")]
    (pong,) = [p for p in pictures if p.caption.startswith("pong. Mean")]
    assert "Dashed lines are runs without an evaluation." in pong.caption
    dashed = "stroke-dasharray[^>]*stroke: #"
    counts = [
        len(re.findall(dashed + colour, picture.svg))
        for picture, colour in ((breakout, "c2410c"), (pong, "2563eb"))
    ]
    # over steps and over minutes, of three lines of Pong one each; that of Breakout has a legend
    assert counts == [3, 2]


def test_scores_stand_beside_those_of_dqn_and_a_human(tmp_path: Path) -> None:
    """Pong: random -20.7, human 14.6, DQN 18.9; Breakout: 1.7, 30.5 and 401.2."""
    for game, scores_of in (("pong", [-20.7, -3.05]), ("breakout", [30.5]), ("catch", [1.0])):
        evaluate(make_run(tmp_path / game, rising(9), game=game), 9_000, scores_of)
    found = tables(read_results([tmp_path]))["Beside DQN and a human"]
    assert found == [("breakout", "100 %", "1387 %"), ("pong", "25 %", "112 %")]


def test_the_peak_of_a_run_of_which_not_all_lines_are_read(tmp_path: Path) -> None:
    best = [0.0, 9.0, 9.0, 9.0]
    rows = [row(1000 * i, 60.0 * i, 1.0, games=99, best=top) for i, top in enumerate(best, 1)]
    make_run(tmp_path / "catch", [rows[0], *rows[2:]], game="catch")
    ((_, _, peak, minutes, *_),) = tables(read_results([tmp_path]))["Time to the peak"]
    assert (peak, minutes) == ("9.00", "3.0")


@pytest.mark.slow
def test_peaks_and_what_was_passed_are_told_in_minutes(tmp_path: Path) -> None:
    """A row each two seconds; 20 points a row in Breakout, where a human has 30.5, DQN 401.2."""
    for seed, top in ((1, 30), (2, 21)):
        scores_of = [20.0 * min(i, 2 * top - i) for i in range(1, 60)]
        rows = [row(1000 * i, 2.0 * i, score, games=49 + i) for i, score in enumerate(scores_of, 1)]
        rows[0] = row(1000, 1.0, 999.0, games=49)  # of fewer than 50 games
        make_run(tmp_path / f"breakout-{seed}", rows, game="breakout", seed=seed)
        make_run(tmp_path / f"pong-{seed}", rising(60, games=50), seed=seed)
        make_run(tmp_path / f"catch-{seed}", rising(60, games=50), game="catch", seed=seed)
    results = read_results([tmp_path])
    assert tables(results)["Time to the peak"] == [
        # peaks 600 and 420 after 60 and 42 s; above a human in row 2, above DQN in row 21 of each
        ("breakout", "appo", "510.0", f"{51 / 60:.1f}", f"{4 / 60:.1f}", f"{42 / 60:.1f}"),
        ("catch", "appo", "6.00", "2.0", DASH, DASH),
        ("pong", "appo", "6.00", "2.0", DASH, DASH),
    ]
    make_run(tmp_path / "breakout-3", rising(60), game="breakout", seed=3)  # of fewer than 50 games
    make_run(tmp_path / "breakout-4", game="breakout", seed=4)  # nobody knows
    assert tables(read_results([tmp_path]))["Time to the peak"][0][4:] == (DASH, DASH)
    captions = [b.caption for b in undrawn(results) if isinstance(b, Figure)]
    assert "How many of 2 games were above a level after which time." in captions


def test_games_of_both_levels_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of Berzerk, which DQN did not play in 2015, there is a human's score alone."""
    for game in ("breakout", "pong", "berzerk"):
        make_run(tmp_path / game, rising(9, slope=9_000.0, games=50), game=game)
    drawn: list[Any] = []

    def draw(*given: Any) -> str:
        drawn.append(given)
        return ""

    monkeypatch.setattr(plots, "passed_picture", draw)
    peaks(read_results([tmp_path]))
    ((panels, _, games),) = drawn
    assert (games, [len(panel["appo"]) for panel in panels.values()]) == (2, [2, 2])


def test_an_interval_of_the_better_one_is_over_enough_games_that_both_played() -> None:
    for shared, is_given in ((20, True), (1, False)):
        names = [f"{number}" for number in range(40)]
        own, others = names[:20], names[20 - shared :][:20]
        groups = {"a": dict.fromkeys(own, [1.0] * 5), "b": dict.fromkeys(others, [1.0] * 5)}
        table = improvements(groups, sure=True)[0]
        assert isinstance(table, Table)
        assert table.rows[0][2:] == (f"{shared}", "0.50 (0.50 to 0.50)" if is_given else "0.50")


def test_names_are_what_differs(tmp_path: Path) -> None:
    for i, (lr, seed) in enumerate(((0.1, 1), (0.1, 2), (0.2, 1))):
        name = f"__main__:<lambda>#{i + 13}"
        run = make_run(tmp_path / f"__main__-lambda-{i + 13}-1", rising(9), name, seed, lr)
        evaluate(run, 9_000, [1.0])
    results = read_results([tmp_path])
    assert results.games == ["own environment"]
    rows = [row[1:3] for row in tables(results)["Scores"]]
    assert rows == [("appo, lr 0.1", "2"), ("appo, lr 0.2", "1")]
    twin = tmp_path / "__main__-lambda-16-1"  # the same lines made another environment
    evaluate(make_run(twin, rising(9), "__main__:<lambda>#16", 1, 0.1), 9_000, [1.0])
    assert read_results([tmp_path]).games == [f"own environment {i}" for i in (1, 2, 3, 4)]


def many(tmp_path: Path, games: int, runs: int) -> Results:
    """Return results of two groups, one of which is better in every game."""
    for game in list(scores())[:games]:
        for seed in range(1, runs + 1):
            for lr, better in ((0.1, 2.0), (0.2, 1.0)):
                run = make_run(tmp_path / f"{game}-{seed}-{lr}", game=game, seed=seed, lr=lr)
                low, human = (scores()[game][name] for name in ("random", "human"))
                score = low + (human - low) * (better + 0.01 * seed)
                evaluate(run, 1000, [score, score])
    return read_results([tmp_path])


def test_few_games_get_standard_errors_and_the_reason(tmp_path: Path) -> None:
    results = many(tmp_path, games=3, runs=3)
    text = report(results)
    assert "no bootstrap interval here: with 3 games and 3 runs a game" in text
    assert "From 20 games with 5 runs each on" in text
    rows = tables(results)["Over all games"]
    assert ("appo, lr 0.1", "3", "2.02 ± 0.00") in rows
    assert ("appo, lr 0.1", "appo, lr 0.2", "3", "1.00") in rows


@pytest.mark.slow
def test_20_games_of_5_runs_get_intervals(tmp_path: Path) -> None:
    results = many(tmp_path, games=20, runs=5)
    text = report(results)
    assert "2.03 (2.03 to 2.03)" in text  # runs of 2.01 to 2.05 in every game
    assert "stratified bootstrap" in text
    assert "1.00 (1.00 to 1.00)" in text
    assert "look surer" not in text
    band = {"a": ([0.9, 0.4], [1.0, 0.6])}
    assert "opacity: 0.15" in plots.profile_picture([0.0, 1.0], {"a": [1.0, 0.5]}, band)


def test_public_curves_stand_beside_the_score_at_the_same_frames(two_seeds: Path) -> None:
    results = read_results([two_seeds])
    run = results.runs[0]
    assert score_at(run, 4_000_000) == pytest.approx(100.0)
    assert score_at(run, 5_000_000) is None
    rows = tables(results)["pong"]
    ours = rows[0]
    assert ours == ("this report: appo", "2", "25.00", "50.00", "100.0")  # 1 M, 2 M and 4 M frames
    others = {row[0]: row for row in rows if len(row) == len(ours)}
    assert len(others) == 1 + len(public_curves("pong"))
    curve = next(c for c in public_curves("pong") if c.method == "MR.Q")
    assert others["MR.Q"] == ("MR.Q", "10", *[f"{curve.points[f]:.2f}" for f in curve.points][:3])
    agent = make_run(two_seeds / "agent", seed=3)  # exported, it has no curve
    evaluate(agent, 1_000_000, [1.0, 3.0]).rename(agent / "evaluation.json")
    results = read_results([two_seeds])
    assert len(results.all) == 3
    assert tables(results)["pong"][0] == ours


def test_names_of_public_curves_do_not_lie_on_one_another() -> None:
    svg = plots.public_picture({}, "pong", 1_500_000)  # most curves end near random play
    found = re.findall(
        r"<text[^>]*size: 6\.5px[^>]* x=\"(.+?)\" y=\"(.+?)\"[^>]*>(.+?)</text>", svg
    )
    heights = sorted(float(y) for x, y, _ in found if x == found[0][0])
    assert len(heights) > 5
    assert min(b - a for a, b in itertools.pairwise(heights)) > 6.5  # points, the size of a name
    best = max(public_curves("pong"), key=lambda curve: curve.points.get(2_000_000, -21))
    assert best.method in {name for _, _, name in found}


def test_where_the_time_went_is_that_of_the_newest_line(tmp_path: Path) -> None:
    make_run(tmp_path / "old", rising(5))  # as of version 0.1, which wrote no shares
    run = make_run(tmp_path / "new", rising(5, time_actor_emulate=0.1), seed=2)
    shares = {"time_actor_act": 0.3, "time_actor_emulate": 0.6, "time_actor_send": 0.004}
    shares |= {"time_learner_learn": 0.25, "time_learner_wait_for_experience": 0.7}
    append(run, row(9000, 18.0, 1.0, **shares))
    results = read_results([tmp_path])
    assert tables(results)["Where the time went"] == [
        ("new", "emulate", "emulate 60 %, act 30 %", "wait for experience 70 %, learn 25 %")
    ]
    found = [block for block in undrawn(results) if isinstance(block, Table)]
    (table,) = (one for one in found if "speed limited by" in one.columns)
    assert table.columns[2:] == ("time of actors", "time of learners")
    (tmp_path / "new" / "metrics.jsonl").unlink()
    assert "Where the time went" not in tables(read_results([tmp_path]))


def test_an_exported_agent_is_reported_without_curves(tmp_path: Path) -> None:
    for game in ("pong", "breakout"):
        agent = make_run(tmp_path / game, game=game)
        evaluate(agent, 1_000_000, [1.0, 3.0], protocol="noop").rename(agent / "evaluation.json")
    title, blocks = compose(read_results([tmp_path]))
    assert title == "Report: 2 games"
    assert not [block for block in blocks if isinstance(block, Heading) and "curves" in block.text]
    captions = [block.caption[:19] for block in blocks if isinstance(block, Figure)]
    assert captions == ["Means over runs; da", "Performance profile"]
    found = tables(read_results([tmp_path]))
    assert [row[3] for row in found["Scores"]] == ["2.00 ± 1.00", "2.00 ± 1.00"]
    assert len(found["pong"]) > 10  # published scores beside it


def test_public_curves_have_sources_and_games_that_are_known() -> None:
    games = [game for game in scores() if public_curves(game)]
    assert len(games) >= 55
    methods = {curve.method for game in games for curve in public_curves(game)}
    assert {method.partition(":")[0] for method in methods} == set(SOURCES)
    assert len(methods) >= 15


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"device": "cuda:0", "gpu": "NVIDIA H200"}, "2 cores, NVIDIA H200, colobus 0.2"),
        ({"device": "cuda"}, "2 cores, a GPU, colobus 0.2"),
        ({"time": "simulated, link 10Gb"}, "commit abc, time simulated, link 10Gb"),
    ],
)
def test_gpus_and_simulated_time_are_said(tmp_path: Path, about: dict[str, str], said: str) -> None:
    run = make_run(tmp_path / "run", rising(5))
    change_config(run, about=about)
    assert said in machine_line(read_results([run]).all[0].run)


def test_the_table_for_computers_has_a_line_for_each_run(two_seeds: Path) -> None:
    """Runs without a score have one, too, and a spreadsheet computes no name."""
    evaluate(make_run(two_seeds / "=HYPERLINK(1)", seed=3), 5_000, [-1.0, -3.0])
    make_run(two_seeds / "unscored", rising(9), seed=4)
    rows = list(csv.DictReader(io.StringIO(results_csv(read_results([two_seeds])))))
    assert [(row["run"], row["seed"], row["score"]) for row in rows] == [
        ("'=HYPERLINK(1)", "3", "-2.0"),
        ("pong-1", "1", "2.0"),
        ("pong-2", "2", "6.0"),
        ("unscored", "4", ""),
    ]
    assert float(rows[1]["human_normalised_percent"]) == pytest.approx(100 * 22.7 / 35.3)
    assert rows[1]["machine"].startswith("A processor")


REFER = ("src", "href", "xlink:href", "data", "action")
"""Attributes that refer to something."""


def test_the_file_stands_alone_and_runs_nothing(tmp_path: Path) -> None:
    run = make_run(tmp_path / NAME.replace("/", "_"), rising(50), game=NAME, name=NAME)
    make_run(tmp_path / "other", rising(50), game=NAME, name="b")
    evaluate(run, 50_000, [1.0, 2.0], protocol=NAME)
    text = as_html(*compose(read_results([tmp_path])))
    page = Page(text)
    tags = {tag for tag, _ in page.tags}
    assert "svg" in tags
    assert not {"script", "img", "iframe", "object", "link", "image"} & tags
    given = [attribute for _, attributes in page.tags for attribute in attributes]
    addresses = [at or "" for name, at in given if name in REFER]
    assert [address for address in addresses if not address.startswith("#")] == []
    assert [name for name, _ in given if name.startswith("on")] == []
    assert not re.search(r"url\((?!#)", text)
    assert "&lt;img src=x onerror=alert(1)&gt;" in text


@pytest.mark.slow
def test_the_same_runs_give_the_same_report_with_a_line_for_each_seed(two_seeds: Path) -> None:
    first, second = (compose(read_results([two_seeds]))[1][1:] for _ in range(2))
    assert first == second
    (_, picture, *_) = [block for block in first if isinstance(block, Figure)]
    lines = re.findall(
        r"stroke: #c2410c; (?:stroke-opacity: [\d.]+; )?stroke-width: [\d.]+", picture.svg
    )
    assert len(lines) >= 6  # two seeds and their mean, over steps and over minutes


@pytest.mark.slow
def test_a_group_has_one_colour_in_all_pictures(tmp_path: Path) -> None:
    """The second group alone played breakout; it is blue there, too, and named."""
    for name, game, lr in (("a", "pong", 0.1), ("b", "pong", 0.2), ("c", "breakout", 0.2)):
        run = make_run(tmp_path / name, rising(300, games=60), game=game, lr=lr)
        evaluate(run, 300_000, [1.0, 3.0])
    results = read_results([tmp_path])
    assert list(results.groups) == ["appo, lr 0.1", "appo, lr 0.2"]
    blocks = compose(results)[1]
    pictures = [b for b in blocks if isinstance(b, Figure) and b.caption.startswith("breakout")]
    assert len(pictures) == 3  # scores, metrics, public curves
    for one in pictures:
        assert "#2563eb" in one.svg
        assert "#c2410c" not in one.svg
    assert ["lr 0.2" in one.svg for one in pictures] == [True, False, True]


def test_a_heading_over_nothing_but_pictures_is_not_in_markdown() -> None:
    blocks: list[Block] = [Heading("A"), Figure("", ""), Heading("B"), Heading("C", 3), Text("x")]
    found = as_markdown("T", [*blocks, Heading("D", 3), Figure("", "")])
    assert found == "# T\n\n## B\n\n### C\n\nx\n"


def test_markdown_has_the_same_words_and_escapes_them() -> None:
    blocks: list[Block] = [
        Heading("A <b>"),
        Text("x_y | *z*"),
        Table(("a", "b>"), (("1|2", "[3](x)"),)),
    ]
    assert as_markdown("T", blocks) == (
        "# T\n\n## A \\<b\\>\n\nx\\_y \\| \\*z\\*\n\n"
        "| a | b |\n| --- | ---: |\n| 1\\|2 | \\[3\\](x) |\n"
    )


def test_runs_of_one_method_are_compared_by_one_policy(two_seeds: Path) -> None:
    more = evaluate(two_seeds / "pong-1", 1_000_000, [20.0] * 9, policy="greedy")
    more.rename(more.with_name("1000000-sticky-greedy.json"))
    evaluate(two_seeds / "pong-1", 1_000_000, [1.0, 3.0])
    results = read_results([two_seeds])
    assert [one.score for one in results.all] == [2.0, 6.0]
    assert "not played alike" not in report(results)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"settings": {"game": "pong", "sticky": 0.0}}, "sticky actions 0.0 or 0.25"),
        ({"policy": "greedy"}, "greedy or sampled actions"),
        ({"starts": {"file": "x.starts", "sha256": "ab" * 32}}, "start states of several files"),
    ],
)
def test_games_not_played_alike_are_told(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    first, second = (make_run(tmp_path / n, rising(5), name=n) for n in ("appo", "a3c"))
    evaluate(first, 5_000, [1.0, 2.0])
    evaluate(second, 5_000, [1.0, 2.0], **more)
    text = " ".join(report(read_results([tmp_path])).split())
    assert "These games were not played alike: " in text
    assert said in text


def test_games_without_an_emulator_are_played_alike_whatever_its_settings(tmp_path: Path) -> None:
    evaluate(make_run(tmp_path / "pong", rising(5)), 5_000, [1.0, 2.0])
    cart = make_run(tmp_path / "cart", rising(5), game="CartPole-v1")
    evaluate(cart, 5_000, [1.0], settings={"game": "CartPole-v1", "sticky": 0.0})
    assert "not played alike" not in report(read_results([tmp_path]))


def test_runs_of_unequal_numbers_of_games_are_told(tmp_path: Path) -> None:
    for seed, games in ((1, 50), (2, 13)):
        evaluate(make_run(tmp_path / f"{seed}", rising(5), seed=seed), 5_000, [1.0] * games)
    assert "13 to 50" in report(read_results([tmp_path]))


def test_the_protocol_has_start_states_and_only_an_emulators_settings(tmp_path: Path) -> None:
    pong, catch = (make_run(tmp_path / game, rising(5), game=game) for game in ("pong", "catch"))
    more: dict[str, Any] = {"policy": "epsilon", "epsilon": 0.01}
    starts = {"file": "x.starts", "sha256": "ab" * 32}
    evaluate(pong, 5_000, [1.0, 2.0], "human", starts=starts, **more)
    more |= {"settings": {"game": "catch"}, "most_noops": 29}
    evaluate(catch, 5_000, [1.0, 2.0], "human", **more)
    lines = {one.game: protocol_line(one) for one in read_results([tmp_path]).all}
    assert "starts x.starts (abababababab)" in lines["pong"]
    assert lines["catch"] == "human: 2 games, actions epsilon 0.01, seed 1"


@pytest.mark.parametrize("evaluated", [False, True])
def test_runs_of_a_group_that_learned_for_longer_are_told(tmp_path: Path, evaluated: bool) -> None:
    """A run that went on after its best checkpoint, which was evaluated, learned for longer too."""
    for seed, rows in ((1, 5), (2, 9)):
        run = make_run(tmp_path / f"pong-{seed}", rising(rows), seed=seed)
        make_run(tmp_path / f"qbert-{seed}", rising(9), game="qbert", seed=seed)
        if evaluated:
            evaluate(run, 4_000, [1.0, 3.0])
    said = opening(read_results([tmp_path]))
    assert " learned for different numbers of steps: appo in pong." in said


def test_copies_and_exported_agents_of_a_run_are_one_run(tmp_path: Path) -> None:
    made = {"copy": 4, "run": 9, "agent": 0, "agent-2": 0}
    for name, rows in made.items():
        folder = make_run(tmp_path / name, rising(rows))
        change_config(folder, about={"run": "abc"})
        evaluate(folder, 9_000, [1.0, 3.0], "sticky" if rows else "training")
    assert [one.run.name for one in read_results([tmp_path], "sticky").all] == ["run"]
    results = read_results([tmp_path], "training")  # by which the run was not evaluated
    assert [one.run.name for one in results.all] == ["agent"]
    assert [run.name for run, _, _ in results.unscored] == ["run"]
    other = make_run(tmp_path / "other")
    change_config(other, about={"run": "def"})
    for folder in (other, tmp_path / "agent"):
        evaluate(folder, 9_000, [1.0, 3.0], "sticky")
    assert [one.run.name for one in read_results([tmp_path], "sticky").all] == ["other", "run"]
