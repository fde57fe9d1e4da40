"""Cases for ``starts``: machines, models, commands and goals whose first start fails, drawn by a seed; and what could be reached."""

import random
from collections.abc import Iterator
from typing import Any

import msgspec

from fitserve.simulator.machine import Device, Machine, known_devices
from fitserve.simulator.models import Model, known_models
from fitserve.simulator.refusals import Refusal, refuse_settings
from fitserve.simulator.releases import at_least
from fitserve.simulator.settings import Settings, resolve
from fitserve.simulator.start import Start, would_start

GIB = 1 << 30
RELEASES = ("0.6.6", "0.8.5", "0.10.2", "0.12.0", "0.19.0", "0.24.0", "0.32.0")
UTILIZATIONS = [share / 200 for share in range(199, 39, -1)]
EDGE_SHARES = 2
OFFLOADS = (4, 8, 16, 32, 64)
PROVABLE_TOKENS = 400_000
"""Of a goal: its proof sends that many."""
_FIRST_MODELS = (
    "Qwen/Qwen2.5",
    "meta-llama",
    "RedHatAI/Meta-Llama",
    "google/gemma-7b",
    "microsoft",
    "mistralai",
)
_OLD = ("T4", "V100")


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One case.

    Attributes:
        number: which one; its machine's seed.
        cause: why the first start fails.
        given: vLLM's arguments by name.
        environ: its variables.
        neighbour_bytes: what another process holds of each device.
        goal_context: tokens; None where any context will do.
        goal_concurrency: requests at once.
        allow_output: answers may change.
        reach: ``settings`` where settings reach the goal, ``edge`` where they do within less than 0.01 of utilization, ``offload`` where only weights in host memory do, ``no`` where none does.
    """

    number: int
    cause: str
    device: str
    count: int
    model: str
    version: str
    given: dict[str, Any]
    environ: dict[str, str] = {}
    neighbour_bytes: int = 0
    goal_context: int | None = None
    goal_concurrency: int | None = None
    allow_output: bool = False
    reach: str = "settings"

    @property
    def words(self) -> list[str]:
        """The arguments as they are typed."""
        found: list[str] = []
        for name, value in self.given.items():
            flag = f"--{name.replace('_', '-')}"
            found += [flag] if value is True else [flag, str(value)]
        return found

    @property
    def machine(self) -> Machine:
        """The machine, quick."""
        kind = next(one for one in known_devices() if one.short == self.device)
        return Machine(
            device=kind, count=self.count, vllm_version=self.version, seed=self.number, speed=2000.0
        )


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ends on a case's machine: refused, failed or serving, and what it can then do."""

    cause: str | None
    start: Start | None = None
    settings: Settings | None = None


def play(case: Case, given: dict[str, Any], environ: dict[str, str]) -> Ending:
    """What a command would do; a pure function of the hidden truth."""
    machine, model = case.machine, known_models()[case.model]
    if _misspelled(given, case.version):
        return Ending(cause="unknown-flag")
    settings = resolve(given, case.version, machine.device, model, environ)
    refusal: Refusal | None = refuse_settings(settings, model, machine, machine.count, environ)
    if refusal is not None:
        return Ending(cause=refusal.cause, settings=settings)
    free = [machine.device.total_bytes - case.neighbour_bytes] * settings.world_size
    start = would_start(model, settings, machine.device, free, case.number)
    cause = start.cause
    if cause is None and start.step_bytes(_load(case, start)) > start.left_bytes:
        cause = "serving-oom"
    return Ending(cause=cause, start=start, settings=settings)


def _load(case: Case, start: Start) -> int:
    """The tokens that requests bring at once: as many as the goal, or one whole context."""
    return (case.goal_context or start.max_model_len) * (case.goal_concurrency or 1)


def _misspelled(given: dict[str, Any], version: str) -> bool:
    return "max_model_length" in given or ("swap_space" in given and at_least(version, "0.18.0"))


def keeps_goal(case: Case, ending: Ending) -> bool:
    """True where a serving start does what was asked of it."""
    start = ending.start
    if ending.cause is not None or start is None:
        return False
    context = case.goal_context or (start.max_model_len if case.goal_concurrency else 1)
    if start.max_model_len < context:
        return False
    number = case.goal_concurrency or 1
    return start.at_once(context) >= number and start.settings.max_num_seqs >= number


def reach_of(case: Case) -> str:
    """Whether any settings reach the goal: every division, share and offload, with the smallest batches and no graphs.

    Nothing that makes a start smaller makes it fail here, so the smallest batch stands for all of them.
    """
    model = known_models()[case.model]
    number = case.goal_concurrency or 1
    kept = {name: case.given[name] for name in ("dtype", "kv_cache_dtype") if name in case.given}
    if case.cause == "attention-backend-unsupported":
        kept["kv_cache_dtype"] = "auto"
    half = model.config.get("torch_dtype") == "bfloat16" and case.machine.device.capability < (8, 0)
    if case.allow_output:
        kept |= {"dtype": "half"} if half else {}
    small = {
        **kept,
        "max_model_len": case.goal_context or min(2048, model.longest),
        "max_num_seqs": number,
        "max_num_batched_tokens": max(512, number),
        "enforce_eager": True,
    }
    if not at_least(case.version, "0.8.0"):
        small["enable_chunked_prefill"] = True
    fp8 = case.allow_output and case.machine.device.capability >= (8, 9)
    caches = [small, {**small, "kv_cache_dtype": "fp8"}] if fp8 else [small]
    shares = max(_reaching_shares(case, base) for base in caches)
    if shares:
        return "settings" if shares > EDGE_SHARES else "edge"
    for offload in OFFLOADS:
        if any(_reaching_shares(case, {**base, "cpu_offload_gb": offload}) for base in caches):
            return "offload"
    return "no"


def _reaching_shares(case: Case, small: dict[str, Any]) -> int:
    """How many utilizations reach the goal, where most do: with the number of ranks that is best for it."""
    best = 0
    for ranks in (ranks for ranks in (1, 2, 4, 8) if ranks <= case.count):
        given = {**small, "tensor_parallel_size": ranks}
        reached = 0
        for share in UTILIZATIONS:
            reached += keeps_goal(case, play(case, {**given, "gpu_memory_utilization": share}, {}))
            if reached > EDGE_SHARES:
                return reached
        best = max(best, reached)
    return best


_HIGH = (0.95, 0.96, 0.97, 0.98, 0.985)
_DRAWS: dict[str, dict[str, tuple[Any, ...]]] = {
    "kv-cache-smaller-than-context": {"max_model_len": ("longest",)},
    "no-kv-cache-blocks": {"gpu_memory_utilization": (0.4, 0.5, 0.6, 0.7, 0.8)},
    "graph-estimate-too-large": {
        "max_model_len": (2048, 4096),
        "gpu_memory_utilization": tuple(share / 100 for share in range(60, 96)),
    },
    "gpu-memory-taken": {"max_model_len": (4096, 8192, 16384)},
    "weights-do-not-fit": {"max_model_len": (4096, 8192)},
    "profile-run-oom": {
        "max_num_batched_tokens": (16384, 32768, 65536, 131072),
        "max_model_len": (4096, 8192, 32768),
    },
    "multimodal-profile-oom": {
        "max_num_batched_tokens": (16384, 32768, 65536),
        "max_model_len": (4096, 8192, 32768),
    },
    "kv-cache-pinned-too-small": {
        "kv_cache_memory_bytes": tuple(size << 20 for size in (256, 512, 1024, 2048)),
        "max_model_len": (16384, 32768, 65536),
    },
    "kv-allocation-oom": {
        "kv_cache_memory_bytes": tuple(size << 30 for size in (16, 24, 40, 64, 80, 100)),
        "gpu_memory_utilization": (0.5,),
        "max_model_len": (8192,),
    },
    "graph-capture-oom": {
        "gpu_memory_utilization": _HIGH,
        "max_model_len": (4096, 8192),
        "max_num_batched_tokens": (1024, 2048),
    },
    "sampler-warmup-oom": {
        "gpu_memory_utilization": _HIGH,
        "max_num_seqs": (512, 1024, 2048),
        "max_num_batched_tokens": (2048,),
        "max_model_len": (4096,),
    },
    "serving-oom": {"gpu_memory_utilization": _HIGH, "max_model_len": (4096, 8192)},
    "state-cache-too-small": {"max_num_seqs": (512, 1024, 2048), "max_model_len": (4096, 8192, 32768)},
    "context-beyond-model-limit": {"max_model_len": ("2 x longest", "4 x longest")},
    "heads-not-divisible": {"tensor_parallel_size": (3, 5, 6, 8), "max_model_len": (4096,)},
    "not-enough-gpus": {"tensor_parallel_size": (2, 4, 8), "max_model_len": (4096,)},
    "batched-tokens-below-context": {
        "max_num_batched_tokens": (256, 512),
        "max_num_seqs": (1024, 2048),
        "max_model_len": (4096,),
    },
    "dtype-unsupported": {"max_model_len": (2048, 4096)},
    "quantization-unsupported": {"quantization": ("awq",), "max_model_len": (4096,)},
    "unknown-flag": {"swap_space": (4,), "max_model_len": (4096,)},
    "attention-backend-unsupported": {
        "kv_cache_dtype": ("fp8",),
        "dtype": ("half",),
        "max_model_len": (4096,),
    },
}
"""For each cause, arguments that can bring it about; a draw that fails otherwise is drawn again."""


def draw_cases(number: int, seed: int, only: str | None = None) -> Iterator[Case]:
    """Cases, as many of each cause as of any other."""
    causes = [cause for cause in _DRAWS if only is None or cause == only]
    for count in range(number):
        found = _draw(causes[count % len(causes)], seed * 100_000 + count)
        if found is not None:
            yield found


def _draw(cause: str, seed: int) -> Case | None:
    dice = random.Random(seed)
    for _ in range(3000):
        case = _attempt(cause, seed, dice)
        if case is None:
            continue
        case = _with_goal(case, dice)
        if play(case, case.given, case.environ).cause == cause:
            return msgspec.structs.replace(case, reach=reach_of(case))
    return None


def _attempt(cause: str, seed: int, dice: random.Random) -> Case | None:
    device: Device = dice.choice(known_devices())
    old = device.short.startswith(_OLD)
    version = dice.choice((RELEASES[0], *RELEASES[3:]) if old else RELEASES)
    model: Model = dice.choice(list(known_models().values()))
    if not _is_sensible(cause, device, model, version):
        return None
    count = dice.choice([1, 1, 2, 2, 4, 8])
    given = {name: _value(dice.choice(values), model) for name, values in _DRAWS[cause].items()}
    if count > 1 and "tensor_parallel_size" not in given and dice.random() < 0.6:
        given["tensor_parallel_size"] = dice.choice([ranks for ranks in (1, 2, 4, 8) if ranks <= count])
    if old and cause != "dtype-unsupported":
        given.setdefault("dtype", "half")
    length = given.get("max_model_len")
    if length and cause != "context-beyond-model-limit" and length > model.longest:
        return None
    taken = cause == "gpu-memory-taken" or dice.random() < 0.15
    share = dice.uniform(0.08, 0.5) if cause == "gpu-memory-taken" else dice.uniform(0.02, 0.06)
    return Case(
        number=seed,
        cause=cause,
        device=device.short,
        count=count,
        model=model.name,
        version=version,
        given=given,
        neighbour_bytes=int(share * device.total_bytes) if taken else 0,
        allow_output=dice.random() < (0.7 if cause == "dtype-unsupported" else 0.15),
    )


def _is_sensible(cause: str, device: Device, model: Model, version: str) -> bool:
    """True where the release knows the device and the model, and the cause can come about there."""
    new = at_least(version, "0.10.2")
    newer = at_least(version, "0.12.0")
    return not (
        (device.capability >= (10, 0) and not new)
        or (not at_least(version, "0.8.0") and not model.name.startswith(_FIRST_MODELS))
        or ("pinned" in cause and not new)
        or (cause == "kv-allocation-oom" and not new)
        or ("state" in cause and not model.cache.state)
        or ("multimodal" in cause and not model.cache.image_tokens)
        or (model.cache.image_tokens and not new)
        or ((model.cache.state or model.name.startswith("openai")) and not newer)
    )


def _value(drawn: Any, model: Model) -> Any:
    if not isinstance(drawn, str) or "longest" not in drawn:
        return drawn
    times = drawn.partition(" x ")[0]
    return model.longest * (int(times) if times.isdecimal() else 1)


def _with_goal(case: Case, dice: random.Random) -> Case:
    """A goal for most cases: sometimes the whole context, sometimes a part, sometimes with several at once."""
    longest = known_models()[case.model].longest
    length = min(int(case.given.get("max_model_len") or longest), longest)
    kind = dice.random()
    if kind < 0.3:
        return case
    context = min(max(1024, int(length * dice.choice([0.25, 0.5, 0.75, 1.0]))), length)
    number = dice.choice([None, 1, 2, 4, 8])
    if kind > 0.85:
        context, number = longest, dice.choice([8, 32, 128])
    most = max(1, PROVABLE_TOKENS // context)
    return msgspec.structs.replace(
        case, goal_context=context, goal_concurrency=number if number is None else min(number, most)
    )
