"""Names of models, hidden only where that is asked for; those of well-known makers stay."""

import re
from collections.abc import Iterator

from fitserve.report.redact.known import is_ordinary
from fitserve.report.redact.rule import Edit, Memory, Rule

_MAKERS = frozenset(
    b"""meta-llama qwen mistralai google deepseek-ai microsoft nvidia openai openai-community facebook tiiuae ibm-granite allenai cohereforai coherelabs
    01-ai baichuan-inc thudm zai-org internlm opengvlab openbmb moonshotai minimaxai bigcode bigscience eleutherai databricks mosaicml redhatai
    neuralmagic unsloth thebloke huggingfaceh4 huggingfacetb ai21labs lgai-exaone upstage baai sentence-transformers intfloat tencent stepfun-ai
    xiaomimimo bytedance-seed state-spaces nousresearch lmsys llava-hf""".split()
)
_NAME = rb"(?P<model>[A-Za-z0-9][A-Za-z0-9._\-]*(?:/[A-Za-z0-9][A-Za-z0-9._\-]*)?|/[^\s\"',)\]]+)"


def model_rules() -> list[Rule]:
    """A model where an option, a field or a message names one."""
    return [
        Rule(
            pattern=re.compile(
                rb"(?:(?<![A-Za-z0-9_])(?:--)?(?:model|served[_\-]model[_\-]name|tokenizer|model_tag|hf_config_path|lora_name|base_model(?:_name_or_path)?|_name_or_path|root|parent)"
                rb"[\"']?\s{0,3}[=: ]\s{0,3}\[?[\"']?|vllm serve [\"']?|models--(?=[A-Za-z0-9]))" + _NAME
            ),
            replace=_replace,
            probe=rb"(?:model|name|tokenizer|tag|path|root|parent)[\"']?[ ]{0,3}[=: ]|vllm serve |models--",
        )
    ]


def _replace(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    name = match["model"].rstrip(b".")
    maker = name.replace(b"--", b"/").partition(b"/")[0].lower()
    if maker in _MAKERS or memory.names.is_label(name) or is_ordinary(name):
        return
    if not re.search(rb"[/\d\-]", name):
        return
    memory.known.learn("model", name)
    last = name.rpartition(b"/")[2]
    if len(last) >= 6 and re.search(rb"[\d\-]", last):
        memory.known.learn("model", last)
    yield match.start("model"), match.start("model") + len(name), memory.names.label("model", name)
