"""The numbers of a model that the library computes: config.json with its defaults filled in."""

import json
from dataclasses import dataclass
from pathlib import Path

from pdcluster_worker.engine.support import decide
from pdcluster_worker.models.errors import ModelError, UnsupportedModel
from pdcluster_worker.models.folder import CONFIG, read_json

# Keys that say where a file comes from, not what it computes.
IRRELEVANT = frozenset({"_name_or_path", "dtype", "torch_dtype", "transformers_version"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackConfig:
    """Counts and sizes in elements; ``text`` is all of config.json that a result depends on."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context_tokens: int
    text: str


def read_fallback(folder: Path) -> FallbackConfig:
    """Of a model folder; imports transformers, which takes seconds.

    ModelError where the library cannot read it, UnsupportedModel where a default is refused.
    """
    from transformers import AutoConfig

    raw = read_json(folder / CONFIG)
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (ValueError, KeyError, OSError, TypeError) as error:
        raise ModelError(f"{folder / CONFIG} cannot be read: {error}") from error
    filled = config.to_dict()
    if (decision := decide(filled)).runner is None:
        raise UnsupportedModel(decision.reason)
    # By attribute where the library maps the names of older models, such as n_layer.
    heads = int(config.num_attention_heads)
    return FallbackConfig(
        layers=int(config.num_hidden_layers),
        heads=heads,
        kv_heads=int(filled.get("num_key_value_heads") or heads),
        head_dim=int(filled.get("head_dim") or config.hidden_size // heads),
        vocab=int(config.vocab_size),
        context_tokens=int(config.max_position_embeddings),
        text=json.dumps({k: v for k, v in raw.items() if k not in IRRELEVANT}, sort_keys=True),
    )
