"""Prompts of an exact number of tokens, every one different.

A prompt that a server has seen is served from its prefix cache and proves nothing about room: so each is drawn anew from
ordinary tokens. Where the server takes token ids, the ids are the prompt; else a text is fitted with ``/tokenize``.
"""

import random
from typing import Any, Literal

import msgspec

from fitserve.verify.answer import entry, whole_number
from fitserve.verify.ask import TOKENIZE, ask
from fitserve.verify.session import Session

_ORDINARY_TEXT = (
    "river stone paper window garden music winter letter engine market bridge summer castle doctor silver forest "
    "dinner planet orange island mirror button camera pocket rocket singer tunnel valley wonder yellow basket circle "
    "desert energy farmer golden hunter insect jacket kitten ladder magnet needle office parrot rabbit saddle table "
    "umbrella village walnut number answer simple strong quiet early green small large happy north south seven eight"
)
_WORDS = _ORDINARY_TEXT.split()
_FILLER = " a"
"""One token in nearly every vocabulary: it fits a text to the last token."""

_BLIND_IDS = (range(1000, 8000), range(300, 900), range(30, 200))
"""Ordinary tokens of nearly every vocabulary, where ``/tokenize`` is switched off.

Special tokens lie below 300 (SentencePiece, BERT's 100 to 103) or at the end (byte-level BPE); Tekken's first 1,000 are
special. A small vocabulary refuses the first ranges and takes the last.
"""

FIT_ATTEMPTS = 8

MAX_PROMPT_TOKENS = 1 << 24
"""Beyond any context that there is: such a ``max_model_len`` is a mistake, and the request would only fill memory, here and there."""

_TRIAL_TOKENS = 8

Api = Literal["completions", "chat", "embeddings", "classify"]
_PATHS: dict[Api, str] = {
    "completions": "/v1/completions",
    "chat": "/v1/chat/completions",
    "embeddings": "/v1/embeddings",
    "classify": "/classify",
}
"""``/pooling`` is not among them: it may answer a long prompt with a vector for each token."""


class Prompts(msgspec.Struct, frozen=True, kw_only=True):
    """How to make a request of an exact size for one server.

    Attributes:
        api: the endpoint.
        model: the name in the request.
        pool: token ids to draw from; empty where a text is fitted.
        added_tokens: what the server adds to given ids.
        extras: fields that make the output as long as asked, where the server takes them.
    """

    api: Api
    model: str
    pool: list[int] = []
    added_tokens: int = 0
    extras: dict[str, Any] = {}

    @property
    def path(self) -> str:
        """The endpoint's path."""
        return _PATHS[self.api]

    @property
    def generates(self) -> bool:
        """True where tokens come out; an embedding or a class has none."""
        return self.api in ("completions", "chat")

    async def request(self, session: Session, prompt_tokens: int, max_tokens: int) -> dict[str, Any] | None:
        """A request with a fresh prompt of that many tokens; None where no text could be fitted to it, or it is beyond all bounds."""
        if prompt_tokens > MAX_PROMPT_TOKENS:
            return None
        body: dict[str, Any] = {"model": self.model}
        if self.generates:
            body |= {
                "max_tokens": max_tokens,
                "temperature": 0,
                "stream": True,
                "stream_options": {"include_usage": True},
                **self.extras,
            }
        if self.pool:
            ids = _dice().choices(self.pool, k=max(1, prompt_tokens - self.added_tokens))
            return body | {"prompt" if self.generates else "input": ids}
        text = await fit_text(session, self, prompt_tokens)
        return None if text is None else body | self.text_part(text)

    def text_part(self, text: str) -> dict[str, Any]:
        """The field that carries a text, for the endpoint and for ``/tokenize`` alike."""
        if self.api == "chat":
            return {"messages": [{"role": "user", "content": text}]}
        return {"prompt" if self.generates else "input": text}


def _dice() -> random.Random:
    return random.Random()  # noqa: S311 - prompts are no secrets


async def fit_text(session: Session, prompts: Prompts, tokens: int) -> str | None:
    """A text that the server itself counts as exactly that many tokens."""
    dice = _dice()
    words = dice.choices(_WORDS, k=max(1, 2 * tokens // 3))
    fillers = 0
    for _ in range(FIT_ATTEMPTS):
        text = " ".join(words) + _FILLER * fillers
        counted = await count_tokens(session, prompts, text)
        if counted is None:
            return None
        if counted == tokens:
            return text
        if counted < tokens:
            fillers += tokens - counted
        elif fillers >= counted - tokens:
            fillers -= counted - tokens
        else:
            words, fillers = words[: max(1, len(words) * tokens // counted - 1)], 0
    return None


async def count_tokens(session: Session, prompts: Prompts, text: str) -> int | None:
    """How many tokens the server makes of a text; None where it does not tell."""
    part = prompts.text_part(text)
    if "input" in part:
        part = {"prompt": text}
    answer = await ask(session, TOKENIZE, {"model": prompts.model, **part})
    return whole_number(entry(answer.body, "count")) if answer.ok else None


async def ordinary_ids(session: Session, model: str) -> list[int]:
    """Ids that ordinary words are made of, by the server's own tokenizer; empty where it does not tell."""
    body = {"model": model, "prompt": _ORDINARY_TEXT, "add_special_tokens": False}
    answer = await ask(session, TOKENIZE, body)
    tokens = entry(answer.body, "tokens") if answer.ok else None
    if not isinstance(tokens, list):
        return []
    return sorted({token for token in tokens if whole_number(token) is not None})


async def find_prompts(session: Session, *, api: Api, model: str, trial: bool = True) -> Prompts | None:
    """The way to make exact prompts for this server; None where it takes none of them.

    Token ids of the server's own words first, then of ranges that hold ordinary tokens in any vocabulary, then texts;
    each with and without the field that OpenAI's own API does not know (``ignore_eos``). A server that does not answer
    the trial is asked on in the first way: its silence is for the checks to find.

    Args:
        session: the verification.
        api: the endpoint.
        model: the name in the requests.
        trial: try each way by a small request; without, the first one is taken.
    """
    known = await ordinary_ids(session, model)
    pools = [] if api == "chat" else [known] * (len(known) > 1) + [list(ids) for ids in _BLIND_IDS]
    generates = api in ("completions", "chat")
    extras: list[dict[str, Any]] = [{"ignore_eos": True}, {}] if generates else [{}]
    for extra in extras:
        for pool in [*pools, []]:
            prompts = Prompts(api=api, model=model, pool=pool, extras=extra)
            found = await _try(session, prompts) if trial else prompts
            if found is not None:
                return found
    return None


async def _try(session: Session, prompts: Prompts) -> Prompts | None:
    """One small request in that way; None where the server refuses it or counts it as another size."""
    size = _TRIAL_TOKENS if prompts.pool else 4 * _TRIAL_TOKENS
    body = await prompts.request(session, size, 1)
    if body is None:
        return None
    answer = await ask(session, prompts.path, body)
    if not answer.ok:
        refused = answer.status is not None and 400 <= answer.status < 500
        return None if refused else prompts
    added = -1 if answer.prompt_tokens is None else answer.prompt_tokens - size
    if not 0 <= added <= _TRIAL_TOKENS or (added and not prompts.pool):
        return None
    return msgspec.structs.replace(prompts, added_tokens=added)
