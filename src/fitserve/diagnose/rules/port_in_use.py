"""The address is taken.

Source: Python, PyTorch's TCP store, ZeroMQ and the container runtime print these.
"""

import re

from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid

CAUSE = "port-in-use"
STAGE = "environment"
_PORT = re.compile(r"[:, ](\d{2,5})\b(?!\.)")

_INTERNAL = tuple(f"port-in-use-{name}" for name in ("listen", "bind-torch", "eaddr", "zmq"))
"""Between vLLM's own processes; the server's port plays no part."""


def judge(situation: Situation) -> Finding:
    """Name the port."""
    internal = situation.event.id.startswith(_INTERNAL)
    given = None if internal else situation.case.whole("port")
    port = situation.number("port") or _from_text(situation) or given
    which = f"port {port}" if port else "the address"
    flag = "VLLM_PORT or MASTER_PORT" if internal else "--port"
    other = act("other-port", f"{which} has an owner", option=f"{flag} {port + 1 if port else ''}".strip())
    stop = act(
        "stop-other-server",
        "the last server may still be shutting down",
        option=f"ss -ltnp | grep {port or ''}".strip(),
    )
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=f"{which} is taken",
        event=situation.event,
        numbers={"port": port} if port else {},
        advice=[other, stop],
        not_advised=[avoid("gpu_memory_utilization", None, "a port is taken, memory plays no part")],
    )


def _from_text(situation: Situation) -> int | None:
    found = _PORT.findall(str(situation.number("address") or ""))
    return int(found[-1]) if found else None
