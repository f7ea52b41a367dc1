"""What templates may rely on, and what they may not do."""

import pytest

from pdcluster_worker.models.chat_template import ChatTemplate


class FixedClock:
    def now(self) -> float:
        return 0.0

    def wall(self) -> float:
        return 86400.0 * 365

    def sleep(self, seconds: float) -> None:
        raise AssertionError(seconds)


def template(source: str) -> ChatTemplate:
    return ChatTemplate(source, special_tokens={"bos_token": "<s>"}, clock=FixedClock())


def test_helpers_that_templates_rely_on() -> None:
    source = (
        "{{ bos_token }}{{ strftime_now('%Y') }}|{{ messages | tojson }}|"
        "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m.role }}"
        "{% endfor %}|{% generation %}body{% endgeneration %}|{{ tools is none }}|{{ mood }}"
    )
    messages = [{"role": "a<b", "content": "é"}, {"role": "c", "content": "d"}]
    text = template(source).render(messages, extra={"mood": "fine"})
    parts = text.split("|")
    assert parts[0] in ("<s>1970", "<s>1971")
    assert parts[1].startswith('[{"role": "a<b", "content": "é"}')
    assert parts[2:] == ["a<b", "body", "True", "fine"]


def test_blocks_leave_no_blank_lines() -> None:
    source = (
        "{% for m in messages %}\n  {% if true %}\n{{ m.content }}\n  {% endif %}\n{% endfor %}"
    )
    messages = [{"role": "user", "content": "x"}]
    assert template(source).render(messages) == "x\n"


def test_a_refusal_is_a_value_error_with_the_reason() -> None:
    refusing = template("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(ValueError, match="roles must alternate"):
        refusing.render([])


@pytest.mark.parametrize("messages", [[{"role": "user"}], [{"role": "user", "content": [1]}]])
def test_messages_that_trip_the_template_are_value_errors(
    messages: list[dict[str, object]],
) -> None:
    with pytest.raises(ValueError, match="refuses"):
        template("{{ 'x' + messages[0]['content'] }}").render(messages)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ raise_exception.__globals__['json'] }}",
    ],
)
def test_the_sandbox_holds(source: str) -> None:
    with pytest.raises(ValueError, match="refuses"):
        template(source).render([{"role": "user", "content": "x"}])
