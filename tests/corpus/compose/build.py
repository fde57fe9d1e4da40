"""Compilers, ports and disks: kernel-compile-failed, port-in-use, disk-full."""

from . import boot, fail, v0, wrap
from .case import Case, act
from .machine import (
    BRISA_8B,
    KESTREL_7B,
    MIRADOR_7B,
    SOLANO_24B,
    TARN_32B,
)
from .occupied import until_device
from .story import Line, Story
from .weights import until_load


def compilers() -> list[Case]:
    """kernel-compile-failed."""
    out = []
    forward = (*fail.PROFILE, *fail.FORWARD)
    for id_, release, seed, error, first, wrapper, tag, title in (
        (
            "compile-085-cc",
            "0.8.5",
            261,
            "RuntimeError: Failed to find C compiler. Please specify via CC environment variable or set triton.knobs.build.impl.",
            0,
            None,
            "bare",
            "Triton finds no C compiler",
        ),
        (
            "compile-0141-cxx",
            "0.14.1",
            262,
            "torch._inductor.exc.InductorError: InvalidCxxCompiler: No working C++ compiler found in torch._inductor.config.cpp.cxx: (None, 'g++')",
            0,
            wrap.compose("slim"),
            "compose",
            "a slim image without g++",
        ),
        (
            "compile-0220-python",
            "0.22.1",
            263,
            "subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/tmp/tmp9x2m/cuda_utils.c', '-O3', '-shared', '-fPIC', '-o', '/tmp/tmp9x2m/cuda_utils.so', '-lcuda', '-I/usr/include/python3.12']' returned non-zero exit status 1.",
            0,
            wrap.ansi(),
            "ansi",
            "Python.h is missing",
        ),
        (
            "compile-0290-ptxas",
            "0.29.0",
            264,
            "triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error\n`ptxas` stderr:\nptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'\n\nRepro command: /usr/local/lib/python3.12/dist-packages/triton/backends/nvidia/bin/ptxas -lineinfo -v --gpu-name=sm_121a /tmp/tmpq1.ptx -o /tmp/tmpq1.ptx.o",
            2,
            wrap.fence("DGX Spark, fresh container:"),
            "markdown-fence",
            "ptxas does not know the card",
        ),
        (
            "compile-0112-nvcc",
            "0.11.2",
            265,
            "RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist",
            0,
            wrap.actions(),
            "github-actions",
            "FlashInfer wants nvcc",
        ),
    ):
        story = Story(release, seed=seed)
        until_load(story, KESTREL_7B, {"max_model_len": 8192}, length=8192)
        boot.shards(story, KESTREL_7B)
        boot.loaded(story, 14.25)
        if id_.endswith("python"):
            story.raw(
                "/tmp/tmp9x2m/cuda_utils.c:6:10: fatal error: Python.h: No such file or directory\n    6 | #include <Python.h>\n      |          ^~~~~~~~~~\ncompilation terminated.",
                proc="core",
                mark="",
            )
            story.lines[-4] = Line(story.lines[-4].text, "cause")
        before = len(story.lines)
        fail.fail_in_core(story, forward, error, mark="echo" if id_.endswith("python") else "cause")
        if first:
            _move(story.lines, before, first)
        out.append(
            Case(
                id_,
                title,
                release,
                "kernel-compile-failed",
                wrap.chain(story.lines, *([wrapper] if wrapper else [])),
                [tag],
                suggest=[
                    *act("newer-cuda-toolkit", "install-compiler"),
                    {"flag": "enforce_eager"},
                    {"flag": "VLLM_USE_FLASHINFER_SAMPLER"},
                ],
            )
        )
    return out


def _move(lines: list[Line], start_at: int, down: int) -> None:
    """Put the marks of a message `down` lines lower, where it becomes specific."""
    for at in [n for n in range(start_at, len(lines)) if lines[n].mark]:
        lines[at + down], lines[at] = Line(lines[at + down].text, lines[at].mark), Line(lines[at].text)


def ports_and_disks() -> list[Case]:
    """port-in-use, disk-full."""
    out = []
    story = Story("0.5.4", seed=271, site="/opt/conda/lib/python3.10/site-packages")
    v0.banner(story, MIRADOR_7B, {"port": 8000})
    v0.engine(story, MIRADOR_7B, length=4096, dtype="float16")
    v0.load(story, MIRADOR_7B, 12.55)
    v0.blocks(story, 2711, 512, 4096)
    v0.captured(story)
    story.raw(
        "INFO:     Started server process [2214]\nINFO:     Waiting for application startup.\nINFO:     Application startup complete."
    )
    story.raw(
        "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use",
        mark="cause",
    )
    story.raw("INFO:     Waiting for application shutdown.\nINFO:     Application shutdown complete.")
    out.append(
        Case(
            "port-054-late",
            "all went well until the bind; looks healthy at first",
            "0.5.4",
            "port-in-use",
            story.lines,
            ["bare", "v0"],
            {"port": 8000},
        )
    )

    story = Story("0.14.1", seed=272)
    boot.banner(story, BRISA_8B, {"port": 8080})
    story.trace(
        story.frames(
            *fail.SERVE,
            "openai/api_server.py:run_server:setup_server(args)",
            "openai/api_server.py:setup_server:create_server_socket(",
            "openai/api_server.py:create_server_socket:sock.bind(addr)",
        ),
        "OSError: [Errno 98] Address already in use",
        proc="api",
        mark="cause",
    )
    out.append(
        Case(
            "port-0141-early",
            "the socket is bound before anything loads",
            "0.14.1",
            "port-in-use",
            wrap.chain(story.lines, wrap.journald("edge3", "vllm")),
            ["journald"],
            {"port": 8080},
        )
    )

    story = Story("0.10.2", seed=273)
    until_device(story, TARN_32B, {"data_parallel_size": 2, "data_parallel_rpc_port": 13345}, length=8192)
    fail.fail_in_core(
        story,
        (
            "v1/engine/core.py:DPEngineCoreProc._init_data_parallel:stateless_init_dp_group()",
            "!~/torch/distributed/rendezvous.py:189:_create_c10d_store:return TCPStore(",
        ),
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 13345, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
    )
    out.append(
        Case(
            "port-0102-dp",
            "the data-parallel port is still held",
            "0.10.2",
            "port-in-use",
            wrap.chain(story.lines, wrap.ray("ServeReplica:llm", 4410)),
            ["ray-serve"],
            {"port": 13345},
        )
    )

    story = Story("0.11.2", seed=274)
    until_load(story, TARN_32B, {"max_model_len": 8192}, length=8192)
    fail.fail_in_core(
        story,
        (
            *fail.MODEL_EXECUTOR,
            *fail.LOAD[:8],
            "!~/huggingface_hub/file_download.py:1797:_download_to_tmp_and_move:http_get(",
            "!~/huggingface_hub/file_download.py:494:http_get:temp_file.write(chunk)",
        ),
        "OSError: [Errno 28] No space left on device",
    )
    case = Case(
        "disk-0112-download",
        "the volume fills while the weights come down",
        "0.11.2",
        "disk-full",
        wrap.chain(story.lines, wrap.kubectl()),
        ["kubectl"],
        suggest=[*act("free-disk"), {"flag": "download_dir"}, {"flag": "HF_HOME"}],
    )
    out.append(case)

    story = Story("0.24.0", seed=275)
    until_load(story, SOLANO_24B, {"max_model_len": 8192}, length=8192)
    fail.fail_in_core(
        story,
        (
            *fail.MODEL_EXECUTOR,
            *fail.LOAD[:8],
            "!~/huggingface_hub/file_download.py:628:xet_get:download_files(",
        ),
        "RuntimeError: Data processing error: I/O error: No space left on device (os error 28)",
    )
    out.append(
        Case(
            "disk-0240-xet",
            "the Xet downloader's words",
            "0.24.0",
            "disk-full",
            wrap.chain(story.lines, wrap.compose("dl")),
            ["compose"],
            suggest=[*act("free-disk"), {"flag": "download_dir"}, {"flag": "HF_HOME"}],
        )
    )

    story = Story("0.19.1", seed=276)
    until_load(story, KESTREL_7B, {"max_model_len": 8192}, length=8192)
    boot.shards(story, KESTREL_7B)
    boot.loaded(story, 14.25)
    fail.fail_in_core(
        story,
        (*fail.PROFILE, *fail.FORWARD),
        "OSError: [Errno 28] No space left on device: '/root/.triton/cache/NXQ3J5/tmp.pid_412_99'",
    )
    out.append(
        Case(
            "disk-0191-triton",
            "Triton's cache on a full disk",
            "0.19.1",
            "disk-full",
            wrap.chain(story.lines, wrap.docker_json()),
            ["docker-json"],
            suggest=[*act("free-disk"), {"flag": "TRITON_CACHE_DIR"}, {"flag": "VLLM_CACHE_ROOT"}],
        )
    )
    return out


def cases() -> list[Case]:
    """This family's cases."""
    return [*compilers(), *ports_and_disks()]
