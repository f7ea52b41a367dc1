"""Reading and writing dataclasses: every problem at once, and nothing silently taken."""

import dataclasses
import json
import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pdcluster_api.launch import LaunchSpec
from pdcluster_api.names import Role
from pdcluster_api.schema import SchemaError, camel, decode, encode, field, json_schema


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    """An inner thing.

    Only the first paragraph is for readers of the schema.
    """

    size_max: int = field("Size.", 3, minimum=1, maximum=10)
    ratio: float = field("Ratio.", 0.5, minimum=0)
    mode: str = field("Mode.", "auto", choices=("auto", "manual"))
    name: str = field("Name.", "a", pattern="[a-z]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    """Holds everything."""

    needed: str = field("Needed.")
    inner: Inner = field("Inner.", factory=Inner)
    maybe: int | None = field("Maybe.", None, minimum=0)
    colour: Colour = field("Colour.", Colour.RED)
    words: tuple[str, ...] = field("Words.", ())
    inners: tuple[Inner, ...] = field("Inners.", ())
    labels: dict[str, str] = field("Labels.", factory=dict)
    free: dict[str, Any] = field("Free.", factory=dict)
    on: bool = field("On.", False)


def problems(value: object, path: str = "") -> list[str]:
    with pytest.raises(SchemaError) as caught:
        decode(Outer, value, path=path)
    return [str(problem) for problem in caught.value.problems]


MISSPELT = (
    'spec.inner.mode: "manul" is not allowed: must be one of auto, manual; did you mean "manual"?'
)


def test_every_problem_is_reported_at_once_with_path_value_and_what_is_allowed() -> None:
    found = problems(
        {
            "inner": {"sizeMax": 0, "mode": "manul", "rtio": 1, "name": "A"},
            "maybe": -1,
            "colour": "rde",
            "words": ["a", 2],
            "inners": [{}, {"sizeMax": 11}],
            "labels": {"x": 1},
            "on": 1,
        },
        "spec",
    )
    assert found == [
        "spec.needed: missing: must be a string",
        'spec.inner.rtio: unknown field: did you mean "ratio"?',
        "spec.inner.sizeMax: 0 is not allowed: must be >= 1 and <= 10",
        MISSPELT,
        'spec.inner.name: "A" is not allowed: must be text that matches [a-z]+',
        "spec.maybe: -1 is not allowed: must be >= 0",
        'spec.colour: "rde" is not allowed: must be one of red, blue; did you mean "red"?',
        "spec.words[1]: 2 is not allowed: must be a string",
        "spec.inners[1].sizeMax: 11 is not allowed: must be >= 1 and <= 10",
        "spec.labels.x: 1 is not allowed: must be a string",
        "spec.on: 1 is not allowed: must be true or false",
    ]


@pytest.mark.parametrize("bad", [True, 1.0, "1", [], {}, math.nan])
def test_an_integer_is_an_integer(bad: object) -> None:
    assert len(problems({"needed": "x", "maybe": bad})) == 1


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, True, "0.5"])
def test_a_number_is_finite_and_no_truth_value(bad: object) -> None:
    assert problems({"needed": "x", "inner": {"ratio": bad}})[0].startswith("inner.ratio: ")


def test_an_integer_will_do_for_a_number_and_null_means_not_given() -> None:
    outer = decode(Outer, {"needed": "x", "inner": {"ratio": 1, "mode": None}, "labels": None})
    assert outer.inner.ratio == 1.0
    assert isinstance(outer.inner.ratio, float)
    assert outer == Outer(needed="x", inner=Inner(ratio=1.0))


@pytest.mark.parametrize("value", [None, [], "text", 3])
def test_what_is_no_object_is_refused(value: object) -> None:
    assert problems(value)[0].endswith("must be an object")


def test_a_class_may_refuse_a_combination() -> None:
    @dataclass(frozen=True)
    class Pair:
        low: int = 0
        high: int = 0

        def __post_init__(self) -> None:
            if self.low > self.high:
                raise ValueError("low must be <= high")

    with pytest.raises(SchemaError, match="pair: not allowed: low must be <= high"):
        decode(Pair, {"low": 2, "high": 1}, path="pair")


scalars = st.none() | st.booleans() | st.integers(-3, 20) | st.sampled_from(["red", "x", 0.5])
json_values = (
    scalars
    | st.lists(scalars, max_size=2)
    | st.dictionaries(st.sampled_from(["sizeMax", "ratio", "mode", "other"]), scalars, max_size=2)
)
KEYS = [camel(item.name) for item in dataclasses.fields(Outer)]


@given(st.dictionaries(st.sampled_from(KEYS), json_values))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_any_json_is_read_or_refused_never_more(value: dict[str, Any]) -> None:
    try:
        outer = decode(Outer, value)
    except SchemaError:
        return
    else:
        assert decode(Outer, json.loads(json.dumps(encode(outer)))) == outer
        assert decode(Outer, encode(outer, omit_defaults=True)) == outer


def test_the_schema_describes_types_bounds_defaults_and_meaning() -> None:
    schema = json_schema(Outer)
    assert schema["required"] == ["needed"]
    inner = schema["properties"]["inner"]
    assert inner["default"] == {}
    assert inner["properties"]["sizeMax"] == {
        "type": "integer",
        "description": "Size.",
        "minimum": 1,
        "maximum": 10,
        "default": 3,
    }
    assert inner["properties"]["mode"]["enum"] == ["auto", "manual"]
    assert schema["properties"]["maybe"]["nullable"] is True
    assert schema["properties"]["free"]["x-kubernetes-preserve-unknown-fields"] is True
    assert schema["properties"]["labels"]["additionalProperties"] == {"type": "string"}
    assert json_schema(Inner)["description"] == "An inner thing."


LAUNCH_DEFAULTS: dict[str, Any] = {
    "role": "decode",
    "cluster": "local",
    "model": {"source": "tiny://llama?seed=0", "servedName": "", "contextTokensMax": 0},
    "engine": {
        "device": "auto",
        "dtype": "auto",
        "threads": 1,
        "pageTokens": 16,
        "kvPages": 1024,
        "chunkTokens": 512,
        "runningMax": 32,
        "hostPages": 1024,
    },
    "ports": {"http": 8000, "bootstrap": 8998, "peer": 8997, "sidecar": 50061, "health": 50062},
    "transfer": {
        "backend": "nixl",
        "reservedDecodeTokens": 128,
        "extraSlots": -1,
        "metadataRows": 512,
    },
    "limits": {
        "bootstrapTimeoutS": 60.0,
        "handshakeTimeoutS": 8.0,
        "queueTimeoutS": 120.0,
        "transferTimeoutS": 60.0,
        "orphanTtlS": 60.0,
        "heartbeatIntervalS": 1.0,
        "heartbeatTimeoutS": 5.0,
        "topologyIntervalS": 1.0,
        "httpTimeoutS": 3.0,
        "queuedRequestsMax": 1024,
        "roomsTrackedMax": 4096,
        "quarantinePercentMax": 50,
        "frameBytesMax": 1048576,
        "sendQueueFramesMax": 1000,
        "requestBytesMax": 8388608,
        "requestHeadBytesMax": 65536,
        "requestReadTimeoutS": 60.0,
        "loopHangS": 10.0,
        "computeHangS": 300.0,
        "drainTimeoutS": 30.0,
    },
}


def test_the_defaults_of_a_launch_specification() -> None:
    """Pinned: a changed default changes what running clusters do after an upgrade."""
    spec = LaunchSpec(role=Role.DECODE)
    assert encode(spec) == LAUNCH_DEFAULTS
    assert decode(LaunchSpec, LAUNCH_DEFAULTS) == spec
