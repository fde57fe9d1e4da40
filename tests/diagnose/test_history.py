"""The version table answers as the releases behave."""

import pytest

from fitserve.memory.history import at_least, default_batch, default_utilization, has_flag, reserves_graphs

GIB = 1 << 30


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        ("swap_space", "0.17.1", True),
        ("swap_space", "0.18.0", False),
        ("kv_cache_memory_bytes", "0.10.1", False),
        ("kv_cache_memory_bytes", "0.10.2", True),
        ("VLLM_ATTENTION_BACKEND", "0.14.1", True),
        ("VLLM_ATTENTION_BACKEND", "0.15.0", False),
        ("attention_backend", "0.12.0", False),
        ("skip_mm_profiling", "0.10.1", True),
        ("a_flag_nobody_listed", "0.2.0", True),
        ("max_cudagraph_capture_size", None, True),
        ("swap_space", "dev", False),
    ],
)
def test_flags_exist_in_their_releases(name: str, version: str | None, *, expected: bool) -> None:
    """A flag is there from its first to its last release; an unknown version counts as the newest."""
    assert expected == has_flag(name, version)


@pytest.mark.parametrize(
    ("version", "expected"), [("0.6.3", 0.9), ("0.19.1", 0.9), ("0.20.0", 0.92), (None, 0.92)]
)
def test_the_default_share_rose_once(version: str | None, expected: float) -> None:
    """The default utilization is 0.90 to 0.19.1 and 0.92 from 0.20.0 on."""
    assert expected == default_utilization(version)


@pytest.mark.parametrize(
    ("version", "variable", "expected"),
    [
        ("0.17.1", "1", False),
        ("0.18.0", None, False),
        ("0.18.0", "1", True),
        ("0.20.0", None, True),
        ("0.27.1", "0", False),
    ],
)
def test_graphs_are_reserved_by_version_and_variable(
    version: str, variable: str | None, *, expected: bool
) -> None:
    """The graphs' estimate comes out of the cache by default from 0.20.0 on, with the variable from 0.18."""
    assert expected == reserves_graphs(version, variable)


def test_large_devices_get_large_batches() -> None:
    """The default batch of a server grows with the device: 70 GiB and, from 0.28.0, 160 GiB are the steps."""
    assert default_batch("0.19.0", 24 * GIB).max_num_batched_tokens == 2048
    assert default_batch("0.19.0", 80 * GIB).max_num_batched_tokens == 8192
    assert default_batch("0.28.0", 180 * GIB).max_num_batched_tokens == 16384
    assert default_batch("0.19.0", None).max_num_seqs == 256


def test_post_releases_are_ordered() -> None:
    """A post release comes after its release."""
    assert at_least("0.6.3.post1", "0.6.3")
    assert not at_least("0.6.3", "0.6.3.post1")
