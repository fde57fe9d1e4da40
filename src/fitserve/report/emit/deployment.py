"""The value that is written: what is served, with which options, how long a start takes. No key is in it."""

import json
import math
import re
from typing import Any

import msgspec

from fitserve.facts.serve_options import SWITCHES, arity
from fitserve.units import GIB

DEFAULT_PORT = 8000
UNKNOWN_START_SECONDS = 1800.0
"""How long a start may take where none was measured: the time-out of a trial."""

DOWNLOAD_SECONDS = 1800.0
"""How much longer the first start of a model of the Hub may take; a bound, not an estimate."""

STOP_SECONDS = 60
"""How long the server may take to end: vLLM drains, then its engine lets go of the devices."""

_START_MARGIN = 3.0
_LEAST_START_SECONDS = 120.0
_MEMORY_MARGIN = 1.5


class Mount(msgspec.Struct, frozen=True):
    """A directory of the host, and where the server sees it in a container."""

    host: str
    inside: str


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """A server to be started elsewhere.

    Attributes:
        name: a name for it, of lower-case letters, digits and hyphens.
        model: the model as the server is told it.
        options: vLLM's options by name with underscores: True and False for a switch, a list, a mapping, or a text or number.
        environment: variables that the command sets.
        secrets: the names of variables whose values are keys; the values are nowhere.
        program: the words that start vLLM's server on this machine.
        image: the container image.
        devices: accelerators; 0 for the CPU backend.
        start_seconds: how long the start took where it was measured; None where it was not.
        host_bytes: the most resident memory that was measured; None where it was not.
        mount: where the model's directory is, for a container; None for a model of the Hub, or one that is there already.
        note: what is known about the command, in one sentence.
    """

    name: str
    model: str
    options: dict[str, Any] = {}
    environment: dict[str, str] = {}
    secrets: tuple[str, ...] = ()
    program: tuple[str, ...] = ("vllm", "serve")
    image: str
    devices: int = 1
    start_seconds: float | None = None
    host_bytes: int | None = None
    mount: Mount | None = None
    note: str = ""

    @property
    def port(self) -> int:
        """Where it listens."""
        port = self.options.get("port", DEFAULT_PORT)
        return int(port) if str(port).isdecimal() else DEFAULT_PORT

    @property
    def scheme(self) -> str:
        """How it is spoken to."""
        return "https" if self.options.get("ssl_certfile") else "http"

    @property
    def from_hub(self) -> bool:
        """True where the model is fetched by the server itself."""
        return self.mount is None and re.fullmatch(r"[\w.-]+/[\w.-]+", self.model) is not None

    @property
    def start_bound_seconds(self) -> int:
        """How long a start may take before it counts as failed: three times what was measured, in tens of seconds."""
        if self.start_seconds is None:
            bound = UNKNOWN_START_SECONDS
        else:
            bound = max(_LEAST_START_SECONDS, _START_MARGIN * self.start_seconds)
        return 10 * math.ceil((bound + (DOWNLOAD_SECONDS if self.from_hub else 0.0)) / 10)

    @property
    def memory_bound_gib(self) -> int | None:
        """Host memory in whole GiB, a half more than was measured; None where nothing was."""
        return None if self.host_bytes is None else math.ceil(_MEMORY_MARGIN * self.host_bytes / GIB)

    @property
    def shm_gib(self) -> int:
        """Shared memory in GiB: 2 for each device, as in vLLM's own manifest for one.

        Source: vLLM 0.32.0 ``docs/deployment/k8s.md``, ``sizeLimit: 2Gi``.
        """
        return 2 * max(1, self.devices)

    def in_container(self) -> "Deployment":
        """The same server behind a container's network: it listens on every interface, and sees its mounted model."""
        options = {name: value for name, value in self.options.items() if name not in ("host", "uds")}
        environment = {
            name: value for name, value in self.environment.items() if name != "CUDA_VISIBLE_DEVICES"
        }
        if self.mount is not None:
            options.setdefault("served_model_name", [self.model])
        return msgspec.structs.replace(
            self,
            options=options,
            environment=environment,
            model=self.model if self.mount is None else self.mount.inside,
        )

    def arguments(self) -> list[str]:
        """The words behind ``vllm serve``."""
        words = [self.model]
        for name, value in self.options.items():
            words += _spelled(name, value)
        return words


def _spelled(name: str, value: Any) -> list[str]:
    flag = name.replace("_", "-")
    if isinstance(value, bool) and (name in SWITCHES or arity(name) is None):
        return [f"--{flag}" if value else f"--no-{flag}"]
    if isinstance(value, list) and arity(name) == "several":
        return [f"--{flag}", *map(str, value)]
    return [f"--{flag}", json.dumps(value) if isinstance(value, dict | list | bool) else str(value)]
