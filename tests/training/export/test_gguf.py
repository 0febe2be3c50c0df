"""Files for llama.cpp hold the same models: another program's reader gives back the same answers."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from exported_teams import make_random_run
from model_zoo import write_family
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM
from zoo_trials import greedy_ids, read_gguf

pytest.importorskip("gguf", reason="writes and reads GGUF files: pip install 'emads[gguf]'")
from gguf import GGUFReader

from roles.errors import UserError
from training.config.model_config import ModelConfig
from training.export.export import _write_merged, export_team
from training.export.gguf_files import CUTS, _refuse_unwritten, _turn, write_lora, write_model
from training.export.team_folder import open_team_folder
from training.models.adapters import attach, save_adapter

IDS = torch.tensor([[5, 9, 2, 41, 17, 30]])
LORA = ("model.adapter=lora", "model.lora_rank=4")


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = make_random_run(tmp_path_factory.mktemp("runs") / "lora", *LORA)
    return export_team(run, run.path.parent / "exported", with_merged=True, with_gguf=True).path


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model.eval()(input_ids=IDS).logits
    return found


def tensors(path: Path) -> dict[str, torch.Tensor]:
    return {one.name: torch.from_numpy(one.data.copy()) for one in GGUFReader(path).tensors}


def test_a_merged_file_is_read_by_transformers_and_says_the_same(adapters: Path) -> None:
    for role in ("cto", "reconcile"):
        plain = AutoModelForCausalLM.from_pretrained(adapters / f"merged/{role}")
        read = AutoModelForCausalLM.from_pretrained(
            adapters / "gguf",
            gguf_file=f"{role}.gguf",
            config=plain.config,  # that reader leaves the width of heads out
            dtype=torch.float32,
        )
        assert torch.equal(logits(read), logits(plain))


@pytest.mark.parametrize("family", ["SmolLM2", "Qwen 2.5", "Qwen 3"])
def test_transformers_says_greedily_from_a_file_what_the_merged_export_says(
    family: str, tmp_path: Path
) -> None:
    """Vocabularies of bytes included, where that reader knows them; the whole way is in the model zoo."""
    merged, file = write_family(family, tmp_path / "merged"), tmp_path / "team.gguf"
    write_model(merged, file, name="team")
    read, tokenizer = read_gguf(file, merged)
    plain = AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float32)
    said = greedy_ids(read, tokenizer)
    assert said == greedy_ids(plain, AutoTokenizer.from_pretrained(merged))
    assert len(set(said[-12:])) > 1


LLAMA_CPP = """
import json, sys, urllib.request, xllamacpp
file, lora, *asked = json.load(sys.stdin)
options = xllamacpp.CommonParams()
options.model.path = file
options.n_ctx, options.n_parallel, options.warmup, options.ui, options.verbosity = 512, 1, False, False, 0
options.cpuparams.n_threads = options.cpuparams_batch.n_threads = 1
options.cache_type_k = options.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
options.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(lora, 1.0)] if lora else []
server = xllamacpp.Server(options)
answers = []
for path, body in asked:
    request = urllib.request.Request(server.listening_address + path, json.dumps(body).encode())
    request.add_header("content-type", "application/json")
    answers.append(json.load(urllib.request.urlopen(request, timeout=60)))
print(json.dumps(answers))
"""


TEXT = "Option A: speed 35, cost 12. Report"  # of `greedy_ids`


def ask_llama_cpp(file: Path, *asked: tuple[str, Any], lora: Path | None = None) -> list[Any]:
    """Answers of llama.cpp's own server, on a file, to (path, body) each."""
    pytest.importorskip("xllamacpp", reason="llama.cpp reads the files: pip install --no-deps xllamacpp")
    given = json.dumps([str(file), lora and str(lora), *asked])
    done = subprocess.run(
        [sys.executable, "-c", LLAMA_CPP], input=given, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return list(json.loads(done.stdout.splitlines()[-1]))


def complete(ids: list[int], most: int, say: int | None = None) -> tuple[str, Any]:
    """A greedy request. It says `say` where given, as likelihoods are not shown beside part of a letter."""
    body = {"prompt": ids, "n_predict": most, "temperature": 0, "return_tokens": True, "n_probs": 5}
    return "/completion", body if say is None else {**body, "logit_bias": [[say, 1000.0]]}


@pytest.mark.parametrize("family", ["SmolLM2", "Qwen 2.5", "Qwen 3"])
def test_llama_cpp_reads_a_text_as_the_same_ids_and_goes_on_greedily_with_the_same(
    family: str, tmp_path: Path
) -> None:
    merged, file = write_family(family, tmp_path / "merged"), tmp_path / "team.gguf"
    write_model(merged, file, name="team")
    plain, tokenizer = AutoModelForCausalLM.from_pretrained(merged), AutoTokenizer.from_pretrained(merged)
    texts = (
        "Option A: speed 35, cost 12. Report",
        "  don't  pay 1234 k$\n\n",
        "\u20ac 5, na\u00efve\t\u7b80<|im_end|>",
    )
    ids = [tokenizer(text, add_special_tokens=False).input_ids for text in texts]
    cut = [("/tokenize", {"content": text, "add_special": True, "parse_special": True}) for text in texts]
    (letter,) = tokenizer("a", add_special_tokens=False).input_ids  # see `complete`
    answers = ask_llama_cpp(file, *cut, *(complete(one, 1, letter) for one in ids), complete(ids[0], 12))
    assert [one["tokens"] for one in answers[:3]] == ids
    for read, answer in zip(ids, answers[3:6], strict=True):
        likely = answer["completion_probabilities"][0]["top_logprobs"]
        with torch.no_grad():
            own = plain(torch.tensor([read])).logits[0, -1].log_softmax(-1)
        found = own[[one["id"] for one in likely]].tolist()
        assert found == pytest.approx([one["logprob"] for one in likely], abs=5e-3)
    assert answers[6]["tokens"] == greedy_ids(plain, tokenizer)[len(ids[0]) :]


def test_llama_cpp_with_base_and_lora_files_says_what_the_merged_file_says(tmp_path: Path) -> None:
    base = write_family("SmolLM2", tmp_path / "base")
    worn = attach(
        AutoModelForCausalLM.from_pretrained(base),
        ModelConfig(adapter="lora", lora_rank=4, lora_alpha=8),
        seed=0,
        name="cto",
    )
    torch.manual_seed(1)
    for name, parameter in worn.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(std=0.2)
    (tmp_path / "adapter").mkdir()
    save_adapter(worn, tmp_path / "adapter", role="cto", base="base")
    _write_merged(base, tmp_path / "adapter", tmp_path / "merged")
    write_model(base, tmp_path / "base.gguf", name="base")
    write_model(tmp_path / "merged", tmp_path / "merged.gguf", name="merged")
    write_lora(base, tmp_path / "adapter", tmp_path / "cto.gguf", name="cto")

    def say(file: str, lora: Path | None = None) -> tuple[list[int], list[float]]:
        (answer,) = ask_llama_cpp(tmp_path / file, complete(IDS[0].tolist(), 12), lora=lora)
        return answer["tokens"], [one["logprob"] for one in answer["completion_probabilities"]]

    (merged, wanted), (with_lora, found), (bare, other) = (
        say("merged.gguf"), say("base.gguf", tmp_path / "cto.gguf"), say("base.gguf")
    )  # fmt: skip
    assert with_lora == merged
    assert found == pytest.approx(wanted, abs=5e-3)
    assert bare != merged or other != pytest.approx(wanted, abs=5e-3)


def test_base_and_lora_files_make_the_merged_weights(adapters: Path) -> None:
    base, merged = tensors(adapters / "gguf/base.gguf"), tensors(adapters / "gguf/cto.gguf")
    lora = tensors(adapters / "gguf/cto.lora.gguf")
    reader = GGUFReader(adapters / "gguf/cto.lora.gguf")
    field = reader.get_field("adapter.lora.alpha")
    assert field is not None
    scale = field.contents() / 4
    changed = sorted({name.rsplit(".", 1)[0] for name in lora})
    assert len(changed) == 7  # linear layers of one block
    for name in changed:
        whole = base[name] + scale * lora[f"{name}.lora_b"] @ lora[f"{name}.lora_a"]
        assert (whole - merged[name]).abs().max() < 1e-4, name
    assert all(torch.equal(base[name], merged[name]) for name in base if name not in changed)


def test_the_folder_with_files_for_llama_cpp_verifies(adapters: Path) -> None:
    folder = open_team_folder(adapters)
    assert folder.record.gguf
    files = sorted(path.name for path in (adapters / "gguf").iterdir())
    roles = ("coo", "cost", "cto", "reconcile", "risk")
    assert files == sorted(
        ["base.gguf", *(f"{role}{end}" for role in roles for end in (".gguf", ".lora.gguf"))]
    )


def test_llama_rows_are_turned_as_the_reader_of_a_published_file_turns_them_back(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=40,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        architectures=["LlamaForCausalLM"],
    )
    model = LlamaForCausalLM(config)
    model.save_pretrained(tmp_path / "llama")
    (tmp_path / "llama/tokenizer.json").write_text('{"model": {"type": "Unigram"}, "added_tokens": []}')
    write_model(tmp_path / "llama", tmp_path / "llama.gguf", name="llama")
    read = LlamaForCausalLM.from_pretrained(
        tmp_path, gguf_file="llama.gguf", config=config, dtype=torch.float32
    )
    state, stored = read.state_dict(), load_file(tmp_path / "llama/model.safetensors")
    assert all(torch.equal(state[name], tensor) for name, tensor in stored.items())
    name = "model.layers.0.self_attn.q_proj.weight"
    assert not torch.equal(_turn(name, stored[name], config.to_dict()), stored[name])


CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "eos_token_id": 2,
    "rope_parameters": {"rope_type": "default"},
}
QWEN = {"type": "Split", "pattern": {"Regex": CUTS["qwen2"][0]}, "behavior": "Isolated"}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
TOKENIZER = {
    "model": {"type": "BPE", "byte_fallback": False},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [QWEN, BYTES]},
}


@pytest.mark.parametrize(
    ("config", "tokenizer", "named"),
    [
        ({"rope_parameters": {"rope_type": "llama3"}}, {}, "rope_scaling"),
        ({"rope_scaling": {"type": "yarn"}}, {}, "rope_scaling"),
        ({"use_sliding_window": True}, {}, "sliding_window"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, {}, "sliding_window"),
        ({"architectures": ["LlamaForCausalLM"], "attention_bias": True}, {}, "attention_bias"),
        ({"eos_token_id": [2, 3]}, {}, "eos_token_id"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e6}}}, {}, "rope_scaling"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, {}, "rope_scaling"),
        ({"architectures": ["Qwen3ForCausalLM"], "attention_bias": True}, {}, "attention_bias"),
        ({"hidden_act": "gelu"}, {}, "hidden_act"),
        ({"logit_scale": 0.5}, {}, "logit_scale"),  # of another family, by whoever changed the model
        ({}, {"model": {"type": "BPE", "ignore_merges": True}}, "ignore_merges"),
        ({}, {"model": {"type": "BPE", "end_of_word_suffix": "</w>"}}, "end_of_word_suffix"),
        ({}, {"decoder": {"type": "WordPiece"}}, "decoder WordPiece"),
        ({}, {"added_tokens": [{"id": 3, "content": "<x>", "rstrip": True}]}, "rstrip"),
        ({}, {"pre_tokenizer": {"pretokenizers": [{**QWEN, "behavior": "Removed"}, BYTES]}}, "pre_tokenizer"),
        ({}, {"pre_tokenizer": {"type": "ByteLevel"}}, "pre_tokenizer"),
        ({}, {"model": {"type": "BPE", "byte_fallback": True}}, "byte_fallback"),
        ({}, {"model": {"type": "WordPiece"}}, "WordPiece"),
        ({}, {"post_processor": {"type": "TemplateProcessing", "special_tokens": {"<s>": {}}}}, "bos"),
    ],
)
def test_what_a_file_would_not_hold_is_refused_by_name(
    config: dict[str, Any], tokenizer: dict[str, Any], named: str
) -> None:
    _refuse_unwritten(CONFIG, TOKENIZER, "qwen2")
    with pytest.raises(UserError, match=f"would not hold .*{named}"):
        _refuse_unwritten(CONFIG | config, TOKENIZER | tokenizer, "qwen2")
