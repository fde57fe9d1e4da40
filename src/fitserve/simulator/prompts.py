"""Tokens of a request; pure functions."""

from typing import Any

_WORD = 6
"""Letters of a token."""


def prompt_text(body: dict[str, Any]) -> str:
    """The text of a request."""
    if "messages" in body:
        return " ".join(str(message.get("content", "")) for message in body["messages"])
    return str(body.get("prompt", ""))


def token_ids(text: str) -> list[int]:
    """A word is a token, and a long word several: a tokenizer that is as stable as it is simple."""
    found: list[int] = []
    for word in text.split():
        for place in range(0, len(word), _WORD):
            found.append(1000 + sum(map(ord, word[place : place + _WORD])) * 7 % 6000)
    return found


def count_prompt(body: dict[str, Any]) -> int:
    """Tokens of a request's prompt: given ids, or its text; a chat's template adds a few."""
    prompt = body.get("prompt")
    if isinstance(prompt, list):
        return (
            len(prompt)
            if not prompt or isinstance(prompt[0], int)
            else max(len(token_ids(str(one))) for one in prompt)
        )
    return len(token_ids(prompt_text(body))) + (3 if "messages" in body else 0)
