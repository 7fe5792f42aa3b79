"""What ``colobus slurm`` writes, hands in and refuses (runtime/test_slurm.py has jobs that run)."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from colobus.core import trust
from colobus.runs.config import read_config
from colobus.training.start import may_go_on
from helpers.launching import colobus, printed, refused
from helpers.players import write_run

EXAMPLE = Path(__file__).parents[2] / "examples" / "slurm.sh"

Say = Callable[..., None]


@pytest.fixture(autouse=True)
def says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Say:
    """Work in an empty folder, where nothing but the programs that a test makes is installed."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("PATH", str(programs))

    def says(name: str, text: str, error: str = "", code: int = 0) -> None:
        lines = ["#!/bin/sh", f"echo '{text}'", f"echo '{error}' >&2", f"exit {code}"]
        (programs / name).write_text("\n".join(lines))
        (programs / name).chmod(0o755)

    return says


def bash(script: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a part of a job, which finds the programs of the test and the usual ones."""
    environment = {"PATH": f"{os.environ['PATH']}:/usr/bin:/bin"} | variables
    command = ["/bin/bash", "-c", script, "job", *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@pytest.mark.processes
def test_the_example_is_what_is_written() -> None:
    words = "dba3c-pong --nodes 4 --workers 16 --minutes 50 --file examples/slurm.sh"
    printed("slurm", *words.split())
    text = Path("examples/slurm.sh").read_text()
    assert text == EXAMPLE.read_text()
    subprocess.run(["/bin/bash", "-n"], input=text, text=True, check=True)


@pytest.mark.processes
def test_the_words_of_the_training_are_kept_and_no_others() -> None:
    words = ["--nodes=2", "--env", "ALE/Pong-v5", "--partition", "gpu,long", "--no-submit"]
    words += ["--gpus_per_node", "1", "--time=short", "--out", "a b/it's", "--resume-or-start"]
    words += ["--device", "cuda", "--until-score=-3"]
    printed("slurm", "dba3c-pong", *words)
    text = Path("a b/it's.sh").read_text()
    kept = "dba3c-pong --env ALE/Pong-v5 --device cuda --until-score=-3"
    asked = "job-name=it-s nodes=2 partition=gpu,long gpus-per-node=1 time=0:55:00"
    assert f'    colobus train {kept} "$@" \\\n' in text
    for line in asked.split():
        assert f"\n#SBATCH --{line}\n" in text
    assert bash(text.partition("head=$(")[0] + 'echo "$run"').stdout == "a b/it's\n"


@pytest.mark.slow
def test_each_job_has_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        printed("slurm", "catch")
    assert sorted(path.name for path in Path("runs").iterdir()) == ["catch-1.sh", "catch-2.sh"]
    again = ("slurm", "catch", "--out", "runs/catch-1")  # as it was written by other words
    assert "--file runs/catch-1.sh: is another job; delete it" in refused(*again)
    Path("runs/catch-1.sh").unlink()
    for _ in range(2):
        printed(*again)
    Path("other").write_bytes(b"\xff")
    assert "--file other: is another job" in refused("slurm", "catch", "--file", "other")
    for lr in ("0.001", "0.003"):
        printed("slurm", "catch", "--lr", lr, "--file", f"{lr}.sh")
    jobs = [path.read_text() for path in (Path("0.001.sh"), Path("0.003.sh"))]
    runs = [re.findall("export run=(.*?) ", job) for job in jobs]
    assert runs == [["runs/catch-3"], ["runs/catch-4"]]
    printed("slurm", "catch", "--lr", "0.001", "--file", "0.001.sh")  # again: no other job
    assert Path("0.001.sh").read_text() == jobs[0]
    monkeypatch.setattr(trust, "EVERYTHING", [])
    printed("slurm", "catch", "--name", "lr high", "--lr", "0.001", "--trust")  # the job has --out
    assert ' catch --lr 0.001 --trust "$@"' in Path("runs/lr-high-1.sh").read_text()


@pytest.mark.slow
def test_a_job_goes_on_with_the_run_in_its_folder_as_a_training_would() -> None:
    write_run(Path("old"))  # of Catch
    name = read_config(Path("old")).name
    printed("slurm", name, "--out", "old", "--minutes", 5)
    Path("old.sh").unlink()
    assert "--out old: is a run of " in refused("slurm", "pong", "--out", "old")
    said = refused("slurm", name, "--out", "old", "--seed", 7)
    assert "a run's settings are fixed by its config.json" in said
    said = refused("slurm", name, "--out", "old", "--from", "old")
    assert "old: began with new weights, not with those of old" in said
    for checkpoint in Path("old/checkpoints").iterdir():
        checkpoint.unlink()
    printed("slurm", name, "--out", "old", "--seed", 7)  # nothing was learned: it begins anew
    Path("file").touch()
    assert "--out file: is a file; name a folder" in refused("slurm", "catch", "--out", "file")
    Path("mine").mkdir()
    Path("mine/letter").touch()
    assert "--out mine: the folder is not empty" in refused("slurm", "catch", "--out", "mine")
    Path("killed/checkpoints").mkdir(parents=True)
    printed("slurm", "catch", "--out", "killed")


def test_nodes_have_not_what_the_login_node_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colobus.cli.experiment_flags.usable_cores", lambda: 2)
    printed("slurm", "pong", "--cores", 64)
    assert '--cores 64 "$@"' in Path("runs/pong-1.sh").read_text()
    printed("slurm", "pong", "--cores", "all")
    assert "--cores 0: must be a whole number" in refused("slurm", "pong", "--cores", 0)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    printed("slurm", "dba3c-catch", "--device", "auto")  # which is the CPU on Ray


@pytest.mark.parametrize("flag", ["--out", "--file"])
def test_a_name_of_two_lines_makes_no_line_of_the_script(flag: str) -> None:
    printed("slurm", "catch", flag, "a\nrm b")
    (file,) = (path for path in Path().glob("a*"))
    head = file.read_text().partition("set -u")[0]
    assert all("#" in line for line in head.splitlines())


@pytest.mark.processes
def test_a_job_is_handed_in(says: Say) -> None:
    says("sinfo", "all* 12")
    says("sbatch", "4711;cluster")
    words = ("slurm", "dba3c-pong", "--workers", 24, "--nodes", 2, "--submit")
    assert "job 4711 is handed in: it trains in runs/dba3c-pong-1" in printed(*words)
    says("sbatch", "", "sbatch: error: invalid partition specified: fast\nsbatch: error: no", 1)
    code, _, err = colobus(*words, "--partition", "fast")
    assert code == 2
    assert "Slurm refuses the job: invalid partition specified: fast no; runs/dba3c-pong-2" in err
    assert err.endswith(" or change it and hand it in: sbatch runs/dba3c-pong-2.sh\n")
    assert Path("runs/dba3c-pong-2.sh").exists()


REFUSED = {
    "--workers 25 --nodes 2": "--nodes 2: the run has 25 processes of --cpus 1, the nodes (12",
    "--workers 5 --cpus 5 --nodes 2": "hold 4; take --nodes 3, or raise --per-process",
    "--workers 24 --nodes 2 --evaluator --sidecars-apart": "the run has 25 processes",
    "--cpus 13": "hold 0; lower --cpus to 12",
    "--cores 500": "2 processes of --cpus 500, the nodes",  # whatever this machine has
    "--cores all": "--cores all with workers on a cluster: give the number of cores",
    "--place workers=n[4-1]": "--place workers=n[4-1]: 'n[4-1]': is no list of hosts",
    "--place foo=n1": "--place foo=n1: the run has no such process; it has: server, worker",
    "--wait-for-hosts 10": "--wait-for-hosts 10: want a time such as 90s",
    "--device cuda:1": "--device cuda:1 with --on ray: Ray chooses the GPU",
    "--nodes 0": "--nodes 0: must be at least 1",
    "--time soon": "--time soon: want minutes",
    "--time 4": "--time 4: two minutes before its end a job is saved",
    "--time 0:04:59": "--time 0:04:59: two minutes before its end a job is saved",
    "--place worker=n[1-2] --nodes 1": "--place names 2 hosts, the job has --nodes 1",
    "--place workers=n1 --workers 17 --nodes 2": "have to be on n1, which hold 16; name more",
    "--place workers=n[1-2] --workers 3 --nodes 3 --device cuda --gpus-per-node 1": "the named "
    "hosts have not enough CPUs, GPUs or memory",
    "--on threads": "--on: a job of Slurm trains on its own Ray",
    "--address=x:1": "--address: a job of Slurm starts a Ray of its own",
    "--resume runs/x": "--resume: name the run's folder by --out",
    "--resume-or-start": "--resume-or-start: without --out each job has a folder of its own",
    "--seeds 3": "--seeds: a job trains once",
    "--name a --out b": "--name a with --out: the folder has a name",
    "--partition a;b": "--partition a;b: is no name of Slurm",
    "--device cuda": "the job asks for no GPUs, the run for 2; add --gpus-per-node 2",
    "--device cuda --gpus-per-node 1 --workers 5 --nodes 2": "asks for 2 GPUs, the run for 5",
    "--shrink --asynchronous": "--shrink: has an effect only with --workers or --learners, ",
    "--act-with onnx --deterministic": "--act-with onnx with --deterministic: it rounds othe",
    "--out .": "--out .: the job is named like the run; name a new folder",
    "--workers 0.5": "--workers 0.5: not a whole number",
    "--file /dev/null/x": "--file /dev/null/x: its folder is a file",
}


@pytest.mark.processes
@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_is_one_line(says: Say, words: str) -> None:
    says("sinfo", "other 2\nall* 12\nall* 16")
    assert REFUSED[words] in refused("slurm", "dba3c-pong", *words.split())
    assert not Path("runs").exists()


@pytest.mark.processes
def test_nothing_was_refused_where_the_head_of_ray_is_gone(says: Say) -> None:
    says("colobus", "", "nobody answers there", 2)
    training = EXAMPLE.read_text().partition("\ntraining() {")[2].partition("\n}\n")[0]
    script = f"run=run state=. batch=$$ address=$1; {training[training.index('colobus') :]}"
    with socket.create_server(("127.0.0.1", 0)) as head, socket.socket() as gone:
        gone.bind(("127.0.0.1", 0))  # nobody listens there, and nobody else can
        for one, code in ((head, "2"), (gone, "1")):
            bash(script, f"127.0.0.1:{one.getsockname()[1]}").check_returncode()
            assert Path("code").read_text().strip() == code


@pytest.mark.processes
def test_failures_are_counted_from_the_last_progress_on(says: Say) -> None:
    """A job that its time limit has brought back often has three tries left."""
    says("scontrol", "JobState=RUNNING")
    end = EXAMPLE.read_text().partition("\ncode=$(")[2].replace('cat "$state/code"', 'echo "$2"')
    script = "run=run SLURM_JOB_ID=1 state=state before=$1; newest() { echo b; }\n"

    def comes_back(before: str, code: int) -> bool:
        return bash(f"{script}code=$({end}", before, str(code)).returncode == 0

    assert [comes_back("b", 137) for _ in range(4)] == [True, True, True, False]
    assert comes_back("a", 137)  # it has learned since then
    assert [comes_back("b", 137) for _ in range(4)] == [True, True, True, False]
    assert comes_back("a", 138)
    # its time was over before anything was learned
    assert [comes_back("b", 138) for _ in range(4)] == [True, True, True, False]
    assert not comes_back("b", 2)
    Path("run").mkdir()
    Path("run/config.json").touch()
    assert not may_go_on(Path("run"), print)  # it is set aside, and the count is not
    assert [comes_back("b", 137) for _ in range(2)] == [False, False]


@pytest.mark.processes
@pytest.mark.parametrize(("count", "left"), [(None, False), ("0", False), ("2", True)])
def test_a_job_that_is_handed_in_anew_has_all_its_tries(count: str | None, left: bool) -> None:
    Path("run.failures").write_text("127\n" * 4)
    (line,) = re.findall(r'^\[ "\$\{SLURM_RESTART_COUNT.*', EXAMPLE.read_text(), re.MULTILINE)
    restarts = {"SLURM_RESTART_COUNT": count} if count else {}
    bash(line, run="run", **restarts).check_returncode()
    assert Path("run.failures").exists() == left


@pytest.mark.processes
@pytest.mark.parametrize(
    ("resolved", "address"), [("10.1.0.3", "10.1.0.3"), ("127.0.1.1", "10.0.0.7"), ("", "10.0.0.7")]
)
def test_the_head_has_no_address_of_its_loopback(says: Say, resolved: str, address: str) -> None:
    """Ray compares it with those of the host's cards, of which Debian's own name has none."""
    says("scontrol", "n1")
    says("getent", f"{resolved} STREAM n1" if resolved else "")
    says("hostname", "fd00::7 10.0.0.7")
    lines = "head=" + EXAMPLE.read_text().partition("\nhead=")[2].partition("\nport=")[0]
    assert bash(f"{lines}\necho $host", SLURM_JOB_NODELIST="n[1-2]").stdout == f"{address}\n"


@pytest.mark.processes
def test_what_slurm_takes_is_taken(says: Say) -> None:
    says("sinfo", "all* 12")
    beside = "--workers 2 --cpus 8 --evaluator --sidecars-apart"  # with 4 CPUs left
    printed("slurm", "dba3c-pong", "--nodes", 2, "--time", 0, *beside.split())
    named = "servers=n1.cluster,10.0.0.5 workers=n[1-2]"  # two hosts, one of which has two names
    printed("slurm", "dba3c-pong", "--servers", 2, "--nodes", 2, "--place", named)
    assert "\n#SBATCH --time=0\n" in Path("runs/dba3c-pong-1.sh").read_text()
    text = Path("runs/dba3c-pong-2.sh").read_text()
    assert "\n#SBATCH --nodelist=n1,n2\n" in text  # Slurm knows no domains and addresses


def test_without_slurm_the_job_is_written() -> None:
    code, _, err = colobus("slurm", "catch", "--submit")
    assert code == 2
    assert "there is no Slurm here (no sbatch on the PATH); runs/catch-1.sh is written" in err
    assert Path("runs/catch-1.sh").exists()
