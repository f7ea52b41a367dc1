"""A container's environment and command line, from its manifest. Pure."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pdcluster_operator.errors import UnsupportedPod
from pdcluster_operator.local.kubelet.pod import ContainerSpec, PodSpec
from pdcluster_operator.local.kubelet.volumes import SecretReader

_REFERENCE: Final = re.compile(r"\$(\$|\(([A-Za-z_][A-Za-z0-9_.-]*)\))")
_KEYED: Final = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a container's texts may refer to."""

    pod: PodSpec
    pod_ip: str
    node_name: str
    secrets: SecretReader
    translate: Callable[[str], str]


def container_environment(container: ContainerSpec, around: Surroundings) -> dict[str, str]:
    """Return the variables of the manifest, references resolved, paths translated."""
    result: dict[str, str] = {}
    for item in container.env:
        name = str(item["name"])
        if "valueFrom" in item:
            result[name] = _value_from(item["valueFrom"], around)
        else:
            # Like Kubernetes: a value may refer to the variables before it.
            result[name] = around.translate(expand(str(item.get("value") or ""), result))
    return result


def container_argv(
    argv: tuple[str, ...], *, variables: Mapping[str, str], around: Surroundings
) -> tuple[str, ...]:
    """Return a command line, references resolved, paths translated."""
    return tuple(around.translate(expand(word, variables)) for word in argv)


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Resolve `$(NAME)`; `$$` is a dollar sign, and an unknown name stays as it is written."""

    def value(found: re.Match[str]) -> str:
        return "$" if found[1] == "$" else variables.get(found[2], found[0])

    return _REFERENCE.sub(value, text)


def _value_from(source: Mapping[str, Any], around: Surroundings) -> str:
    if "fieldRef" in source:
        return _field(str(source["fieldRef"]["fieldPath"]), around)
    if "secretKeyRef" in source:
        reference = source["secretKeyRef"]
        data = around.secrets(around.pod.namespace, str(reference["name"])) or {}
        if reference["key"] in data:
            return data[reference["key"]].decode()
        if reference.get("optional"):
            return ""
        raise UnsupportedPod(f"there is no key {reference['key']} in secret {reference['name']}")
    raise UnsupportedPod("environment from fieldRef and secretKeyRef only in a local run")


def _field(path: str, around: Surroundings) -> str:
    pod = around.pod
    plain = {
        "metadata.name": pod.name,
        "metadata.namespace": pod.namespace,
        "metadata.uid": pod.uid,
        "spec.nodeName": around.node_name,
        "status.podIP": around.pod_ip,
        "status.podIPs": around.pod_ip,
        "status.hostIP": around.pod_ip,
    }
    if path in plain:
        return plain[path]
    if found := _KEYED.fullmatch(path):
        return (pod.labels if found[1] == "labels" else pod.annotations).get(found[2], "")
    raise UnsupportedPod(f"fieldRef {path} is not known in a local run")
