"""Merge a user's pod template over a rendered pod, the way a strategic merge does."""

from collections.abc import Mapping
from typing import Any, Final

# Lists of objects that have an identity, and the key that is it.
_IDENTITY: Final = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
}


def merge(base: Any, over: Any, *, key: str = "") -> Any:
    """Return `over` laid on `base`. Maps merge by key and a null removes the key; lists with an
    identity merge by it; every other list is replaced."""
    if isinstance(base, Mapping) and isinstance(over, Mapping):
        merged = {name: value for name, value in base.items() if over.get(name, value) is not None}
        for name, value in over.items():
            if value is not None:
                merged[name] = merge(merged.get(name), value, key=name)
        return merged
    if isinstance(base, list) and isinstance(over, list) and key in _IDENTITY:
        return _merge_by(base, over, _IDENTITY[key])
    return over


def _merge_by(base: list[Any], over: list[Any], identity: str) -> list[Any]:
    changes = {_identity_of(item, identity): item for item in over}
    merged = [
        merge(item, changes.pop(_identity_of(item, identity)))
        if _identity_of(item, identity) in changes
        else item
        for item in base
    ]
    return merged + list(changes.values())


def _identity_of(item: Any, identity: str) -> object:
    return item.get(identity) if isinstance(item, Mapping) else id(item)
