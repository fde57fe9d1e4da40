"""What ``/metrics`` says, in the names of every generation of vLLM."""

from hypothesis import given
from hypothesis import strategies as st

from fitserve.verify.metrics import Gauges, parse_metrics

V1_TEXT = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 7.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 5.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="deferred"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5
vllm:num_preemptions_total{engine="0",model_name="m"} 4.0
vllm:num_preemptions_created{engine="0",model_name="m"} 1.79e+09
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 100.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 25.0
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="100",kv_cache_size_tokens="1584"} 1.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.001",model_name="m"} 0.0
"""

V0_TEXT = """\
vllm:num_requests_running{model_name="m"} 2.0
vllm:num_requests_swapped{model_name="m"} 1.0
vllm:num_requests_waiting{model_name="m"} 6.0
vllm:gpu_cache_usage_perc{model_name="m"} 0.9
vllm:num_preemptions_total{model_name="m"} 11.0
vllm:cache_config_info{block_size="16",cache_dtype="auto",num_gpu_blocks="50"} 1.0
"""


def test_the_names_of_v1() -> None:
    """Only requests that wait for room count as waiting; the cache's own token count wins over blocks."""
    expected = Gauges(
        running=3,
        waiting=5,
        kv_cache_usage_fraction=0.5,
        preemptions=4,
        prefix_cache_hit_tokens=25,
        prefix_cache_query_tokens=100,
        kv_cache_tokens=1584,
        kv_cache_blocks=100,
        block_size_tokens=16,
    )

    assert expected == parse_metrics(V1_TEXT)


def test_the_names_of_v0() -> None:
    """Without reasons all waiting count; without a token count it is blocks times block size."""
    expected = Gauges(
        running=2,
        waiting=6,
        kv_cache_usage_fraction=0.9,
        preemptions=11,
        kv_cache_tokens=800,
        kv_cache_blocks=50,
        block_size_tokens=16,
    )

    assert expected == parse_metrics(V0_TEXT)


def test_engines_are_summed_and_the_fullest_cache_counts() -> None:
    """A data-parallel server's requests add up; its fullest cache is the one that matters."""
    second = V1_TEXT.replace('engine="0"', 'engine="1"').replace(
        '_perc{engine="1",model_name="m"} 0.5', '_perc{engine="1",model_name="m"} 0.75'
    )

    gauges = parse_metrics(V1_TEXT + second)

    assert gauges is not None
    assert (6, 10, 8, 3168, 0.75) == (
        gauges.running,
        gauges.waiting,
        gauges.preemptions,
        gauges.kv_cache_tokens,
        gauges.kv_cache_usage_fraction,
    )


def test_another_server_has_none() -> None:
    """A page without vLLM's scheduler is no reading."""
    assert None is parse_metrics("llamacpp:requests_processing 1\nhttp_requests_total 5\n<html>")


@given(st.text(max_size=200), st.sampled_from(V1_TEXT.splitlines()), st.integers(0, 80))
def test_any_text_is_read_without_an_error(noise: str, line: str, cut: int) -> None:
    """Foreign, damaged and cut lines never raise."""
    gauges = parse_metrics(f"{noise}\n{line[:cut]}{noise}\nvllm:num_requests_running 1\n")

    assert gauges is not None
    assert gauges.running is not None


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_a_value_that_is_no_number_is_no_value(value: float) -> None:
    """NaN and infinity are left out, everything else is rounded to a whole count."""
    gauges = parse_metrics(f"vllm:num_requests_running 1\nvllm:num_preemptions_total {value}\n")

    assert gauges is not None
    assert gauges.preemptions is None or abs(gauges.preemptions - value) <= abs(value) * 1e-9 + 0.5
