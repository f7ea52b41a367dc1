"""Which device, which dtype, how CPU threads wait. Torch-free unless cuda must be looked for."""

from pathlib import Path

CPU_INFO = Path("/proc/cpuinfo")
BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})


def resolve_device(device: str) -> str:
    """``cpu`` or ``cuda``; ``auto`` is cuda when present (this alone imports torch)."""
    if device != "auto":
        return device
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def check_device(device: str) -> None:
    """Raise ValueError for a cuda that torch does not find, before anything is loaded for it."""
    if device != "cuda":
        return
    import torch

    if not torch.cuda.is_available():
        raise ValueError("engine.device: cuda is asked for, and torch finds none on this machine")


def resolve_dtype(dtype: str, device: str, *, cpu_info: Path = CPU_INFO) -> str:
    """``auto`` is bfloat16 where the hardware multiplies it, else float32.

    Measured on SmolLM2-135M: with avx512_bf16, bfloat16 prefill is 2.3-3.5x faster than float32;
    on a CPU without it, 1.5-1.7x slower. The CPU's flags decide, not a benchmark, so that workers
    on equal machines agree on the KV layout.
    """
    if dtype != "auto":
        return dtype
    if device == "cuda" or BF16_FLAGS & cpu_flags(cpu_info):
        return "bfloat16"
    return "float32"


def cpu_flags(cpu_info: Path = CPU_INFO) -> frozenset[str]:
    """The first processor's feature flags; empty where the file or the line does not exist."""
    if not cpu_info.exists():
        return frozenset()
    with cpu_info.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            name, _, value = line.partition(":")
            if name.strip() in ("flags", "Features"):
                return frozenset(value.split())
    return frozenset()


def thread_env(threads: int) -> dict[str, str]:
    """Environment to set *before* a process imports torch; OpenMP reads it once.

    Waiting OpenMP threads must sleep: by default they spin, and workers of a pod set that share
    cores then take each other's time (a decode step becomes several times slower).
    """
    return {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "passive",
        "GOMP_SPINCOUNT": "0",
        "KMP_BLOCKTIME": "0",
    }
