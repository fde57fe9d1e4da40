"""The catalogue's rows are sound: each is found by its own sample, and none is slow."""

from pathlib import Path

import pytest
from packaging.version import Version

import fitserve.diagnose.rules as rules_package
from fitserve.diagnose.rules.registry import RULES
from fitserve.facts.line import Line
from fitserve.facts.messages.catalogue import catalogue, needles
from fitserve.facts.messages.template import Template

MESSAGES = catalogue().messages
HOSTILE = [
    "(" * 20_000,
    "a" * 20_000,
    "1" * 20_000,
    "1," * 10_000,
    "max_model_len (" * 1_500,
    "CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of " * 260,
    "To serve at least one request with the model's max seq len (1), (" * 300,
    "'" * 20_000,
    "\u2588" * 10_000,
    "Failed core proc(s): {'" * 900,
]


def a_line(text: str) -> Line:
    """A line with this text."""
    return Line(number=1, text=text)


def test_a_sample_is_its_own_message_first() -> None:
    """The sample of a message is that message before any other."""
    found = {message.id: next(iter(catalogue().events(a_line(message.sample))), None) for message in MESSAGES}

    assert {} == {name: event for name, event in found.items() if event is None or event.id != name}


def test_ids_are_unique() -> None:
    """No two rows share an id."""
    assert len(MESSAGES) == len({message.id for message in MESSAGES})


def test_every_named_cause_has_a_rule() -> None:
    """A message that names a cause names one that a rule explains; out of memory waits for its phase."""
    named = {message.cause for message in MESSAGES if message.cause} - {"out-of-memory"}

    assert set() == named - RULES.keys()


def test_only_causes_name_causes() -> None:
    """A fact, a hint or a wrapper names no cause; a cause names one."""
    assert [] == [
        message.id for message in MESSAGES if (message.role == "cause") != (message.cause is not None)
    ]


def test_needles_stand_in_their_messages() -> None:
    """The text that is searched for first is literal text of the message, long enough to be rare."""
    for message in MESSAGES:
        assert message.needle in message.sample, message.id
        assert len(message.needle) >= 6, message.id

    assert all(needle for needle in needles())


def test_versions_are_in_order() -> None:
    """The first release that prints a message is not after the last one."""
    wrong = [
        message.id
        for message in MESSAGES
        if message.first and message.last and Version(message.first) > Version(message.last)
    ]

    assert [] == wrong


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_no_message_is_slow(number: int) -> None:
    """Long lines that nearly match take every template without a match and without a retry that grows with the line."""
    line = HOSTILE[number]
    for message in MESSAGES:
        template = Template(message.text)
        template.match(line)
        template.match(template._start * 400 + line)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("OSError: [Errno 28] No space left on device: '/dev/shm/psm_1'", "shm-too-small"),
        ("OSError: [Errno 28] No space left on device: '/root/.cache/vllm/x'", "disk-full"),
        (
            "RuntimeError: Worker failed with error 'CUDA out of memory. Tried to allocate 7.00 GiB",
            "out-of-memory",
        ),
        ("vllm serve: error: unrecognized arguments: --swap-space 4", "unknown-flag"),
    ],
)
def test_the_plainer_message_wins(text: str, cause: str) -> None:
    """Where a line is several messages, the one that says most names it."""
    found = next(event for event in catalogue().events(a_line(text)) if event.role == "cause")

    assert cause == found.cause


def test_a_whole_line_message_is_the_whole_line() -> None:
    """``Killed`` is a message only where it is all that a line says."""
    assert catalogue().events(a_line("Killed"))
    assert not catalogue().events(a_line("Killed the radio star"))


def test_every_rule_has_a_page() -> None:
    """Each cause that a rule names has its page beside it."""
    folder = Path(rules_package.__file__).parent
    missing = [cause for cause in RULES if not (folder / f"{cause.replace('-', '_')}.md").exists()]

    assert [] == missing
