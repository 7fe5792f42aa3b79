"""One environment of Gymnasium: how it is made, how it fits, and checks of what it returns."""

from __future__ import annotations

import inspect
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn
from weakref import WeakValueDictionary

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv

from colobus.core.arrays import Frames
from colobus.core.errors import ColobusError, GameFailed, place_of
from colobus.core.functions import NoPictures, arguments_of, find_environment, import_module
from colobus.envs.actions import MASK
from colobus.envs.api import GameSettings, close
from colobus.envs.spaces import Fit, fit_of

Env = gymnasium.Env[Any, Any]

AT_ONCE = "colobus: terminated, and begun anew"
"""In the infos of `colobus.envs.gym.Beginning`."""

_fits: dict[tuple[Any, ...], tuple[Any, Fit]] = {}  # with the function or spec that they are of


def fit(settings: GameSettings) -> Fit:
    """Return how an environment fits. The first call makes it once, to look at its spaces.

    Raises:
        ColobusError: if there is no such environment, it cannot be made, or it does not fit.
        GameFailed: if its first `reset` raises an error.
    """
    name, function = settings.game, find_environment(settings.game)
    made_by: Any = function or gymnasium.registry.get(name.rpartition(":")[2])  # its newest spec
    key = (name, settings.observe, settings.env_kwargs)  # what is made, and what is seen of it
    known = _fits.get(key)
    if known is None or known[0] is not made_by:
        env = make(settings, 1, None)
        one = "single_" if isinstance(env, VectorEnv) else ""
        seen: Any = getattr(env, f"{one}observation_space", None)
        acted: Any = getattr(env, f"{one}action_space", None)
        found = fit_of(name, seen, acted, settings.observe)
        if found.mask is None:  # it may be in the infos
            with playing(name), suppress(TypeError, LookupError):  # told by the reset of a game
                found = found._replace(is_masked=MASK in env.reset()[1])
        if function and type(env.unwrapped).__module__.startswith("ale_py") and env.spec:
            note = f"{name}: is played as it is; {env.spec.id} by name has Atari's preprocessing"
            found = found._replace(note=found.note or note)
        limit = "_max_episode_steps"  # what a TimeLimit has
        limits: Any = [] if one else [env.has_wrapper_attr(limit)]
        if isinstance(env.unwrapped, AsyncVectorEnv | SyncVectorEnv):  # of single ones
            limits = env.unwrapped.call("has_wrapper_attr", limit)
        steps = getattr(env.spec, "max_episode_steps", None)  # an own `spec` may be anything
        found = found._replace(limited=any(limits) or bool(steps))
        close(env)
        known = _fits[key] = (made_by, found)
    return known[1]


class FittedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """One environment that shows frames [H, W], takes actions from 0, and checks what it returns.

    Args:
        settings: of the environment.
        render_mode: such as "human".
        infos: whether it gives its infos, or only masks of actions. Vectors join the infos of all
            games, which fails where they differ from step to step.

    Raises:
        ColobusError: if it cannot be made, does not fit, or has no such render mode.
    """

    def __init__(self, settings: GameSettings, render_mode: str | None, infos: bool) -> None:
        self._fit, self._infos = fit(settings), infos
        if render_mode is not None:
            check_render_mode(settings, render_mode)
        env = make(settings, 1, render_mode)
        if isinstance(env, VectorEnv):
            raise ColobusError(f"environment {settings.game!r}: its function makes vectors only")
        super().__init__(env)
        self._looked = False  # whether the first observation is within its space
        self.metadata = env.metadata or {}
        self.observation_space = self._fit.space
        self.action_space = spaces.Discrete(self._fit.actions)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Frames, Any]:
        """Start a game."""
        try:
            found: Any = self.env.reset(seed=seed, **({"options": options} if options else {}))
        except TypeError as error:
            if not {"'seed'", "'options'"}.intersection(str(error).split()):
                raise
            self._refuse(f"{error}; write it as def reset(self, *, seed=None, options=None)")
        if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], dict)):
            self._refuse(
                f"its reset returned {_kind(found)}, must be a tuple of an observation and a "
                "dictionary (info)"
            )
        frame = self._fit.frame(*found)
        if not self._looked and (line := self._fit.outside(found[0])):
            warnings.warn(line, stacklevel=2)
        self._looked = True
        return frame, self._kept(found[1])

    def step(self, action: Any) -> tuple[Frames, float, bool, bool, dict[str, Any]]:
        """Play a step."""
        taken = self._fit.does.table[action].copy()  # an environment may write into it
        found: Any = self.env.step(taken)
        if not (isinstance(found, tuple) and len(found) == 5 and isinstance(found[4], dict)):
            self._refuse(
                f"its step returned {_kind(found)}, must be a tuple of 5: observation, reward, "
                "terminated, truncated and a dictionary (info)"
            )
        seen, reward, ended, cut, info = found
        return (
            self._fit.frame(seen, info),
            float(self._one("reward", reward)),
            bool(self._one("terminated", ended)),
            bool(self._one("truncated", cut)),
            self._kept(info),
        )

    def _kept(self, info: dict[str, Any]) -> dict[str, Any]:
        self._fit.check_masks(info)
        return info if self._infos else {}  # a frame has what a mask says

    def _one(self, what: str, value: Any) -> Any:
        """Return one number, which may be in an array."""
        array = np.asarray(value)
        if array.size != 1 or array.dtype.kind not in "biuf":
            shape = f" of shape {list(array.shape)}" if array.ndim else ""
            self._refuse(f"its {what} is {str(value)[:40]}{shape}, must be one number")
        return array.item()

    def _refuse(self, why: str) -> NoReturn:
        raise ColobusError(f"{self._fit.name}: {why}")


def _kind(found: Any) -> str:
    """Return in words what an environment returned."""
    if isinstance(found, tuple):
        return f"{len(found)} values ({', '.join(type(each).__name__ for each in found)})"
    return f"one {type(found).__name__}"


@contextmanager
def playing(name: str) -> Iterator[None]:
    """Raise `GameFailed` if an environment raises an error or wants to leave the process.

    In the main thread a KeyboardInterrupt is one of the user.
    """
    try:
        yield
    except ColobusError:
        raise
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        main = threading.current_thread() is threading.main_thread()
        if isinstance(error, KeyboardInterrupt) and main:
            raise
        what = f"{type(error).__name__} {error}".strip()
        lost = isinstance(error, EOFError | ConnectionError)
        if lost and place_of(error).startswith("connection.py:"):  # of multiprocessing
            raise GameFailed(
                f"{name}: a process of its games has ended: it was killed, or a script lacks the "
                "line: if __name__ == '__main__'"
            ) from None
        raise GameFailed(f"{name} raised at {place_of(error)}: {what}") from error


_played: WeakValueDictionary[int, set[int]] = WeakValueDictionary()  # environments, by id
_lock = threading.Lock()


def check_apart(name: str, envs: Sequence[Any]) -> set[int]:
    """Return a mark that these environments are played, which lasts as long as it is kept.

    Raises:
        ColobusError: if one environment or vector would be played as if it were several.
    """
    own = {id(env.unwrapped) for env in envs}
    with _lock:
        if len(own) < len(envs) or any(each in _played for each in own):
            raise ColobusError(
                f"environment {name!r}: its function returns the same environment again; let it "
                "make a new one with each call, such as lambda: gymnasium.make(...)"
            )
        _played.update(dict.fromkeys(own, own))
    return own


def parameters(name: str) -> frozenset[str]:
    """Return the arguments that the user's function takes; none for a name of Gymnasium."""
    function = find_environment(name)
    return frozenset() if function is None else frozenset(inspect.signature(function).parameters)


def make(settings: GameSettings, count: int, render_mode: str | None) -> Any:
    """Return an environment, or a vector of ``count`` if the user's function makes vectors.

    Raises:
        ColobusError: if it cannot be made.
    """
    name, own = settings.game, arguments_of(settings.env_kwargs)
    function, takes = find_environment(name), parameters(name)
    try:
        if function is None:
            module = name.rpartition(":")[0]
            if module:
                import_module(module, name)
            shown: dict[str, Any] = {} if render_mode is None else {"render_mode": render_mode}
            return gymnasium.make(name, disable_env_checker=True, **shown, **own)
        given = {"num_envs": count, "render_mode": render_mode}
        env = function(**{key: given[key] for key in given if key in takes}, **own)
    except (gymnasium.error.Error, ImportError) as error:  # also without what a game needs
        raise ColobusError(f"environment {name!r}: {error}") from None
    except (Exception, SystemExit) as error:
        what = f"{type(error).__name__} {error}".strip()
        raise ColobusError(
            f"environment {name!r}: cannot be made: {what} (at {place_of(error)})"
        ) from error
    wanted = VectorEnv if "num_envs" in takes else gymnasium.Env
    if not isinstance(env, wanted):
        of = type(env).__module__.partition(".")[0]
        raise ColobusError(
            f"environment {name!r}: its function returned {type(env).__name__}"
            f"{f' of {of}' if of not in ('builtins', '__main__') else ''}, not a gymnasium "
            f"{wanted.__name__}; {OTHERS.get(of) or VECTORS}"
        )
    return env


VECTORS = "one that takes num_envs returns a VectorEnv, any other an Env"

OTHERS = {
    "gym": "the old gym is not Gymnasium: wrap it by shimmy.GymV21CompatibilityV0(env=...)",
    "pettingzoo": "make the side of one agent a gymnasium.Env",
}
"""What to do with environments of other packages."""


def check_render_mode(settings: GameSettings, mode: str) -> None:
    """Raise ColobusError if an environment cannot be shown in this way."""
    name = settings.game
    if find_environment(name) is not None:
        if "render_mode" in parameters(name):
            return
        raise NoPictures(
            f"{name} cannot be shown: let its function take render_mode and make the environment "
            "with it"
        )
    env = make(settings, 1, None)
    modes = env.metadata.get("render_modes", [])
    close(env)
    wanted = "rgb_array" if mode == "human" else mode  # Gymnasium shows pictures in a window
    if mode not in modes and wanted not in modes:
        has = f"only {', '.join(modes)}" if modes else "none"
        raise NoPictures(f"{name} cannot be shown: it has no render mode {mode} ({has})")
