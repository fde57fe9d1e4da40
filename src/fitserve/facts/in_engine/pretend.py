"""A CUDA device and a group of ranks that are not there, for building vLLM's model classes on the meta device.

No kernel is ever called and no CUDA context is made: what vLLM asks of a device while it builds a model is answered here, and
modules of compiled kernels that this build lacks are stood in for by empty ones. Written against vLLM 0.32.0.
"""

import contextlib
import importlib.machinery
import importlib.util
import sys
import types
from typing import Any

import torch

_KERNEL_MODULES = (
    "vllm._C",
    "vllm._C_stable_libtorch",
    "vllm._moe_C",
    "vllm._moe_C_stable_libtorch",
    "vllm.vllm_flash_attn._vllm_fa2_C",
    "vllm.vllm_flash_attn._vllm_fa3_C",
    "vllm._flashmla_C",
    "vllm._flashmla_extension_C",
    "vllm.third_party.flashmla.flash_mla_interface",
    "cutlass",
    "cuda",
    "cuda.bindings",
    "cuda.bindings.driver",
    "cuda.bindings.runtime",
)
_IMAGE_MODULES = (
    "torchvision",
    "torchvision.io",
    "torchvision.transforms",
    "torchvision.transforms.functional",
    "torchvision.transforms.v2",
    "torchvision.transforms.v2.functional",
)
_KERNEL_SPACES = ("_C", "_moe_C", "_vllm_fa", "_flashmla")
_DEVICES = 1024


class _Empty(type):
    """A class without content; every member that is asked for is there, and is such a class."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _empty(name)


def _empty(name: str) -> _Empty:
    return _Empty(name, (), {"__init__": lambda *_, **__: None})


class _EmptyModule(types.ModuleType):
    """A module where every name is a class without content."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _empty(name)


class _Kernel:
    """A compiled operator that is registered but never called."""

    default = None

    def __call__(self, *_: Any, **__: Any) -> bool:
        return True

    def __getattr__(self, name: str) -> "_Kernel":
        if name.startswith("__"):
            raise AttributeError(name)
        return _Kernel()


class _Silent:
    """Takes every call and does nothing."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


class _TuningConfig:
    """A kernel's tuning, as triton describes one."""

    def __init__(self, kwargs: Any = None, num_stages: int = 1, num_warps: int = 4, **_: Any) -> None:
        self.kwargs = kwargs or {}
        self.num_stages = num_stages
        self.num_warps = num_warps


class Group:
    """The first rank of a group whose other ranks are not there."""

    def __init__(self, ranks: int) -> None:
        self.world_size = ranks
        self.rank = self.rank_in_group = self.local_rank = self.first_rank = 0
        self.ranks = list(range(ranks))
        self.last_rank = ranks - 1
        self.is_first_rank = True
        self.is_last_rank = ranks == 1
        self.device = torch.device("meta")
        self.cpu_group = self.device_group = self
        self.use_device_communicator = self.use_custom_op_call = False
        self.device_communicator = self.mq_broadcaster = None
        self.unique_name = "pretended"

    def size(self) -> int:
        """The number of ranks, as a torch process group tells it."""
        return self.world_size

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *_, **__: None


class Everything(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
    """Tensors are made on the meta device wherever the code wants them, and their values are never needed."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the function, away from any device."""
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        on_meta = bool(args) and isinstance(args[0], torch.Tensor) and args[0].device.type == "meta"
        if on_meta and name == "nonzero":
            return torch.empty(max(1, args[0].numel()), args[0].dim(), dtype=torch.int64, device="meta")
        if on_meta and name == "where" and len(args) == 1:
            return (torch.empty(max(1, args[0].numel()), dtype=torch.int64, device="meta"),)
        if on_meta and name in ("item", "tolist"):
            return 0
        device = kwargs.get("device")
        if device is not None and "cpu" not in str(device):
            kwargs["device"] = "meta"
        if name in ("to", "cuda"):
            args = tuple(torch.device("meta") if _is_device(arg) else arg for arg in args)
        return func(*args, **kwargs)


def _is_device(value: Any) -> bool:
    return isinstance(value, torch.device) or (isinstance(value, str) and value.startswith("cuda"))


def pretend_images() -> None:
    """Stand in for torchvision where it is missing: models with images import it, and building them needs none of it."""
    if importlib.util.find_spec("torchvision") is None:
        from transformers.utils.import_utils import is_torchvision_available

        # The answer is kept: transformers must go on knowing that the real one is not there.
        is_torchvision_available()
        for name in _IMAGE_MODULES:
            _stand_in(name)


def pretend_ranks(tensor_parallel_size: int) -> None:
    """This process is the first of so many tensor parallel ranks."""
    import vllm.distributed.parallel_state as parallel

    shared = Group(tensor_parallel_size)
    for name in ("_TP", "_EP", "_EPLB", "_WORLD", "_ETP", "_INNER_DP_WORLD"):
        setattr(parallel, name, shared)
    for name in ("_PP", "_DP", "_DCP", "_PCP"):
        setattr(parallel, name, Group(1))
    parallel._NODE_COUNT = 1  # noqa: SLF001 - vLLM has no other door


def pretend_cuda(device: dict[str, Any]) -> None:
    """A CUDA device: ``name``, ``total_bytes``, ``compute_capability`` and ``multiprocessors``. Before vLLM is imported."""
    capability = tuple(device["compute_capability"])
    if torch.version.cuda is None:
        for name in _KERNEL_MODULES:
            _stand_in(name)
        _pretend_kernels()
    _pretend_torch(device, capability)
    _pretend_platform(device, capability)
    from vllm import triton_utils

    if not triton_utils.HAS_TRITON:
        triton_utils.triton.Config = _TuningConfig
    from vllm.model_executor.layers import sparse_attn_indexer

    sparse_attn_indexer.has_deep_gemm = lambda: True


def _stand_in(name: str) -> None:
    module = _EmptyModule(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    module.__path__ = []
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if isinstance(sys.modules.get(parent), _EmptyModule):
        setattr(sys.modules[parent], child, module)


def _pretend_kernels() -> None:
    """Operators are there as far as vLLM asks for them, and it may register fakes of them."""
    usual = torch._ops._OpNamespace.__getattr__  # noqa: SLF001
    register = torch.library.Library._register_fake  # noqa: SLF001

    def found(space: Any, name: str) -> Any:
        try:
            return usual(space, name)
        except AttributeError:
            if name.startswith("__") or not space.name.startswith(_KERNEL_SPACES):
                raise
            return _Kernel()

    def registered(*args: Any, **kwargs: Any) -> None:
        with contextlib.suppress(RuntimeError):
            register(*args, **kwargs)

    torch._ops._OpNamespace.__getattr__ = found  # noqa: SLF001
    torch.library.Library._register_fake = registered  # noqa: SLF001


def _pretend_torch(device: dict[str, Any], capability: tuple[int, ...]) -> None:
    properties = types.SimpleNamespace(
        name=device["name"],
        total_memory=device["total_bytes"],
        multi_processor_count=device["multiprocessors"],
        major=capability[0],
        minor=capability[1],
        warp_size=32,
        shared_memory_per_block_optin=232448,
        L2_cache_size=50 << 20,
    )
    torch.version.cuda = torch.version.cuda or "13.0"
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = torch.accelerator.device_count = lambda: _DEVICES
    torch.cuda.current_device = torch.accelerator.current_device_index = lambda: 0
    torch.cuda.get_device_capability = lambda *_: capability
    torch.cuda.get_device_properties = lambda *_: properties
    torch.cuda.set_device = lambda *_: None
    torch.cuda.Stream = torch.cuda.Event = torch.Event = torch.Stream = _Silent
    torch.accelerator.current_accelerator = lambda *_, **__: torch.device("cuda")


def _pretend_platform(device: dict[str, Any], capability: tuple[int, ...]) -> None:
    import vllm.platforms
    from vllm.platforms.cuda import NonNvmlCudaPlatform
    from vllm.platforms.interface import DeviceCapability

    answers = {
        "get_device_capability": DeviceCapability(*capability),
        "get_device_name": device["name"],
        "get_device_total_memory": device["total_bytes"],
        "num_compute_units": device["multiprocessors"],
        "device_count": _DEVICES,
        "get_cuda_runtime_major": 13,
        "is_pin_memory_available": False,
        "is_fully_connected": True,
        "import_kernels": None,
        "check_if_supports_dtype": None,
        "log_warnings": None,
    }
    methods: dict[str, Any] = {name: _constant(value) for name, value in answers.items()}
    methods["has_device_capability"] = classmethod(
        lambda _, asked, *__, **___: capability >= (asked if isinstance(asked, tuple) else divmod(asked, 10))
    )
    vllm.platforms._current_platform = type("Pretended", (NonNvmlCudaPlatform,), methods)()  # noqa: SLF001


def _constant(value: Any) -> Any:
    return classmethod(lambda *_, **__: value)
