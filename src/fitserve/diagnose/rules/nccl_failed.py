"""Collective communication cannot start.

Source: NCCL, Gloo and PyTorch print these; vLLM ``distributed/device_communicators/pynccl.py`` passes them on.
"""

from fitserve.diagnose.finding import Advice
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid, change

CAUSE = "nccl-failed"
STAGE = "environment"
_PEER = ("nccl-warn-peer", "custom-allreduce-invalid")
_NETWORK = (
    "nccl-warn-socket",
    "nccl-warn-connect",
    "nccl-warn-connect-old",
    "nccl-warn-ib",
    "gloo-mesh",
    "gloo-interface",
    "store-timeout-clients",
    "store-timeout-connect",
    "store-connect-failed",
    "unique-ip",
)


def judge(situation: Situation) -> Finding:
    """Tell peer access, network and libraries apart."""
    reason = situation.number("reason")
    name = situation.event.id
    if name in _PEER or "peer access" in str(reason):
        message = "two devices of this machine cannot reach each other's memory"
    elif name in _NETWORK:
        message = "the ranks cannot reach each other over the network"
    else:
        message = "collective communication cannot start" + (f": {str(reason)[:120]}" if reason else "")
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=message,
        event=situation.event,
        confidence="certain" if situation.event.weight > 1 else "likely",
        advice=_advice(situation, name),
        not_advised=[avoid("gpu_memory_utilization", None, "nothing has asked for memory yet")],
    )


def _advice(situation: Situation, name: str) -> list[Advice]:
    peer = change(
        situation,
        "NCCL_P2P_DISABLE",
        "1",
        "set",
        "speed",
        "the ranks then talk through host memory instead of peer access",
    )
    interface = change(
        situation,
        "NCCL_SOCKET_IFNAME",
        "eth0",
        "set",
        "free",
        "name the interface that reaches the other ranks",
    )
    fix = act(
        "fix-nccl",
        "NCCL_DEBUG=INFO shows which transport fails; nccl-tests prove it without vLLM",
        option="NCCL_DEBUG=INFO",
    )
    if name in _NETWORK:
        return [fix, *interface]
    return [*peer, fix]
