"""Ray: the roles of a run in processes of a cluster. Nothing else in Gelada imports it.

Of Ray only the stable parts are used: actors, the object store, `ray.wait`, node affinity.
"""

import os
import secrets
import sys


def prepare(address: str) -> str:
    """Set what Ray reads only once, while it is imported; call this before anything imports it.

    Args:
        address: of a cluster, or "" for the one that RAY_ADDRESS names, or else an own one.

    Returns:
        The address, "" for an own one.
    """
    address = address or os.environ.get("RAY_ADDRESS", "")
    if "ray" in sys.modules:  # it has read all this already
        return address
    os.environ.setdefault("RAY_AUTH_MODE", "token")  # whoever joins has to know the token
    if address:  # it asks so often, once a second, before it gives up
        os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "10")
    else:  # all ports on the loopback, as Ray has it on other systems than Linux
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # of this run alone
    return address
