"""What loggers and platforms put in front of a line, as patterns.

Every pattern is matched at the start of what is left of a line, again and again, so that they nest in any order. Their
groups are ``time``, ``level``, ``origin``, ``process``, ``pid``, ``rank`` and ``part`` (CRI's mark of a split line). No
pattern has an unbounded repetition next to another one: a hostile line costs no more than its length.
"""

import re
from functools import cache

AFTER_STAMP = re.compile(
    r"(?P<origin>[\w.-]{1,200}) (?P<process>kernel|[^\s:\[\]()]{1,100}(?=\[))(?:\[(?P<pid>\d{1,10})\])?:(?: |$)"
)
"""What stands behind the stamp of ``journalctl -o short-iso``, ``short-full`` and ``short-monotonic``."""

LEVELS = {
    "D": "DEBUG",
    "I": "INFO",
    "W": "WARNING",
    "E": "ERROR",
    "F": "CRITICAL",
    "C": "CRITICAL",
    "WARN": "WARNING",
    "FATAL": "CRITICAL",
    "SEVERE": "ERROR",
}
"""Names of levels that are not Python's; glog writes one letter."""

_LEVEL = r"(?P<level>DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)"
_DAY = r"\d{4}[-/]\d\d[-/]\d\d"
_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_STAMP = _DAY + r"(?:[T ]|, )" + _CLOCK + r"(?:Z| ?[+-]\d\d:?\d\d| UTC)?"
_SYSLOG_DAY = r"(?:[^\W\d_]{3,5}\.?|\d{1,2}\N{CJK UNIFIED IDEOGRAPH-6708}) [ \d]\d "

_SYSLOG = (
    rf"(?P<time>{_SYSLOG_DAY}{_CLOCK}) (?P<origin>[\w.-]{{1,200}}) "
    r"(?P<process>[a-z][^\s:\[\]()]{0,100}|[^\s:\[\]()]{1,100}(?=\[))(?:\[(?P<pid>\d{1,10})\])?:(?: |$)"
)
_HEADER = (
    rf"<\d{{1,3}}>1 (?P<time>{_STAMP}) (?P<origin>\S{{1,200}}) (?P<process>\S{{1,100}}) "
    rf"(?:(?P<pid>\d{{1,10}})|-) \S{{1,40}} (?:-|\[[^\]]{{0,400}}\])(?: |$)"
)
_COMPOSE = r"(?P<origin>[A-Za-z0-9][\w.@-]{0,200}) *\|(?: |$)"

_BY_FIRST: dict[str, tuple[str, ...]] = {
    "digit": (
        _COMPOSE,
        # CRI (containerd, CRI-O), kubectl and docker logs --timestamps, GitHub Actions, GitLab, loguru, Python's logging
        rf"(?P<time>{_STAMP})(?: std(?:out|err) (?P<part>[FP])(?: |$)| \d\d[OE](?:[+ ]|$)|[ \t]|$)",
        rf"(?P<time>{_CLOCK})[ \t]",
        # CloudWatch's milliseconds
        r"(?P<time>\d{13})[ \t]",
        # a table of comma-separated values: Grafana, CloudWatch
        rf'(?P<time>{_STAMP}|\d{{13}}),"?',
        # KServe's Python server, after its stamp
        rf"(?P<pid>\d{{1,10}}) \w{{1,40}} {_LEVEL} \[[^\]\s]{{1,200}}\] ",
        # pm2
        r"\d{1,4}\|(?P<origin>[\w.-]{1,80}) *\| ",
        # journald where months are numbers
        _SYSLOG,
    ),
    "letter": (
        _COMPOSE,
        # uvicorn and logging.basicConfig
        rf"{_LEVEL}:(?:[\w.-]{{1,100}}:| {{1,9}})",
        # journald and syslog
        _SYSLOG,
        # journalctl -o short-full: a weekday before the stamp
        rf"[^\W\d_]{{2,4}} (?={_DAY} )",
        # ts of moreutils
        rf"(?P<time>{_SYSLOG_DAY}{_CLOCK}) ",
        # glog: Triton's core, absl, torch's Python loggers
        rf"(?P<level>[IWEF])(?P<time>\d{{4}} {_CLOCK}) {{1,9}}(?:(?P<pid>\d{{1,10}}) )?[^\s\]]{{1,200}}:\d{{1,6}}\](?: |$)",
        # Ray's Python loggers, after their stamp
        rf"{_LEVEL} [\w./-]{{1,100}}:\d{{1,6}} -- ",
        rf"{_LEVEL} (?P<time>{_STAMP}) \S{{1,100}} (?P<pid>\d{{1,10}}) (?:\S{{1,100}} )?-- ",
        # pytest's lines of an exception
        r"E {3,12}(?=\S)|E {3}",
    ),
    "[": (
        # torch.distributed's excepthook, torchrun, mpirun
        r"\[rank(?P<rank>\d{1,5})\]: ?",
        r"\[default(?P<rank>\d{1,5})\]:",
        r"\[\d{1,5},(?P<rank>\d{1,5})\]<std(?:out|err)>: ?",
        # torch's C++ loggers
        rf"\[(?P<level>[IWEFC])(?P<time>\d{{3,4}} {_CLOCK})? [^\s\]]{{1,200}}:\d{{1,6}}\](?: |$)",
        # kubectl logs --prefix
        r"\[(?P<origin>pod/[^\]\s]{1,200})\](?: |$)",
        # Jenkins, Airflow, DeepSpeed, gunicorn
        rf"\[(?P<time>{_STAMP})\](?: |$)",
        rf"\[(?P<time>{_CLOCK})\](?: |$)",
        # SGLang
        rf"\[(?P<time>{_STAMP}) (?P<rank>(?:[A-Z]{{2,3}}\d{{1,4}} ?){{1,5}})\](?: |$)",
        # Ray's C++ loggers
        rf"\[(?P<time>{_STAMP}) (?P<level>[IWEFCD]) (?P<pid>\d{{1,10}}) \d{{1,10}}\] (?:\(\w{{1,40}}\) )?[\w./]{{1,200}}:\d{{1,6}}:(?: |$)",
        # transformers and LLaMA-Factory
        rf"\[{_LEVEL}\|[^\]]{{1,200}}\] [^\s>][^>]{{0,200}} >> ",
        # dmesg, dmesg -T and journalctl -o short-monotonic
        r"\[(?P<time> {0,8}\d{1,10}\.\d{3,6})\](?: |$)",
        rf"\[(?P<time>[A-Z][a-z]{{2}} [A-Z][a-z]{{2}} [ \d]\d {_CLOCK} \d{{4}})\](?: |$)",
        # an id and the platform's name for stdout and stderr: RunPod
        r"\[[\w.-]{1,80}\] \[(?:info|error|warning|debug)\](?: |$)",
        # gunicorn's process before its level
        r"\[(?P<pid>\d{1,10})\] (?=\[[A-Z]{4,8}\])",
        rf"\[{_LEVEL}\](?: |$)",
    ),
    "|": (
        # FastChat's relay of a stream, after its stamp
        r"\| [A-Z]{4,8} {0,9}\| std(?:out|err) \|(?: |$)",
        # loguru, after its stamp
        rf"\| {_LEVEL} {{0,9}}\| (?:[\w.<>-]{{1,200}}(?::[\w.<>-]{{1,200}}){{0,3}} (?:-|\|) )?",
    ),
    "-": (
        # Python's logging with the commonest formats, after their stamp
        rf"- (?:[\w.]{{1,200}} - )?{_LEVEL} - (?:[\w.]{{1,200}}(?::\d{{1,6}})? - )?",
    ),
    "{": (
        # Airflow, after its stamp
        rf"\{{[\w./]{{1,200}}:\d{{1,6}}\}} {_LEVEL} - ",
    ),
    "<": (
        # syslog's priority, and the header of RFC 5424
        _HEADER,
        r"<\d{1,3}>(?=[A-Z]|\d{4}-)",
    ),
    "^": (
        # what a terminal shows of a key
        r"\^[CZ\\]",
    ),
    "#": (
        # GitHub Actions
        r"##\[(?:error|warning|notice|debug|group|endgroup|command|section)\]",
    ),
    "(": (
        # Ray's own processes
        r"\((?P<process>raylet|autoscaler|gcs_server)(?:[ ,][^()]{0,60})?\)(?: |$)",
        r"\(pid=(?P<pid>\d{1,10})(?:, ip=[0-9a-fA-F.:]{2,45})?\)(?: |$)",
    ),
    ">": (
        # a quotation in Markdown or a mail
        r">(?: |$)",
    ),
}


@cache
def _compiled(first: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern) for pattern in _BY_FIRST.get(first, ()))


def patterns_for(text: str) -> tuple[re.Pattern[str], ...]:
    """The patterns that can match at the start of the text."""
    first = text[:1]
    if first.isdigit():
        return _compiled("digit")
    if first.isalpha():
        return _compiled("letter")
    return _compiled(first)
