"""``fitserve plan`` as a user calls it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fitserve.diagnose.engine import diagnose_path
from fitserve.report.record import Record
from fitserve.store.journal import open_journal
from fitserve.trial.outcome import Trial

CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A directory with the configuration of Qwen 2.5 7B alone."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    return folder


def call(*words: object) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    command = [sys.executable, "-m", "fitserve", "plan", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def answer(*words: object) -> dict[str, Any]:
    """The JSON of a plan."""
    found: dict[str, Any] = json.loads(call("--json", *words).stdout)
    return found


def test_exit_codes(model: Path) -> None:
    """0 starts, 1 does not, 2 usage, 3 cannot be used."""
    codes = [
        call(model, "--gpu", "H100").returncode,
        call(model, "--gpu", "RTX 3060").returncode,
        call(model, "--gpu", "no such thing").returncode,
        call(model / "missing", "--gpu", "H100").returncode,
    ]

    assert codes == [0, 1, 2, 3]


def test_one_json_object_and_nothing_else(model: Path) -> None:
    """``--json`` prints one object with the settings and their sources."""
    found = answer(model, "--gpu", "H100", "--max-model-len", "32k", "--vllm-version", "0.19.0")

    assert found["settings"]["max_model_len"] == {"value": 32000, "source": "given"}
    assert found["settings"]["gpu_memory_utilization"] == {"value": 0.9, "source": "default of 0.19.0"}
    assert found["verdict"] == "starts"


def test_a_pasted_command_is_the_same(model: Path) -> None:
    """Options before and behind ``--``, in any spelling, mean the same."""
    plain = answer(model, "--gpu", "L4", "--max-model-len", "16K", "-tp", "2", "--kv-cache-dtype=fp8")
    pasted = answer(
        "--gpu",
        "L4",
        "--",
        "vllm",
        "serve",
        model,
        "--max_model_len",
        "16384",
        "--tensor-parallel-size=2",
        "--kv-cache-dtype",
        "fp8",
    )

    assert plain["settings"] == pasted["settings"]
    assert plain["budget"] == pasted["budget"]
    assert pasted["command"].startswith("vllm serve")


def test_variables_of_the_command_count(model: Path) -> None:
    """A variable in front of the launch changes the accounting."""
    words = ("--gpu", "H100", "--vllm-version", "0.25.0", "--")
    launch = ("vllm", "serve", model, "--max-model-len", "8192")
    with_estimate = answer(*words, "VLLM_USE_V2_MODEL_RUNNER=0", *launch)
    without = answer(
        *words, "VLLM_USE_V2_MODEL_RUNNER=0", "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0", *launch
    )

    assert with_estimate["budget"][0]["cuda_graph_bytes"]["expected"] > 0
    assert without["budget"][0]["cuda_graph_bytes"]["expected"] == 0


def test_the_numbers_of_a_log_count(model: Path, tmp_path: Path) -> None:
    """With ``--from-log`` what the boot measured stands in the budget, with its line."""
    log = tmp_path / "serve.log"
    log.write_text(
        "INFO 11-30 09:13:01 [core.py:96] Initializing a V1 LLM engine (v0.19.0) with config: "
        "model='model', max_seq_len=8192, tensor_parallel_size=1\n"
        "INFO 11-30 09:13:21 [gpu_model_runner.py:4567] Model loading took 14.25 GiB memory and 9.5 seconds\n",
        encoding="utf-8",
    )
    found = answer(model, "--gpu", "H100", "--from-log", log)
    weights = found["budget"][0]["weights_bytes"]

    assert found["vllm_version"] == "0.19.0"
    assert weights["basis"] == "measured"
    assert weights["source"] == "serve.log: line 2"
    assert weights["expected"] == round(14.25 * 2**30)


@pytest.mark.parametrize(
    "words", [["--gpu-memory-utilization", "1.5"], ["--max-model-len", "long"], ["--vllm-version", "x"]]
)
def test_wrong_values_are_usage_errors(model: Path, words: list[str]) -> None:
    """A wrong value ends with code 2 and a sentence, without a traceback."""
    ended = call(model, "--gpu", "H100", *words)

    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    assert ended.stderr.startswith(("error: ", "Usage: "))


def test_text_ends_with_a_command(model: Path) -> None:
    """Where it does not start, the text names the cause and gives a command alone on its line."""
    ended = call(model, "--gpu", "RTX 4090", "--vllm-version", "0.19.0", "--gpu-memory-utilization", "0.7")

    assert ended.stdout.startswith("plan[")
    assert f"    vllm serve {model} " in ended.stdout


def test_the_image_of_a_container_names_the_release(model: Path) -> None:
    """Release and variables of a pasted ``docker run`` count."""
    words = ("--gpu", "H100", "--", "docker", "run", "--gpus", "all", "-e", "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1")
    found = answer(*words, "vllm/vllm-openai:v0.19.1", "--model", model, "--max-model-len", "64K")

    assert found["vllm_version"] == "0.19.1"
    assert found["cause"] != "context-beyond-model-limit"


def test_overrides_of_the_configuration_count(model: Path) -> None:
    """``--hf-overrides`` changes what the model allows."""
    overrides = '{"rope_scaling": {"rope_type": "linear", "factor": 2.0}}'
    found = answer(model, "--gpu", "H100", "--hf-overrides", overrides)

    assert found["settings"]["max_model_len"]["value"] == 65536


@pytest.mark.parametrize(("ranks", "tokens"), [(1, 20480), (2, 40960)])
def test_the_real_cpu_engine_printed_the_same(tiny_model: Path, ranks: int, tokens: int) -> None:
    """The tiny model's cache is what vLLM 0.32 printed for 40 MB on the CPU, on one rank and on two."""
    given = ("--max-model-len", "2048", "--kv-cache-memory-bytes", "40M", "-tp", ranks)
    found = answer(tiny_model, "--gpu", "cpu", "--gpu-total-gib", "12", "--vllm-version", "0.32.0", *given)

    assert found["kv_cache"]["tokens"]["expected"] == tokens
    assert found["kv_cache"]["max_concurrency"] == tokens / 2048
    assert found["verdict"] == "starts"


def test_a_goal_that_is_not_met_is_a_no(model: Path) -> None:
    """It starts, and the goal that was asked for is not met: the answer is no, in the exit code too."""
    done = call(model, "--gpu", "RTX 4090", "--max-model-len", "32k", "--goal-concurrency", "500")

    assert 1 == done.returncode
    assert "the goal, 500 requests at once, is not met by these settings" in done.stdout


def test_an_unknown_device_has_similar_names(model: Path) -> None:
    """A device that the table does not have is answered with the names that are spelled like it."""
    done = call(model, "--gpu", "l4x")

    assert 2 == done.returncode
    assert "did you mean NVIDIA L4" in done.stderr


def test_a_missing_folder_is_told_before_a_missing_gpu() -> None:
    """The model is looked for first."""
    done = call("/no/such/folder")

    assert 3 == done.returncode
    assert done.stderr.startswith("error: there is no such directory or file\n  --> /no/such/folder\n")


@pytest.mark.parametrize(
    ("words", "tokens"),
    [
        ("32k", 32000),
        ("32K", 32768),
        ("25.6k", 25600),
        ("0.03m", 30000),
        ("4096", 4096),
        ("auto", 32768),
        ("-1", 32768),
    ],
)
def test_lengths_read_as_vllm_reads_them(model: Path, words: str, tokens: int) -> None:
    """A small suffix counts in thousands, a large one in 1,024; ``auto`` and -1 are fitted."""
    found = answer(model, "--gpu", "H100", "--max-model-len", words)

    assert tokens == found["settings"]["max_model_len"]["value"]


@pytest.mark.parametrize(
    "words",
    [
        ["--max-model-len", "25.6K"],
        ["--max-model-len", "4e3"],
        ["--max-model-len", "0"],
        ["--max-model-len", "-2"],
        ["--max-model-len"],
        ["--max-num-seqs", "1k"],
        ["--gpu-memory-utilization", "90%"],
        ["--gpu-memory-utilization", "0"],
        ["--gpu-memory-utilization", "nan"],
        ["--kv-cache-memory-bytes", "20GiB"],
        ["--kv-cache-memory-bytes", "-1"],
        ["--tensor-parallel-size", "2.0"],
        ["--enforce-eager", "true"],
        ["--enforce-eager=true"],
        ["--no-enable-prefix-caching=false"],
        ["--compilation-config", "nonsense"],
        ["--compilation-config", "[1]"],
        ["--limit-mm-per-prompt", "image"],
        ["--attention-config={"],
        ["--goal-context", "32KiB"],
    ],
)
def test_values_that_vllm_refuses_are_usage_errors(model: Path, words: list[str]) -> None:
    """What vLLM's own parser does not read ends with code 2, in JSON too."""
    done = call("--json", model, "--gpu", "H100", *words)

    assert 2 == done.returncode
    assert "Traceback" not in done.stderr


def test_a_size_of_nothing_is_not_given(model: Path) -> None:
    """To vLLM ``--kv-cache-memory-bytes 0`` is no size at all."""
    zero = answer(model, "--gpu", "H100", "--kv-cache-memory-bytes", "0")

    assert answer(model, "--gpu", "H100")["kv_cache"] == zero["kv_cache"]


@pytest.mark.parametrize(
    "launch",
    [
        [
            "python",
            "-m",
            "vllm.entrypoints.openai.api_server",
            "--model",
            "MODEL",
            "--max-model-len=16K",
            "-tp",
            "2",
        ],
        [
            "python3",
            "-mvllm.entrypoints.openai.api_server",
            "--model=MODEL",
            "--max_model_len",
            "16384",
            "-tp=2",
        ],
        ["A=b", "vllm", "serve", "MODEL", "--max-model", "16K", "-tp", "2"],
        ["env", "A=b", "vllm", "serve", "--tensor-parallel-size", "2", "MODEL", "--max-model-len", "16K"],
        [
            "docker",
            "run",
            "--gpus",
            "all",
            "-e",
            "A=b",
            "vllm/vllm-openai:v0.32.0",
            "MODEL",
            "--max-model-len",
            "16K",
            "-tp",
            "2",
        ],
        ["vllm serve MODEL --max-model-len 16K -tp 2"],
        ["bash", "-c", "vllm serve MODEL --max-model-len 16K -tp 2"],
        ["vllm", "serve", "--config", "CONFIG"],
    ],
)
def test_every_spelling_of_a_launch(model: Path, tmp_path: Path, launch: list[str]) -> None:
    """However the launch is typed, the settings are the same, and the command keeps its own words."""
    config = tmp_path / "serve.yaml"
    config.write_text(f"model: {model}\nmax-model-len: 16K\ntensor_parallel_size: 2\n", encoding="utf-8")
    words = [word.replace("MODEL", str(model)).replace("CONFIG", str(config)) for word in launch]
    common = ("--gpu", "H100", "--vllm-version", "0.32.0")
    plain = answer(*common, model, "--max-model-len", "16K", "-tp", "2")
    pasted = answer(*common, "--", *words)

    assert plain["settings"] == pasted["settings"]
    assert plain["kv_cache"] == pasted["kv_cache"]
    assert "vllm" in pasted["command"]


def test_variables_stay_in_the_command(model: Path) -> None:
    """What stands before the program is typed again."""
    found = answer("--gpu", "H100", "--", "VLLM_USE_V1=1", "vllm", "serve", model)

    assert f"VLLM_USE_V1=1 vllm serve {model}" == found["command"]


def test_a_missing_config_file_is_named(tmp_path: Path) -> None:
    """Without its config file a launch is not guessed at, pasted or not."""
    missing = tmp_path / "none.yaml"
    ended = [
        call("--gpu", "H100", "--", "vllm", "serve", "--config", missing),
        call("--gpu", "H100", "model", "--config", missing),
    ]

    assert [3, 3] == [one.returncode for one in ended]
    assert all(f"--config {missing}" in one.stderr for one in ended)


@pytest.mark.parametrize("value", ["nojson", "[]", '{"num_key_value_heads": 3}', '{"rope_scaling": "x"}'])
def test_overrides_that_cannot_be_are_usage_errors(model: Path, value: str) -> None:
    """What ``--hf-overrides`` makes of the configuration is held to the same rules, and the option is named."""
    done = call(model, "--gpu", "H100", "--hf-overrides", value)

    assert 2 == done.returncode
    assert "--hf-overrides" in done.stderr


LOG = (
    "INFO 11-30 09:13:01 [core.py:96] Initializing a V1 LLM engine (v0.19.0) with config: "
    "model='model', max_seq_len=8192, tensor_parallel_size=1\n"
    "INFO 11-30 09:13:21 [gpu_model_runner.py:4567] Model loading took 14.25 GiB memory and 9.5 seconds\n"
    "INFO 11-30 09:13:41 [gpu_worker.py:456] Available KV cache memory: 52.75 GiB\n"
)


def keep_run(folder: Path, log: str, argv: list[str]) -> str:
    """A run of the journal that made one start; its id."""
    path = folder / "serve.log"
    path.write_text(log, encoding="utf-8")
    run = "20261201-152233-7f3a9c"
    trial = Trial(n=1, argv=argv, outcome="served", seconds=1.0, diagnosis=diagnose_path(path))
    record = Record(
        run=run,
        kind="fix",
        started_utc="2026-12-01T15:22:33Z",
        fitserve_version="1",
        command=argv,
        trials=[trial],
    )
    open_journal({"FITSERVE_DATA_DIR": str(folder)}).save(record)
    return run


def test_the_numbers_of_a_run_count(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``--from-run`` the settings and the memory of its last start count, and what is given besides changes them."""
    argv = ["vllm", "serve", str(model), "--max-model-len", "8192", "--max-num-seqs", "64"]
    run = keep_run(tmp_path, LOG, argv)
    monkeypatch.setenv("FITSERVE_DATA_DIR", str(tmp_path))
    same = answer(model, "--gpu", "H100", "--from-run", run)
    longer = answer(model, "--gpu", "H100", "--from-run", "last", "--max-model-len", "16384")

    assert (8192, 64) == tuple(same["settings"][name]["value"] for name in ("max_model_len", "max_num_seqs"))
    assert round(52.75 * 2**30) == pytest.approx(same["budget"][0]["kv_cache_bytes"]["expected"], abs=2**23)
    assert f"start 1 of {run}" in same["budget"][0]["weights_bytes"]["source"]
    assert (16384, 64) == tuple(
        longer["settings"][name]["value"] for name in ("max_model_len", "max_num_seqs")
    )
    assert same["budget"][0]["kv_cache_bytes"] == longer["budget"][0]["kv_cache_bytes"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--from-run", "20200101-000000-000000"], 3, "20200101-000000-000000"),
        (["--from-run", "last", "--from-log", "serve.log"], 2, "one start at a time"),
        (["--from-run", "last"], 3, "no start of it shows its memory"),
    ],
)
def test_a_run_that_tells_nothing_is_named(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    words: list[str],
    code: int,
    said: str,
) -> None:
    """No such run, two sources, a run without memory: one sentence each."""
    keep_run(
        tmp_path,
        "INFO 11-30 09:13:01 [api_server.py:1] vLLM API server version 0.19.0\n",
        ["vllm", "serve", "m"],
    )
    monkeypatch.setenv("FITSERVE_DATA_DIR", str(tmp_path))
    ended = call(model, "--gpu", "H100", *words)

    assert code == ended.returncode
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("words", "setting"),
    [
        (["-cc.cudagraph_mode=NONE"], ("max_cudagraph_capture_size", 0)),
        (["-O0"], ("enforce_eager", True)),
        (["-dph", "-tp", "2"], ("tensor_parallel_size", 2)),
        (["-q", "fp8"], ("quantization", "fp8")),
        (["-q=fp8"], ("quantization", "fp8")),
        (["-q"], ("quantization", None)),
    ],
)
def test_short_options_are_vllms(
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    setting: tuple[str, object],
) -> None:
    """No letter inside one of vLLM's short options is an option of the tool: no help, no file is written."""
    monkeypatch.chdir(tmp_path)
    found = answer(model, "--gpu", "H100", *words)

    assert ("starts", setting[1]) == (found["verdict"], found["settings"][setting[0]]["value"])
    assert ["model"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.parametrize("option", ["--gpu-total-gib", "--gpu-free-gib"])
@pytest.mark.parametrize("value", ["nan", "inf", "-1"])
def test_memory_that_is_no_number_is_a_usage_error(model: Path, option: str, value: str) -> None:
    """A device's memory is a finite number."""
    done = call(model, "--gpu", "H100", option, value)

    assert (2, True) == (done.returncode, option in done.stderr)


@pytest.mark.parametrize(
    ("words", "length"),
    [
        (["--hf-overrides.max_position_embeddings", "65536"], 65536),
        (["--hf-overrides.max_position_embeddings=64K"], 65536),
        (
            ["--hf-overrides.rope_scaling.rope_type", "linear", "--hf-overrides.rope_scaling.factor", "2.0"],
            65536,
        ),
        (
            [
                "--hf-overrides.max_position_embeddings",
                "65536",
                "--hf-overrides",
                '{"max_position_embeddings": 9}',
            ],
            65536,
        ),
        (
            [
                "--hf-overrides",
                '{"max_position_embeddings": 9}',
                "--hf-overrides.tie_word_embeddings",
                "true",
            ],
            32768,
        ),
    ],
)
def test_dotted_parts_are_one_value_behind_all_others(model: Path, words: list[str], length: int) -> None:
    """Parts of any depth make up an object, and a whole value beside them does not count, as in vLLM's parser."""
    found = answer(model, "--gpu", "H100", *words)

    assert ("starts", length) == (found["verdict"], found["settings"]["max_model_len"]["value"])


def test_a_graph_mode_that_no_release_has(model: Path) -> None:
    """A value inside of JSON is looked at too."""
    found = answer(model, "--gpu", "H100", "--compilation-config", '{"cudagraph_mode": "SOME"}')

    assert ("does-not-start", "unknown-flag") == (found["verdict"], found["cause"])


@pytest.mark.parametrize(("value", "on"), [("True", True), ("False", False)])
def test_a_switch_that_took_a_word(model: Path, value: str, *, on: bool) -> None:
    """Releases before 0.9 read ``--enable-chunked-prefill=False``."""
    words = ("--gpu", "H100", "--vllm-version", "0.6.6", f"--enable-chunked-prefill={value}")

    assert on is answer(model, *words)["settings"]["enable_chunked_prefill"]["value"]


@pytest.mark.parametrize(
    "name",
    [
        "H100 MIG 3g.40gb",
        "A100 3g.20gb",
        "A100 64GB",
        "RTX 4090 Laptop GPU",
        "NVIDIA A40-48Q",
        "RTX 3080 12GB",
    ],
)
def test_another_product_of_a_device_is_not_the_device(model: Path, name: str) -> None:
    """A slice, a virtual device, a notebook's or another amount of memory is never taken for the whole; its size may be given."""
    done = call(model, "--gpu", name)
    sized = answer(model, "--gpu", name, "--gpu-total-gib", 15)

    assert (2, True) == (done.returncode, "--gpu-total-gib" in done.stderr)
    assert 15 << 30 == sized["budget"][0]["total_bytes"]


@pytest.mark.parametrize(
    "name", ["A10 24GB", "L40S 48GB", "B200 192GB", "H100 80GB", "GH200 480GB", "RTX 4090 48GB"]
)
def test_a_makers_round_size_is_the_device(model: Path, name: str) -> None:
    """Sizes on the box are round; a device of that name with about that memory is meant."""
    assert call(model, "--gpu", name).returncode in (0, 1)


def test_a_shard_that_is_missing_is_noted(model: Path) -> None:
    """The configuration is planned for; that a file of its weights is not there yet is said."""
    names = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    text = json.dumps({"weight_map": dict(zip("ab", names, strict=True))})
    (model / "model.safetensors.index.json").write_text(text, encoding="utf-8")
    none_there = answer(model, "--gpu", "H100")["notes"]
    (model / names[0]).write_bytes(bytes(8))
    one_there = answer(model, "--gpu", "H100")["notes"]

    assert [f"the index names {names[1]}, which is not in the folder: vLLM does not start without"] == [
        note for note in one_there if note not in none_there
    ]


@pytest.mark.parametrize(
    "text", ["[1, 2", "- max-model-len", "{max-model-len: 8192}", "max-model-len: 1: 2", "a\tb"]
)
def test_a_config_file_without_options_is_refused(model: Path, tmp_path: Path, text: str) -> None:
    """What cannot be read as options is never passed over."""
    (tmp_path / "serve.yaml").write_text(text, encoding="utf-8")
    done = call(model, "--gpu", "H100", "--config", tmp_path / "serve.yaml")

    assert (3, True) == (done.returncode, f"--config {tmp_path / 'serve.yaml'}" in done.stderr)


@pytest.mark.parametrize(
    ("shown", "more", "cause"),
    [
        ("0,1", [], "not-enough-gpus"),
        ("", [], "not-enough-gpus"),
        ("0,1,-1,2,3", [], "not-enough-gpus"),
        ("0,1,2,3", [], None),
        ("$DEVICES", [], None),
        ("0,1", ["--nnodes", "2"], None),
        ("0,1", ["--distributed-executor-backend", "ray"], None),
    ],
)
def test_devices_that_the_launch_shows_count(
    model: Path, shown: str, more: list[str], cause: str | None
) -> None:
    """``CUDA_VISIBLE_DEVICES`` in front of the command bounds its ranks, but for those on other machines."""
    launch = [f"CUDA_VISIBLE_DEVICES={shown}", "vllm", "serve", str(model), "-tp", "4", *more]

    assert cause == answer("--gpu", "H100", "--", *launch)["cause"]
