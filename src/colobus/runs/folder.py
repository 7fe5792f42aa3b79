"""The folder of a run: the names of its files, and who may write them."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from colobus.core.errors import CannotWrite, ColobusError, nearest, quoted
from colobus.core.files import LOCK, is_temporary, locked, read_object, remove_temporary

CONFIG = "config.json"
"""The settings. A folder with this file is a run, or an exported agent."""

METRICS, EPISODES, EVENTS = "metrics.jsonl", "episodes.jsonl", "events.jsonl"
"""Files of JSON lines: measurements, finished games, and losses and restarts."""

PULSE = "pulse.jsonl"
"""What each role did when, with ``--pulse-seconds``."""

CHECKPOINTS, BUFFERS = "checkpoints", "stores"
"""Folders with what a run resumes from. The names are those of version 0.1."""

EVALUATIONS, VIDEOS, TENSORBOARD = "eval", "videos", "tensorboard"
"""Folders with what was found out about the agent."""

CURVE, FILM, RECONSTRUCTION = "curve.png", "film.mp4", "reconstruction.png"
"""Pictures that people look at."""

TRACKED, WANDB = "tracked.json", "wandb"
"""Which runs of experiment trackers go on with a run, and the folder of one of them."""

LOGS = "logs"
"""Folder with what each host of a cluster said; a job makes it before the run begins."""

BESIDE = {LOCK, LOGS}
"""What may lie in the folder of a new run."""

OWN = {CHECKPOINTS, BUFFERS, EVALUATIONS, VIDEOS, TENSORBOARD, METRICS, EPISODES, EVENTS}
OWN |= {PULSE, TRACKED, WANDB, CURVE, FILM, RECONSTRUCTION}
"""What else a run writes into its folder."""

EVALUATION, MODEL = "evaluation.json", "model.safetensors"
"""The evaluation and the weights of an exported agent."""

TENSORS = ".safetensors"
"""How the names of checkpoints end."""

PREFIX = "zoo:"
"""How a trained agent in the folder ``zoo`` of a clone is named, such as ``zoo:pong``."""

CLONE = Path(__file__).resolve().parents[3]
"""Root of the clone that the package was installed from, if it was (``pip install -e``)."""

OLD_PACKAGE = "gelada-rl"
"""What this package was called before November 2026. Runs and agents of that time name it."""

UNTOUCHED_SECONDS = 600.0
"""Age of a temporary file of an evaluation, a film or the curve that nobody is writing any more.
Those may be made by another process than the run's, such as ``colobus record``, or after it."""

LOOKS, SECONDS_BETWEEN_LOOKS = 10, 0.2
"""How often the folder of a run that could not start is looked at, until nothing is left in it."""


def is_run(folder: Path) -> bool:
    """Return whether a folder is a run or an exported agent; False where one may not look."""
    return os.path.isfile(folder / CONFIG)


def with_todays_name(about: dict[str, Any]) -> dict[str, Any]:
    """Return what a run was made with, by name, with today's name of this package."""
    return {"colobus" if name == OLD_PACKAGE else name: value for name, value in about.items()}


def gpu_of(about: dict[str, Any]) -> str:
    """Return the names of the GPUs that a run was made with, "a GPU" without one, "" for none."""
    return str(about.get("gpu") or "a GPU" * ("cuda" in str(about.get("device"))))


def runs_in(folder: Path) -> list[Path]:
    """Return the runs that lie in a folder, by name, without those that were set aside."""
    found = (path.parent for path in folder.glob(f"*/{CONFIG}"))
    return sorted(run for run in found if not run.name.startswith("."))


def film_file(folder: Path, name: object, suffix: str = ".mp4") -> Path:
    """Return where a run keeps a film: of the agent after so many steps, or of another name."""
    return folder / VIDEOS / f"{name}{suffix}"


def check_new(folder: Path, make: bool = False) -> None:
    """Raise ColobusError if a new run cannot have this folder; with ``make``, make it."""
    try:
        if folder.is_dir():
            check_empty(folder)
        elif folder.exists():
            raise ColobusError(f"--out {folder}: is a file; name a folder")
        elif make:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ColobusError(
            f"--out {folder}: cannot be made: {error.strerror}; name another folder"
        ) from None


def slug(name: str) -> str:
    """Return a name as part of a folder's name."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.").lower()


def free_folder(name: str) -> Path:
    """Return runs/NAME-N with the first N that is not there, nor a job that will make it."""
    number = 1
    while os.path.lexists(folder := Path(f"runs/{slug(name)}-{number}")) or job_of(folder).exists():
        number += 1
    return folder


@contextlib.contextmanager
def claimed(folder: Path, free: bool) -> Iterator[Path]:
    """Make a folder that was ``free``, or the next free one; remove it if it is left empty."""
    with contextlib.suppress(OSError):  # `check_new` says what is wrong
        while free:
            folder.parent.mkdir(exist_ok=True)
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                break
            folder = free_folder(folder.name.rpartition("-")[0])
    try:
        yield folder
    finally:
        if free:
            with contextlib.suppress(OSError):  # there is something in it, or it is gone
                os.removedirs(folder)


def job_of(folder: Path) -> Path:
    """Return where the job of Slurm for a run is written."""
    return folder.with_name(f"{folder.name}.sh")


def set_aside(folder: Path) -> Path:
    """Rename a folder so that it is no run any more; return the new path.

    Raises:
        ColobusError: if it is the working folder.
    """
    if not folder.name:
        raise ColobusError(f"--out {folder}: cannot be set aside from inside; name another folder")
    number = 1
    while (aside := folder.with_name(f".{folder.name}-{number}")).exists():
        number += 1
    return folder.rename(aside)


def check_empty(folder: Path) -> None:
    """Raise ColobusError if there is anything in the folder of a new run but its lock and logs."""
    if any(path.name not in BESIDE for path in folder.iterdir()):
        again = ""
        if any(folder.glob(f"{CHECKPOINTS}/*.json")):
            again = f", or go on with --resume {quoted(str(folder))}"
        elif (folder / CONFIG).exists() and is_only_begun(folder):
            again = ", or begin that run anew with --resume-or-start"
        raise ColobusError(f"--out {folder}: the folder is not empty; name a new one{again}")


def is_only_begun(folder: Path) -> bool:
    """Return whether a folder has a run's settings, or else nothing but what a run writes first.

    A config.json may also be that of an exported agent, or of another program.
    """
    found = {path.name for path in folder.iterdir() if not is_temporary(path)} - BESIDE
    if CONFIG not in found:
        return bool(found) and found <= OWN
    settings: dict[str, object] = {}
    with contextlib.suppress(ColobusError, OSError):
        settings = read_object(folder / CONFIG)
    return MODEL not in found and {"name", "actions"} <= settings.keys()


@contextlib.contextmanager
def held(folder: Path, resume: bool, log: Callable[[str], None]) -> Iterator[None]:
    """Be the only process that writes into the folder of a run.

    A folder in which a new run leaves nothing, because it could not be started, is removed.

    Raises:
        ColobusError: if another process has it, or it is not empty for a new run.
        CannotWrite: if it cannot be written to.
    """
    try:
        with locked(folder, f"the run {folder}", log):
            if resume:
                remove_leftovers(folder)
                yield
            else:
                check_empty(folder)
                try:
                    yield
                finally:
                    remove_unbegun(folder)
    except OSError as error:
        if Path(str(error.filename)) != folder / LOCK:
            raise
        raise CannotWrite(f"cannot write to {folder}: {error.strerror}") from None
    finally:
        if not resume:
            with contextlib.suppress(OSError):  # there is something in it
                folder.rmdir()


def remove_unbegun(folder: Path) -> None:
    """Delete what a new run has written, and no more, if it has not begun and has no checkpoint.

    While the processes of a run start, the first of them may write already, and one that is being
    ended may write once more: what was found is looked for again.
    """
    if (folder / CONFIG).exists() or any(folder.glob(f"{CHECKPOINTS}/*")):
        return
    for _ in range(LOOKS):
        with contextlib.suppress(OSError):  # somebody else has deleted it, or writes into it
            found = [path for path in folder.iterdir() if path.name in OWN or is_temporary(path)]
            if not found:
                return
            for path in found:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        time.sleep(SECONDS_BETWEEN_LOOKS)


def remove_leftovers(folder: Path) -> None:
    """Delete the temporary files of a killed process in the folder of a run."""
    for own in (folder / CHECKPOINTS, *folder.glob(f"{BUFFERS}/**/")):
        remove_temporary(own)
    for shared in (folder, folder / EVALUATIONS, folder / VIDEOS):
        remove_temporary(shared, UNTOUCHED_SECONDS)


def cannot_write(folder: Path, error: OSError) -> CannotWrite:
    """Return what a run raises when its folder cannot be written any more."""
    how = "the newest complete checkpoint is kept: make room and go on with --resume"
    with contextlib.suppress(OSError):  # nobody knows of a disk that does not answer
        if not any(folder.glob(f"{CHECKPOINTS}/*.json")):
            how = "there is no checkpoint: make room and begin it anew with --resume-or-start --out"
    why = error.strerror or error
    return CannotWrite(f"cannot write to {folder}: {why}; {how} {quoted(str(folder))}")


def place_of(run: Path) -> Path:
    """Return the folder that is named: that of an agent of the zoo, or ``run`` itself.

    The zoo is looked for in the clone that this package is part of, then in the working folder.

    Raises:
        ColobusError: if there is no zoo here, or it has no such agent.
    """
    said = str(run)
    if not said.startswith(PREFIX):
        return run
    name = said.removeprefix(PREFIX)
    for zoo in (CLONE / "zoo", Path("zoo")):
        names = [run.name for run in runs_in(zoo)]
        if name in names:
            return zoo / name
        if names:
            raise ColobusError(f"{said}: there is no such agent in {zoo}; {nearest(name, names)}")
    raise ColobusError(
        f"{said}: the zoo is not here, only clones of Colobus's repository have it, in their "
        "folder zoo; name the folder of an agent instead"
    )


def find_files(source: str | Path) -> tuple[Path, Path | None]:
    """Return the folder with ``config.json`` and the file of weights for what `load` takes.

    The file is None for a run: it has one for each checkpoint.

    Raises:
        ColobusError: if it is another file, or the zoo is asked for an agent that it has not.
    """
    if not isinstance(source, str | os.PathLike):
        raise ColobusError(
            f"{type(source).__name__}: is no run; name its folder, such as result.folder"
        )
    path = place_of(Path(source))
    if os.path.isfile(path / MODEL):
        return path, path / MODEL
    if path.suffix != TENSORS:
        if os.path.isfile(path):
            own = next((f", {above}" for above in path.parents if is_run(above)), "")
            raise ColobusError(f"{str(path)!r} is a file; name the run's folder{own}")
        return path, None
    above = Path(os.path.normpath(path.parent / ".."))  # also of a file's name alone
    return (path.parent if path.name == MODEL else above), path
