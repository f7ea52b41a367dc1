"""Rows for the tests."""

from typing import Any

from pdcluster_worker.rendezvous.messages import Row


def row(**change: Any) -> Row:
    values: dict[str, Any] = {
        "instance": "i-1",
        "pod_uid": "uid-1",
        "peer_host": "10.0.0.1",
        "peer_port": 8997,
        "fingerprint": "f",
        "page_size": 16,
        "kv_cache_dtype": "float32",
    }
    return Row(**values | change)
