"""A flag that would have no effect is refused by name, with what it has an effect with."""

from __future__ import annotations

import pytest

from colobus.experiment.check import check_effect
from colobus.experiment.presets import FAMILIES, PRESETS, preset
from helpers.launching import colobus, printed, refused

WORKERS = "with --workers or --learners"
LEARNING_AGAIN = "with an algorithm that learns from each step again"

REFUSED = {
    "train pong --asynchronous --quorum 5 --batch 7 --replays 9": f"--quorum 5: {WORKERS}",
    "train pong --quorum 5": f"--quorum 5: {WORKERS}",
    "train pong --asynchronous": f"--asynchronous: {WORKERS}",
    "train pong --keep-every 9": f"--keep-every 9: {WORKERS}",
    "train gorila-pong --replays 2": "--replays 2: without --workers",
    "train gorila-pong --batch 64": "--batch 64: with APPO, PQN or A3C",
    "train dba3c-pong --max-staleness 5": "--max-staleness 5: with --asynchronous",
    "train pong --max-staleness 5": "--max-staleness 5: with --asynchronous",
    "train pong --optimizer sgd --beta1 0.5": "--beta1 0.5: with --optimizer adam or radam",
    "train pong --optimizer rmsprop --beta2 0.5": "--beta2 0.5: with --optimizer adam",
    "train pong --momentum 0.5": "--momentum 0.5: with --optimizer rmsprop or sgd",
    "train pong --decay 0.5": "--decay 0.5: with --optimizer rmsprop or adadelta",
    "train pong --optimizer sgd --optimizer-epsilon 0.1": "--optimizer-epsilon 0.1: with another "
    "--optimizer than sgd",
    "train dqn-pong --alpha 0.5": "--alpha 0.5: with --prioritized",
    "train dqn-pong --ahead 2": "--ahead 2: with APPO, PQN or A3C",
    "train gorila-pong --ahead 2": "--ahead 2: with APPO, PQN or A3C",
    "train dqn-pong --beta 0.5": "--beta 0.5: with --prioritized",
    "train pong --capacity 5000": f"--capacity 5000: {LEARNING_AGAIN}",
    "train pong --windows 5": f"--windows 5: {LEARNING_AGAIN}",
    "train dba3c-pong --samples-per-insert 2": f"--samples-per-insert 2: {LEARNING_AGAIN}",
    "train a3c-pong --keep": f"--keep: {LEARNING_AGAIN}",
    "train pong --rho-bar 2": "--rho-bar 2: with --advantage vtrace",
    "train pong --c-bar 2": "--c-bar 2: with --advantage vtrace",
    "train pong --pg-rho-bar 2": "--pg-rho-bar 2: with --advantage vtrace",
    "train pong --ratio-cap 3": "--ratio-cap 3: with --target-every above 0",
    "train pong --kl-target 0.1": "--kl-target 0.1: with --kl-coeff above 0",
    "train pong --kl-adjust 1 --lr-max 0.1": "--lr-max 0.1: with --kl-adjust above 1",
    "train impala-pong --clip 0.1": "--clip 0.1: with --policy-loss clip",
    "train gorila-pong --workers 0 --learners 2 --broadcast-every 5": "--broadcast-every 5: "
    "without --learners",
    "train pong --kl-adjust 1 --kl 0.1": "--kl 0.1: with --kl-adjust above 1",
    "train dba3c-pong --tensor-clip 0.1 --gradient-clip 9": "--gradient-clip 9: without "
    "--tensor-clip",
    "train dba3c-pong --lr-jumps 1M:0.1 --lr-end 0.2": "--lr-end 0.2: without --lr-jumps",
    "train dqn-pong --n 3": "--n 3: with --returns n_step",
    "train gorila-catch --lam 0.5": "--lam 0.5: with --returns q_lambda",
    "train dqn-pong --ladder-base 0.5": "--ladder-base 0.5: with --explore ladder",
    "train apex-pong --epsilon-end 0.5": "--epsilon-end 0.5: with --explore schedule",
    "train dqn-pong --target-every 0 --target-tau 0.1": "--target-tau 0.1: with --target-every",
    "train dqn-pong --target-every 0 --double": "--double: with --target-every above 0",
    "train dqn-pong --munchausen 0.9 --double": "--double: with --target-every above 0 and without",
    "train dqn-pong --munchausen-end 0.9 --double": "--double: with --target-every above 0 and",
    "train dqn-pong --temperature 0.1": "--temperature 0.1: with --munchausen or --munchausen-end",
    "train pqn-pong --temperature 0.1": "--temperature 0.1: with --munchausen above 0",
    "train gorila-catch --munchausen 0.9": "--munchausen 0.9: with --returns q_lambda",
    "train gorila-catch --lam-end 0.9": "--lam-end 0.9: with --returns q_lambda",
    "train dqn-pong --atoms 21": "--atoms 21: with --values histograms or quantiles",
    "train pqn-pong --atoms 21": "--atoms 21: with --values histograms or quantiles",
    "train pong --atoms 21": "--atoms 21: with --values histograms or quantiles",
    "train dqn-pong --values quantiles --error squared": "--error squared: with --values numbers",
    "train catch --sticky 0.25": "--sticky 0.25: in Atari games",
    "train catch --noop-max 5": "--noop-max 5: in Atari games",
    "train catch --no-fire-on-life-loss": "--no-fire-on-life-loss: in Atari games",
    "train catch --size 42": "--size 42: in Atari games",
    "train catch --sequence 8": "--sequence 8: with --recurrent lstm",
    "train pong --policies separate": "--policies separate: in a game of several agents",
    "train catch --conv-init normal": "--conv-init normal: with a --torso of convolutions",
    "train pong --autoencoder-weight 2": "--autoencoder-weight 2: with --autoencoder",
    "train pong --record-length 9": "--record-length 9: with --recorder",
    "train pong --silence 9": "--silence 9: with --on ray",
    "bench pong --per-process 2": "--per-process 2: with --on ray",
    "show pong --quorum 5": f"--quorum 5: {WORKERS}",
    "follow RUN --no-record --record-length 9": "--record-length 9: with --record",
}


@pytest.mark.slow
@pytest.mark.parametrize("words", REFUSED)
def test_a_flag_without_an_effect_is_refused(words: str) -> None:
    flag, _, what = REFUSED[words].partition(": ")
    assert refused(*words.split()).startswith(f"colobus: {flag}: has an effect only {what}")


@pytest.mark.parametrize("words", ["--steps 5", "--checkpoint-seconds 5", "--evaluator"])
def test_bench_refuses_what_a_run_leaves(words: str) -> None:
    said = refused("bench", "pong", *words.split())
    assert f"colobus: {words.split()[0]}: has no effect in colobus bench" in said


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PRESETS, *(f"{family}-seaquest" for family in FAMILIES)])
def test_no_preset_is_refused(name: str) -> None:
    experiment = preset(name)[0]
    check_effect(experiment, experiment)
    printed("show", name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "pong --advantage vtrace --rho-bar 2",
        "pong --recurrent lstm --stack 1",
        "catch --recurrent lstm --sequence 8",
        "catch --autoencoder latent --autoencoder-weight 2 --conv-init normal",
        "catch-pair --policies separate --recurrent lstm",
        "pong --advantage vtrace --target-every 2 --ratio-cap 3",
        "pong --kl-adjust 1 --kl-coeff 1 --kl-target 0.1 --lr-end 0 --anneal-stages 3",
        "pong --broadcast-every 5",
        "pong --optimizer rmsprop --momentum 0.5 --decay 0.9",
        "dqn-pong --prioritized --alpha 0.5",
        "dqn-pong --returns n_step --n 3",
        "dqn-pong --values histograms --atoms 21 --munchausen 0.9 --temperature 0.1 --lam-end 0.7",
        "dqn-pong --munchausen-end 0.9 --temperature 0.1",
        "pqn-pong --values quantiles --duelling --gamma-end 0.995 --longest-random 9",
        "dba3c-pong --asynchronous --max-staleness 5",
        "gorila-pong --workers 0 --learners 2 --actors 2 --replays 2",
    ],
)
def test_a_flag_with_what_it_needs_is_taken(words: str) -> None:
    printed("show", *words.split())


@pytest.mark.parametrize("preset", ["pong", "dqn-pong", "pqn-pong"])
@pytest.mark.parametrize("bins", [8, 19, 20])
def test_histograms_have_at_least_20_bins(preset: str, bins: int) -> None:
    words = ("show", preset, "--atoms", bins, "--values")
    printed(*words, "quantiles")
    code, _, err = colobus(*words, "histograms")
    assert code == (0 if bins == 20 else 2)
    error = f"--atoms {bins} with --values histograms: must be at least 20"
    assert (error in err) == (bins < 20)
