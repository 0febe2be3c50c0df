"""Greedy answers of an exported team's weights by programs that know nothing of this project.

    cd FOLDER; PYTHON -I consumers.py transformers|llama.cpp < ASKED.json

Standard input is one JSON object: model or adapter by the name of its owner, and prompts as token ids:
{"cto": {"model": "base", "adapter": "adapters/cto", "prompts": [[5, 9], ...], "tokens": 32}, ...}.
Standard output ends with the sampled ids of each: {"cto": [[41, 7], ...], ...}. No line here imports emads.
"""

import json
import sys
from importlib.util import find_spec
from typing import Any

Asked = dict[str, Any]
Said = list[list[int]]


def ask_transformers(asked: Asked) -> Said:
    """Load with AutoModelForCausalLM, and with PeftModel where there is an adapter."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if not AutoTokenizer.from_pretrained(asked["model"]).chat_template:
        raise SystemExit(f"{asked['model']} has no chat template")
    model = AutoModelForCausalLM.from_pretrained(asked["model"], dtype=torch.float32)
    if asked["adapter"]:
        model = PeftModel.from_pretrained(model, asked["adapter"])
    said = []
    for prompt in asked["prompts"]:
        ids = torch.tensor([prompt])
        rows = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=asked["tokens"],
        )
        said.append(rows[0, len(prompt) :].tolist())
    return said


def ask_llama_cpp(asked: Asked) -> Said:
    """Load a GGUF file, and a LoRA file on it where there is one; the cache in float32 as elsewhere."""
    import numpy as np
    from llama_cpp import GGML_TYPE_F32, Llama

    longest = max(map(len, asked["prompts"])) + asked["tokens"]
    model = Llama(
        asked["model"],
        lora_path=asked["adapter"],
        n_ctx=longest,
        type_k=GGML_TYPE_F32,
        type_v=GGML_TYPE_F32,
        verbose=False,
    )
    said = []
    for prompt in asked["prompts"]:
        model.reset()
        model.eval(prompt)
        answer: list[int] = []
        for _ in range(asked["tokens"]):
            row = np.ctypeslib.as_array(model._ctx.get_logits_ith(-1), shape=(model.n_vocab(),))
            answer.append(int(row.argmax()))
            model.eval(answer[-1:])
        said.append(answer)
    return said


CONSUMERS = {"transformers": ask_transformers, "llama.cpp": ask_llama_cpp}

if __name__ == "__main__":
    if find_spec("emads") is not None:
        raise SystemExit("emads can be imported here: use an environment without it")
    ask = CONSUMERS[sys.argv[1]]
    print(json.dumps({owner: ask(asked) for owner, asked in json.load(sys.stdin).items()}))
