"""What real clients send, through both routers, to a prefill and a decode worker."""

import asyncio
import contextlib
import json
import random
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest
import pytest_asyncio

from pdcluster_operator.local.session import Session
from tests.e2e import http_rig, rig
from tests.e2e.http_rig import CAPACITY

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(180),
    pytest.mark.asyncio(loop_scope="module"),
]

GREEDY: dict[str, Any] = {"temperature": 0, "ignore_eos": True}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def session(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Session]:
    async with rig.cluster(http_rig.document(), tmp_path_factory.mktemp("http")) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def old_router(
    session: Session, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[str]:
    async with http_rig.sglang_router(session, tmp_path_factory.mktemp("router")) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module", params=["smg", "sglang-router"])
async def base(request: pytest.FixtureRequest, session: Session, old_router: str) -> str:
    return session.endpoint if request.param == "smg" else old_router


@pytest_asyncio.fixture(loop_scope="module")
async def http(base: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=base, trust_env=False, timeout=60.0) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def client(base: str) -> AsyncIterator[openai.AsyncOpenAI]:
    transport = openai.DefaultAsyncHttpxClient(trust_env=False, timeout=60.0)
    async with openai.AsyncOpenAI(
        base_url=f"{base}/v1", api_key="none", http_client=transport, max_retries=0
    ) as found:
        yield found


async def test_chat_plain_and_streamed_say_the_same(client: openai.AsyncOpenAI) -> None:
    ask: dict[str, Any] = {
        "model": "m",
        "messages": [{"role": "user", "content": "Grüße, 世界 😀"}],
        "max_tokens": 24,
        "temperature": 0,
    }
    plain = await client.chat.completions.create(**ask)
    text, usage, finish = "", None, None
    stream = await client.chat.completions.create(
        **ask, stream=True, stream_options={"include_usage": True}
    )
    async for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
    assert text == plain.choices[0].message.content
    assert finish == plain.choices[0].finish_reason
    assert plain.usage is not None
    assert usage is not None
    assert usage.total_tokens == plain.usage.total_tokens > 24


async def test_chat_logprobs_and_samples(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(
        model="m",
        messages=[{"role": "user", "content": "x"}],
        max_completion_tokens=8,
        n=3,
        seed=5,
        logprobs=True,
        top_logprobs=4,
        extra_body=GREEDY | {"temperature": 1.0},
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in answer.choices}) > 1
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 24
    for choice in answer.choices:
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        assert len(choice.logprobs.content) == 8
        for token in choice.logprobs.content:
            assert len(token.top_logprobs) == 4
            assert token.logprob <= token.top_logprobs[0].logprob <= 0


async def test_completions_of_several_prompts(client: openai.AsyncOpenAI) -> None:
    prompts = ["one", "two two", "three three three"]
    ask: dict[str, Any] = {"model": "m", "max_tokens": 6, "extra_body": GREEDY}
    alone = [await client.completions.create(prompt=p, **ask) for p in prompts]
    together = await client.completions.create(prompt=prompts, n=2, echo=True, **ask)
    expected = [p + a.choices[0].text for p, a in zip(prompts, alone, strict=True)]
    assert [choice.text for choice in together.choices] == [t for t in expected for _ in (0, 1)]
    streamed = dict.fromkeys(range(3), "")
    stream = await client.completions.create(prompt=prompts, stream=True, **ask)
    async for chunk in stream:
        for choice in chunk.choices:
            streamed[choice.index] += choice.text
    assert list(streamed.values()) == [a.choices[0].text for a in alone]


async def test_stop_string(client: openai.AsyncOpenAI) -> None:
    ask: dict[str, Any] = {"model": "m", "prompt": "stop", "max_tokens": 24, "extra_body": GREEDY}
    whole = (await client.completions.create(**ask)).choices[0].text
    stop = whole[6:9]
    cut = (await client.completions.create(stop=[stop, "\0never"], **ask)).choices[0]
    assert cut.text == whole[: whole.find(stop)]
    assert cut.finish_reason == "stop"


async def test_bad_fields_are_named(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client.completions.create(model="m", prompt="x", logprobs=129)
    assert "logprobs" in str(caught.value)
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(
            model="m",
            messages=[{"role": "user", "content": "x"}],
            response_format={"type": "json_object"},
        )
    assert "response_format" in str(caught.value)


async def test_the_synchronous_client(base: str) -> None:
    def ask() -> str:
        transport = openai.DefaultHttpxClient(trust_env=False, timeout=60.0)
        with openai.OpenAI(base_url=f"{base}/v1", api_key="none", http_client=transport) as client:
            answer = client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "x"}], max_tokens=4
            )
            parts = client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "x"}], max_tokens=4, stream=True
            )
            assert any(chunk.choices for chunk in parts)
            return answer.object

    assert await asyncio.to_thread(ask) == "chat.completion"


async def test_generate_forms(http: httpx.AsyncClient) -> None:
    params = GREEDY | {"max_new_tokens": 5}

    async def ask(**body: Any) -> Any:
        answer = await http.post("/generate", json={"sampling_params": params, **body})
        assert answer.status_code == 200, answer.text
        return answer.json()

    ids = [[40, 41, 42], [50], [60] * 40]
    alone = [await ask(input_ids=one) for one in ids]
    together = await ask(input_ids=ids)
    assert [a["output_ids"] for a in together] == [a["output_ids"] for a in alone]
    samples = await ask(input_ids=ids[0], sampling_params=params | {"n": 2})
    assert [a["output_ids"] for a in samples] == [alone[0]["output_ids"]] * 2
    scored = await ask(input_ids=ids[0], return_logprob=True, top_logprobs_num=2)
    meta = scored["meta_info"]
    assert len(meta["output_token_logprobs"]) == len(meta["output_top_logprobs"]) == 5


async def test_curl_reads_events(base: str) -> None:
    body = {"text": "é世", "stream": True, "sampling_params": GREEDY | {"max_new_tokens": 6}}
    process = await asyncio.create_subprocess_exec(
        *("curl", "-sN", "--noproxy", "*", f"{base}/generate"),
        *("-H", "content-type: application/json", "-d", json.dumps(body)),
        stdout=PIPE,
    )
    output, _ = await process.communicate()
    lines = [line for line in output.decode().split("\n\n") if line]
    assert lines.pop() == "data: [DONE]"
    last = json.loads(lines[-1].removeprefix("data: "))
    assert last["meta_info"]["completion_tokens"] == 6


async def test_small_and_large_prompts(http: httpx.AsyncClient, session: Session) -> None:
    async def ask(length: int) -> httpx.Response:
        params = GREEDY | {"max_new_tokens": 2}
        body = {"input_ids": [30] * length, "sampling_params": params}
        return await http.post("/generate", json=body)

    for length in (1, 2, CAPACITY - 1, CAPACITY):
        answer = await ask(length)
        assert answer.status_code == 200, answer.text
        assert answer.json()["meta_info"]["prompt_tokens"] == length
    async with asyncio.timeout(5.0):
        for length in (0, CAPACITY + 1):
            answer = await ask(length)
            assert answer.status_code == 400, answer.text
    await http_rig.initial(session)


async def test_64_at_once(http: httpx.AsyncClient, session: Session) -> None:
    async def ask(number: int) -> list[int]:
        body = {
            "input_ids": [10 + number] * (1 + number * 3),
            "sampling_params": GREEDY | {"max_new_tokens": 4},
        }
        answer = await http.post("/generate", json=body)
        assert answer.status_code == 200, answer.text
        return list(answer.json()["output_ids"])

    together = await asyncio.gather(*map(ask, range(64)))
    assert [await ask(number) for number in (0, 31, 63)] == [together[i] for i in (0, 31, 63)]
    await http_rig.initial(session)


async def test_40_forced_first_tokens_each_reach_their_own_answer(
    http: httpx.AsyncClient, session: Session
) -> None:
    """By the OpenAI endpoint: both routers drop `logit_bias` from `sampling_params`."""

    async def ask(token: int, **more: Any) -> Any:
        bias = {"logit_bias": {str(token): 100}, "logprobs": 0}
        body = {"model": "m", "prompt": "same", "max_tokens": 3, **bias, **GREEDY, **more}
        answer = await http.post("/v1/completions", json=body)
        assert answer.status_code == 200, answer.text
        choice = answer.json()["choices"][0]
        return choice["logprobs"]["tokens"], choice["finish_reason"]

    tokens = range(60, 100)  # letters and signs of the tiny model
    url = f"{http_rig.url(session, 'decode')}/v1/detokenize"
    texts = (await http.post(url, json={"tokens": [[token] for token in tokens]})).json()["text"]
    assert len(set(texts)) == 40
    answers = await asyncio.gather(*map(ask, tokens))
    assert answers == [([text] * 3, "length") for text in texts]
    # The token that is handed over may be the last one (F48).
    assert await ask(60, ignore_eos=False, stop_token_ids=[60]) == ([texts[0]], "stop")
    assert await ask(60, max_tokens=1) == ([texts[0]], "length")
    both = {"logit_bias": {"60": 90, "61": 90}, "max_tokens": 20, "frequency_penalty": 2}
    assert set((await ask(60, **both))[0]) == set(texts[:2])
    await http_rig.initial(session)


async def test_health_while_busy(http: httpx.AsyncClient, session: Session) -> None:
    params = GREEDY | {"max_new_tokens": 64}
    asked = [
        asyncio.create_task(
            http.post("/generate", json={"input_ids": [n] * 1500, "sampling_params": params})
        )
        for n in range(20, 28)
    ]
    for role in ("prefill", "decode") * 3:
        async with asyncio.timeout(5.0):
            probe = await http.get(f"{http_rig.url(session, role)}/health_generate")
        assert probe.status_code == 200
    assert [(await task).status_code for task in asked] == [200] * 8
    await http_rig.initial(session)


async def leave(http: httpx.AsyncClient, dice: random.Random) -> None:
    """A client that goes at a random moment."""
    body = {
        "input_ids": [dice.randrange(10, 250)] * dice.choice([3, 300, 1200]),
        "stream": dice.random() < 0.5,
        "sampling_params": GREEDY | {"max_new_tokens": 300},
    }
    with contextlib.suppress(TimeoutError, httpx.HTTPError):
        async with asyncio.timeout(dice.choice([0.005, 0.03, 0.1, 0.4]) * (0.5 + dice.random())):
            await http.post("/generate", json=body)


async def gone_clients(http: httpx.AsyncClient, session: Session, *, times: int) -> None:
    dice = random.Random(9)
    for _ in range(times // 10):
        await asyncio.gather(*(leave(http, dice) for _ in range(10)))
    await http_rig.initial(session)
    body = {"text": "still there", "sampling_params": GREEDY | {"max_new_tokens": 3}}
    assert (await http.post("/generate", json=body)).status_code == 200


async def test_clients_that_leave(http: httpx.AsyncClient, session: Session) -> None:
    await gone_clients(http, session, times=30)


@pytest.mark.full
async def test_many_clients_that_leave(http: httpx.AsyncClient, session: Session) -> None:
    await gone_clients(http, session, times=200)


async def test_abort_of_a_running_request(http: httpx.AsyncClient, session: Session) -> None:
    body = {
        "input_ids": [33] * 20,
        "rid": "req1",
        "sampling_params": GREEDY | {"max_new_tokens": 1500},
    }
    task = asyncio.create_task(http.post("/generate", json=body))
    async with httpx.AsyncClient(trust_env=False) as direct:
        decode = http_rig.url(session, "decode")
        async with asyncio.timeout(10.0):
            for rid in ("req", "req1"):  # no other name ends it
                while not task.done():
                    answer = await direct.post(f"{decode}/abort_request", json={"rid": rid})
                    if answer.json()["aborted"] or rid == "req":
                        break
                    await asyncio.sleep(0.05)
            answer = await task
    assert answer.status_code == 200, answer.text
    assert answer.json()["meta_info"]["finish_reason"]["type"] == "abort"
    await http_rig.initial(session)


@pytest.mark.parametrize("role", ["prefill", "decode"])
async def test_worker_endpoints(role: str, session: Session) -> None:
    base = http_rig.url(session, role)
    async with httpx.AsyncClient(base_url=base, trust_env=False, timeout=30.0) as http:
        assert (await http.get("/health_generate")).status_code == 200
        assert (await http.post("/flush_cache?timeout=5")).status_code == 200
        assert (await http.get("/get_load")).json()[0]["num_reqs"] == 0
        tokens = (await http.post("/v1/tokenize", json={"prompt": "héllo"})).json()["tokens"]
        text = (await http.post("/v1/detokenize", json={"tokens": tokens})).json()["text"]
        assert text == "héllo"
        fake = {"text": "x", "bootstrap_host": "2.2.2.2", "bootstrap_room": 0}
        assert (await http.post("/generate", json=fake)).status_code == 200
    await http_rig.initial(session)
