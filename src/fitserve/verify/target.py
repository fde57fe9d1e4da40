"""Where the server is, and whether it is ours to ask."""

import ipaddress
import re
from urllib.parse import urlsplit

import msgspec

from fitserve.errors import UsageError

_API_PATH = re.compile(r"/v1(/.*)?$")
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - read, not bound


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A server's address without its API paths.

    Attributes:
        root: scheme, host, port and base path, without a slash at the end: ``http://127.0.0.1:8000``.
        host: the host alone, an IPv6 address without brackets.
        port: the port.
    """

    root: str
    host: str
    port: int

    @property
    def loopback(self) -> bool:
        """True where the name alone says that it is this machine."""
        if self.host == "localhost" or self.host.endswith(".localhost"):
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_target(text: str) -> Target:
    """A server's address as people type or paste it.

    ``host:8000``, a trailing slash, ``/v1`` and any endpoint below it are taken; ``0.0.0.0``, which vLLM prints as its
    own address, means this machine.

    Raises:
        UsageError: it is no http(s) address, or it carries a password, a query or a fragment.
    """
    where = "URL"
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")  # refuses what no resolver takes
    except ValueError as error:
        raise UsageError(f"the URL cannot be read: {error}", where=where) from error
    if parts.scheme not in ("http", "https"):
        raise UsageError(f"a server is reached by http or https, not {parts.scheme}", where=where)
    if not host:
        raise UsageError("the URL has no host", where=where, hint="write http://HOST:PORT")
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            "a URL with a password ends up in logs",
            where=where,
            hint="put the key into an environment variable and name it: --api-key-env VAR",
        )
    if parts.query or parts.fragment:
        raise UsageError("the URL has a query or a fragment", where=where, hint="write http://HOST:PORT")
    host = _ANY_ADDRESS.get(host, host)
    shown_host = f"[{host}]" if ":" in host else host
    shown_port = "" if port is None else f":{port}"
    path = _API_PATH.sub("", parts.path.rstrip("/")).rstrip("/")
    return Target(
        root=f"{parts.scheme}://{shown_host}{shown_port}{path}",
        host=host,
        port=port or (443 if parts.scheme == "https" else 80),
    )


def is_private(addresses: list[str]) -> bool:
    """True where every address is this machine's or a private network's (anything not routed on the internet)."""
    return bool(addresses) and all(
        not ipaddress.ip_address(address.partition("%")[0]).is_global for address in addresses
    )
