"""What a person sees when the server answers an error."""

import json

import pytest

from pdcluster_operator.cli.ask import refusal

OPENAI = {"error": {"message": "too long", "type": "invalid_request_error", "code": "length"}}
BARE = {"object": "error", "message": "busy", "type": "unavailable", "code": 503}


@pytest.mark.parametrize(
    ("text", "status", "shown"),
    [
        (
            json.dumps(OPENAI),
            400,
            "too long (status 400, type invalid_request_error, code length)",
        ),
        (json.dumps(BARE), 503, "busy (status 503, type unavailable)"),
        (json.dumps(OPENAI), None, "too long (type invalid_request_error, code length)"),
        (
            json.dumps({"error": {"message": f"Prefill server error (400): {json.dumps(OPENAI)}"}}),
            400,
            "too long (status 400, type invalid_request_error, code length)",
        ),
        (json.dumps({"error": "odd: {}"}), 500, "odd: {} (status 500)"),
        (json.dumps({"error": "scripted"}), 503, "scripted (status 503)"),
        ("<h1>Bad\nGateway</h1>", 502, "<h1>Bad Gateway</h1> (status 502)"),
        ("[1]", 500, "[1] (status 500)"),
        ("", 500, "no reason (status 500)"),
    ],
)
def test_a_refusal_is_its_message_and_its_labels(text: str, status: int | None, shown: str) -> None:
    assert str(refusal(text, status=status)) == shown


def test_programs_get_the_parts() -> None:
    expected = {"message": "busy", "status": 503, "type": "unavailable"}
    assert refusal(json.dumps(BARE), status=503).facts == expected
