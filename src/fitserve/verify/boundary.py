"""Requests at the edge of ``max_model_len``: exactly that long is answered, one token more is refused."""

from functools import partial
from typing import Any

import msgspec

from fitserve.verify.answer import Answer, entry, excerpt, miscount, says_more_than, whole_number
from fitserve.verify.ask import SILENCE, ask, ask_in_turn
from fitserve.verify.checks import GENERATING, answer_check, judge_pooling
from fitserve.verify.prompts import Api, Prompts, find_prompts
from fitserve.verify.session import Session, unasked
from fitserve.verify.verification import Check

EDGE_OUTPUT_TOKENS = 4
"""Output of an edge request: enough to see more than one step, little enough for a slow server."""

_REFUSALS = frozenset({"request-too-long", "max-tokens-too-large"})


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """One request at a chosen length.

    Attributes:
        name: the check.
        prompt_tokens: tokens in.
        max_tokens: tokens out that are asked for.
        refused: it must be refused for its length.
        may_be_cut: an answer that ends at ``max_model_len`` is as good as a refusal.
        quick: it belongs to the quick profile.
    """

    name: str
    prompt_tokens: int
    max_tokens: int
    refused: bool = False
    may_be_cut: bool = False
    quick: bool = False


def edges(max_model_len: int, *, generates: bool) -> list[Edge]:
    """The lengths to ask for, shortest first.

    Every vLLM refuses a prompt of ``max_model_len`` tokens, for no room is left for output, and a longer one. An output
    beyond the room is refused by most releases and cut to it by others (0.32.0 ``serve/utils/api_utils.py``
    ``get_max_tokens``): both keep the promise. An embedding has no output: its prompt may be ``max_model_len`` long.
    """
    out = min(EDGE_OUTPUT_TOKENS, max(1, max_model_len // 8)) if generates else 0
    accepted = [
        Edge(name=name, prompt_tokens=max(1, length - out), max_tokens=out, quick=quick)
        for name, length, quick in (
            ("boundary-quarter", max_model_len // 4, False),
            ("boundary-half", max_model_len // 2, True),
            ("boundary-three-quarters", 3 * max_model_len // 4, False),
            ("boundary-one-below", max_model_len - 1, False),
            ("boundary-exact", max_model_len, True),
        )
    ]
    over = Edge(
        name="boundary-over",
        prompt_tokens=max_model_len + (0 if generates else 1),
        max_tokens=1,
        refused=True,
        quick=True,
    )
    if not generates:
        return [*accepted, over]
    return [
        *accepted,
        over,
        Edge(name="boundary-prompt-over", prompt_tokens=max_model_len + 1, max_tokens=1, refused=True),
        Edge(
            name="boundary-output-over",
            prompt_tokens=max(1, max_model_len - out),
            max_tokens=max_model_len + 1,
            refused=True,
            may_be_cut=True,
            quick=True,
        ),
    ]


async def check_boundaries(session: Session) -> Prompts | None:
    """Ask at every edge, one request at a time. Returns the way to make prompts, for the load that follows."""
    served = session.served
    length = served.max_model_len or await _length_by_tokenizer(session)
    session.served = msgspec.structs.replace(served, max_model_len=length)
    api = _api(session)
    prompts, silent = None, _is_silent(session)
    why = "the server does not say its max_model_len" if api else "no endpoint takes a prompt of exact length"
    if served.model is None:
        why = session.no_model
    if api is not None and served.model is not None:
        prompts = await find_prompts(session, api=api, model=served.model, trial=not silent)
        why = why if prompts else "neither token ids nor /tokenize give a prompt of exact length"
    asked = [
        edge
        for edge in edges(length or 1, generates=prompts is None or prompts.generates)
        if edge.quick or session.options.profile == "full"
    ]
    if prompts is not None and length is not None:
        questions = [partial(_check_edge, session, prompts, edge, length) for edge in asked]
        await ask_in_turn(session, questions, silent=silent)
    else:
        for edge in asked:
            session.skip(edge.name, _expected(edge) if length else "a request at max_model_len", why)
    return prompts


def _is_silent(session: Session) -> bool:
    """True where every small request that could be asked got no whole answer."""
    small = [session.found(name) for name in GENERATING]
    asked = [check for check in small if check is not None and check.passed is not None]
    return bool(asked) and all(check.error_type in SILENCE for check in asked)


def _api(session: Session) -> Api | None:
    """The endpoint that takes the long requests: the first that has answered, else one that may yet."""
    names: dict[str, Api] = {
        "completion": "completions",
        "completion-stream": "completions",
        "chat": "chat",
        "chat-stream": "chat",
        "embedding": "embeddings",
        "classification": "classify",
    }
    found = {name: session.found(name) for name in names}
    for wanted in (True, False):
        for name, check in found.items():
            if check is not None and check.passed is wanted:
                return names[name]
    return None


async def _length_by_tokenizer(session: Session) -> int | None:
    """``max_model_len`` as ``/tokenize`` tells it, where ``/v1/models`` does not."""
    if session.served.model is None:
        return None
    answer = await ask(session, "/tokenize", {"model": session.served.model, "prompt": "Hello"})
    length = whole_number(entry(answer.body, "max_model_len")) if answer.ok else None
    return length if length and length > 0 else None


def _expected(edge: Edge) -> str:
    size = f"{edge.prompt_tokens:,} + {edge.max_tokens:,}"
    if edge.may_be_cut:
        return f"{size}: refused, or cut"
    return f"{size}: refused with 400" if edge.refused else f"{size}: answered, counted"


async def _check_edge(session: Session, prompts: Prompts, edge: Edge, max_model_len: int) -> Check:
    expected = _expected(edge)
    body: dict[str, Any] | None = await prompts.request(session, edge.prompt_tokens, edge.max_tokens)
    if body is None:
        return unasked(edge.name, expected, "no prompt of exactly that many tokens could be made")
    answer = await ask(session, prompts.path, body)
    if edge.refused:
        error_type, actual = judge_refusal(edge, answer, max_model_len)
        check = answer_check(edge.name, answer, expected, actual, error_type)
        return msgspec.structs.replace(check, error_type=error_type or answer.error_type)
    error_type, actual = judge_accepted(edge, answer, whole_output=bool(prompts.extras))
    return answer_check(edge.name, answer, expected, actual, error_type)


def judge_accepted(edge: Edge, answer: Answer, *, whole_output: bool) -> tuple[str | None, str]:
    """Was a request within the length answered and counted? The error type, or None, and the words.

    Args:
        edge: what was asked.
        answer: what came.
        whole_output: the model was told to go on to the last token that was asked for.
    """
    if not answer.ok:
        return answer.error_type, answer.trouble
    if not edge.max_tokens and (broken := judge_pooling(answer))[0]:
        return broken
    error_type = miscount(answer, edge.prompt_tokens, edge.max_tokens, whole_output=whole_output)
    more = ", and more text than that" if says_more_than(answer, answer.text, edge.max_tokens) else ""
    return error_type, (
        f"answered; counted {_count(answer.prompt_tokens)} in, {_count(answer.output_tokens)} out{more}"
    )


def _count(tokens: int | None) -> str:
    return "nothing" if tokens is None else f"{tokens:,}"


def judge_refusal(edge: Edge, answer: Answer, max_model_len: int) -> tuple[str | None, str]:
    """Was a request beyond the length refused for it? The error type, or None, and the words."""
    if answer.error_type in _REFUSALS and answer.status == 400:
        return None, f"400: {excerpt(answer.error)}"
    if not answer.ok:
        return (
            answer.error_type,
            f"HTTP {answer.status}: {answer.trouble}" if answer.status else answer.trouble,
        )
    total = (answer.prompt_tokens or 0) + (answer.output_tokens or 0)
    if edge.may_be_cut and answer.prompt_tokens == edge.prompt_tokens and total <= max_model_len:
        return None, f"cut at {total:,} tokens, {answer.finish_reason}"
    return "over-length-accepted", (
        f"accepted; counted {_count(answer.prompt_tokens)} in, {_count(answer.output_tokens)} out"
    )
