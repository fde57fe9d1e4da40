"""A compose file: one service, its devices, its cache, its health.

Source: the Compose Specification (``deploy.resources.reservations.devices``, ``healthcheck``, ``$$`` for a dollar);
vLLM 0.32.0 ``docs/deployment/docker.md`` (``--ipc=host`` for the shared memory of its processes).
"""

from typing import Any

from fitserve.report.emit.deployment import STOP_SECONDS, Deployment
from fitserve.report.emit.document import document, heading

_CACHE = "/root/.cache/huggingface"


def compose(server: Deployment) -> str:
    """The file."""
    inside = server.in_container()
    service: dict[str, Any] = {
        "image": inside.image,
        "entrypoint": ["vllm", "serve"],
        "command": [_literal(word) for word in inside.arguments()],
        "environment": {
            **{name: _literal(value) for name, value in inside.environment.items()},
            **{name: f"${{{name}:?}}" for name in inside.secrets},
            **_hub_token(inside),
        },
        "ports": [f"{_published(server)}{inside.port}:{inside.port}"],
        "volumes": _volumes(inside),
        "ipc": "host",
        "restart": "unless-stopped",
        "stop_grace_period": f"{STOP_SECONDS}s",
        "healthcheck": {
            "test": ["CMD", "python3", "-c", _question(inside)],
            "interval": "10s",
            "timeout": "10s",
            "retries": 6,
            "start_period": f"{inside.start_bound_seconds}s",
        },
    }
    if inside.devices:
        service["deploy"] = {"resources": {"reservations": {"devices": [_devices(server)]}}}
    kept = {key: value for key, value in service.items() if value not in ({}, [])}
    value: dict[str, Any] = {"services": {inside.name: kept}}
    if inside.from_hub:
        value["volumes"] = {"huggingface": None}
    notes = [f"{name} is taken from the environment or from .env" for name in inside.secrets]
    return heading(server, "start it with: docker compose up", *notes) + document(value)


def _literal(text: str) -> str:
    return text.replace("$", "$$")


def _hub_token(server: Deployment) -> dict[str, str]:
    """A token that may be empty, for models that need one."""
    return {"HF_TOKEN": "${HF_TOKEN:-}"} if server.from_hub and "HF_TOKEN" not in server.secrets else {}


def _published(server: Deployment) -> str:
    """The host's address before the port: a server that was for this machine alone stays so."""
    host = str(server.options.get("host", ""))
    return "127.0.0.1:" if host in ("127.0.0.1", "localhost") else ""


def _volumes(server: Deployment) -> list[str]:
    if server.mount is not None:
        return [f"{_literal(server.mount.host)}:{server.mount.inside}:ro"]
    return [f"huggingface:{_CACHE}"] if server.from_hub else []


def _devices(server: Deployment) -> dict[str, Any]:
    named = [each for each in server.environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if each]
    which: dict[str, Any] = {"device_ids": named} if named else {"count": server.devices}
    return {"driver": "nvidia", **which, "capabilities": ["gpu"]}


def _question(server: Deployment) -> str:
    """A program that ends well where the server does: the image has Python, and need not have curl."""
    url = f"{server.scheme}://127.0.0.1:{server.port}/health"
    if server.scheme == "https":
        return f"import ssl, urllib.request as r; r.urlopen('{url}', timeout=5, context=ssl._create_unverified_context())"
    return f"import urllib.request as r; r.urlopen('{url}', timeout=5)"
