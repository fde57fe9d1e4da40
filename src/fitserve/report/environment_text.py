"""An environment as text: short, aligned, what is not there in a word."""

from collections.abc import Iterator

from fitserve.facts.environment.cgroup import Container
from fitserve.facts.environment.devices import Devices, Gpu
from fitserve.facts.environment.environment import Environment
from fitserve.facts.environment.flags import Flag, FlagTable
from fitserve.facts.environment.host import Host
from fitserve.facts.environment.install import Install
from fitserve.facts.environment.model import ModelIdentity
from fitserve.units import GIB, Unknown, gib, short_size

Row = tuple[str, str]
_MOST_PROCESSES = 8
AMD_SOURCES = ("amdsmi", "amd-smi", "rocm-smi")
_WIDEST = 60


def render_environment(found: Environment) -> str:
    """The rows of each part, values in one column; a further row of the same thing has no name."""
    rows = [
        *_devices(found.devices),
        *_container(found.container),
        *_host(found.host),
        *_engine(found.engine),
        *_flags(found),
        *_variables(found),
        *_model(found.model),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}".rstrip() for name, value in rows)


def render_flags(table: FlagTable, flags: tuple[Flag, ...]) -> str:
    """One line an option: how it is typed, what it may be, its default."""
    rows = [tuple(map(_short, (_spelled(flag), _values(flag), _default(flag)))) for flag in flags]
    widths = [max((len(row[at]) for row in rows), default=0) for at in (0, 1)]
    lines = [
        f"{name:<{widths[0]}}  {values:<{widths[1]}}  {default}".rstrip() for name, values, default in rows
    ]
    return "\n".join([f"vLLM {table.version}: {len(flags):,} of {len(table.flags):,} options", *lines])


def _short(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."


def _default(flag: Flag) -> str:
    return "" if flag.default is None else f"default {flag.default}"


def _spelled(flag: Flag) -> str:
    positive = [spelling for spelling in flag.spellings if not spelling.startswith("--no-")]
    return ", ".join(sorted(positive, key=len, reverse=True) or flag.spellings)


def _values(flag: Flag) -> str:
    if flag.values is not None and flag.type is not None:
        return "|".join(flag.values)
    return "switch" if flag.type is None else f"{flag.type}{' ...' if flag.several else ''}"


def _devices(devices: Devices | Unknown) -> Iterator[Row]:
    if isinstance(devices, Unknown):
        yield "gpus", f"unknown: {devices.unknown}"
        return
    if not devices.gpus:
        yield "gpus", "none: no driver answers"
    for at, gpu in enumerate(devices.gpus):
        yield f"gpu {gpu.index}", _gpu(gpu, is_visible=at in devices.visible)
        for holder in gpu.processes[:_MOST_PROCESSES]:
            held = "unknown" if holder.held_bytes is None else gib(holder.held_bytes)
            owner = f" of {holder.owner}" if holder.owner else ""
            yield "", f"pid {holder.pid} {holder.name}{owner} holds {held}"
        if len(gpu.processes) > _MOST_PROCESSES:
            yield "", f"and {len(gpu.processes) - _MOST_PROCESSES} more processes"
    if devices.driver or devices.runtime:
        platform = "ROCm" if any(gpu.source in AMD_SOURCES for gpu in devices.gpus) else "up to CUDA"
        runtime = f"({platform} {devices.runtime})" if devices.runtime else ""
        yield "driver", f"{devices.driver} {runtime}".strip()
    if devices.selection:
        chosen = ", ".join(f"{name}={value}" for name, value in devices.selection.items())
        seen = ", ".join(f"gpu {devices.gpus[at].index}" for at in devices.visible) or "none"
        yield "visible", f"{seen}  ({chosen})"


def _gpu(gpu: Gpu, *, is_visible: bool) -> str:
    marks = [
        gpu.compute_capability,
        "MIG instance" if gpu.mig else "",
        {True: "ECC", False: "no ECC", None: ""}[gpu.ecc],
        "shares the host's memory" if gpu.unified else "",
        "" if is_visible else "not visible here",
    ]
    told = ", ".join(mark for mark in marks if mark)
    return f"{gpu.name} {gpu.uuid}  {gib(gpu.free_bytes)} free of {gib(gpu.total_bytes)}{'  ' if told else ''}{told}"


def _container(container: Container | Unknown) -> Iterator[Row]:
    if isinstance(container, Unknown):
        yield "container", f"unknown: {container.unknown}"
        return
    limits = []
    if container.memory_limit_bytes is not None:
        used = f", {gib(container.memory_used_bytes)} used" if container.memory_used_bytes is not None else ""
        limits.append(f"memory {gib(container.memory_limit_bytes)}{used}")
    if container.cpu_limit is not None:
        limits.append(f"{container.cpu_limit:g} CPUs")
    if container.runtime or limits:
        version = f"cgroup v{container.cgroup_version}" if container.cgroup_version else "no cgroup"
        yield "container", f"{container.runtime or 'none'}, {', '.join(limits) or 'no limits'}  ({version})"


def _host(host: Host | Unknown) -> Iterator[Row]:
    if isinstance(host, Unknown):
        yield "host", f"unknown: {host.unknown}"
        return
    swap = f", swap {gib(host.swap_total_bytes)}" if host.swap_total_bytes else ""
    yield "memory", f"{gib(host.memory_available_bytes)} available of {gib(host.memory_total_bytes)}{swap}"
    nodes = f", {len(host.numa)} NUMA nodes" if len(host.numa) > 1 else ""
    yield "cpus", f"{host.cpus}{nodes}"
    if len(host.numa) > 1:
        for node in host.numa:
            yield "", f"node {node.node}: {gib(node.total_bytes)}, cpus {node.cpus}"
    shared = "none"
    if host.shm_total_bytes is not None and host.shm_free_bytes is not None:
        shared = f"{short_size(host.shm_free_bytes)} free of {short_size(host.shm_total_bytes)}"
    yield "/dev/shm", shared  # noqa: S108 - a name, not a place to write
    locked = host.locked_memory_limit_bytes
    if locked is not None and locked < GIB:
        yield "memlock", f"{locked / 1024:,.0f} KiB"
    yield "system", f"{host.system}{', WSL' if host.wsl else ''}"


def _engine(engine: Install | Unknown) -> Iterator[Row]:
    if isinstance(engine, Unknown):
        yield "vllm", f"none: {engine.unknown}"
        return
    build = "" if engine.distribution == "vllm" else f" ({engine.distribution})"
    how = {"private": "the private engine of fitserve engine", "image": "by the image's tag"}.get(
        engine.found, ""
    )
    yield "vllm", f"{engine.version}{build}  {engine.program or engine.python}{f'  {how}' if how else ''}"
    if engine.python:
        yield "python", f"{engine.python_version}  {engine.python}"
    there = [f"{name} {version}" for name, version in engine.packages.items() if version]
    missing = [
        name
        for name in ("flash-attn", "flashinfer", "xformers", "triton")
        if name in engine.packages and not engine.packages[name]
    ]
    if there:
        yield "packages", ", ".join(there)
    if missing:
        yield "", f"not installed: {', '.join(missing)}"
    for at, plugin in enumerate(engine.plugins):
        own = "" if plugin.distribution == engine.distribution else f"  ({plugin.distribution})"
        yield "" if at else "plug-ins", f"{plugin.group}: {plugin.name}{own}"


def _flags(found: Environment) -> Iterator[Row]:
    if isinstance(found.engine, Unknown) or not found.engine.python:
        return
    if isinstance(found.flags, FlagTable):
        yield "flags", f"{len(found.flags.flags):,}  (fitserve env --flags lists them)"
    else:
        yield "flags", "not asked yet: fitserve env --flags"


def _variables(found: Environment) -> Iterator[Row]:
    for at, variable in enumerate(found.variables):
        yield (
            "" if at else "variables",
            variable.name + ("  set" if variable.value is None else f"={variable.value}"),
        )


def _model(model: ModelIdentity | Unknown | None) -> Iterator[Row]:
    if isinstance(model, Unknown):
        yield "model", f"unknown: {model.unknown}"
    elif model is not None:
        yield "model", f"{model.model}  {model.architecture or 'architecture not named'}"
        yield "", f"revision {model.revision}" if model.revision else "no revision of the Hub"
        yield "", f"{model.fingerprint}, {gib(model.size_bytes)}, quantization {model.quantization or 'none'}"
