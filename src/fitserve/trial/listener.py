"""Whose answer it is: the processes that listen on a port (o: /proc).

A server that somebody else starts on the same port at the same moment answers ``/health`` too; what it proves, it
proves of itself alone.
"""

import contextlib


def answers_for(root_pid: int, port: int) -> bool:
    """True where the one who listens on a port of this machine may be the tree's own server.

    False where somebody listens and nobody of the tree does. Where nobody can be seen to listen (the server runs on
    another machine, or in another network), the answer counts.

    Args:
        root_pid: the process above the server.
        port: the port that answered.
    """
    import psutil

    own: set[int] = set()
    with contextlib.suppress(psutil.NoSuchProcess):
        own = {process.pid for process in psutil.Process(root_pid).children(recursive=True)}
    try:
        connections = psutil.net_connections(kind="tcp")
    except (psutil.Error, OSError):
        return True
    owners = {
        connection.pid
        for connection in connections
        if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port
    }
    return not owners or bool(owners & own)
