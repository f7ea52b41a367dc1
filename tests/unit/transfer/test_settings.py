"""Defaults are pinned; what peers must share shows in the compatibility string."""

from pathlib import Path

import pytest

from pdcluster_worker.transfer.base import NOTICE_BYTES_MAX, TransferOptions
from pdcluster_worker.transfer.settings import (
    UCX_DEFAULTS,
    backend_params,
    compatibility,
    ucx_environment,
)

DOCS = Path(__file__).parents[3] / "docs" / "nixl.md"


def test_defaults_are_pinned() -> None:
    assert dict(UCX_DEFAULTS) == {"UCX_MM_ERROR_HANDLING": "y"}
    assert TransferOptions() == TransferOptions(post_bytes_max=33_554_432, ucx={})
    assert NOTICE_BYTES_MAX == 512


def test_what_the_user_set_wins() -> None:
    user = {"UCX_MM_ERROR_HANDLING": "n", "UCX_TLS": "tcp", "HOME": "ignored"}
    assert ucx_environment() == {"UCX_MM_ERROR_HANDLING": "y"}
    assert ucx_environment(user) == {"UCX_MM_ERROR_HANDLING": "n", "UCX_TLS": "tcp"}
    assert backend_params() == {"engine_config": "MM_ERROR_HANDLING=y"}
    assert backend_params(user) == {}


def test_compatibility_tells_lanes_apart_and_not_devices() -> None:
    plain = compatibility("nixl")
    assert plain == compatibility("nixl", {"UCX_NET_DEVICES": "eth1"})
    assert plain != compatibility("nixl", {"UCX_TLS": "tcp"})
    assert plain != compatibility("nixl", {"UCX_MM_ERROR_HANDLING": "n"})
    assert plain != compatibility("loopback") == "loopback"
    assert plain.startswith("nixl/1.")


@pytest.mark.parametrize("limit", [-1, 0, 100])
def test_a_tiny_post_limit_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match=rf"post_bytes_max {limit}: allowed is 4096"):
        TransferOptions(post_bytes_max=limit)


def test_the_document_names_every_default() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert [name for name in UCX_DEFAULTS if name not in text] == []
