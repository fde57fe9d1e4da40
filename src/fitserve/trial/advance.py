"""How far a start is in what takes long, from the progress bars that vLLM prints, which are no lines to a log's reader.

Source: vLLM 0.32.0 ``model_executor/model_loader/weight_utils.py`` (``_BAR_FORMAT``, a line a shard) and
``v1/worker/gpu/cudagraph_utils.py``, ``v1/worker/gpu_model_runner.py`` (tqdm's own bar: ``desc:  45%|####  | 30/67 [...]``, one
line that is written over).
"""

import re

_TAIL_BYTES = 4096
_SHARDS = rb"[Ll]oading [^\r\n:%]*: +(?P<shards>\d+)% Completed"
_GRAPHS = rb"[Cc]apturing [^\r\n:%]*[Gg]raphs?[^\r\n:%]*: +\d+%\|[^\r\n|]*\| (?P<graphs>\d+/\d+)"
_COMPILE = rb"(?P<compile>Dynamo bytecode transform time)"
_DONE = rb"(?P<done>torch\.compile t(?:akes|ook)|Loading weights took|Model loading took|GPU KV cache size|Graph capturing finished)"
_ANY = re.compile(b"|".join((_SHARDS, _GRAPHS, _COMPILE, _DONE)))


def advance_after(before: str, output: bytes) -> str:
    """How far it is once more output has come: the newest bar counts; the end of a stretch takes it away.

    Args:
        before: how far it was.
        output: what has come; only its end is looked at.
    """
    found = None
    for found in _ANY.finditer(output[-_TAIL_BYTES:]):  # noqa: B007 - the last one is wanted
        pass
    if found is None:
        return before
    if shards := found["shards"]:
        return f"weights {int(shards)}%"
    if graphs := found["graphs"]:
        return f"graphs {graphs.decode()}"
    return "torch.compile" if found["compile"] else ""
