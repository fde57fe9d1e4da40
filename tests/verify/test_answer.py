"""Foreign JSON is read without surprise, and a refusal gets its name in every release's words."""

import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fitserve.verify.answer import (
    Answer,
    entry,
    error_message,
    generated_text,
    http_error_type,
    miscount,
    usage,
    whole_number,
)
from fitserve.verify.checks import judge_generation, judge_pooling

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "message",
                    "delta",
                    "content",
                    "text",
                    "usage",
                    "prompt_tokens",
                    "error",
                    "detail",
                    "data",
                    "embedding",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)

# status, message, name
REFUSALS = [
    (404, "The model `nope` does not exist.", "model-name-unknown"),
    (404, "The model `nope` does not exist. Valid aliases: tiny.", "model-name-unknown"),
    (404, 'model "nope" not found, try pulling it first', "model-name-unknown"),
    (404, "Not Found", "http-404"),
    (
        400,
        "This model's maximum context length is 2048 tokens. However, you requested 2052 tokens (2048 in the messages, 4 in the completion). Please reduce the length of the messages or completion.",
        "request-too-long",
    ),
    (
        400,
        "The decoder prompt (length 2049) is longer than the maximum model length of 2048. Make sure that `max_model_len` is no smaller than the number of text tokens.",
        "request-too-long",
    ),
    (
        400,
        "The prompt (total length 2100) is too long to fit into the model (context length 2048).",
        "request-too-long",
    ),
    (400, "Prompt length of 2050 is longer than the maximum model length of 2048.", "request-too-long"),
    (400, "Input length (2049) exceeds model's maximum context length (2048).", "request-too-long"),
    (400, "the request exceeds the available context size, try increasing it", "request-too-long"),
    (
        400,
        "'max_tokens' or 'max_completion_tokens' is too large: 3000. This model's maximum context length is 2048 tokens",
        "max-tokens-too-large",
    ),
    (
        400,
        "max_tokens=2049 cannot be greater than max_model_len=2048. Please request fewer",
        "max-tokens-too-large",
    ),
    (400, "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)", "max-tokens-too-large"),
    (
        400,
        "As of transformers v4.44, default chat template is no longer allowed, so you must provide a chat template if the tokenizer does not define one.",
        "no-chat-template",
    ),
    (400, "The model does not support Chat Completions API", "not-supported"),
    (501, "The model does not support Embeddings API", "not-supported"),
    (400, "Token id 5000 is out of vocabulary", "http-400"),
    (400, "[{'type': 'extra_forbidden', 'loc': ('body', 'ignore_eos')}]", "http-400"),
    (401, "Unauthorized", "http-401"),
    (500, "EngineCore encountered an issue. See stack trace (above) for the root cause.", "http-500"),
    (503, "The request queue is full", "http-503"),
]


@pytest.mark.parametrize(("status", "message", "name"), REFUSALS)
def test_a_refusal_has_a_name(status: int, message: str, name: str) -> None:
    """The status and the words decide what kind of refusal it is; a refusal of another kind is not taken for one of length."""
    assert name == http_error_type(status, message)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": {"message": "words", "type": "BadRequestError"}}, "words"),
        ({"error": "words"}, "words"),
        ({"object": "error", "message": "words", "code": 400}, "words"),
        ({"detail": "words"}, "words"),
        ({"detail": [{"msg": "words"}]}, "[{'msg': 'words'}]"),
        ({"choices": []}, ""),
        (None, ""),
    ],
)
def test_the_words_of_an_error(body: object, message: str) -> None:
    """Every shape of an error body gives its words."""
    assert message == error_message(body)


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        ({"text": "a"}, "a"),
        ({"message": {"content": "a"}}, "a"),
        ({"delta": {"content": "a"}}, "a"),
        ({"message": {"content": None, "reasoning_content": "a"}}, "a"),
        ({"delta": {"reasoning": "a"}}, "a"),
        ({"delta": {"role": "assistant", "content": ""}}, ""),
        ({"message": {"content": None, "tool_calls": []}}, ""),
    ],
)
def test_generated_text_is_found(choice: object, text: str) -> None:
    """Text, message, piece of a stream or reasoning: the generated text is found."""
    assert text == generated_text(choice)


@given(JSON)
def test_any_json_is_read_without_an_error(body: object) -> None:
    """Whatever JSON a server sends, reading it never raises, and a judgement always has words."""
    error_message(body)
    generated_text(entry(body, "choices", 0))
    answer = Answer(status=200, body=body, prompt_tokens=usage(body)[0], output_tokens=usage(body)[1])

    for judge in (judge_generation, judge_pooling):
        error_type, words = judge(answer)
        assert words
        assert error_type is None or error_type


@given(st.booleans() | st.none() | st.floats() | st.text())
def test_a_count_is_an_integer(value: object) -> None:
    """Only integers count tokens."""
    assert None is whole_number(value)


def test_a_vector_counts_its_numbers() -> None:
    """Embeddings, pooled rows, probabilities and scores are all numbers."""
    for first in ({"embedding": [0.1, 2]}, {"data": [[0.1], [2]]}, {"probs": [0.1, 0.9]}):
        assert (None, "2 numbers") == judge_pooling(Answer(status=200, body={"data": [first]}))
    assert (None, "1 numbers") == judge_pooling(Answer(status=200, body={"data": [{"score": 0.5}]}))


@pytest.mark.parametrize(
    ("values", "error_type"),
    [
        ([0.1, None], "not-a-number"),
        ([None], "not-openai-compatible"),
        ([0.0, 0], "empty-answer"),
        ([[[0.5]], [["x"]]], "not-a-number"),
        (functools.reduce(lambda inner, _: [inner], range(900), 0.5), "not-openai-compatible"),
    ],
)
def test_a_vector_with_holes_is_none(values: object, error_type: str) -> None:
    """NaN comes as null: a vector is only one if all of it are numbers."""
    assert error_type == judge_pooling(Answer(status=200, body={"data": [{"embedding": values}]}))[0]


@pytest.mark.parametrize(
    ("answer", "max_tokens", "whole_output", "error_type"),
    [
        (Answer(prompt_tokens=9, output_tokens=4, pieces=4, text="a b c d"), 4, True, None),
        (Answer(prompt_tokens=9, output_tokens=4), 4, True, None),
        (Answer(prompt_tokens=9, output_tokens=3), 4, True, "wrong-count"),
        (Answer(prompt_tokens=9, output_tokens=3), 4, False, None),
        (Answer(prompt_tokens=9, output_tokens=0), 4, False, "wrong-count"),
        (Answer(prompt_tokens=9, output_tokens=5), 4, False, "wrong-count"),
        (Answer(prompt_tokens=8, output_tokens=4), 4, True, "wrong-count"),
        (Answer(prompt_tokens=None, output_tokens=4), 4, True, "not-counted"),
        (Answer(prompt_tokens=9, output_tokens=4, pieces=9), 4, True, "wrong-count"),
        (Answer(prompt_tokens=9, output_tokens=4, text="a " * 17), 4, True, "wrong-count"),
        (Answer(prompt_tokens=9, text="a body " * 9), 0, True, None),
    ],
)
def test_a_count_is_what_was_sent_and_asked_for(
    answer: Answer, max_tokens: int, whole_output: bool, error_type: str | None
) -> None:
    """Fewer or more tokens than were sent or asked for, or more text than they can hold, is another answer."""
    assert error_type == miscount(answer, 9, max_tokens, whole_output=whole_output)
