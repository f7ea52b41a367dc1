"""What a model folder says about itself, read without loading it."""

import json
from pathlib import Path
from typing import Any

from pdcluster_worker.models.errors import ModelError

CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
CHAT_TEMPLATE = "chat_template.jinja"


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in ``path``; ModelError when it is absent or not an object."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{path.parent} has no {path.name}") from None
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} is not a JSON object")
    return value


def read_optional_json(path: Path) -> dict[str, Any]:
    """Like `read_json`, and empty when there is no such file."""
    return read_json(path) if path.exists() else {}


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files, sorted by name; ModelError when there is none."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ModelError(f"{folder} has no *.safetensors file")
    return files


def eos_token_ids(folder: Path) -> tuple[int, ...]:
    """Tokens that end a text: of config.json and generation_config.json, sorted."""
    found: set[int] = set()
    for name in (CONFIG, GENERATION_CONFIG):
        value = read_optional_json(folder / name).get("eos_token_id")
        if isinstance(value, int):
            found.add(value)
        elif isinstance(value, list):
            found.update(item for item in value if isinstance(item, int))
    return tuple(sorted(found))


def check(folder: Path) -> Path:
    """``folder`` when it holds everything a worker needs, else ModelError naming what lacks."""
    read_json(folder / CONFIG)
    weight_files(folder)
    if not (folder / TOKENIZER).exists():
        raise ModelError(f"{folder} has no {TOKENIZER}")
    return folder
