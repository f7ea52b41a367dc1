"""Rules over several fields. Each one says what to write instead."""

from collections.abc import Callable, Iterator
from typing import Final

from pdcluster_api.launch import LimitSpec
from pdcluster_api.schema import Problem
from pdcluster_operator.spec.cluster import PDCluster, PDClusterSpec

Rule = Callable[[PDClusterSpec], Iterator[Problem]]


def broken_rules(cluster: PDCluster) -> tuple[Problem, ...]:
    """Return every rule that the cluster breaks, in document order."""
    return tuple(problem for rule in RULES for problem in rule(cluster.spec))


def _templates_are_pods(spec: PDClusterSpec) -> Iterator[Problem]:
    """Check what is merged by name and by key; the API server checks all the rest."""
    templates = {
        "spec.prefill.podTemplate": spec.prefill.pod_template,
        "spec.decode.podTemplate": spec.decode.pod_template,
        "spec.router.podTemplate": spec.router.pod_template,
    }
    for path, template in templates.items():
        for part in ("labels", "annotations"):
            found = template.metadata.get(part) or {}
            if not isinstance(found, dict) or not all(map(_is_text, found.values())):
                yield _misshapen(f"{path}.metadata.{part}", "an object of strings")
        for part in ("containers", "initContainers", "volumes"):
            found = template.spec.get(part) or []
            if not isinstance(found, list) or not all(map(_has_name, found)):
                yield _misshapen(f"{path}.spec.{part}", "a list of objects with a name each")


def _is_text(value: object) -> bool:
    return value is None or isinstance(value, str)  # a null removes what is rendered


def _has_name(item: object) -> bool:
    return isinstance(item, dict) and isinstance(item.get("name"), str)


def _misshapen(path: str, wanted: str) -> Problem:
    return Problem(path, "not allowed as it is", f"must be {wanted}")


def _chunks_are_whole_pages(spec: PDClusterSpec) -> Iterator[Problem]:
    page = spec.engine.page_tokens
    places = {
        "spec.engine": spec.engine.chunk_tokens,
        "spec.prefill.engine": spec.prefill.engine.chunk_tokens,
        "spec.decode.engine": spec.decode.engine.chunk_tokens,
    }
    for path, tokens in places.items():
        if tokens is not None and tokens % page:
            yield Problem(
                f"{path}.chunkTokens",
                f"{tokens} is not allowed",
                f"must be a multiple of spec.engine.pageTokens ({page})",
            )


def _context_fits_pool(spec: PDClusterSpec) -> Iterator[Problem]:
    wanted = spec.model.context_tokens_max
    for path, pool in (("spec.prefill", spec.prefill), ("spec.decode", spec.decode)):
        engine = pool.engine.over(spec.engine)
        held = engine.kv_pages * engine.page_tokens
        if wanted > held:
            yield Problem(
                "spec.model.contextTokensMax",
                f"{wanted} is not allowed",
                f"must be <= {held}, which is all that {path} holds "
                f"({engine.kv_pages} pages of {engine.page_tokens} tokens)",
            )


def _drain_is_said_once(spec: PDClusterSpec) -> Iterator[Problem]:
    given = spec.limits.drain_timeout_s
    if given not in (LimitSpec().drain_timeout_s, spec.drain.timeout_seconds):
        yield Problem(
            "spec.limits.drainTimeoutS",
            f"{given:g} is not allowed",
            "must be left out; write spec.drain.timeoutSeconds instead",
        )


def _transfer_crosses_processes(spec: PDClusterSpec) -> Iterator[Problem]:
    if spec.transfer.backend == "loopback":
        yield Problem(
            "spec.transfer.backend",
            '"loopback" is not allowed',
            "must be nixl: prefill and decode are different processes here",
        )


def _heartbeats_fit(spec: PDClusterSpec) -> Iterator[Problem]:
    limits = spec.limits
    if limits.heartbeat_timeout_s < 2 * limits.heartbeat_interval_s:
        yield Problem(
            "spec.limits.heartbeatTimeoutS",
            f"{limits.heartbeat_timeout_s:g} is not allowed",
            f"must be at least twice heartbeatIntervalS ({limits.heartbeat_interval_s:g})",
        )


RULES: Final[tuple[Rule, ...]] = (
    _context_fits_pool,
    _chunks_are_whole_pages,
    _transfer_crosses_processes,
    _heartbeats_fit,
    _drain_is_said_once,
    _templates_are_pods,
)
