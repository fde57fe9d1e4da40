"""A service of a compose file that starts vLLM: its words, its variables, its ports, and an override of them.

The user's files stay as they are. What is changed goes into a file of its own behind them, which compose lays over the
others: its ``command`` takes the place of theirs, its ``environment`` adds to theirs.

Source: the Compose Specification: merge, interpolation (``$$`` is a dollar), short and long syntax of ports.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fitserve.errors import UsageError
from fitserve.facts.container.compose import Compose
from fitserve.facts.container.run import Container

_VARIABLE = re.compile(r"\$(?:(\$)|(\w+)|\{(\w+)(?:(:?[-?+])([^}]*))?\})")
_PORT = re.compile(r"(?:(?P<address>[\d.]+|\[[^\]]+\]):)?(?P<outer>\d+):(?P<inner>\d+)(?:/tcp)?$")


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """One service.

    Attributes:
        name: its name.
        compose: the command that starts it.
        files: the files it is described in.
        image: its image.
        head: how many words stand before its command: the entrypoint, else the image.
        raw: its command as the files have it, with variables.
        words: head and command as vLLM's program gets them.
        environment: its variables.
        container: its network and ports.
        changed_command: the command of the override, as compose reads it; None where it is as it was.
        changed_environment: the variables of the override.
    """

    name: str
    compose: Compose
    files: tuple[str, ...]
    image: str
    head: int
    raw: tuple[str, ...]
    words: tuple[str, ...]
    environment: dict[str, str]
    container: Container
    changed_command: tuple[str, ...] | None = None
    changed_environment: dict[str, str] = {}

    @property
    def edited(self) -> bool:
        """True where an override is needed."""
        return self.changed_command is not None or bool(self.changed_environment)

    @property
    def variables(self) -> dict[str, str]:
        """What it sets for its program."""
        return self.environment

    def can_change(self, at: int, width: int) -> bool:
        """True for words of the command; the entrypoint stays."""
        return at >= self.head or width == 0

    def with_words(self, words: Sequence[str]) -> "Service":
        """The service with other words; those that stay keep the variables that they have in the file."""
        before = dict(zip(self.words[self.head :], self.raw, strict=True))
        raw = tuple(before.get(word, word.replace("$", "$$")) for word in words[self.head :])
        return msgspec.structs.replace(self, words=tuple(words), raw=raw, changed_command=raw)

    def with_variable(self, name: str, value: str) -> "Service":
        """The service with one variable set."""
        return msgspec.structs.replace(
            self,
            environment={**self.environment, name: value},
            changed_environment={**self.changed_environment, name: value.replace("$", "$$")},
        )

    def override(self) -> str:
        """The file to lay over the others."""
        import yaml

        service: dict[str, Any] = {}
        if self.changed_command is not None:
            service["command"] = list(self.changed_command)
        if self.changed_environment:
            service["environment"] = self.changed_environment
        return str(yaml.safe_dump({"services": {self.name: service}}, sort_keys=False, width=1 << 30))


def read_service(
    name: str,
    described: Mapping[str, Any],
    compose: Compose,
    files: Sequence[str],
    environ: Mapping[str, str],
) -> Service:
    """A service as its files describe it.

    Raises:
        UsageError: a value is not of the kind that compose takes.
    """
    entrypoint = _list(described.get("entrypoint"), name)
    raw = _list(described.get("command"), name)
    image = _interpolated(str(described.get("image", name)), environ)
    head = [_interpolated(word, environ) for word in entrypoint] or [image]
    environment = _environment(described.get("environment"), environ)
    return Service(
        name=name,
        compose=compose,
        files=tuple(files),
        image=image,
        head=len(head),
        raw=tuple(raw),
        words=(*head, *(_interpolated(word, environ) for word in raw)),
        environment=environment,
        container=Container(
            program=0,
            image=0,
            name=image,
            host_network=described.get("network_mode") == "host",
            ports=_ports(described.get("ports"), environ),
        ),
    )


def _list(value: Any, service: str) -> list[str]:
    """A command in either of its forms; a text is split as a shell would, and no shell is asked."""
    if value is None:
        return []
    if isinstance(value, str):
        try:
            return shlex.split(value)
        except ValueError as error:
            raise UsageError(f"its command cannot be read: {error}", where=f"service {service}") from error
    if isinstance(value, list):
        return [_text(each) for each in value]
    raise UsageError("its command is neither a text nor a list", where=f"service {service}")


def _environment(value: Any, environ: Mapping[str, str]) -> dict[str, str]:
    if isinstance(value, dict):
        pairs = [(str(name), None if text is None else _text(text)) for name, text in value.items()]
    else:
        parts = [str(each).partition("=") for each in value or []]
        pairs = [(name, text if equals else None) for name, equals, text in parts]
    found = {
        name: environ.get(name) if text is None else _interpolated(text, environ) for name, text in pairs
    }
    return {name: text for name, text in found.items() if text is not None}


def _ports(value: Any, environ: Mapping[str, str]) -> dict[int, tuple[str, int]]:
    """The published ports: the container's port, and the host's address and port for it."""
    ports: dict[int, tuple[str, int]] = {}
    for each in value or []:
        if isinstance(each, dict):
            text = f"{each.get('published', '')}:{each.get('target', '')}"
            text = f"{each['host_ip']}:{text}" if each.get("host_ip") else text
        else:
            text = str(each)
        if match := _PORT.match(_interpolated(text, environ)):
            ports[int(match["inner"])] = (match["address"] or "127.0.0.1", int(match["outer"]))
    return ports


def _interpolated(text: str, environ: Mapping[str, str]) -> str:
    """A value with its variables filled in."""

    def filled(match: re.Match[str]) -> str:
        if match[1]:
            return "$"
        value = environ.get(match[2] or match[3])
        kind, other = match[4] or "", match[5] or ""
        given = value is not None and (bool(value) or ":" not in kind)
        if kind.endswith("+"):
            return other if given else ""
        return (value or "") if given or not kind.endswith("-") else other

    return _VARIABLE.sub(filled, text)


def _text(value: Any) -> str:
    """A scalar as compose hands it on."""
    return str(value).lower() if isinstance(value, bool) else str(value)
