"""Ray: the roles of a run in processes of a cluster. Nothing else in Colobus imports it.

Of Ray's public parts, actors, the object store, `ray.wait`, scheduling by host and serializers are
used. Its private names, where it has no public ones, stand in this file and in
`colobus.runtime.ray.session`.
"""

import os
import secrets
import sys

from colobus.core.errors import ColobusError

INLINE = ("RAY_max_direct_call_object_size", "1000000")
"""Arguments and answers of up to so many bytes travel with a call; larger ones go through the
object store, from which other hosts have to fetch them: with 870 kB that made runs slower."""


def prepare(address: str) -> str:
    """Set what Ray reads only once, while it is imported; call this before anything imports it.

    Args:
        address: of a cluster, or "" for the one that RAY_ADDRESS names, or else an own one.

    Returns:
        The address, "" for an own one.

    Raises:
        ColobusError: if others than this user could reach or join a Ray of its own.
    """
    address = address or os.environ.get("RAY_ADDRESS", "")
    if not address and not has_token():
        raise ColobusError(
            f"RAY_AUTH_MODE={os.environ['RAY_AUTH_MODE']}: without a token every user of this "
            "machine could run code in the processes of the run; unset it, or set it to token"
        )
    os.environ.setdefault(*INLINE)  # of this process, an own Ray, and processes of a joined one
    if "ray" in sys.modules:  # it has read all this already
        if not address and not (_is_on_loopback() and _asks_for_tokens()):
            raise ColobusError(
                "Ray was imported before the run, so a Ray of its own would open its ports to the "
                "network, or to all users of this machine; import ray later, set "
                "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 and RAY_AUTH_MODE=token before it, or name a "
                "cluster by its address"
            )
        return address
    os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")  # no call to Ray starts another one
    os.environ.setdefault("RAY_AUTH_MODE", "token")  # whoever joins has to know the token
    if address:  # it asks so often, once a second, before it gives up
        os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "10")
    else:  # all ports on the loopback, as Ray has it on other systems than Linux
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # of this run alone
    return address


def has_token() -> bool:
    """Return whether Ray's token authentication is on, as far as the environment says."""
    return os.environ.get("RAY_AUTH_MODE", "token").lower() == "token"


def _asks_for_tokens() -> bool:
    """Return whether token authentication is on in the Ray that was imported.

    As `_is_on_loopback`.
    """
    own = sys.modules.get("ray._private.authentication.authentication_utils")
    return own is not None and bool(own.is_token_auth_enabled())


def _is_on_loopback() -> bool:
    """Return whether Ray has read, when it was imported, that its ports are on the loopback.

    Ray has no public name for that; without this private one the answer is no.
    """
    constants = sys.modules.get("ray._private.ray_constants")
    return not getattr(constants, "ENABLE_RAY_CLUSTER", True)
