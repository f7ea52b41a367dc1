"""The KV-layout fingerprint: workers that differ in it never exchange a page.

It is computed from the document alone, so that it exists before any worker runs. It is narrow on
purpose: what may differ between prefill and decode (threads, pool sizes, resources) is not in it.
The router pairs only workers of one fingerprint; a worker that meets a stranger anyway refuses at
the handshake, where both sides compare the geometry they really have.
"""

import hashlib
import json
from typing import Final

from pdcluster_operator.spec.cluster import PDClusterSpec

LAYOUT: Final = "block-first/1"  # [page, layer, k/v, head, token, dim]
_HEX_CHARS: Final = 16


def kv_fingerprint(spec: PDClusterSpec) -> str:
    """Return 16 hex characters, the same for the same KV layout everywhere."""
    facts = {
        "layout": LAYOUT,
        "model": spec.model.source,
        "dtype": spec.engine.dtype,
        "pageTokens": spec.engine.page_tokens,
        "transfer": spec.transfer.backend,
    }
    return digest(facts)


def digest(facts: object) -> str:
    """Hash JSON-like data, independent of key order."""
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:_HEX_CHARS]
