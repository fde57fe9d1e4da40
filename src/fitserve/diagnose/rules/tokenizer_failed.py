"""The tokenizer, the processor or remote code cannot be loaded.

Source: transformers and tokenizers print these; vLLM ``transformers_utils/tokenizer.py``.
"""

from fitserve.diagnose.finding import Advice
from fitserve.diagnose.situation import Finding, Situation
from fitserve.diagnose.spelling import act, avoid, change

CAUSE = "tokenizer-failed"
STAGE = "config"


def judge(situation: Situation) -> Finding:
    """Tell files, packages and remote code apart."""
    name = situation.event.id
    if name.startswith("remote-code") or name in (
        "tokenizer-not-loaded",
        "processor-not-loaded",
        "image-processor-not-loaded",
    ):
        message = "the model brings its own code, and it may not or cannot run"
    elif "sentencepiece" in name or "tiktoken" in name:
        message = "a package that the tokenizer needs is not installed"
    else:
        message = "the tokenizer cannot be loaded"
    return Finding(
        cause=CAUSE,
        stage=STAGE,
        message=message,
        event=situation.event,
        advice=_advice(situation, name),
        not_advised=[avoid("gpu_memory_utilization", None, "nothing is loaded yet")],
    )


def _advice(situation: Situation, name: str) -> list[Advice]:
    files = act(
        "fix-tokenizer-files", "tokenizer.json or tokenizer.model must be there, whole, beside the config"
    )
    package = act(
        "install-sentencepiece",
        "the slow tokenizer is converted with it",
        option="pip install sentencepiece tiktoken protobuf",
    )
    newer = act("upgrade-transformers", "a tokenizer of a later transformers release")
    trust = change(
        situation,
        "trust_remote_code",
        True,
        "set",
        "free",
        "only for a repository whose code has been read and is trusted",
    )
    if name.startswith("remote-code"):
        return [*trust, newer]
    if "sentencepiece" in name or "tiktoken" in name or name == "tokenizer-no-slow":
        return [package, files, newer]
    if name in (
        "tokenizer-untagged-enum",
        "tokenizer-untagged-enum-any",
        "tokenizer-class-missing",
        "tokenizer-attribute",
    ):
        return [newer, files]
    if name.endswith("not-loaded"):
        return [*trust, files, newer]
    return [files, package, newer]
