"""From the boots of a log to one diagnosis: which boot, which rule, which lines."""

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from fitserve.diagnose.boot import Boot, Unrecognised
from fitserve.diagnose.finding import Diagnosis, Earlier, Evidence, Stage, Wrapper
from fitserve.diagnose.rules import (
    healthy,
    host_memory_exhausted,
    not_a_vllm_log,
    preemption_thrash,
    request_never_scheduled,
    unrecognised_error,
    wrapper_only,
)
from fitserve.diagnose.rules.registry import RULES
from fitserve.diagnose.select import Verdict, first_cause, first_refusal, repeats
from fitserve.diagnose.situation import Finding, Situation
from fitserve.facts.case import Case
from fitserve.facts.ledger import Ledger
from fitserve.memory.history import default_utilization
from fitserve.units import Quantity, to_builtins

_SHOWN = (
    "max_model_len",
    "gpu_memory_utilization",
    "max_num_seqs",
    "max_num_batched_tokens",
    "kv_cache_memory_bytes",
    "num_gpu_blocks_override",
)
_FACTS_SHOWN = ("gpu_total_gib", "gpu_blocks", "kv_tokens", "available_gib", "graph_estimate_gib")
_SHOWN_ABOVE_ONE = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
_EVIDENCE_LINES = 6
_EVIDENCE_CHARACTERS = 600
_CONFIDENCES = ("certain", "likely", "possible")


def conclude(boots: Sequence[Boot]) -> Diagnosis:
    """The diagnosis of the last boot that shows anything, with the failures of those before it."""
    last = _deciding(boots)
    findings = [(boot, _find(boot, boots[:index])) for index, boot in enumerate(boots[: last + 1])]
    boot, (finding, verdict) = findings[-1]
    earlier = [
        Earlier(
            boot=one.number,
            stage=cast("Stage", found.stage),
            cause=found.cause,
            line=found.event.line.number if found.event else None,
        )
        for one, (found, _) in findings[:-1]
        if found.severity != "note"
    ]
    return _diagnosis(boot, finding, verdict, earlier, len(boots))


def _deciding(boots: Sequence[Boot]) -> int:
    """The index of the boot to diagnose: the last one, unless it has only just begun after one that failed."""
    last = len(boots) - 1
    while last > 0 and not boots[last].ready and not boots[last].failed and boots[last - 1].failed:
        last -= 1
    return last


def _find(boot: Boot, earlier: Sequence[Boot]) -> tuple[Finding, Verdict | None]:
    situation = Situation(boot=boot, case=boot.case, hit=None, earlier=earlier)
    if not _is_vllms(boot, earlier):
        return not_a_vllm_log.judge(situation), None
    if (event := preemption_thrash.find(boot)) and first_cause(boot) is None:
        return preemption_thrash.judge(situation, event), None
    if (event := request_never_scheduled.find(boot)) and first_cause(boot) is None:
        return request_never_scheduled.judge(situation, event), None
    if verdict := first_cause(boot) or first_refusal(boot):
        return RULES[verdict.cause](msgspec.structs.replace(situation, hit=verdict.hit)), verdict
    return _by_state(situation), None


def _by_state(situation: Situation) -> Finding:
    """What can be said where no message names a cause."""
    boot = situation.boot
    if (event := host_memory_exhausted.find_silent_death(boot)) is not None:
        return host_memory_exhausted.judge_silent_death(situation, event)
    if (error := _unexplained(boot)) is not None:
        return unrecognised_error.judge(error)
    if boot.died:
        return wrapper_only.judge(situation)
    return healthy.judge(situation)


def _unexplained(boot: Boot) -> Unrecognised | None:
    """The first error that the catalogue does not know and that ended the start or the server.

    What usually is the echo of another process's end counts where no line tells of such an end.
    """
    if boot.ready and not boot.died:
        return None
    errors = boot.unrecognised if boot.died or boot.shut_down else [*boot.unrecognised, *boot.echoes]
    return next((error for error in errors if error.ready == boot.ready), None)


def _is_vllms(boot: Boot, earlier: Sequence[Boot]) -> bool:
    if boot.is_vllms or any(one.is_vllms for one in earlier):
        return True
    if not boot.mentions_vllm:
        return False
    return boot.died or any(hit.event.weight > 1 and hit.event.cause != "out-of-memory" for hit in boot.hits)


def _diagnosis(
    boot: Boot, finding: Finding, verdict: Verdict | None, earlier: list[Earlier], boots: int
) -> Diagnosis:
    case = boot.case
    event = finding.event
    lines = [event, *finding.support] if event else list(finding.support)
    if verdict is not None:
        lines += [hit.event for hit in repeats(boot, verdict)]
    evidence = {one.line.number: one.line.text for one in lines[:_EVIDENCE_LINES]}
    wrappers: dict[str, int] = {}
    for wrapper in boot.wrappers:
        wrappers.setdefault(wrapper.id, wrapper.line.number)
    return Diagnosis(
        stage=cast("Stage", finding.stage),
        cause=finding.cause,
        line=event.line.number if event else None,
        severity=finding.severity,
        confidence=_confidence(finding, verdict),
        message=finding.message,
        evidence=[Evidence(number, text.strip()[:_EVIDENCE_CHARACTERS]) for number, text in evidence.items()],
        numbers={**_settings_shown(case), **_facts_shown(boot), **_numbers(finding, verdict)},
        wrappers=[Wrapper(name, line) for name, line in wrappers.items()],
        vllm_version=case.vllm_version,
        boots=boots,
        earlier=earlier,
        process=event.line.process if event else None,
        settings={
            name: setting.value for name, setting in sorted(case.settings.items()) if name in case.given
        },
        budget=[_budget(ledger) for ledger in case.ledgers],
        advice=finding.advice,
        not_advised=finding.not_advised,
    )


def _confidence(finding: Finding, verdict: Verdict | None) -> Any:
    """The rule's confidence, less where the message may be an echo or was never looked at."""
    weight = verdict.weight if verdict else 3
    least = 2 if verdict and verdict.is_guess else {0: 2, 1: 1}.get(weight, 0)
    return _CONFIDENCES[max(_CONFIDENCES.index(finding.confidence), least)]


def _settings_shown(case: Case) -> dict[str, Any]:
    numbers = {name: value for name in _SHOWN if (value := case.number(name)) is not None}
    if case.release:
        numbers.setdefault("gpu_memory_utilization", default_utilization(case.release))
    numbers |= {name: value for name in _SHOWN_ABOVE_ONE if (value := case.whole(name) or 1) > 1}
    if case.is_hybrid and (size := case.whole("block_size")):
        numbers["block_size"] = size
    return numbers


def _facts_shown(boot: Boot) -> dict[str, Any]:
    """The last figures of the boot that vLLM printed about the device and its cache."""
    found: dict[str, Any] = {}
    for event in boot.events:
        for name in _FACTS_SHOWN:
            if event.role == "fact" and name in event.numbers:
                found[name] = event.numbers[name]
    return found


def _numbers(finding: Finding, verdict: Verdict | None) -> dict[str, Any]:
    named = verdict.hit.event.numbers if verdict else {}
    return {
        **{name: value for name, value in named.items() if isinstance(value, int | float)},
        **finding.numbers,
    }


def _budget(ledger: Ledger) -> dict[str, Any]:
    """One rank as ``plan`` shows it; a number without doubt is a plain one."""
    shown: dict[str, Any] = {"rank": int(ledger.rank) if ledger.rank.isdigit() else ledger.rank}
    for name in ledger.__struct_fields__[1:]:
        value = getattr(ledger, name)
        shown[name] = to_builtins(value) if isinstance(value, Quantity) else {"unknown": value.unknown}
    return shown
