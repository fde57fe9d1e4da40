"""Requests that are refused: too long, too many output tokens, an unknown name."""

from . import v0, work, wrap
from .case import Case, act
from .machine import (
    DEVICES,
    KESTREL_7B,
    SOLANO_24B,
    Budget,
)
from .serving import serve, serve_v0
from .story import Line, Story


def refusals() -> list[Case]:
    """request-too-long, max-tokens-too-large, model-name-unknown."""
    out = []
    story = Story("0.5.4", seed=531, site="/opt/conda/lib/python3.10/site-packages")
    serve_v0(story, KESTREL_7B, {"max_model_len": 8192}, length=8192, blocks=2900)
    text = "This model's maximum context length is 8192 tokens. However, you requested 20511 tokens (19487 in the messages, 1024 in the completion). Please reduce the length of the messages or completion."
    story.trace(
        story.frames(
            "serving_chat.py:OpenAIServingChat.create_chat_completion:await self._tokenize_prompt_input(",
            "serving_engine.py:OpenAIServing._validate_input:<raise ValueError(",
        ),
        f"ValueError: {text}",
        proc="none",
        place=story.place("openai/serving_chat.py", "Error in applying chat template")
        or "serving_chat.py:118",
        mark="cause",
        head="Error in preprocessing prompt inputs",
    )
    work.access(story, status="400 Bad Request")
    work.access(story)
    v0.load_line(story, running=2, pending=0, usage=4.4)
    out.append(
        Case(
            "toolong-054-chat",
            "20511 tokens against 8192, else all is well",
            "0.5.4",
            "request-too-long",
            story.lines,
            ["bare", "v0"],
            {"max_model_len": 8192, "prompt_tokens": 19487, "max_tokens": 1024},
        )
    )

    budget = Budget(DEVICES["H100"], 0.9, SOLANO_24B.weights_gib, 2.0, 0.3)
    for id_, release, seed, text, wrapper, tag, numbers in (
        (
            "toolong-0112-messages",
            "0.11.2",
            532,
            "This model's maximum context length is 32768 tokens. However, your request has 51230 input tokens. Please reduce the length of the input messages.",
            wrap.compose("api"),
            "compose",
            {"max_model_len": 32768, "prompt_tokens": 51230},
        ),
        (
            "toolong-0240-total",
            "0.24.0",
            533,
            "This model's maximum context length is 32768 tokens. However, you requested 2048 output tokens and your prompt contains at least 30721 input tokens, for a total of at least 32769 tokens. Please reduce the length of the input prompt or the number of requested output tokens.",
            wrap.kubectl(),
            "kubectl",
            {"max_model_len": 32768, "prompt_tokens": 30721, "max_tokens": 2048},
        ),
    ):
        story = Story(release, seed=seed)
        serve(story, SOLANO_24B, {"max_model_len": 32768}, length=32768, budget=budget)
        work.traffic(story, 3)
        place = story.place("openai/serving_chat.py", "Error in preprocessing prompt inputs")
        if place is None:  # newer releases answer without a record; the client tells
            story.raw(
                f"app-5c9 openai.BadRequestError: Error code: 400 - {{'error': {{'message': \"{text}\", 'type': 'BadRequestError', 'code': 400}}}}",
                mark="cause",
            )
        else:
            frames = story.frames(
                "serving_chat.py:OpenAIServingChat.create_chat_completion:await self._preprocess_chat("
            )
            story.trace(
                frames,
                f"ValueError: {text}",
                proc="api",
                place=place,
                mark="cause",
                head="Error in preprocessing prompt inputs",
            )
        work.access(story, status="400 Bad Request")
        work.traffic(story, 3)
        accept = ["max-tokens-too-large"] if "output tokens" in text else []
        out.append(
            Case(
                id_,
                "one request is too long, the server goes on",
                release,
                "request-too-long",
                wrap.chain(story.lines, wrapper),
                [tag],
                numbers,
                acceptable=accept,
                suggest=[
                    *act("shorten-prompt"),
                    {"flag": "max_model_len", "direction": "up"},
                    {"flag": "max_tokens", "direction": "down"},
                ],
            )
        )

    budget = Budget(DEVICES["A100-40"], 0.9, KESTREL_7B.weights_gib, 1.0, 0.2)
    for id_, release, seed, asked, prompt, length, carrier, tag in (
        ("maxtokens-0092-plain", "0.10.2", 534, 16000, 512, 16384, None, "bare"),
        ("maxtokens-0141-cri", "0.14.1", 535, 8192, 33, 8192, wrap.cri(), "cri"),
    ):
        story = Story(release, seed=seed)
        serve(story, KESTREL_7B, {"max_model_len": length}, length=length, budget=budget)
        work.traffic(story, 2)
        text = f"'max_tokens' or 'max_completion_tokens' is too large: {asked}. This model's maximum context length is {length} tokens and your request has {prompt} input tokens ({asked} > {length} - {prompt})."
        story.trace(
            story.frames(
                "serving_chat.py:OpenAIServingChat.create_chat_completion:await self._preprocess_chat(",
                "serving_engine.py:OpenAIServing._validate_input:<raise ValueError(",
            ),
            f"ValueError: {text}",
            proc="api",
            place=story.place("openai/serving_chat.py", "Error in preprocessing prompt inputs")
            or "serving_chat.py:263",
            mark="cause",
            head="Error in preprocessing prompt inputs",
        )
        work.access(story, status="400 Bad Request")
        work.traffic(story, 2)
        out.append(
            Case(
                id_,
                f"{asked} output tokens with a prompt of {prompt}",
                release,
                "max-tokens-too-large",
                wrap.chain(story.lines, *([carrier] if carrier else [])),
                [tag],
                {"max_model_len": length, "max_tokens": asked, "prompt_tokens": prompt},
                [{"flag": "max_tokens", "at_most": length - prompt}],
            )
        )

    for id_, release, seed, shell, tag in (
        ("name-0112-gateway", "0.11.2", 536, wrap.docker_json(), "docker-json"),
        ("name-0202-plain", "0.20.2", 537, None, "bare"),
    ):
        story = Story(release, seed=seed)
        serve(
            story,
            KESTREL_7B,
            {"max_model_len": 16384, "served_model_name": ["support-bot"]},
            length=16384,
            budget=budget,
        )
        work.traffic(story, 1)
        text = "Error with model error=ErrorInfo(message='The model `Kestrel-7B` does not exist.', type='NotFoundError', param=None, code=404)"
        for n in range(3):
            places = (
                story.place(file, "Error with model %s")
                for file in ("openai/serving_chat.py", "openai/chat_completion/serving.py")
            )
            place = next(place for place in places if place)
            story.lines.append(
                Line(story.tag("api") + story.prefix("ERROR", place) + text, "cause" if n == 0 else "echo")
            )
            work.access(story, status="404 Not Found")
            work.traffic(story, 1)
        out.append(
            Case(
                id_,
                "the client asks for another name",
                release,
                "model-name-unknown",
                wrap.chain(story.lines, *([shell] if shell else [])),
                [tag],
            )
        )
    return out


def cases() -> list[Case]:
    """This family's cases."""
    return [*refusals()]
