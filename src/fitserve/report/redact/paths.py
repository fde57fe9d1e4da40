"""Where files lie: home folders and mounts, folder by folder; what every installation has keeps its name."""

import re
from collections.abc import Iterator

from fitserve.report.redact.known import is_ordinary
from fitserve.report.redact.rule import Edit, Memory, Rule

_ROOTS = (
    rb"home\d?|Users|root|mnt|data\d*|nfs\w*|scratch\w*|lustre\w*|gpfs\w*|fsx|shared?|projects?|workspaces?|work|storage|srv|vol\w*|"
    rb"media|export|efs|cephfs|beegfs|weka|net|raid\w*|datasets?|models?|cache|ssd\w*|nvme\w*|disks?\d*|pvcs?|persistent|team\w*|groups?|"
    rb"users|u|proj|prj|pscratch|hdd\d*|mounts?|dbfs|Volumes|cygdrive|afs|autofs|zfs|kaggle|opt|app|var/home|homes|p/(?:home|project|scratch|data)\d*|"
    rb"(?!v\d+/|api/|scim/|auth/|admin/)[A-Za-z0-9_\-]{1,20}/(?:home|homes|users|scratch)"
)
_PART = rb"[^\s\"'`:;,|<>()\[\]{}&\\*?#=@!$%\x1b]+"
_PATH = re.compile(
    rb"(?:(?<![A-Za-z0-9_.\-/~}])|(?<=file://))(?P<path>/(?:"
    + _ROOTS
    + rb")(?:/+"
    + _PART
    + rb")+)|(?P<behind>(?<=\\[nrt]))(?P<late>/(?:"
    + _ROOTS
    + rb")(?:/+"
    + _PART
    + rb")+)"
)
_HOMES = frozenset(
    (
        b"home",
        b"homes",
        b"users",
        b"Users",
        b"user",
        b"jusers",
        b"u",
        *(b"home%d" % number for number in range(10)),
    )
)
_ENCODED = re.compile(
    rb"(?i)%2f(?:" + _ROOTS + rb")(?:%2f(?:(?!%2f)" + _PART.removesuffix(b"+").replace(b"%", b"") + rb")+)+"
)
_WINDOWS = re.compile(
    rb"(?<![A-Za-z0-9])(?:[A-Z]:\\{1,4}|[A-Za-z]:\\{2,4}|[A-Z]:/(?=[^\s\"'<>|:*?\\/]+/)|\\{2,4}wsl(?:\$|\.localhost)\\{1,2})(?P<rest>[^\s\"'<>|:*?\\/]+(?:(?:\\{1,4}|/)[^\s\"'<>|:*?\\/]+)*)"
)
_SHARE = re.compile(
    rb"(?:(?<=[\s\"'=(])|^)\\\\(?:\\\\)?(?P<host>(?=[^\\]*[\d.\-])(?!x[0-9a-f]{2}|u[0-9a-f]{4}|\d{1,3}\\)[A-Za-z0-9][A-Za-z0-9.\-]*)(?P<rest>(?:\\{1,2}[^\s\"'<>|:*?\\/]+)+)"
)
_EVERYONES = frozenset((b"shared", b"share", b"public", b"Public", b"Shared"))

_GENERIC = frozenset(
    b"""venv .venv env envs venvs .env virtualenvs .virtualenvs conda miniconda miniconda3 anaconda3 miniforge3 mambaforge mamba micromamba
    .conda pkgs .pyenv versions lib lib64 bin sbin include share etc local .local opt usr src source sources code repos repo git github
    work workspace workspaces app apps project projects home users data datasets dataset models model llm llms weights checkpoint
    checkpoints ckpt ckpts hub huggingface .huggingface hf hf_cache hf_home hf-cache .cache cache caches .config config configs conf snapshots refs blobs
    modules transformers_modules tmp temp logs log run runs output outputs results result test tests benchmark benchmarks scripts script
    docker compose k8s deploy deployment server serve serving inference infer training train rl sft eval vllm vllm-workspace vllm_cache torch_compile_cache
    torch triton flashinfer flashinfer_jit .triton .cuda .nv ComputeCache torchinductor inductor_cache torch_aot_compile xet assets
    python python3 site-packages dist-packages merged final fp8 awq gptq gguf bf16 fp16 int4 int8 nvfp4 mxfp4 base chat instruct lora loras adapter adapters
    tokenizer templates template examples example build builds release debug dist wheels downloads download uv .uv pip .npm node_modules
    mnt nfs scratch lustre gpfs storage shared public volumes volume disk disk1 media ssd nvme kernels extensions torch_extensions csrc
    deep_gemm tilelang cutlass nccl cuda rocm notebooks jupyter api main latest current prod production staging dev vol windows system32 program programdata appdata roaming hostedtoolcache x64""".split()
)
_VENDORS = frozenset(
    b"""pytorch rocm amazon aws hpcx nvidia intel amd ml conda venv vllm tritonserver triton nim ray habanalabs google gcc cuda ompi openmpi mpi ucx
    nccl mellanox slurm pyenv app-root bitnami sagemaker djl dynamo uv python containerd cni cray homebrew microsoft ibm spark hadoop
    java jdk node tensorrt tensorrt_llm sglang lmcache flashinfer deepspeed dask miniconda miniconda3 miniforge3 anaconda3 mambaforge""".split()
)
"""What stands in ``/opt`` of many machines: all of it is theirs."""
_GENERIC_FORM = re.compile(
    rb"\.?(?:python|py|cp|cuda|rocm|torch|vllm|cu|triton|node|v)[-_]?v?\d+(?:[.\-_]?\d+)*(?:[-_.](?:cu|rocm)\d+|_cu\d+|t)?|"
    rb"v?\d+(?:[._]\d+)*|[0-9a-f]{8,64}|models--[A-Za-z0-9._\-]+|datasets--[A-Za-z0-9._\-]+|spaces--[A-Za-z0-9._\-]+|rank_\d+(?:_\d+)*|"
    rb"(?:epoch|step|checkpoint|ckpt|iter|global_step|shard|tp|pp|rank)[-_]?\d+|\.{1,2}|-+|_+"
)
_MODEL = re.compile(
    rb"(?i)(?:^|[^a-z0-9])\d+(?:\.\d+)?x?\d*[bm](?:$|[^a-z0-9])|llama|qwen|mi[sx]tral|gemma|deepseek|\bphi|gpt|falcon|bloom|granite|"
    rb"\bopt-|command-r|internlm|internvl|baichuan|chatglm|glm-|minicpm|nemotron|olmo|pixtral|mamba|jamba|kimi|bert|bge|gte|whisper|"
    rb"minimax|exaone|solar|starcoder|vicuna|molmo|smollm|dbrx|\byi-|ernie|seed-oss|hunyuan|ling-|step3"
)
_FILE = re.compile(
    rb"(?P<stem>[^/]+?)(?P<suffix>(?:\.(?:tar|safetensors\.index|log))?\.[A-Za-z][A-Za-z0-9]{0,11})"
)
_GENERIC_FILE = re.compile(
    rb"(?i)(?:(?:generation_|tokenizer_|preprocessor_|processor_|adapter_|hf_quant_|quantize_|quantization_|special_tokens_|video_preprocessor_|server_)?"
    rb"config|tokenizer|tokenizer\.model|vocab|merges|params|(?:model|pytorch_model|consolidated|adapter_model|diffusion_pytorch_model)[\d\-_.of]*|"
    rb"model\.safetensors|special_tokens_map|added_tokens|chat_template|recipe|modules|modeling_\w+|configuration_\w+|tokenization_\w+|processing_\w+|"
    rb"__init__|__main__|main|app|run|serve|server|start|entrypoint|train|train_\w+|infer|inference|test|setup|utils|launch|api_server|"
    rb"vllm|docker-compose|compose|values|deployment|readme|license|requirements|serve_?\d*|out|err|log|core|cuda_utils|rank_\d+[\w.]*|[0-9a-f]{8,64})"
)
_LIBRARY = re.compile(rb"lib[\w+.\-]*\.so(?:\.\d+)*")
_KEPT_FROM = frozenset(
    (
        b"site-packages",
        b"dist-packages",
        b"vllm",
        b"vllm-workspace",
        b"torch_compile_cache",
        b"flashinfer",
        b".triton",
        b".nv",
        b"vllm_model",
    )
)


def path_rules() -> list[Rule]:
    """Of Linux, in percent encoding, of Windows, on shares."""
    return [
        Rule(pattern=_PATH, replace=_replace, probe=rb"/(?:" + _ROOTS + rb")/[^ \t\n/]"),
        Rule(pattern=_ENCODED, replace=_encoded, probe=rb"%2f(?:" + _ROOTS + rb")%2f", caseless=True),
        Rule(pattern=_WINDOWS, replace=_windows, probe=rb"[A-Za-z]:[\\/]|\\wsl"),
        Rule(pattern=_SHARE, replace=_share, probe=rb"\\\\[A-Za-z0-9]"),
    ]


def _encoded(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    path = re.sub(rb"(?i)%2f", b"/", match[0])
    new = private_path(path, memory)
    if new != path:
        yield *match.span(), new.replace(b"/", match[0][:3])


def _windows(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    yield from _with_separators(match, memory)


def _share(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    if not memory.names.is_label(match["host"]):
        memory.known.learn("host", match["host"])
        yield *match.span("host"), memory.names.label("host", match["host"].lower())
    yield from _with_separators(match, memory)


def _with_separators(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    """The parts of a path, whatever stands between them."""
    pieces = re.split(rb"([\\/]+)", match["rest"].lstrip(b"\\"))
    path = b"//" + b"/".join(pieces[::2])
    parts = private_path(path, memory).split(b"/")[2:]
    at = match.end("rest") - len(b"".join(pieces))
    for old, new in zip(pieces[::2], parts, strict=True):
        if old != new:
            yield at, at + len(old), new
        at += len(old) + (len(pieces[1]) if len(pieces) > 1 else 0)


def _replace(match: re.Match[bytes], memory: Memory) -> Iterator[Edit]:
    group = "path" if match["path"] else "late"
    before = match.string[max(0, match.start() - 1) : match.start()]
    path = match[group]
    if before == b":" and path.startswith(b"//"):
        return
    new = private_path(path, memory)
    if new != path:
        yield *match.span(group), new


def private_path(path: bytes, memory: Memory) -> bytes:
    """The path with what is private in it replaced.

    The user's folder becomes ``user-1``; each further part is kept where every installation may have it, where it names a model or where it
    stands in an installed package, and becomes ``dir-1`` or ``file-1.py`` elsewhere.
    """
    trailing = path[len(path.rstrip(b".")) :]
    parts = path[: len(path) - len(trailing)].split(b"/")
    kept = _kept_from(parts)
    last = len(parts) - 1
    user_at = _user_at(parts, kept)
    for at in range(2, min(kept, len(parts))):
        parts[at] = (
            _home(parts[at], memory)
            if at == user_at
            else _part(parts[at], memory, is_last=at == last, behind=parts[at - 1])
        )
    return b"/".join(parts) + trailing


def _user_at(parts: list[bytes], kept: int) -> int | None:
    """Which part is a user's folder: that behind ``home``, or behind its first letter there."""
    for at in range(1, min(kept, len(parts)) - 1):
        if parts[at] in _HOMES and (at <= 3 or parts[at] == b"Users"):
            return at + 2 if len(parts[at + 1]) == 1 and at + 2 < len(parts) else at + 1
    return None


def _home(name: bytes, memory: Memory) -> bytes:
    if memory.names.is_label(name) or name in _EVERYONES or name.startswith((b"$", b".")) or name.isdigit():
        return name
    memory.known.learn("user", name)
    return memory.names.label("user", name)


def _kept_from(parts: list[bytes]) -> int:
    """From which part on everything belongs to an installed package, or to the standard library."""
    if parts[1:2] == [b"opt"] and re.sub(rb"[-_.]?v?\d[\d.]*$", b"", parts[2].lower()) in _VENDORS:
        return 2
    for at, part in enumerate(parts):
        if at > 1 and (
            part in _KEPT_FROM
            or (part == b"lib" and at + 1 < len(parts) and parts[at + 1].startswith(b"python"))
        ):
            return at
    return len(parts)


def _part(part: bytes, memory: Memory, *, is_last: bool, behind: bytes) -> bytes:
    if (
        not part
        or part.lower() in _GENERIC
        or _GENERIC_FORM.fullmatch(part.lower())
        or memory.names.is_label(part)
    ):
        return part
    if behind in (b"bin", b"sbin") or _LIBRARY.fullmatch(part):
        return part
    file = _FILE.fullmatch(part) if is_last else None
    if file:
        stem = file["stem"]
        if _GENERIC_FILE.fullmatch(stem) or memory.names.is_label(stem) or _MODEL.search(stem):
            return part
        return memory.names.label("file", stem) + file["suffix"]
    if _MODEL.search(part) or (
        behind.lower() in (b"models", b"model", b"hub", b"checkpoints", b"llms") and is_last
    ):
        return part
    if len(part) >= 8 and re.search(rb"[\d\-]", part) and not is_ordinary(part):
        memory.known.learn("dir", part)
    return memory.names.label("dir", part)
