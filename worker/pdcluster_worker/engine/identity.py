"""A model folder's shape and identity, read in milliseconds and without torch.

Two workers exchange KV only when their identities are equal, so the identity must differ whenever
the weights do. Hashing gigabytes at every start is too slow; instead the hash covers the
configuration, every file's size and tensor table, and the first 4 KiB of every tensor. Other
weights (another model, a fine-tune, a merged adapter) change some tensor's beginning.
"""

import hashlib
import json
from pathlib import Path

from pdcluster_api.launch import EngineSpec
from pdcluster_worker.core.ports import ModelShape
from pdcluster_worker.engine.config import LlamaConfig
from pdcluster_worker.engine.device import resolve_device, resolve_dtype
from pdcluster_worker.engine.fallback_config import FallbackConfig
from pdcluster_worker.engine.runners import read_numbers
from pdcluster_worker.models.errors import ModelError
from pdcluster_worker.models.folder import eos_token_ids, weight_files

SAMPLE_BYTES = 4096
HEADER_BYTES_MAX = 100 << 20  # the format's own limit


def describe(folder: Path, spec: EngineSpec) -> ModelShape:
    """The shape that an engine for ``folder`` will have, before its weights are loaded.

    Raises ModelError or UnsupportedModel.
    """
    config = read_numbers(folder)
    return ModelShape(
        layers=config.layers,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        vocab=config.vocab,
        context_tokens=config.context_tokens,
        eos_token_ids=eos_token_ids(folder),
        dtype=resolve_dtype(spec.dtype, resolve_device(spec.device)),
        identity=identity(folder, config),
    )


def identity(folder: Path, config: LlamaConfig | FallbackConfig) -> str:
    """32 hex digits; independent of where the folder lies and of file times."""
    digest = hashlib.blake2b(repr(config).encode(), digest_size=16)
    for file in weight_files(folder):
        _hash_file(file, digest)
    return digest.hexdigest()


def _hash_file(file: Path, digest: "hashlib.blake2b") -> None:
    """A safetensors file: 8 bytes header length, a JSON header, then the tensors."""
    digest.update(f"{file.name} {file.stat().st_size}".encode())
    with file.open("rb") as handle:
        header_bytes = int.from_bytes(handle.read(8), "little")
        if not 2 <= header_bytes <= HEADER_BYTES_MAX:
            raise ModelError(f"{file} is not a safetensors file")
        header = handle.read(header_bytes)
        digest.update(header)
        for name, tensor in sorted(json.loads(header).items()):
            if name != "__metadata__":
                begin, end = tensor["data_offsets"]
                handle.seek(8 + header_bytes + begin)
                digest.update(handle.read(min(SAMPLE_BYTES, end - begin)))
