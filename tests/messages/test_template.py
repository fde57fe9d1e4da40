"""A template keeps what its holes say, and nothing makes it slow."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitserve.facts.messages.template import Template, size_gib

KV = Template(
    "needs ({needed_gib:dec} GiB), has {available_gib:dec} GiB of {tokens:int} tokens on {device:word} {}now"
)
UNQUOTED = st.text(
    alphabet=st.characters(blacklist_categories=["Zs", "Zl", "Zp", "Cc", "Cs"]), min_size=1, max_size=12
).filter(lambda text: not text.isspace() and text.split() == [text])


@given(
    needed=st.decimals(0, 10**6, places=2),
    available=st.decimals(-(10**3), 10**6, places=2),
    tokens=st.integers(0, 10**12),
    device=UNQUOTED,
)
def test_numbers_come_back_as_they_were_printed(
    needed: Any, available: Any, tokens: int, device: str
) -> None:
    """Values printed into a message are the values read from it, grouped thousands included."""
    line = (
        f"ValueError: needs ({needed} GiB), has {available} GiB of {tokens:,} tokens on {device} or so now."
    )

    found = KV.match(line)

    assert found is not None
    assert float(needed) == found["needed_gib"]
    assert float(available) == found["available_gib"]
    assert tokens == found["tokens"]
    assert device == found["device"]
    assert {"needed_gib": str(needed), "available_gib": str(available)} == found["printed"]


@given(st.text())
def test_any_text_is_matched_or_not(text: str) -> None:
    """No text raises, and a template that stands in a text is found there."""
    KV.match(text)

    assert KV.match(text + "needs (1.00 GiB), has 2 GiB of 3 tokens on gpu0 now") is not None


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("271.97 MiB", 0.265596),
        ("1.03 GiB", 1.03),
        ("512 bytes", 0.0),
        ("2.00 TiB", 2048.0),
        ("8.00 GB", 8.0),
    ],
)
def test_sizes_are_gib(printed: str, expected: float) -> None:
    """A printed size is GiB, to four decimals; PyTorch's GB are binary too."""
    assert expected == size_gib(printed)


def test_a_hole_stops_at_the_first_literal() -> None:
    """A hole takes the shortest text up to what follows it."""
    template = Template("model '{model}' is '{state}'")

    assert {"model": "a", "state": "b"} == template.match("model 'a' is 'b' and 'c' is 'd'")


def test_braces_can_be_written() -> None:
    """Doubled braces are braces."""
    assert {"settings": "'model': 'a'}"} == Template("args: {{{settings}").match("args: {'model': 'a'}")


def test_neighbouring_holes_are_refused() -> None:
    """A template whose holes touch says nothing about where one ends, so it cannot be made."""
    with pytest.raises(ValueError, match="two holes"):
        Template("a {}{} b")


def test_patterns_never_give_back() -> None:
    """Whatever a template holds, its pattern repeats nothing that it could retry: atomic groups and possessive numbers."""
    template = Template("a {} b {x} c {n:int} d {f:dec} e {s:size} f {w:word} g {rest}")
    pattern = re.sub(r"\(\?>\(\?(?:P<\w+>|:)\.\*\?\)[^()]*\)", "", template._pattern.pattern)
    repeats = re.findall(
        r"(?<!\\)(?:[*+?]|\{\d+\})(?![:P])[*+?]?", pattern.replace("(?:", "(").replace("(?P", "(")
    )

    assert {repeat for repeat in repeats if not repeat.endswith("+")} <= {"?", "{3}"}
