"""``--track``: a run's settings, metrics and films in an experiment tracker, by its own client.

What a client reads from the environment counts here too, such as WANDB_PROJECT. Nothing leaves the
machine unless that asks for it.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from colobus.core.errors import ColobusError, not_installed
from colobus.core.files import write_whole
from colobus.core.types import Episode
from colobus.experiment.settings import Experiment, settings
from colobus.roles.tracker import Status
from colobus.roles.tracker.tensorboard import tagged
from colobus.runs.folder import FILM, TRACKED, VIDEOS
from colobus.training.callbacks import NO_CALLBACKS, Callbacks

TrackerName = Literal["", "wandb", "trackio", "mlflow"]
"""Experiment trackers; "" for none."""

PROJECT = "colobus"
"""What runs belong to, unless the environment says otherwise."""

EVERY_SECONDS = 5.0
"""Between two lines of metrics."""


class Wandb:
    """A run of Weights & Biases. It is kept in the run's folder unless WANDB_MODE is ``online``."""

    form: ClassVar[dict[str, str]] = {"format": "mp4"}
    """What the client wants to know of a film."""

    def __init__(self, client: Any, folder: Path, tracked: str, settings: dict[str, Any]) -> None:
        self._client = client
        run = client.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=os.environ.get("WANDB_NAME", folder.name),
            id=tracked or None,
            resume="allow",
            mode=os.environ.get("WANDB_MODE", "offline"),
            dir=str(folder),
            config=settings,
        )
        self.tracked = str(run.id)
        self.where = run.url or f"wandb sync {folder}/wandb/offline-run-*"

    def log(self, values: dict[str, float], steps: int) -> None:
        """Log metrics at so many environment steps."""
        self._client.log(values, step=steps)

    def film(self, path: Path) -> None:
        """Log a film."""
        self._client.log({"film": self._client.Video(str(path), **self.form)})

    def close(self) -> None:
        """End the run."""
        self._client.finish()


class Trackio(Wandb):
    """A run of Trackio, in its local database unless TRACKIO_SPACE_ID names a Space."""

    form: ClassVar[dict[str, str]] = {}

    def __init__(self, client: Any, folder: Path, tracked: str, settings: dict[str, Any]) -> None:
        self._client = client
        self.tracked = tracked or f"{folder.name}-{time.strftime('%Y%m%d-%H%M%S')}"
        client.init(project=PROJECT, name=self.tracked, config=settings, resume="allow")
        self.where = f"trackio show --project {PROJECT}"


class MLflow:
    """A run of MLflow, in the store that MLFLOW_TRACKING_URI names, or its own default."""

    def __init__(self, client: Any, folder: Path, tracked: str, settings: dict[str, Any]) -> None:
        self._client = client
        if not {"MLFLOW_EXPERIMENT_NAME", "MLFLOW_EXPERIMENT_ID"} & os.environ.keys():
            client.set_experiment(PROJECT)
        run = client.start_run(run_id=tracked or None, run_name=folder.name)
        self.tracked = str(run.info.run_id)
        if not tracked:  # they cannot change any more
            client.log_params(settings)
            client.set_tag("folder", str(folder))
        self.where = f"mlflow ui --backend-store-uri {client.get_tracking_uri()}"

    def log(self, values: dict[str, float], steps: int) -> None:
        """Log metrics at so many environment steps."""
        self._client.log_metrics(values, step=steps)

    def film(self, path: Path) -> None:
        """Keep a film as an artifact."""
        self._client.log_artifact(str(path), "films")

    def close(self) -> None:
        """End the run."""
        self._client.end_run()


CLIENTS: dict[str, type[Wandb | MLflow]] = {
    "wandb": Wandb,
    "trackio": Trackio,
    "mlflow": MLflow,
}


@dataclass(eq=False)
class Tracked:
    """Sends what a run learns to a tracker. An error there is told once, and the run goes on.

    The tracked run's name is kept in the folder, so that a resumed run goes on in the same.

    Raises:
        ColobusError: if the client is not installed.
    """

    name: str  # of the tracker
    experiment: Experiment
    folder: Path  # of the run, which may not be there yet
    log: Callable[[str], None]  # takes lines for the user

    def __post_init__(self) -> None:
        if self.name not in CLIENTS:
            raise ColobusError(f"--track {self.name}: must be one of {', '.join(CLIENTS)}")
        try:
            self._library = importlib.import_module(self.name)
        except ImportError as error:
            raise not_installed(f"--track {self.name}", error, self.name) from None
        self._client: Wandb | MLflow | None = None
        self._failed, self._stdout = False, sys.stdout
        self._episodes: list[Episode] = []
        self._newest: Status | None = None
        self._before: tuple[float, int] = (0.0, 0)  # seconds and steps at the last line
        self._films: list[str] = []  # that were sent

    def ended(self, episode: Episode) -> None:
        """Count an episode."""
        if not self._failed:
            self._episodes.append(episode)

    def update(self, status: Status) -> None:
        """Send the metrics, if it is time for them."""
        self._newest, (seconds, steps) = status, self._before
        if status.seconds - seconds >= EVERY_SECONDS or not steps:
            self._survive(lambda: self._send(status))

    def close(self) -> None:
        """Send the last metrics and films, and end the tracked run."""
        status = self._newest
        if status is not None and status.values and status.steps > self._before[1]:
            self._survive(lambda: self._send(status))
        if self._client is not None:
            self._survive(self._send_films)
            if not self._failed:
                self._survive(self._client.close)
            else:  # the next run of this process would go on in this one
                with suppress(Exception), redirect_stdout(sys.stderr):
                    self._client.close()

    def _survive(self, send: Callable[[], object]) -> None:
        """Do something with the tracker, if nothing has failed before."""
        if self._failed:
            return
        try:
            with redirect_stdout(sys.stderr):  # what a client says; stdout may be for JSON
                send()
        except Exception as error:
            self._failed = True
            said = " ".join(str(error).split())[:300]
            self.log(f"--track {self.name}: {type(error).__name__}: {said}; the run goes on")

    def _send(self, status: Status) -> None:
        if self._client is None:
            self._client = self._begin()
        seconds, steps = self._before
        line = {
            **{"steps": status.steps, "seconds": status.seconds, "games": status.games},
            **{"score": status.score, "best": status.best, "evaluated": status.evaluated},
            **dict(zip(("lag_min", "lag_mean", "lag_max"), status.lag, strict=True)),
            **status.values,
            **(status.workers.values(timed=True) if status.workers else {}),
        }
        rate = (status.steps - steps) / max(status.seconds - seconds, 1e-9) if steps else 0.0
        values = tagged(line, status.values, rate, self._episodes)
        if rate <= 0:  # the first one, or on Ray the run went back to a checkpoint
            del values["charts/SPS"]
        self._client.log({name: float(value) for name, value in values.items()}, status.steps)
        self._before, self._episodes = (status.seconds, status.steps), []
        self._send_films()

    def _begin(self) -> Wandb | MLflow:
        """Begin a tracked run, or go on in that of this folder."""
        before: dict[str, Any] = {}
        if (file := self.folder / TRACKED).is_file():
            before = json.loads(file.read_text(encoding="utf-8")).get(self.name, {})
        self._films = list(before.get("films", []))
        own = (self.folder, before.get("run", ""), settings(self.experiment))
        self._client = client = CLIENTS[self.name](self._library, *own)
        self._remember()
        with redirect_stdout(self._stdout):
            self.log(f"tracked by {self.name}: {client.where}")
        return client

    def _remember(self) -> None:
        """Keep the name of the tracked run, and which films it has."""
        assert self._client is not None
        file = self.folder / TRACKED
        kept = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        kept[self.name] = {"run": self._client.tracked, "films": self._films}
        write_whole(file, json.dumps(kept, indent=2).encode())

    def _send_films(self) -> None:
        assert self._client is not None
        there = [self.folder / FILM, *sorted((self.folder / VIDEOS).glob("*.mp4"))]
        for path in there:
            name = path.relative_to(self.folder).as_posix()
            if path.name == FILM and path.is_file():  # each end of the run makes it anew
                name = f"{name} {path.stat().st_mtime_ns}"
            if path.suffix == ".mp4" and path.is_file() and name not in self._films:
                self._client.film(path)
                self._films.append(name)
                self._remember()


@contextmanager
def tracking(
    name: str,
    experiment: Experiment,
    folder: Path,
    log: Callable[[str], None],
    own: Callbacks = NO_CALLBACKS,
) -> Iterator[Callbacks]:
    """Track a run while it lasts; yields its callbacks: ``own``, and those of the tracker.

    Raises:
        ColobusError: if the tracker is unknown, or its client is not installed.
    """
    if not name:
        yield own
        return
    tracked = Tracked(name, experiment, folder, log)

    def update(status: Status) -> None:
        tracked.update(status)
        if own.on_update is not None:
            own.on_update(status)

    def ended(episode: Episode) -> None:
        tracked.ended(episode)
        if own.on_episode is not None:
            own.on_episode(episode)

    try:
        yield Callbacks(update, ended, own.on_checkpoint)
    finally:
        tracked.close()
