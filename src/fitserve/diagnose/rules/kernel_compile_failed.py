"""nvcc, ptxas, Triton, FlashInfer or inductor cannot build.

Source: the compilers print these; vLLM passes them on (``Ninja build failed``, ``InductorError``).
"""

from fitserve.diagnose.finding import Advice
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid, change

CAUSE = "kernel-compile-failed"
STAGE = "environment"
_COMPILER = (
    "kernel-no-c-compiler",
    "kernel-no-python-h",
    "kernel-called-process",
    "kernel-header-missing",
    "kernel-no-ninja",
)
_TOOLKIT = (
    "kernel-nvcc",
    "kernel-ptxas",
    "kernel-cuda-home",
    "kernel-gcc",
    "kernel-ninja",
    "kernel-deepgemm",
    "kernel-building",
)
_INDUCTOR = ("kernel-inductor", "kernel-dynamo", "kernel-triton", "kernel-compile-corrupt", "compile-")


def judge(situation: Situation) -> Finding:
    """Name the tool that failed, and what it lacks."""
    event = situation.event
    reason = situation.number("reason")
    said = f": {str(reason)[:120]}" if reason else ""
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=f"{_tool(event.id)} cannot build a kernel for this device{said}",
        event=event,
        confidence="certain" if event.weight > 1 else "likely",
        advice=_advice(situation),
        not_advised=[avoid("gpu_memory_utilization", None, "a compiler failed, memory plays no part")],
    )


def _tool(message_id: str) -> str:
    tools = {
        "ptxas": "ptxas",
        "nvcc": "nvcc",
        "triton": "Triton",
        "inductor": "inductor",
        "ninja": "ninja",
        "gcc": "the compiler",
    }
    return next((tool for word, tool in tools.items() if word in message_id), "the toolchain")


def _advice(situation: Situation) -> list[Advice]:
    name = situation.event.id
    compiler = act(
        "install-compiler",
        "gcc, the headers of Python and ninja must be there",
        option="apt-get install build-essential",
    )
    toolkit = act("newer-cuda-toolkit", "the toolkit in the image must know this device")
    sampler = change(
        situation,
        "VLLM_USE_FLASHINFER_SAMPLER",
        "0",
        "set",
        "speed",
        "the sampler then needs no kernel built at start",
    )
    eager = change(situation, "enforce_eager", True, "set", "speed", "nothing is compiled by inductor")
    if name.startswith(_COMPILER):
        return [compiler, *eager]
    if name.startswith(_INDUCTOR):
        return [
            *eager,
            act("upgrade-vllm", "a version whose compiler pass knows this model and device"),
            compiler,
        ]
    return [toolkit, *sampler, compiler]
