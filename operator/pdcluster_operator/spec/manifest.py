"""From text to a PDCluster, or to every reason why not."""

from typing import Any, Final, TypeVar

from pdcluster_api.names import API
from pdcluster_api.schema import Problem, SchemaError, decode
from pdcluster_operator.errors import ManifestError
from pdcluster_operator.spec.cluster import KIND, Metadata, PDCluster, PDClusterSpec
from pdcluster_operator.spec.documents import NotYaml, read_documents
from pdcluster_operator.spec.rules import broken_rules

T = TypeVar("T")

MANIFEST_BYTES_MAX: Final = 1 << 20  # the API server's own order of magnitude
# Written by the API server and by clients into every object; no decision reads them.
_OTHER_METADATA: Final = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "managedFields",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
    }
)
_TOP: Final = ("apiVersion", "kind", "metadata", "spec", "status")


def parse_manifest(text: str, *, source: str = "manifest") -> PDCluster:
    """Read one YAML (or JSON) document; raises `ManifestError` with every problem."""
    if len(text) > MANIFEST_BYTES_MAX:
        limit = f"must be at most {MANIFEST_BYTES_MAX} bytes"
        raise ManifestError(source, (Problem("", f"{len(text)} bytes are not allowed", limit),))
    try:
        documents, problems = read_documents(text)
    except NotYaml as error:
        raise ManifestError(source, (Problem("", "not YAML", str(error)),)) from error
    if not documents and problems:
        raise ManifestError(source, tuple(problems))
    if len(documents) != 1:
        found = f"{len(documents)} documents" if documents else "empty"
        raise ManifestError(source, (Problem("", found, "must hold exactly one PDCluster"),))
    try:
        cluster = read_cluster(documents[0], source=source)
    except ManifestError as error:
        raise ManifestError(source, (*problems, *error.problems)) from error
    if problems:
        raise ManifestError(source, tuple(problems))
    return cluster


def read_cluster(document: object, *, source: str = "manifest") -> PDCluster:
    """Read an object as it comes from a file or from the API server."""
    if not isinstance(document, dict):
        raise ManifestError(source, (Problem("", "not an object", "must be a PDCluster"),))
    problems = _envelope_problems(document)
    metadata = _part(Metadata, _own_metadata(document.get("metadata")), "metadata", problems)
    spec = _part(PDClusterSpec, document.get("spec"), "spec", problems)
    if metadata is None or spec is None or problems:
        raise ManifestError(source, tuple(problems))
    cluster = PDCluster(metadata=metadata, spec=spec)
    if broken := broken_rules(cluster):
        raise ManifestError(source, broken)
    return cluster


def _envelope_problems(document: dict[str, Any]) -> list[Problem]:
    problems = [
        Problem(key, f"{document.get(key)!r} is not allowed", f"must be {wanted}")
        for key, wanted in (("apiVersion", API), ("kind", KIND))
        if document.get(key) != wanted
    ]
    known = ", ".join(_TOP)
    problems += [
        Problem(str(key), "unknown field", f"known are {known}")
        for key in document
        if key not in _TOP
    ]
    return problems


def _own_metadata(metadata: object) -> object:
    if not isinstance(metadata, dict):
        return metadata
    return {key: value for key, value in metadata.items() if key not in _OTHER_METADATA}


def _part(cls: type[T], value: object, path: str, problems: list[Problem]) -> T | None:
    try:
        return decode(cls, value, path=path)
    except SchemaError as error:
        problems.extend(error.problems)
        return None
