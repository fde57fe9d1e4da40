"""What this machine and this user are called: hidden wherever it stands alone."""

import contextlib
import getpass
import socket


def own_names() -> list[tuple[str, str]]:
    """The user's name and the machine's, by kind."""
    found = []
    with contextlib.suppress(OSError, KeyError, ImportError):
        found.append(("user", getpass.getuser()))
    with contextlib.suppress(OSError):
        name = socket.gethostname()
        found += [("host", name), ("host", name.partition(".")[0])]
    return found
