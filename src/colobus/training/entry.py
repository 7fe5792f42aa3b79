"""Train from Python: presets with other settings, and runs with callbacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any, Literal

import numpy as np

from colobus.core.errors import ColobusError, nearest
from colobus.core.fields import check as check_fields
from colobus.core.fields import hints_of, whole_if
from colobus.core.functions import MakeEnv, as_words, check_callable, name_of, remember
from colobus.core.types import Episode
from colobus.envs.api import GameSettings
from colobus.experiment import presets
from colobus.experiment.aliases import RENAMED, hint
from colobus.experiment.autoscale import cores_of, for_cores, with_cpus
from colobus.experiment.check import check_effect, check_resumed
from colobus.experiment.settings import Experiment, argument, flag, groups_of
from colobus.roles.tracker import Status
from colobus.runs.config import Config, check_of, read_config
from colobus.runs.folder import claimed, free_folder, slug
from colobus.runtime.devices import ActWith, Devices, is_gpu
from colobus.runtime.groups import Cluster, Hosts
from colobus.runtime.system import usable_cores
from colobus.training import run
from colobus.training.callbacks import Callbacks
from colobus.training.outlook import ProgressLine
from colobus.training.runtimes import runtime_of
from colobus.training.saving import newest_of
from colobus.training.start import last_like, may_go_on
from colobus.training.tracking import TrackerName, tracking
from colobus.training.warm import Weights, check_from, read_weights, with_network
from colobus.training.words import already_over, how_it_stopped, how_it_went, opening


def preset(name: str, **settings: Any) -> Experiment:
    """Return the settings of a game or preset, some of them replaced.

    ``colobus.preset("pong", lr=1e-3, actors=4)`` has the names of the command line's flags, with
    underscores. If any of ``steps``, ``minutes``, ``until_score`` and ``until_evaluated`` is given,
    only the given ones end the run.

    Args:
        name: such as "pong", "breakout", "dba3c-pong" or "catch".
        settings: by their names; a group such as ``algorithm`` may be replaced as a whole, and
            ``algorithm`` by a class of your own, or its name as "my_module:MyAlgorithm". For a
            setting that names a function, such as ``own_torso``, the function may be given.

    Raises:
        ColobusError: if a name is unknown, or a setting has no effect.
    """
    experiment, _ = presets.preset(name, _seen(settings))
    return presets.with_target(with_settings(experiment, **settings))


def train(
    what: str | Experiment | None = None,
    out: str | Path | None = None,
    name: str = "",
    *,
    env: str | None = None,
    make_env: MakeEnv | None = None,
    steps: float | None = None,
    minutes: float | None = None,
    until_score: float | None = None,
    seed: int | None = None,
    resume: str | Path | None = None,
    resume_or_start: bool = False,
    from_run: str | Path | None = None,
    on_update: Callable[[Status], object] | None = None,
    on_episode: Callable[[Episode], object] | None = None,
    on_checkpoint: Callable[[Path], object] | None = None,
    cluster: Cluster | Hosts | None = None,
    cores: int | Literal["all"] | None = None,
    device: str = "cpu",
    act_device: str = "",
    cuda_graphs: bool = True,
    act_with: ActWith = "torch",
    log: Callable[[str], None] = print,
    progress: bool = True,
    track: TrackerName = "",
    **settings: Any,
) -> run.Result:
    """Train an agent; return how the run ended. ``colobus.load(result.folder)`` is the agent.

    The run ends at the first of the stop rules ``steps``, ``minutes`` and ``until_score``, or
    after Ctrl-C. Without any of them it ends by the rules of the experiment.

    Args:
        what: a game or preset by name, such as "pong", or an experiment.
        out: folder of the run; must be new or empty (default: runs/NAME-1, or the next free
            number).
        name: of the run's folder, instead of that of the game or preset; an experiment has it in
            its ``config.json``, too.
        env: environment to learn instead of that of ``what``, or alone: a game, one of Gymnasium
            such as "CartPole-v1", or a function in a module such as "my_module:make".
        make_env: a function that returns a `gymnasium.Env`, instead of ``env``; or, if it takes
            ``num_envs``, a `gymnasium.vector.VectorEnv` of so many. If it takes ``render_mode``,
            the agent can be filmed. If it is in no module that can be imported, it has to be given
            to `colobus.load` again.
        steps: end after so many environment steps (decisions of the agent), such as 1e6.
        minutes: end after so many minutes.
        until_score: end when the mean raw return of the last 50 full games reaches this.
        seed: of all random numbers.
        resume: folder of a run that goes on from its newest complete checkpoint, instead of
            ``what`` and ``out``. Only the stop rule, checkpoints and sidecars may be changed.
        resume_or_start: go on with the run in ``out`` (default: the last of runs/NAME-1, NAME-2 …
            with these settings), or begin it if there is nothing to go on from: the same call twice
            goes on.
        from_run: begin with the weights of this run, checkpoint or exported folder, or of
            ``zoo:NAME``. Network and frames have the settings they have there; others may differ.
        on_update: called about twice a second with the status of the run.
        on_episode: called with every episode that has ended.
        on_checkpoint: called with the path of a new checkpoint, the newest if there are several.
        cluster: run in processes of this Ray cluster, or in simulated time on these hosts; on
            threads of this process by default.
        cores: choose actors, games, threads and batch for so many cores of this machine, or with
            workers of each of them.
        device: that learns: "cpu", "cuda", "cuda:N" or "auto". A run may go on on another one.
        act_device: that chooses actions (default: the one that learns).
        cuda_graphs: record the steps of learning and acting on a GPU as CUDA graphs.
        act_with: "torch", or "onnx" for ONNX Runtime, which computes actors' networks on the CPU.
        log: takes lines for the user.
        progress: tell what begins, how it goes and how it went: in a line that changes in place
            on a terminal and in a notebook, else by a line every ten seconds.
        track: "wandb", "trackio" or "mlflow": send settings, metrics and films there, by the
            client of that tracker.
        settings: further settings by their names (see `preset`).

    A callback that raises `StopTraining` ends the run. Another error in a callback is reported
    once, and the run goes on.

    Raises:
        ColobusError: if something asked for cannot be; the message is one line. Its subclasses say
            what else may happen: `Diverged`, `Stalled`, `RoleFailed`, `CannotWrite`.
    """
    if "graphs" in settings:
        log(f"graphs: is called {RENAMED['graphs']} now")
        cuda_graphs = settings.pop("graphs")
    stops = {"steps": steps, "minutes": minutes, "until_score": until_score, "seed": seed}
    wanted = settings | {key: value for key, value in stops.items() if value is not None}
    check_callable(make_env=make_env)
    if not callable(log):
        raise ColobusError(f"log {log!r}: must be a function that takes a line, such as print")
    devices = Devices(str(device), str(act_device or ""), cuda_graphs, act_with)
    check_fields(devices, flag)
    if callable(env) or callable(what):
        raise ColobusError("env: is a function, must be a name; give it as make_env")
    paths = {"out": out, "resume": resume, "from_run": from_run}
    for key, value in {**paths, "name": name, "env": env}.items():
        if not isinstance(value, str | Path | None if key in paths else str | None):
            raise ColobusError(f"{key} {value!r}: must be a text{' or a path' * (key in paths)}")
    if not isinstance(cluster, Cluster | Hosts | None):
        raise ColobusError(f"cluster {cluster!r}: must be such as colobus.Cluster(address=...)")
    if make_env is not None and env is not None:
        raise ColobusError(f"env {env!r} with make_env: both say which environment; leave out one")
    if name and not slug(name):
        raise ColobusError(f"name {name!r}: must have a letter or a digit")
    if resume is not None:
        if resume_or_start or name or not all(x is None for x in (what, out, env, from_run)):
            raise ColobusError(
                "resume: the run has its own settings and folder; leave out the rest"
            )
        begun = _resumed(Path(resume), make_env, log)
    else:
        if name and out is not None and not isinstance(what, Experiment):
            raise ColobusError(f"name {name!r} with out: the folder has a name; leave out one")
        env = env if make_env is None else name_of(make_env)
        begun = _new(what, env, from_run, name, wanted, log)
    # on Ray actors are on CPUs
    gpu = cluster is None and is_gpu(devices.act_device or devices.device)
    experiment = presets.with_target(with_settings(begun.base, **wanted))
    if cores is not None:
        own = cluster.joined if isinstance(cluster, Cluster) else cluster  # or simulated hosts
        workers = experiment.shape.workers
        count = cores_of(str(cores), usable_cores(), workers, joined=bool(own))
        experiment = for_cores(experiment, begun.base, count, gpu)
        if isinstance(cluster, Cluster) and workers:
            cluster = with_cpus(cluster, count)
    if begun.weights:
        check_from(experiment, begun.base)
    if resume is None:
        usual = (
            last_like(begun.called, experiment, begun.source)
            if resume_or_start
            else free_folder(begun.called)
        )
        begun = replace(begun, folder=usual if out is None else Path(out))
        if resume_or_start and may_go_on(begun.folder, log):
            begun = _again(begun, make_env, log)
            if not isinstance(what, Experiment):  # without --cores, whose choices hold on
                experiment = presets.with_target(with_settings(begun.base, **wanted))
    resumed = begun.config is not None
    if begun.config is not None:
        check_resumed(experiment, begun.config.experiment, "resume", "the stop rule", "from_run")
        check = check_of(begun.config)
        if over := already_over(begun.folder, experiment.stop, check):
            log(f"{begun.folder} is past its stop rule: {over}")
            last = newest_of(begun.folder, check)[1]
            names = ("seconds", "games", "score", "best", "best_game")
            known = {name: last.counters[name] for name in names if name in last.counters}
            status = Status(last.steps, version=last.version.number, **known)
            return run.Result(begun.folder, status, interrupted=False)
    callbacks = Callbacks(on_update, on_episode, on_checkpoint)
    line = ProgressLine(experiment.stop, log)
    with (
        claimed(begun.folder, free=out is None and not resumed) as folder,
        tracking(track, experiment, folder, line.log, callbacks) as told,
    ):
        if progress:
            log(opening(experiment, folder, resumed, runtime_of(cluster), cluster or Cluster()))
        result = run.train(
            experiment,
            folder,
            begun.name,
            resumed,
            line.watch if progress else None,
            line.log,
            cluster=cluster,
            callbacks=told,
            devices=devices,
            weights=begun.weights,
        )
    if progress:
        again = f"colobus.train(resume={str(folder)!r})"
        ended, why = how_it_went(result.status), result.stopped or "Ctrl-C"
        if result.interrupted or result.stopped:
            ended = how_it_stopped(folder, again, result.steps, why, result.saved)
        line.log(ended)
    return result


@dataclass(frozen=True)
class _Begun:
    """What a run goes on from, or a new one begins with."""

    name: str  # of the preset, game or environment, or what settings are called
    base: Experiment  # all settings, before those of the call
    called: str = ""  # what the folder of a new run is called
    folder: Path = Path()  # "." while that is not settled
    config: Config | None = None  # of the run that goes on
    weights: Weights | None = None  # that a new run begins with, instead of new ones

    @property
    def source(self) -> str:
        """As in `Config.source`."""
        return self.weights.said if self.weights else ""


def _resumed(folder: Path, make_env: MakeEnv | None, log: Callable[[str], None]) -> _Begun:
    """Return the run in a folder; its environments are made by ``make_env``, if that is given.

    Raises:
        ColobusError: if that is a function of another name than the run's.
    """
    config = read_config(folder, given=() if make_env is None else ("game",))
    if make_env is not None:
        game, own = config.experiment.games.game, name_of(make_env)
        if not may_be(game, own):
            raise ColobusError(
                f"make_env: is {own}, and {folder} is a run of {game}; leave it out, or begin "
                "another run"
            )
        if remember(game, make_env):
            log(f"{game}: means the function given now, for other runs of this process, too")
    return _Begun(config.name, config.experiment, folder=folder, config=config)


def may_be(game: str, own: str) -> bool:
    """Return whether a function that is called ``own`` now can be the environment of a run.

    In a script, or without a name, it may have been called otherwise when the run began.
    """
    there, _, name = game.partition("#")[0].rpartition(":")
    here, _, called = own.partition("#")[0].rpartition(":")
    if there == "__main__" or "<" in name:
        return True
    return bool(there) and name == called and here in (there, "__main__")


def _new(
    what: str | Experiment | None,
    env: str | None,
    from_run: str | Path | None,
    name: str,
    wanted: dict[str, Any],
    log: Callable[[str], None],
) -> _Begun:
    """Return a new run, of a preset, an environment or the settings of other weights."""
    weights = None if from_run is None else read_weights(from_run, log)
    seen, note = _seen(wanted), ""
    if what is None and env is not None:
        what, env = env, None
    if isinstance(what, Experiment):
        base, own = what, what.games.game
    elif isinstance(what, str):
        (base, note), own = presets.preset(what, seen), what
    elif weights is not None and what is None:
        base, own = weights.config.experiment, weights.config.name
    else:
        raise ColobusError(
            f"train({what!r}): name a game or preset, such as 'pong', or give an Experiment"
        )
    if env is not None:
        base, note = presets.in_environment(base, env, seen)
        own = f"{own}-{env}"
    if note:  # about what the name of a game implies
        log(note)
    if weights is not None and not isinstance(what, Experiment):
        base = with_network(base, weights.config)
    # as on the command line, where `name` is that of the folder alone; but settings have no other
    called = name or own
    return _Begun(called if isinstance(what, Experiment) else own, base, called, weights=weights)


def _again(new: _Begun, make_env: MakeEnv | None, log: Callable[[str], None]) -> _Begun:
    """Return the run in the folder of a new one, which was begun by the same call."""
    found = _resumed(new.folder, make_env, log)
    # which functions of one name are numbered depends on what the process made before
    name, *known = (one.partition("#")[0] for one in (found.name, new.name, new.called))
    if name not in known:
        raise ColobusError(f"out {new.folder}: is a run of {found.name}, not of {new.name}")
    if found.config is not None:
        found.config.check_begun(new.folder, new.source)
    return found


def with_settings(experiment: Experiment, **settings: Any) -> Experiment:
    """Return an experiment with some settings replaced; see `preset`.

    Raises:
        ColobusError: if a name is unknown, or a setting has no effect in this experiment.
    """
    settings = {k: v.item() if isinstance(v, np.generic) else v for k, v in settings.items()}
    algorithm = settings.get("algorithm")
    if isinstance(algorithm, str | type):
        del settings["algorithm"]
        experiment = presets.with_algorithm(experiment, algorithm)
    alone = {"seed", "deterministic"}  # and groups; games and optimizer may be settings, too
    alone |= {name for name in groups_of(experiment) if is_dataclass(settings.get(name))}
    changes: dict[str, Any] = {key: settings[key] for key in settings if key in alone}
    base = replace(experiment, **changes)
    places = {
        argument(field.name, group): (group, field.name)
        for group, values in groups_of(base).items()
        for field in fields(values)
        if field.name != "game"
    }
    inner: dict[str, dict[str, Any]] = {}
    for key in settings.keys() - changes.keys():
        if key not in places:
            known = [*places, *alone, *groups_of(base), *signature(train).parameters]
            near = hint(key, str, known) or nearest(key, known)
            said = presets.algorithms_with(key, base) or near
            raise ColobusError(f"{key}: unknown setting; {said}")
        group, own = places[key]
        kind: Any = type(getattr(base, group))
        inner.setdefault(group, {})[own] = whole_if(_plain(settings[key]), hints_of(kind)[own])
    if "stop" in inner:
        inner["stop"] = dict.fromkeys(vars(base.stop)) | inner["stop"]
    groups = {group: replace(getattr(base, group), **values) for group, values in inner.items()}
    for group, values in groups.items():
        check_fields(values, partial(flag, group=group))
    made = replace(base, **groups)
    check_effect(made, base)
    return made


def _plain(value: Any) -> Any:
    """Return a value as settings have it: functions by their names, arguments as words."""
    if isinstance(value, Mapping):
        return as_words(value)
    return name_of(value) if callable(value) else value


def _seen(settings: Mapping[str, Any]) -> GameSettings:
    """Return how an environment of Gymnasium is made and seen, out of settings by their names."""
    given = {name: _plain(settings[name]) for name in ("env_kwargs", "observe") if name in settings}
    return GameSettings(**given)
