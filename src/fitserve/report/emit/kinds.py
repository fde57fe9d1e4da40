"""The kinds of files that are written, by the word that asks for them."""

from collections.abc import Callable

from fitserve.report.emit.compose import compose
from fitserve.report.emit.deployment import Deployment
from fitserve.report.emit.kubernetes import kubernetes
from fitserve.report.emit.systemd import systemd
from fitserve.report.emit.vllm_config import vllm_config

_WRITERS: dict[str, tuple[str, Callable[[Deployment], str]]] = {
    "yaml": ("vllm.yaml", vllm_config),
    "compose": ("compose.yaml", compose),
    "k8s": ("kubernetes.yaml", kubernetes),
    "systemd": ("{name}.service", systemd),
}


def file_name(kind: str, server: Deployment) -> str:
    """What the file is called."""
    return _WRITERS[kind][0].format(name=server.name)


def written(kind: str, server: Deployment) -> str:
    """The file's text.

    Args:
        kind: ``yaml``, ``compose``, ``k8s`` or ``systemd``.
        server: what is to be started.
    """
    return _WRITERS[kind][1](server)
