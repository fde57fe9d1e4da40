"""checkpoint-broken: missing, truncated and mismatching weight files."""

from . import boot, fail, v0, wrap
from .case import Case
from .machine import BRISA_8B, COBALT_MOE, KESTREL_7B, MIRADOR_7B, TARN_32B
from .story import Line, Story
from .weights import until_load

ITERATE = (
    *fail.MODEL_EXECUTOR,
    *fail.LOAD[:7],
    "model_loader/base_loader.py:BaseModelLoader.load_model:self.load_weights(",
    "model_loader/default_loader.py:DefaultModelLoader.load_weights:model.load_weights(",
    "model_loader/weight_utils.py:safetensors_weights_iterator:safe_open(",
)


def cases() -> list[Case]:
    """This family's cases."""
    out = []
    story = Story("0.5.4", seed=401, site="/opt/conda/lib/python3.10/site-packages")
    v0.banner(story, MIRADOR_7B, {})
    v0.engine(story, MIRADOR_7B, length=4096, dtype="float16")
    v0.load(story, MIRADOR_7B, 12.55, upto=0)
    v0.fail(
        story,
        (*v0.LOADING, "model_loader/weight_utils.py:safetensors_weights_iterator:safe_open("),
        "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge",
    )
    out.append(
        Case(
            "checkpoint-054-lfs",
            "git-lfs pointers instead of weights",
            "0.5.4",
            "checkpoint-broken",
            story.lines,
            ["bare", "v0"],
        )
    )

    story = Story("0.11.2", seed=402)
    until_load(story, BRISA_8B, {}, length=8192)
    boot.shards(story, BRISA_8B, upto=2)
    fail.fail_in_core(
        story,
        ITERATE,
        "safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not fully covered",
    )
    out.append(
        Case(
            "checkpoint-0112-short",
            "an interrupted download",
            "0.11.2",
            "checkpoint-broken",
            wrap.chain(story.lines, wrap.ansi()),
            ["ansi"],
        )
    )

    story = Story("0.20.2", seed=403)
    until_load(story, KESTREL_7B, {"load_format": "safetensors"}, length=8192)
    fail.fail_in_core(
        story,
        (
            *ITERATE[:-1],
            "model_loader/default_loader.py:DefaultModelLoader._prepare_weights:raise RuntimeError(",
        ),
        "RuntimeError: Cannot find any model weights with `/models/kestrel-7b`",
    )
    out.append(
        Case(
            "checkpoint-0202-empty",
            "only the small files were copied",
            "0.20.2",
            "checkpoint-broken",
            wrap.chain(story.lines, wrap.kubectl()),
            ["kubectl"],
            acceptable=["model-not-found"],
            suggest=[{"action": "re-download-weights"}, {"action": "check-model-path"}],
        )
    )

    story = Story("0.16.0", seed=404)
    until_load(story, TARN_32B, {"tensor_parallel_size": 4}, length=8192, world=4)
    boot.shards(story, TARN_32B, upto=5)
    fail.fail_at_worker_start(
        story,
        3,
        "load_model",
        ITERATE,
        "safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not fully covered",
    )
    for rank in (0, 1, 2):
        story.raw(
            f"[rank{rank}]:[E314 09:32:41.10{rank} ProcessGroupNCCL.cpp:685] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600013 milliseconds before timing out.",
            proc=f"rank{rank}",
        )
    fail.fail_after_worker_start(story)
    out.append(
        Case(
            "checkpoint-0160-rank3",
            "rank 3 has the bad file, the others time out later",
            "0.16.0",
            "checkpoint-broken",
            wrap.chain(story.lines, wrap.compose("tp4")),
            ["compose", "different-earlier-rank", "multi-rank"],
            {"tensor_parallel_size": 4},
            harmful=[{"flag": "gpu_memory_utilization", "direction": "up"}, {"action": "fix-nccl"}],
        )
    )

    story = Story("0.29.0", seed=405)
    until_load(story, COBALT_MOE, {}, length=8192)
    boot.shards(story, COBALT_MOE, upto=16)
    fail.fail_in_core(
        story,
        (*ITERATE[:-2], "model_loader/default_loader.py:DefaultModelLoader.load_weights:raise ValueError("),
        "ValueError: Following weights were not initialized from checkpoint: {'model.layers.47.mlp.experts.w2_weight', 'model.layers.47.mlp.experts.w13_weight', 'model.norm.weight'}",
    )
    out.append(
        Case(
            "checkpoint-0290-missing",
            "the last shard is not in the index",
            "0.29.0",
            "checkpoint-broken",
            wrap.chain(story.lines, wrap.docker_json()),
            ["docker-json"],
        )
    )
    return out


__all__ = ["Line", "cases"]
