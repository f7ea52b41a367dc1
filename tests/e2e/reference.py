"""What transformers says: a script, since importing it warns about a dozen things.

    reference.py MODEL_FOLDER NEW < prompts.json > answers.json

Per prompt: 32-bit greedy tokens and, per token, the gap between the best two logits.
"""

import json
import sys

import torch
from transformers import AutoModelForCausalLM


def main() -> None:
    """Read prompts, write answers."""
    folder, new = sys.argv[1], int(sys.argv[2])
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    answers = []
    for prompt in json.load(sys.stdin):
        with torch.inference_mode():
            output = model.generate(
                torch.tensor([prompt]), max_new_tokens=new, min_new_tokens=new, do_sample=False,
                output_logits=True, return_dict_in_generate=True,
            )  # fmt: skip
        best = [step[0].topk(2).values for step in output.logits]
        logprobs = [float(step[0].log_softmax(-1).max()) for step in output.logits]
        answers.append(
            {
                "tokens": output.sequences[0, len(prompt) :].tolist(),
                "gaps": [float(two[0] - two[1]) for two in best],
                "logprobs": logprobs,
            }
        )
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
