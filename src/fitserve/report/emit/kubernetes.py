"""Kubernetes: a Deployment, a Service, and a claim for the cache of the Hub.

Source: the API reference of Kubernetes 1.30 (apps/v1, v1); ``$$(`` is a literal ``$(`` in ``args``. Without
``enableServiceLinks: false`` a Service that is called vllm sets ``VLLM_PORT`` to a URL, which vLLM cannot read.
"""

from typing import Any

from fitserve.report.emit.deployment import STOP_SECONDS, Deployment
from fitserve.report.emit.document import document, heading

_CACHE = "/root/.cache/huggingface"
_CACHE_SIZE = "200Gi"
_PERIOD_SECONDS = 10


def kubernetes(server: Deployment) -> str:
    """The manifest."""
    inside = server.in_container()
    values = [_deployment(inside), _service(inside)]
    notes = ["apply it with: kubectl apply -f FILE"]
    if _secret_names(inside):
        keys = " ".join(f"--from-literal={name}=..." for name in _secret_names(inside))
        notes.append(f"its keys: kubectl create secret generic {inside.name} {keys}")
    if inside.from_hub:
        values.insert(0, _claim(inside))
        notes.append(f"the claim asks for {_CACHE_SIZE}: make it fit the model")
    if inside.mount is not None:
        notes.append(f"the model is taken from {inside.mount.host} of the node")
    if inside.memory_bound_gib is None:
        notes.append("no memory limit is set, because no start was measured")
    return heading(server, *notes) + document(*values)


def _deployment(server: Deployment) -> dict[str, Any]:
    labels = {"app": server.name}
    pod: dict[str, Any] = {
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": STOP_SECONDS,
        "containers": [_container(server)],
        "volumes": [volume for volume, _ in _volumes(server)],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": server.name, "labels": labels},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _container(server: Deployment) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": "vllm",
        "image": server.image,
        "command": ["vllm", "serve"],
        "args": [_literal(word) for word in server.arguments()],
        "env": _environment(server),
        "ports": [{"name": "http", "containerPort": server.port}],
        "resources": {"limits": _limits(server), "requests": _limits(server)},
        "volumeMounts": [mount for _, mount in _volumes(server)],
        "startupProbe": _probe(server, server.start_bound_seconds // _PERIOD_SECONDS),
        "readinessProbe": _probe(server, 3),
        "livenessProbe": _probe(server, 6),
    }
    return {
        key: value for key, value in container.items() if value not in ([], {"limits": {}, "requests": {}})
    }


def _environment(server: Deployment) -> list[dict[str, Any]]:
    plain: list[dict[str, Any]] = [
        {"name": name, "value": _literal(value)} for name, value in server.environment.items()
    ]
    secret = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": server.name, "key": name, **optional}}}
        for name in _secret_names(server)
        for optional in [{} if name in server.secrets else {"optional": True}]
    ]
    return plain + secret


def _secret_names(server: Deployment) -> list[str]:
    return sorted({*server.secrets, *(["HF_TOKEN"] if server.from_hub else [])})


def _limits(server: Deployment) -> dict[str, Any]:
    """Devices, and memory with the shared memory in it, which Kubernetes counts as the container's."""
    limits: dict[str, Any] = {"nvidia.com/gpu": server.devices} if server.devices else {}
    if server.memory_bound_gib is not None:
        limits["memory"] = f"{server.memory_bound_gib + server.shm_gib}Gi"
    return limits


def _volumes(server: Deployment) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each volume, and where it is mounted."""
    shm = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{server.shm_gib}Gi"}}
    found: list[tuple[dict[str, Any], dict[str, Any]]] = [(shm, {"name": "shm", "mountPath": "/dev/shm"})]  # noqa: S108 - its place
    if server.from_hub:
        claim = {"name": "cache", "persistentVolumeClaim": {"claimName": f"{server.name}-cache"}}
        found.append((claim, {"name": "cache", "mountPath": _CACHE}))
    if server.mount is not None:
        model = {"name": "model", "hostPath": {"path": server.mount.host, "type": "Directory"}}
        found.append((model, {"name": "model", "mountPath": server.mount.inside, "readOnly": True}))
    return found


def _probe(server: Deployment, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": "/health", "port": "http", "scheme": server.scheme.upper()},
        "periodSeconds": _PERIOD_SECONDS,
        "timeoutSeconds": 10,
        "failureThreshold": failures,
    }


def _service(server: Deployment) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": server.name},
        "spec": {
            "selector": {"app": server.name},
            "ports": [{"name": "http", "port": server.port, "targetPort": "http"}],
        },
    }


def _claim(server: Deployment) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": f"{server.name}-cache"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": _CACHE_SIZE}},
        },
    }


def _literal(text: str) -> str:
    return text.replace("$(", "$$(")
