"""The edge of the context: what is asked there, and what counts as keeping the promise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitserve.verify.answer import Answer
from fitserve.verify.boundary import Edge, edges, judge_accepted, judge_refusal

LENGTH = 1000


@given(st.integers(16, 2_000_000), st.booleans())
def test_accepted_edges_fit_and_refused_ones_do_not(max_model_len: int, generates: bool) -> None:
    """What must be answered is within the length and reaches it exactly; what must be refused is beyond it."""
    asked = edges(max_model_len, generates=generates)
    out = 1 if generates else 0

    accepted = [edge.prompt_tokens + edge.max_tokens for edge in asked if not edge.refused]
    refused = [edge.prompt_tokens + edge.max_tokens * out for edge in asked if edge.refused]
    assert max_model_len == max(accepted)
    assert sorted(accepted) == accepted
    assert max_model_len - 1 in accepted
    assert max_model_len + 1 == min(refused)


def test_names_are_stable() -> None:
    """The names of the checks, which others rely on."""
    assert [
        "boundary-quarter",
        "boundary-half",
        "boundary-three-quarters",
        "boundary-one-below",
        "boundary-exact",
        "boundary-over",
        "boundary-prompt-over",
        "boundary-output-over",
    ] == [edge.name for edge in edges(LENGTH, generates=True)]


EDGE = Edge(name="boundary-exact", prompt_tokens=996, max_tokens=4)


@pytest.mark.parametrize(
    ("answer", "whole_output", "error_type"),
    [
        (Answer(status=200, prompt_tokens=996, output_tokens=4), True, None),
        (Answer(status=200, prompt_tokens=996, output_tokens=1), False, None),
        (Answer(status=200, prompt_tokens=996, output_tokens=1), True, "wrong-count"),
        (Answer(status=200, prompt_tokens=996, output_tokens=0), False, "wrong-count"),
        (Answer(status=200, prompt_tokens=996, output_tokens=5), False, "wrong-count"),
        (Answer(status=200, prompt_tokens=990, output_tokens=4), True, "wrong-count"),
        (Answer(status=200, output_tokens=4), True, "not-counted"),
        (Answer(status=400, error_type="request-too-long"), True, "request-too-long"),
        (Answer(error_type="timeout"), True, "timeout"),
    ],
)
def test_an_accepted_request_is_counted_exactly(
    answer: Answer, whole_output: bool, error_type: str | None
) -> None:
    """Answered is not enough: the server must have counted what was sent, so nothing was cut silently."""
    assert error_type == judge_accepted(EDGE, answer, whole_output=whole_output)[0]


@pytest.mark.parametrize(
    ("answer", "may_be_cut", "error_type"),
    [
        (Answer(status=400, error_type="request-too-long"), False, None),
        (Answer(status=400, error_type="max-tokens-too-large"), False, None),
        (Answer(status=413, error_type="request-too-long"), False, "request-too-long"),
        (Answer(status=400, error_type="http-400"), False, "http-400"),
        (Answer(status=500, error_type="http-500"), False, "http-500"),
        (Answer(error_type="timeout"), False, "timeout"),
        (Answer(status=200, prompt_tokens=996, output_tokens=4), False, "over-length-accepted"),
        (Answer(status=200, prompt_tokens=996, output_tokens=4), True, None),
        (Answer(status=200, prompt_tokens=996, output_tokens=5), True, "over-length-accepted"),
        (Answer(status=200, prompt_tokens=500, output_tokens=4), True, "over-length-accepted"),
    ],
)
def test_a_refusal_is_a_400_for_the_length(answer: Answer, may_be_cut: bool, error_type: str | None) -> None:
    """Only 400 with words about length is the right refusal; an output may end at the length, a prompt may not be cut."""
    edge = Edge(
        name="boundary-output-over", prompt_tokens=996, max_tokens=1001, refused=True, may_be_cut=may_be_cut
    )

    assert error_type == judge_refusal(edge, answer, LENGTH)[0]
