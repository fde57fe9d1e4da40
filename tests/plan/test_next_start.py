"""A plan from one start's log beside what the next start of the same model, device and release printed."""

from pathlib import Path

import pytest

from bench.evidence.models import published_folder
from bench.evidence.pairs import Pair, pairs_of
from bench.evidence.starts import read_starts

SHARED = Path(__file__).parents[3] / "shared"

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not SHARED.exists(), reason="the reference folder is not beside the checkout"),
    pytest.mark.skipif(published_folder() is None, reason="aiconfigurator-core is not installed"),
]


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    """Every pair of starts that differ in their settings."""
    return pairs_of(read_starts(SHARED)[0])


def test_the_next_start_is_within_half_a_percent(pairs: list[Pair]) -> None:
    """Whatever was changed: the length, the type, the ranks, the stages, the cache's type."""
    far = [
        (pair.second.row["id"], pair.changed, round(pair.error, 4)) for pair in pairs if pair.error > 0.005
    ]

    assert 200 < len(pairs)
    assert far == []


def test_the_interval_holds_it(pairs: list[Pair]) -> None:
    """And it is much narrower than a plan's without a log."""
    widths = [(pair.cache.high - pair.cache.low) / pair.cache.expected for pair in pairs]

    assert all(pair.is_held for pair in pairs)
    assert sorted(widths)[len(widths) // 2] < 0.02
