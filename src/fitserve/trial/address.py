"""Where a launched server will answer: its port, chosen or found free, and its URL (o: sockets, the config file)."""

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from fitserve.errors import MachineError, UsageError
from fitserve.facts.command import DEFAULT_PORT, Launch, variable
from fitserve.facts.command_edit import with_option

_ANYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 - read, not bound
_PORTS = range(1, 65536)
_MOST_PORTS = 100


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server listens, and how it is called.

    Attributes:
        host: the address to bind, as given; empty for every interface.
        port: the port on this machine.
        port_given: True where the user chose the port.
        url: where a client on this machine finds it; None where it cannot be reached from here.
        api_key: the key that clients must send; None without one.
        certificate: the file with the certificate that it shows; None without TLS.
    """

    host: str
    port: int
    port_given: bool
    url: str | None
    api_key: str | None
    certificate: str | None = None


def read_address(launch: Launch, environ: Mapping[str, str]) -> Address:
    """What the command, its config file and the environment say about the server's address.

    Raises:
        UsageError: its port is none.
    """
    file = config_file(launch)

    def setting(name: str) -> Any:
        value = launch.value(name)
        return file.get(name) if value is None else value

    given = setting("port")
    port = given if isinstance(given, int) else DEFAULT_PORT
    if port not in _PORTS:
        raise UsageError(f"{port} is no port to answer at", where="--port", hint="give one from 1 to 65535")
    host = str(setting("host") or "")
    outer = host, port
    published = True
    if launch.container is not None and not launch.container.host_network:
        published = port in launch.container.ports
        outer = launch.container.ports.get(port, outer)
    key = setting("api_key") or variable(launch, "VLLM_API_KEY", environ)
    certificate = setting("ssl_certfile")
    scheme = "https" if certificate else "http"
    called = "127.0.0.1" if outer[0] in _ANYWHERE else outer[0]
    return Address(
        host=host,
        port=outer[1],
        port_given=given is not None or launch.container is not None,
        url=f"{scheme}://{_in_url(called)}:{outer[1]}" if published and not setting("uds") else None,
        api_key=str(key[0] if isinstance(key, list) else key) if key else None,
        certificate=str(certificate) if certificate else None,
    )


def config_file(launch: Launch) -> dict[str, Any]:
    """The settings of ``--config FILE``, by name with underscores; empty without a file that can be read.

    A file that vLLM cannot read either is vLLM's to complain about.
    """
    if launch.config is not None:
        return launch.config.values
    path = launch.value("config")
    if path is None:
        return {}
    import yaml

    try:
        content = yaml.safe_load(Path(str(path)).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    if not isinstance(content, dict):
        return {}
    return {str(name).replace("-", "_"): value for name, value in content.items()}


def with_free_port(launch: Launch, environ: Mapping[str, str]) -> Launch:
    """The launch on a port that is free: the user's own, vLLM's default, or the next one above it.

    Raises:
        MachineError: the port that the user gave is taken.
    """
    address = read_address(launch, environ)
    if is_free(address.host, address.port):
        return launch
    if address.port_given:
        raise MachineError(
            f"port {address.port} is taken{_holder(address.port)}",
            where=f"port {address.port}",
            hint="stop that process, or give another --port",
        )
    for port in range(address.port + 1, address.port + _MOST_PORTS):
        if is_free(address.host, port):
            return with_option(launch, "port", port)
    raise MachineError(
        f"ports {address.port} to {address.port + _MOST_PORTS - 1} are taken", hint="give a free --port"
    )


def is_free(host: str, port: int) -> bool:
    """True where vLLM could bind the port; a host that is not this machine's is left to vLLM.

    Source: vLLM 0.32.0 ``entrypoints/launchers/launcher.py`` binds with SO_REUSEADDR alone.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            import errno

            return error.errno not in (errno.EADDRINUSE, errno.EACCES)
    return True


def _holder(port: int) -> str:
    """Who listens there, in words; empty where that cannot be seen."""
    import psutil

    try:
        connections = psutil.net_connections(kind="tcp")
    except psutil.Error:
        return ""
    for connection in connections:
        listens = connection.status == psutil.CONN_LISTEN
        if listens and connection.laddr and connection.laddr.port == port and connection.pid:
            try:
                return f" by process {connection.pid} ({psutil.Process(connection.pid).name()})"
            except psutil.Error:
                return f" by process {connection.pid}"
    return ""


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
