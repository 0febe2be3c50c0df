"""One family of the zoo through every stage, export and reload, with what each hand-over changed.

    PYTHONPATH=.:tests:tests/support:tests/support/models python tests/support/models/zoo_trials.py

writes docs/model_families.json anew, from which the page of supported families is made.
"""

import contextlib
import io
import itertools
import json
import math
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from model_zoo import FAMILIES, WINDOW, write_family
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from emads.commands.stages import train_stages
from emads.run_weights import load_run_weights
from roles.errors import UserError
from simulator.engines.embedded import own_pass
from simulator.reward import score_episode
from training.config.loading import load_config
from training.export.export import export_team
from training.export.gguf_files import write_model
from training.learner.lora_batch import routed_roles
from training.learner.rows import TrainingRow, make_batches
from training.learner.token_logprobs import token_logprobs
from training.models import weights
from training.models.weights import load_weights
from training.rl.solo import play as solo_play
from training.rl.team import score as team_score
from training.runs.run_folder import Run
from training.stages import rl

RECORD = Path(__file__).resolve().parents[3] / "docs" / "model_families.json"
SETTINGS = (
    *("name=zoo", "num_workers=0", "data.difficulties=[1]", "data.num_demonstrations=4"),
    *("model.adapter_sharing=shared", "model.lora_rank=2", "model.lora_alpha=4"),
    *("sft.max_steps=1", "sft.batch_size=2", "sft.validate_every=0", "sft.patience=0"),
    *("sft.optimizer=adamw", "sft.learning_rate=1e-2"),
    *("grpo.max_steps=1", "grpo.prompts_per_step=1", "grpo.group_size=2", "grpo.learning_rate=1e-2"),
    *("grpo.max_turns=2", "grpo.max_completion_tokens=4"),
    "grpo.guards.validate_every=0",
    *("marl.max_steps=1", "marl.scenarios_per_step=1", "marl.report_sets=2", "marl.decisions_per_set=2"),
    *("marl.max_completion_tokens=4", "marl.learning_rate=1e-2", "marl.guards.validate_every=0"),
    "marl.credit.scheme=shared",
)
PADDED = tuple(f"{key}.row_layout=padded" for key in ("sft", "grpo.memory", "marl.memory"))
LINEAR = {"Mamba": "in_proj,x_proj"}  # layers of that family that PEFT takes
STAGES = ("base", "sft", "grpo", "marl")
LAYOUT, TARGETS = "row_layout: padded", "lora_targets"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What became of a family.

    Example: Trial(kind="llama", result="works", needs=(), reason="", gguf="written", difference=1e-6)
    """

    kind: str  # transformers' name
    result: str  # "works", "own pass" or "refused"
    needs: tuple[str, ...]  # settings that the first refusals asked for
    reason: str  # of the refusal that stayed
    gguf: str  # "written", or why not
    difference: float  # largest one of a log-probability, over all hand-overs

    def as_json(self) -> dict[str, Any]:
        """Return the record, the difference rounded up to a power of ten."""
        found = 0.0 if self.difference == 0 else 10.0 ** math.ceil(math.log10(self.difference))
        return {
            "kind": self.kind,
            "result": self.result,
            "needs": list(self.needs),
            "reason": self.reason,
            "gguf": self.gguf,
            "largest_difference": max(found, 1e-6),
        }


def try_family(name: str, folder: Path, adapter: str = "lora") -> Trial:
    """Train, export and reload the family, with what its refusals ask for; any other error is a fault.

    `adapter`: "lora", or "none" for full weights.
    """
    base = write_family(name, folder / "model")
    settings: tuple[str, ...] = (f"model.preset={base}", f"model.adapter={adapter}")
    needs: list[str] = []
    for number in itertools.count():
        run = Run.create(folder / f"run{number}", load_config(None, (*SETTINGS, *settings)))
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                train_stages(run, "base")
        except UserError as error:
            if "use row_layout padded" in str(error) and LAYOUT not in needs:
                needs.append(LAYOUT)
                settings += PADDED
                continue
            if "model.lora_targets" in str(error) and TARGETS not in needs:
                needs.append(TARGETS)
                settings += (f"model.lora_targets=[{LINEAR.get(name, 'q_proj,k_proj,v_proj,o_proj')}]",)
                continue
            assert not run.is_done("sft/team")
            reason = str(error).replace(str(base), "MODEL")
            return Trial(
                kind=FAMILIES[name].config,
                result="refused",
                needs=(),
                reason=reason,
                gguf="",
                difference=0.0,
            )
        break
    differences = [run.read_payload("base")["largest_difference"], *_train(run)]
    assert run.read_json("provenance.json")["largest_difference"] == differences[0]
    exported, gguf, found = _export(run, folder)
    differences += found
    team = load_run_weights(exported, "marl")  # checks the engine on the loaded weights
    model: Any = team.models["cto"]
    with team.serve([]):
        is_batched = own_pass.known[own_pass.config_key(model)]
    return Trial(
        kind=FAMILIES[name].config,
        result="works" if is_batched else "own pass",
        needs=tuple(needs),
        reason="",
        gguf=gguf,
        difference=max(differences),
    )


def logprobs(model: Any) -> torch.Tensor:
    """Log-probabilities by the model's own pass of all tokens of a text that is longer than the window."""
    size = model.config.get_text_config().vocab_size
    ids = torch.tensor([[(13 * place + 5) % size for place in range(2 * WINDOW)]])
    was_training = model.training
    with torch.no_grad():
        found: torch.Tensor = model.eval()(input_ids=ids, use_cache=False).logits.float().log_softmax(-1)
    model.train(was_training)
    return found


def _train(run: Run) -> list[float]:
    """Train the stages with rewards drawn by lot; how far reloaded weights and samples were off."""
    trained: dict[str, torch.Tensor] = {}
    save = weights.save_weights

    def keep(run: Run, stage: str, role: str | None, model: Any, *rest: Any, **options: Any) -> None:
        trained[stage] = logprobs(model)
        save(run, stage, role, model, *rest, **options)

    drawn = itertools.count()

    def draw() -> float:
        return zlib.crc32(str(next(drawn)).encode()) % 97 / 97

    def pay_episode(*given: Any) -> Mapping[str, float]:
        return {**dict.fromkeys(episode_reward(*given), 0.0), "total": draw()}

    def pay_team(*given: Any) -> Any:
        return replace(score_episode(*given), reward=draw())

    episode_reward = solo_play.episode_reward
    with (
        patch.object(weights, "save_weights", keep),
        patch.object(rl, "save_weights", keep),
        patch.object(solo_play, "episode_reward", pay_episode),
        patch.object(team_score, "score_episode", pay_team),
        patch.object(team_score, "with_consensus", lambda verdict, *rest: verdict),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        for stage in STAGES[1:]:
            train_stages(run, stage)
    before = logprobs(load_weights(run, "base", "cto")[0])
    found = []
    for stage in STAGES[1:]:
        model, _ = load_weights(run, stage, "cto")
        now = logprobs(model)
        found.append(_gap(now, trained[stage]))
        assert not torch.equal(now, before), f"{stage} changed nothing"
        before = now
    played = [row.metrics for stage in ("grpo/team", "marl") for row in run.read_metrics(stage)]
    mismatches = [value for row in played for key, value in row.items() if key.startswith("mismatch_max")]
    learnt = [value for row in played for key, value in row.items() if key.startswith("grad_norm")]
    assert learnt
    assert min(learnt) > 0
    return [*found, *mismatches, compare_gradients(model, run.config.marl.memory.row_layout)]


def compare_gradients(model: Any, layout: Any) -> float:
    """Largest difference of a gradient, as the joint learner computes it, from that of the own pass."""
    size = model.config.get_text_config().vocab_size
    texts = [
        [(3 * place + 1) % size for place in range(40)] + [(7 * row + k) % size for k in range(4)]
        for row in (1, 2)
    ]
    rows = [
        TrainingRow(
            role="cto", token_ids=tuple(text), loss_mask=(0,) * 40 + (1,) * 4,
            sampling_logprobs=(0.0,) * 44, advantage=1.0,
        )
        for text in texts
    ]  # fmt: skip
    learnt = [one for one in model.parameters() if one.requires_grad]
    model.train()

    def take() -> list[torch.Tensor]:
        found = [one.grad.clone() for one in learnt if one.grad is not None]
        model.zero_grad()
        return found

    for text in texts:
        every = model(input_ids=torch.tensor([text]), use_cache=False).logits[0, 39:-1].log_softmax(-1)
        total: Any = every.gather(1, torch.tensor(text[40:])[:, None]).sum()
        total.backward()
    wanted = take()
    for batch in make_batches(rows, layout=layout, max_tokens=1000):
        with routed_roles(model, batch):
            total = token_logprobs(model, batch)[0].sum()
            total.backward()
    return max(_gap(*pair) / (1 + float(pair[1].abs().max())) for pair in zip(take(), wanted, strict=True))


def _export(run: Run, folder: Path) -> tuple[Path, str, list[float]]:
    """Export with merged weights, and a file for llama.cpp where it can be written."""
    target, gguf = folder / "exported", "written"
    has_adapters = run.config.model.adapter != "none"
    made = export_team(run, target, with_merged=has_adapters)
    trained = logprobs(load_weights(run, "marl", "cto")[0])
    merged = target / ("merged" if has_adapters else "roles") / "team"
    plain = AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float32)
    found = [_gap(logprobs(plain), trained)]
    file = folder / "team.gguf"
    try:
        write_model(merged, file, name="team")
    except UserError as error:
        gguf = str(error).removeprefix("--gguf: ").removesuffix("; leave --gguf out")
    else:
        read, tokenizer = read_gguf(file, merged)
        found.append(_gap(logprobs(read), logprobs(plain)))
        assert greedy_ids(read, tokenizer) == greedy_ids(plain, AutoTokenizer.from_pretrained(merged))
    return made.path, gguf, found


def read_gguf(file: Path, merged: Path) -> tuple[Any, Any]:
    """Model and tokenizer of a file for llama.cpp, as transformers' own reader finds them."""
    model = AutoModelForCausalLM.from_pretrained(
        file.parent,
        gguf_file=file.name,
        config=AutoConfig.from_pretrained(merged),  # that reader leaves the width of heads out
        dtype=torch.float32,
    )
    source = {"gguf_file": file.name} if model.config.model_type.startswith("qwen") else {}
    # of Llama files that reader knows SentencePiece vocabularies alone
    return model, AutoTokenizer.from_pretrained(file.parent if source else merged, **source)


def greedy_ids(model: Any, tokenizer: Any, text: str = "Option A: speed 35, cost 12. Report") -> list[int]:
    """What a model says greedily after a text, the text's own ids before it."""
    ids = torch.tensor([tokenizer(text, add_special_tokens=False).input_ids])
    options = {"do_sample": False, "max_new_tokens": 12, "attention_mask": torch.ones_like(ids)}
    said: list[int] = model.eval().generate(input_ids=ids, **options)[0].tolist()
    return said


def _gap(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).abs().max())


def try_all(names: Sequence[str] = tuple(FAMILIES)) -> Iterator[tuple[str, Trial]]:
    """Try each family in its own folder."""
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            yield name, try_family(name, Path(folder))


if __name__ == "__main__":
    import sys

    from training.models.base_model import quiet_libraries

    quiet_libraries()
    known = {} if len(sys.argv) == 1 else json.loads(RECORD.read_text())
    for name, trial in try_all(sys.argv[1:] or tuple(FAMILIES)):
        known[name] = trial.as_json()
        print(name, known[name], trial.difference, flush=True)
        RECORD.write_text(json.dumps(known, indent=1) + "\n")
