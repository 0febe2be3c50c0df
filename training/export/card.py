"""The model card of an exported team, in the form that hubs read, and the commands that serve its models."""

from collections.abc import Mapping
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from roles.registry import ROLES
from training.export.team_folder import ADAPTERS, BASE, FULL, GGUF, MERGED, TeamRecord

LICENSE = "apache-2.0"
TAGS = ("emads", "multi-agent", "reinforcement-learning", "rlvr", "decision-making")
DATASET = "emads generated company decision cases"
FIRST_PORT = 8000
VLLM_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # of adapters, which vLLM makes room for

_TEXT = """\
# {title}

A team of language model agents for company decisions, trained with `emads` {emads}: {roles}.
Each specialist sees its own part of a case and offers what could be bought there, ReconcileGPT decides what
is done and funded from one budget, and the team votes.

| | |
|---|---|
| stage | {stage} |
| weights | {weights} |
| base model | {base} |
| prompts | {style}, digest `{prompts:.12}` |
| graph | digest `{graph:.12}` |
| verifier | digest `{verifier:.12}` |
| run | {run}, config `{digest:.12}` |

## Use

```bash
emads verify .      # every file against its SHA-256
emads simulate .    # the team plays a test case
emads serve .       # OpenAI-compatible endpoint, MCP and A2A
```

Without emads, in the folder of this card:

```python
{python}
```

{serving}
Prompts are part of a team: it was trained on the texts that emads writes for a case (`{style}` style), each
role on its own. Other prompts are outside of what was trained and measured.

## Evaluation

{evaluation}
## Limits

Cases are generated, and a score here is no judgement about real decisions. `MANIFEST.json` finds damage and
mixed-up files; it is no signature, so take the folder from a source that you trust.
"""
_ADAPTERS = """\
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("base")
model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("base"), "adapters/{owner}")"""
_ROLES = """\
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("roles/{owner}")
model = AutoModelForCausalLM.from_pretrained("roles/{owner}")"""
_NOT_EVALUATED = "The run was not evaluated when it was exported: there are no figures.\n"
_EVALUATED = """\
Means on sealed test cases with 95 % bootstrap intervals, plays at temperature {temperature:g}; greedy beside
them. Difficulties {difficulties}, one seed. `emads evaluate` of the run made these figures.

| | cases | mean reward | 95 % | greedy |
|---|---:|---:|---|---:|
{rows}
"""


def render_card(record: TeamRecord) -> str:
    """Return the card's whole text, header included."""
    if record.weights == ADAPTERS:
        words = f"LoRA adapters ({', '.join(record.owners)}) on `{BASE}/`"
    else:
        words = f"one model {'per role' if len(record.owners) > 1 else 'for all roles'}, in `{FULL}/`"
    also = [f"`{MERGED}/`"] * record.merged + [f"`{GGUF}/`"] * record.gguf
    commands = list_serve_commands(record, ".")
    text = _TEXT.format(
        title=f"{record.name}: a team of five roles, after {record.stage}",
        emads=record.versions.emads,
        roles=", ".join(role.title for role in ROLES.values()),
        stage=record.stage,
        weights=f"{words}; also {' and '.join(also)}" if also else words,
        base=record.base_model
        or ("in `base/`" if record.weights == ADAPTERS else "none: trained from nothing"),
        style=record.config.model.prompts,
        prompts=record.versions.prompts,
        graph=record.versions.graph,
        verifier=record.versions.verifier,
        run=record.source.run,
        digest=record.source.digest,
        python=(_ADAPTERS if record.weights == ADAPTERS else _ROLES).format(owner=record.owners[0]),
        serving="".join(f"{what}:\n\n```bash\n{command}\n```\n\n" for what, command in commands),
        evaluation=_describe_evaluation(record),
    )
    header = ModelCardData(
        license=LICENSE,
        language=["en"],
        library_name="peft" if record.weights == ADAPTERS else "transformers",
        base_model=record.base_model,
        pipeline_tag="text-generation",
        tags=list(TAGS),
        model_name=record.name,
        eval_results=_list_results(record) or None,
    )
    return str(ModelCard(f"---\n{header.to_yaml()}\n---\n\n{text}", ignore_metadata_errors=False))


def _describe_evaluation(record: TeamRecord) -> str:
    if record.evaluation is None:
        return _NOT_EVALUATED
    rows = [_row("team reward", record.evaluation["team"])] if record.evaluation["team"] else []
    rows += [_row(f"{ROLES[role].title} alone", found) for role, found in record.evaluation["roles"].items()]
    config = record.config
    return _EVALUATED.format(
        rows="\n".join(rows),
        temperature=config.evaluation.temperature,
        difficulties=", ".join(map(str, config.evaluation.difficulties or config.data.difficulties)),
    )


def _row(name: str, scores: Mapping[str, Any]) -> str:
    greedy = "" if scores["greedy"] is None else f"{scores['greedy']:.3f}"
    interval = f"{scores['low']:.3f} to {scores['high']:.3f}"
    return f"| {name} | {scores['n']} | {scores['mean']:.3f} | {interval} | {greedy} |"


def _list_results(record: TeamRecord) -> list[EvalResult]:
    """Return the figures as hubs index them."""
    if record.evaluation is None:
        return []
    found = {"team": record.evaluation["team"]} if record.evaluation["team"] else {}
    return [
        EvalResult(
            task_type="text-generation",
            dataset_type="emads",
            dataset_name=DATASET,
            dataset_config=name,
            dataset_split="test",
            metric_type="mean_reward",
            metric_name="mean sealed reward",
            metric_value=round(scores["mean"], 4),
        )
        for name, scores in {**found, **record.evaluation["roles"]}.items()
    ]


def list_serve_commands(record: TeamRecord, folder: str) -> list[tuple[str, str]]:
    """Return (what it starts, command) for every server that can take this folder.

    At each server a model has the name of its role, or `team` where all roles share one.
    """
    found: list[tuple[str, str]] = []
    if record.weights == ADAPTERS:
        rank = record.config.model.lora_rank
        most = next((known for known in VLLM_RANKS if known >= rank), rank)
        modules = " ".join(f"{owner}={folder}/{ADAPTERS}/{owner}" for owner in record.owners)
        command = (
            f"vllm serve {folder}/{BASE} --served-model-name base --enable-lora --max-lora-rank {most}"
            f" --max-loras {len(record.owners)} --lora-modules {modules}"
        )
        found.append(("vLLM, all roles on one server", command))
    ports = list(enumerate(record.owners, start=FIRST_PORT))
    if record.weights == FULL or record.merged:
        home = FULL if record.weights == FULL else MERGED
        what = "a server per role" if len(record.owners) > 1 else "one server for all roles"
        lines = [
            f"vllm serve {folder}/{home}/{owner} --served-model-name {owner} --port {port}"
            for port, owner in ports
        ]
        found.append((f"vLLM, {what}", "\n".join(lines)))
    if record.gguf:
        home = f"{folder}/{GGUF}"
        models = {owner: f"{home}/{owner}.gguf" for owner in record.owners}
        if record.weights == ADAPTERS:
            models = {owner: f"{home}/base.gguf --lora {home}/{owner}.lora.gguf" for owner in record.owners}
        lines = [f"llama-server -m {models[owner]} --alias {owner} --port {port}" for port, owner in ports]
        found.append(("llama.cpp", "\n".join(lines)))
    return found
