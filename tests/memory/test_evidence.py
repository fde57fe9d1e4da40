"""Which measured starts count as evidence, and for what."""

from typing import Any

import pytest

from bench.evidence.starts import is_its_model, releases_of
from bench.evidence.terms import Term, share_held_out


@pytest.mark.parametrize(
    ("words", "engine", "first", "last", "count"),
    [
        ("0.19.0", "v1", "0.19.0", "0.19.0", 1),
        ("0.11.0rc2.dev98", "v1", "0.11.0", "0.11.0", 1),
        ("0.7.x", "v0", "0.7", "0.7", 1),
        ("0.10.0 (NIM 1.12.2)", "v0", "0.10.0", "0.10.0", 1),
        ("0.18-0.19", "v1", "0.18.0", "0.19.0", 2),
        (None, "v0", "0.6.0", "0.10.0", 5),
        (None, "v1", "0.8.0", "0.33.0", 26),
    ],
)
def test_the_releases_that_a_start_may_be(
    words: str | None, engine: str, first: str, last: str, count: int
) -> None:
    """A named release, a named range, or all of the engine's."""
    found = releases_of({"vllm_version": words, "engine": engine})

    assert (found[0], found[-1], len(found)) == (first, last, count)


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ({"model_match": "exact"}, True),
        ({"model_id": "GLM-5"}, True),
        ({"model_id": "other/GLM-5"}, False),
        ({"model_check": "VERIFIED", "weights_gib": 14.2}, True),
        ({"model_check": "VERIFIED"}, False),
        ({"model_check": "KV ONLY", "weights_gib": 14.2}, False),
    ],
)
def test_a_guessed_model_counts_only_where_it_is_shown(changes: dict[str, Any], counts: bool) -> None:
    """By its whole name, or by weights and cache that were printed."""
    row = {
        "model_match": "same shape (inferred)",
        "model_config": "zai-org/GLM-5",
        "model_id": "GLM-5 class",
        "model_check": None,
        "weights_gib": None,
    }

    assert is_its_model({**row, **changes}) == counts


def test_held_out_takes_a_groups_level_from_the_others() -> None:
    """Two groups that each hold their own figures, a step apart: neither holds the other's level."""
    terms: list[Any] = [
        Term(group, "activation", printed - 0.1, printed, printed + 0.1, printed + step, 0.0)  # type: ignore[arg-type]
        for group, step in (("a", 0.0), ("b", 0.09), ("b", 0.09))
        for printed in (1.0, 2.0)
    ]

    assert share_held_out(terms, lambda group: group) == pytest.approx(1.0)
    moved = [term._replace(printed=term.printed + 0.2) if term.start == "b" else term for term in terms]
    assert share_held_out(moved, lambda group: group) == 0.0
