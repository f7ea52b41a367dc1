"""What is known before weights are loaded, and what is refused."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pdcluster_api.launch import EngineSpec
from pdcluster_worker.core.clock import SystemClock
from pdcluster_worker.engine import create_engine, describe
from pdcluster_worker.engine.config import read_config
from pdcluster_worker.engine.device import check_device, resolve_dtype, thread_env
from pdcluster_worker.models.errors import ModelError, UnsupportedModel
from pdcluster_worker.models.source import prepare
from tests.unit.engine.rig import Rig

SPEC = EngineSpec(device="cpu", dtype="float32")


@pytest.fixture
def copy(tiny: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny, tmp_path / "copy"))


def change(folder: Path, **values: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | values))


def test_the_shape_is_what_config_says(tiny: Path) -> None:
    shape = describe(tiny, SPEC)
    assert (shape.layers, shape.kv_heads, shape.head_dim, shape.vocab) == (4, 2, 32, 512)
    assert (shape.context_tokens, shape.eos_token_ids, shape.dtype) == (8192, (2,), "float32")


def test_identity_follows_the_content_and_not_the_place(tiny: Path, copy: Path) -> None:
    assert describe(copy, SPEC).identity == describe(tiny, SPEC).identity
    weights = copy / "model.safetensors"
    data = bytearray(weights.read_bytes())
    header = int.from_bytes(data[:8], "little")
    data[8 + header] ^= 1  # the first byte of the first tensor
    weights.write_bytes(data)
    assert describe(copy, SPEC).identity != describe(tiny, SPEC).identity


def test_identity_follows_what_the_forward_pass_reads_of_the_config(copy: Path) -> None:
    before = describe(copy, SPEC).identity
    change(copy, rms_norm_eps=1e-6)
    assert describe(copy, SPEC).identity != before


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"model_type": "gemma3"}, "'gemma3'"),
        ({"attention_bias": True}, "attention_bias"),
        ({"sliding_window": 4096}, "sliding_window"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "'yarn'"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
    ],
)
def test_what_would_be_computed_wrongly_is_refused(
    copy: Path, values: dict[str, Any], words: str
) -> None:
    change(copy, **values)
    with pytest.raises(UnsupportedModel, match=words):
        read_config(copy)


def test_rope_in_both_spellings(copy: Path) -> None:
    change(copy, rope_scaling={"type": "linear", "factor": 2.0})
    old = read_config(copy).rope
    change(
        copy,
        rope_scaling=None,
        rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0},
    )
    assert read_config(copy).rope == old
    assert (old.kind, old.factor, old.theta) == ("linear", 2.0, 10000.0)


def test_missing_tensors_and_keys_are_named(copy: Path) -> None:
    change(copy, tie_word_embeddings=False, num_hidden_layers=5)
    with pytest.raises(ModelError, match=r"model\.layers\.4"):
        Rig(copy)
    change(copy, num_hidden_layers=4, hidden_size=64)
    with pytest.raises(ModelError, match=r"config\.json says"):
        Rig(copy)
    (copy / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(ModelError, match="num_attention_heads"):
        read_config(copy)
    (copy / "model.safetensors").write_bytes(b"\0" * 64)
    with pytest.raises(ModelError, match="not a safetensors"):
        describe_weights(copy)


def describe_weights(folder: Path) -> None:
    from pdcluster_worker.engine.identity import identity

    shutil.copy(prepare("tiny://llama?seed=0", folder.parent) / "config.json", folder)
    identity(folder, read_config(folder))


def test_a_pool_of_another_shape_is_refused(tiny: Path) -> None:
    import torch

    pool = torch.zeros(4, 4, 2, 2, 8, 32)
    with pytest.raises(ValueError, match="expected contiguous"):
        create_engine(tiny, SPEC, pool=pool, clock=SystemClock())


def test_a_refused_model_is_refused_with_its_reason_before_anything_is_loaded(copy: Path) -> None:
    import torch

    change(copy, model_type="rwkv")
    (copy / "model.safetensors").unlink()
    with pytest.raises(UnsupportedModel, match="'rwkv': a state beside keys and values"):
        describe(copy, SPEC)
    with pytest.raises(UnsupportedModel, match="'rwkv': a state beside keys and values"):
        create_engine(copy, SPEC, pool=torch.zeros(1), clock=SystemClock())


@pytest.mark.parametrize(
    ("flags", "expected"),
    [("fpu avx512_bf16", "bfloat16"), ("amx_bf16 fpu", "bfloat16"), ("avx512f", "float32")],
)
def test_dtype_follows_the_cpu(flags: str, expected: str, tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text(f"processor\t: 0\nflags\t\t: {flags}\n\nprocessor\t: 1\n")
    assert resolve_dtype("auto", "cpu", cpu_info=info) == expected
    assert resolve_dtype("float16", "cpu", cpu_info=info) == "float16"
    assert resolve_dtype("auto", "cuda", cpu_info=info) == "bfloat16"
    assert resolve_dtype("auto", "cpu", cpu_info=tmp_path / "absent") == "float32"


def test_waiting_threads_sleep() -> None:
    env = thread_env(3)
    assert env["OMP_NUM_THREADS"] == "3"
    assert (env["OMP_WAIT_POLICY"], env["KMP_BLOCKTIME"]) == ("passive", "0")


def test_a_start_imports_neither_transformers_nor_gguf(tiny: Path) -> None:
    """They cost seconds at every start; and the frontend's half costs no torch."""
    code = (
        "import sys; from pathlib import Path\n"
        "from pdcluster_worker.models.tokenizer import Tokenizer\n"
        "from pdcluster_worker.models.source import prepare\n"
        "from pdcluster_worker.engine import describe\n"
        "from pdcluster_api.launch import EngineSpec\n"
        "folder = prepare(sys.argv[1], Path(sys.argv[1]))\n"
        "Tokenizer(folder); describe(folder, EngineSpec(device='cpu'))\n"
        "assert 'torch' not in sys.modules\n"
        "import pdcluster_worker.engine.torch_engine\n"
        "assert not {'transformers', 'gguf', 'pip'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tiny)],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PYTHONPATH": ":".join(sys.path)},
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_cuda_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    check_device("cpu")
    check_device("auto")
    with pytest.raises(ValueError, match=r"engine\.device: cuda .* finds none"):
        check_device("cuda")
