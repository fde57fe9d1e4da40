"""torch's out-of-memory texts, by torch release."""

from packaging.version import Version

from .machine import torch_size


def oom(
    release: str,
    *,
    want_mib: float,
    total_gib: float,
    free_mib: float,
    unused_mib: float = 183.4,
    gpu: int = 0,
    others_gib: float = 0.0,
    pid: int = 4021,
    hip: bool = False,
) -> str:
    """The text for a vLLM release: 2.0 (0.2.1), 2.1-2.2 (-0.4.1), 2.3-2.9 (0.4.2-0.16), 2.10+ (0.17+)."""
    if want_mib <= free_mib:
        raise ValueError(f"{want_mib} MiB fit into {free_mib}: torch would allocate")
    vllm = Version(release)
    total = total_gib * 1024
    mine = total - free_mib - others_gib * 1024
    torch_mib = mine - 410 - unused_mib
    device = "HIP" if hip else "CUDA"
    if vllm < Version("0.2.2"):
        return (
            f"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate {torch_size(want_mib)} (GPU {gpu}; {torch_size(total)} total capacity; "
            f"{torch_size(torch_mib)} already allocated; {torch_size(free_mib)} free; {torch_size(torch_mib + unused_mib)} reserved in total by PyTorch) "
            "If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF"
        )
    name = "torch.cuda.OutOfMemoryError" if vllm < Version("0.6.4") else "torch.OutOfMemoryError"
    word = "total capacty" if vllm < Version("0.4.1") else "total capacity"
    setting = "PYTORCH_CUDA_ALLOC_CONF" if vllm < Version("0.17") else "PYTORCH_ALLOC_CONF"
    if hip and vllm < Version("0.17"):
        setting = "PYTORCH_HIP_ALLOC_CONF"
    if vllm < Version("0.4.1"):
        last = f"If reserved but unallocated memory is large try setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and {setting}"
    else:
        last = (
            f"If reserved but unallocated memory is large try setting {setting}=expandable_segments:True to avoid fragmentation.  "
            f"See documentation for Memory Management  (https://{'docs.' if vllm >= Version('0.17') else ''}pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
        )
    if others_gib:
        use = f"Process {pid} has {torch_size(others_gib * 1024)} memory in use. Including non-PyTorch memory, this process has {torch_size(mine)} memory in use. "
    else:
        use = f"Including non-PyTorch memory, this process has {torch_size(mine)} memory in use. "
    return (
        f"{name}: {device} out of memory. Tried to allocate {torch_size(want_mib)}. GPU {gpu} has a {word} of {torch_size(total)} of which {torch_size(free_mib)} is free. "
        f"{use}Of the allocated memory {torch_size(torch_mib)} is allocated by PyTorch, and {torch_size(unused_mib)} is reserved by PyTorch but unallocated. {last}"
    )
