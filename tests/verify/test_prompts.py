"""Prompts have exactly the length that was asked for, and no two are alike."""

import asyncio

import pytest

from fitserve.verify.answer import entry
from fitserve.verify.client import open_client
from fitserve.verify.options import Options
from fitserve.verify.prompts import Api, Prompts, count_tokens, find_prompts
from fitserve.verify.session import Session
from fitserve.verify.target import parse_target

SIZES = (9, 33, 100, 255)


async def requests_of(url: str, api: Api) -> tuple[Prompts | None, list[dict[str, object]], list[int | None]]:
    """The way that was found, requests of all sizes twice, and how the server counts their texts."""
    async with open_client(parse_target(url)) as client:
        session = Session(client, Options(deadline_seconds=10), lambda _: None)
        prompts = await find_prompts(session, api=api, model="fake")
        if prompts is None:
            return None, [], []
        requests = [await prompts.request(session, size, 1) or {} for size in SIZES * 2]
        texts = [entry(body, "messages", 0, "content") or body.get("prompt") for body in requests]
        counted = [await count_tokens(session, prompts, text) for text in texts if isinstance(text, str)]
        return prompts, requests, counted


@pytest.mark.parametrize(("mode", "api"), [("texts-only", "completions"), ("good", "chat")])
def test_a_fitted_text_is_exact(fake_url: str, mode: str, api: Api) -> None:
    """Where no ids are taken, a text is fitted until the server itself counts the wanted tokens."""
    _, requests, counted = asyncio.run(requests_of(f"{fake_url}/{mode}", api))

    assert list(SIZES * 2) == counted
    assert len({str(body) for body in requests}) == len(requests)


def test_ids_are_the_servers_own_ordinary_ones(fake_url: str) -> None:
    """Where ids are taken, they come from the server's tokenizer, so none is special, and no two prompts share a start."""
    prompts, requests, _ = asyncio.run(requests_of(f"{fake_url}/good", "completions"))

    assert prompts is not None
    assert list(SIZES * 2) == [len(body["prompt"]) for body in requests]
    assert all(set(body["prompt"]) <= set(prompts.pool) for body in requests)
    assert len({tuple(body["prompt"][:9]) for body in requests}) > len(SIZES)


def test_without_a_tokenizer_ids_are_guessed_among_ordinary_ones(fake_url: str) -> None:
    """A server without ``/tokenize`` still gets prompts of exact length, from ids beyond the special ones."""
    prompts, requests, _ = asyncio.run(requests_of(f"{fake_url}/sglang", "completions"))

    assert prompts is not None
    assert list(SIZES * 2) == [len(body["prompt"]) for body in requests]
    assert min(prompts.pool) >= 1000


def test_a_server_that_takes_neither_has_no_way(fake_url: str) -> None:
    """Without ids and without ``/tokenize`` there is no exact prompt, and none is pretended."""
    assert None is asyncio.run(requests_of(f"{fake_url}/ollama", "completions"))[0]


def test_an_embedding_takes_ids_too(fake_url: str) -> None:
    """An embedding's prompt is its input, and asks for no output."""
    prompts, requests, _ = asyncio.run(requests_of(f"{fake_url}/embedding", "embeddings"))

    assert prompts is not None
    assert not prompts.generates
    assert list(SIZES * 2) == [len(body["input"]) for body in requests]
    assert [] == [body for body in requests if "max_tokens" in body]


def test_one_ordinary_token_makes_no_two_prompts(fake_url: str) -> None:
    """A tokenizer that gives one id for everything is not drawn from: all prompts would be one, and come from the cache."""
    prompts, requests, _ = asyncio.run(requests_of(f"{fake_url}/same-token", "completions"))

    assert prompts is not None
    assert len({str(body) for body in requests}) == len(requests)


def test_a_prompt_beyond_all_bounds_is_not_made(fake_url: str) -> None:
    """No request is made that would fill this machine's memory, whatever length a server or a user names."""

    async def ask() -> dict[str, object] | None:
        async with open_client(parse_target(f"{fake_url}/good")) as client:
            session = Session(client, Options(deadline_seconds=10), lambda _: None)
            prompts = Prompts(api="completions", model="fake", pool=[1, 2])
            return await prompts.request(session, 10**18, 1)

    assert None is asyncio.run(ask())
