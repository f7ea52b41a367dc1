"""What the YAML library would let pass."""

import pytest

from pdcluster_operator.errors import ManifestError
from pdcluster_operator.spec import parse_manifest
from pdcluster_operator.spec.documents import VALUES_MAX

HEAD = "apiVersion: pdcluster.dev/v1alpha1\nkind: PDCluster\nmetadata: {name: c}\n"


def problems(text: str) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        parse_manifest(text)
    return [str(problem) for problem in caught.value.problems]


def test_a_key_written_twice_is_a_problem_beside_all_others() -> None:
    text = HEAD + (
        "spec:\n"
        "  decode:\n"
        "    replicas: 1\n"
        "    replicas: 2\n"
        "  prefill: {replicas: -1}\n"
        "  router:\n"
        "    podTemplate: {spec: {containers: [{name: router, name: other}]}}\n"
        "kind: PDCluster\n"
    )
    found, deep = problems(text), "spec.router.podTemplate.spec.containers[0].name"
    assert found[:3] == [
        "kind: written twice, on line 2 and on line 11: must be written once",
        "spec.decode.replicas: written twice, on line 6 and on line 7: must be written once",
        f"{deep}: written twice, on line 10 and on line 10: must be written once",
    ]
    assert [line.split(":")[0] for line in found[3:]] == ["spec.model", "spec.prefill.replicas"]


def test_one_duplicate_alone_is_enough() -> None:
    assert len(problems(HEAD + "spec: {model: {source: x, source: y}}\n")) == 1


def test_aliases_and_merges_are_no_duplicates() -> None:
    pool = "podTemplate: {metadata: {labels: {<<: *l, a: c}}}"
    spec = f"spec:\n  model: {{source: x}}\n  prefill: &p {{{pool}}}\n  decode: *p\n"
    cluster = parse_manifest(HEAD.replace("{name: c}", "{name: c, labels: &l {a: b}}") + spec)
    assert cluster.spec.decode.pod_template.metadata["labels"] == {"a": "c"}


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("{on: x}", "the key 'on' is read as no text (line 4)"),
        ("{1: x}", "the key '1' is read as no text (line 4)"),
        ("{? [a] : x}", "is read as no text (line 4)"),
        ("{a: .nan}", "the number .nan (line 4)"),
        ("{a: !!binary aGk=}", "a value with the tag !!binary (line 4)"),
        ("{a: 0x" + "f" * 5000 + "}", "a number of 5002 characters (line 4)"),
    ],
)
def test_what_json_cannot_say_is_refused_with_its_line(value: str, found: str) -> None:
    text = f"spec: {{model: {{source: x}}, prefill: {{podTemplate: {{spec: {value}}}}}}}\n"
    (problem,) = problems(HEAD + text)
    assert found in problem
    assert problem.startswith("spec.prefill.podTemplate.spec")


def test_a_date_is_text() -> None:
    text = "spec: {model: {source: x}, prefill: {podTemplate: {spec: {when: 2024-01-01}}}}\n"
    assert parse_manifest(HEAD + text).spec.prefill.pod_template.spec == {"when": "2024-01-01"}


def test_what_would_not_end_or_grows_beyond_bounds_is_refused() -> None:
    loop = "spec: {model: {source: x}, prefill: {podTemplate: {spec: &s {again: *s}}}}\n"
    assert "spec.prefill.podTemplate.spec.again" in problems(HEAD + loop)[0]
    levels = "".join(f"  l{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]\n" for n in range(9))
    bomb = f"spec:\n  l0: &a0 [x]\n{levels}"
    assert f"at most {VALUES_MAX} values" in problems(HEAD + bomb)[0]


@pytest.mark.parametrize(
    "value",
    ["!!int ''", "!!bool x", "[" * 5000, "a\tb: [", "'x"],
)
def test_a_value_that_cannot_be_read_is_no_traceback(value: str) -> None:
    assert problems(f"a: {value}\n")[0].startswith("not YAML: ")
