"""What one boot's log says about the launch: version, settings, model, device, memory."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from fitserve.facts.ledger import Ledger, read_ledgers
from fitserve.facts.messages.event import Event
from fitserve.facts.settings import Setting, Value, read_pairs

Launch = Literal["cli", "python"]

_CONFIG_EVENTS = (
    "engine-config-v1",
    "engine-config-v0",
    "engine-config-v0-versioned",
    "engine-config-v0-bare",
)
_VERSION_EVENTS = (
    "api-server-version",
    "logo-version",
    *_CONFIG_EVENTS[:3],
    "batch-api-version",
    "grpc-server-version",
    "image-tag",
)
_RESOLVED = {
    "using-max-model-len": "max_model_len",
    "chunked-prefill": "max_num_batched_tokens",
    "default-batched-tokens": "max_num_batched_tokens",
    "default-max-seqs": "max_num_seqs",
    "attention-block-size": "block_size",
    "kv-block-size": "block_size",
    "kv-block-size-forced": "block_size",
    "graph-estimate-on": "gpu_memory_utilization",
    "profile-budget": "gpu_memory_utilization",
    "profile-results-064": "gpu_memory_utilization",
    "memory-summary": "gpu_memory_utilization",
    "memory-summary-consumed": "gpu_memory_utilization",
    "profile-initial": "gpu_memory_utilization",
}


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one boot.

    Attributes:
        vllm_version: as printed, None where the log does not show it.
        release: the release to reckon with: the printed one, else the newest that prints such lines; None if any may.
        engine: ``V0`` or ``V1``, None where the log does not show it.
        launch: how options are typed there: a command line, or arguments of ``LLM(...)``.
        settings: by vLLM's name; environment variables by their own.
        given: the names that the user set, as far as the log tells them from defaults.
        architecture: the model's class.
        ledgers: the memory, rank by rank.
        is_hybrid: layers with a state beside attention, so that cache and context are not proportional.
        is_cpu: the CPU backend.
    """

    vllm_version: str | None
    release: str | None
    engine: str | None
    launch: Launch
    settings: dict[str, Setting]
    given: frozenset[str]
    architecture: str | None
    ledgers: list[Ledger]
    is_hybrid: bool
    is_cpu: bool

    def value(self, name: str, default: Value = None) -> Value:
        """A setting's value, or the default where the log does not show it."""
        setting = self.settings.get(name)
        return default if setting is None or setting.value is None else setting.value

    def number(self, name: str) -> int | float | None:
        """A setting that is a number, None where it is not one or not shown."""
        value = self.value(name)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    def whole(self, name: str) -> int | None:
        """A setting that is a whole number."""
        value = self.number(name)
        return value if isinstance(value, int) else None


def read_case(events: Sequence[Event], typed: dict[str, Setting], *, is_python: bool) -> Case:
    """Gather the facts of a boot.

    Args:
        events: what its lines were, in order.
        typed: the settings of a command or an environment shown in front of it.
        is_python: a script made the engine, so options are arguments.
    """
    settings: dict[str, Setting] = {}
    given: set[str] = set(typed)
    version = engine = architecture = None
    for event in events:
        if version is None and event.id in _VERSION_EVENTS:
            version = str(event.numbers["version"]).rstrip(")").removeprefix("v")
        if event.id in _CONFIG_EVENTS:
            engine = "V1" if event.id == "engine-config-v1" else "V0"
            for name, setting in read_pairs(event.numbers["settings"], event.line.number, "engine").items():
                settings.setdefault(name, setting)
        elif event.id in ("args-namespace", "non-default-args"):
            shown = read_pairs(event.numbers["settings"], event.line.number, "arguments")
            if event.id == "non-default-args":
                given |= set(shown)
            settings.update(shown)
        elif event.id in _RESOLVED:
            name = _RESOLVED[event.id]
            if settings.get(name) is None or settings[name].value is None or event.id.startswith("kv-block"):
                settings[name] = Setting(value=event.numbers[name], line=event.line.number, where="engine")
        elif event.id == "resolved-architecture":
            architecture = str(event.numbers["architecture"])
    settings.update(typed)
    device = settings.get("device")
    return Case(
        vllm_version=version,
        release=version or _newest_release(events, engine),
        engine=engine,
        launch="python" if is_python else "cli",
        settings=settings,
        given=frozenset(given),
        architecture=architecture,
        ledgers=read_ledgers(events),
        is_hybrid=any(
            event.id in ("attention-block-size", "mamba-page-padding", "mamba-blocks-few") for event in events
        ),
        is_cpu=(device is not None and device.value == "cpu")
        or any(
            event.id.startswith("cpu-") or event.numbers.get("platform", "").startswith("cpu")
            for event in events
        ),
    )


def _newest_release(events: Sequence[Event], engine: str | None) -> str | None:
    """The newest release whose engine announces itself so: without a version to 0.3.3, as V0 to 0.10.2."""
    if any(event.id == "engine-config-v0-bare" for event in events):
        return "0.3.3"
    return "0.10.2" if engine == "V0" else None
