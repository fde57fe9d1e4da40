"""vLLM's own prefixes: the process tag and the record."""

import re

TAG = re.compile(
    r"\((?P<process>[A-Za-z_][^()\s]{0,80}(?:\([^()\s]{0,80}\))?)"
    r"(?: rank=(?P<rank>\d{1,6})| (?P<place>(?:[A-Z]{2,3}\d{1,4}_?){1,8}))?"
    r" pid=(?P<pid>\d{1,10})(?:, ip=(?P<ip>[0-9a-fA-F.:]{2,45}))?\) ?"
)
"""The tag of a process.

Groups are ``process``, ``rank`` or ``place`` (a rank by dimensions), ``pid`` and ``ip`` (Ray).

Source: vLLM 0.4.2-0.33.0 ``utils`` (``(VllmWorkerProcess pid=972)``, ``(VllmWorker rank=0 pid=972)``, ``(VllmWorker TP0
pid=972)``, ``(Worker_DP0_TP1 pid=972)``) and Ray's ``print_worker_logs`` (``(RayWorkerWrapper pid=972, ip=10.0.0.2)``).
"""

RECORD = re.compile(
    r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<time>\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,]\d{1,9})? "
    r"(?:\[(?P<source>[^\]\s]{1,200}:\d{1,6})\]|(?P<early_source>[^\]\s]{1,200}:\d{1,6})\])(?: |$)"
)
"""The start of a record, up to its message.

Groups are ``level``, ``time`` and ``source`` or ``early_source``.

Source: vLLM ``logger.py``: 0.2.0-0.7.3 ``LEVEL MM-DD HH:MM:SS file.py:LINE] ``; from 0.8.0 ``[file.py:LINE] ``.
"""

_RANK_IN_NAME = re.compile(r"_((?:(?:DP|PP|PCP|TP|DCP|EP)\d{1,4}_?){1,8})$")


def rank_of(tag: re.Match[str]) -> str | None:
    """The rank in a process tag as printed: ``1``, ``TP0`` or ``DP0_PP1_TP0``; None if the tag names none."""
    said: str | None = tag["rank"] or tag["place"]
    if said is None and (named := _RANK_IN_NAME.search(tag["process"])):
        said = named[1]
    return said
