"""The stage `base`: tokenizer and weights that all later stages start from."""

from collections.abc import Callable, Iterable
from functools import partial

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from training.data.demonstrations import corpus
from training.models.adapters import quantization
from training.models.base_model import build_tiny_model, load_pretrained, train_tokenizer
from training.models.self_check import check_base
from training.models.weights import BASE, is_finished, save_weights
from training.runs.faults import enter_stage
from training.runs.run_folder import Run
from training.runs.workers import report_progress
from training.stages.from_config import make_chat

TOKENIZER_SCENARIOS = 300  # per family, for training the tiny tokenizer


def train_base(run: Run) -> None:
    """Make the base of a team."""
    data = run.config.data
    texts = partial(
        corpus,
        num_role=TOKENIZER_SCENARIOS,
        num_team=TOKENIZER_SCENARIOS,
        seed=data.seed,
        difficulties=data.difficulties,
        style=run.config.model.prompts,
        questions=run.config.model.questions,
    )
    make_base(run, texts)


def make_base(run: Run, read_texts: Callable[[], Iterable[str]]) -> None:
    """Build the base for preset `tiny`, with a tokenizer trained on the texts, or load a pretrained one."""
    if is_finished(run, BASE):
        return
    config = run.config
    enter_stage(BASE)
    quantization(config.model)  # an option that this machine cannot run is refused before anything is made
    if config.model.preset == "tiny":
        tokenizer: PreTrainedTokenizerBase = train_tokenizer(read_texts(), config.model.vocab_size)
        model: PreTrainedModel = build_tiny_model(config.model, tokenizer, config.seed)
    else:
        model, tokenizer = load_pretrained(config.model.preset)
    layouts = [config.grpo.memory.row_layout, config.marl.memory.row_layout]
    if config.sft.row_layout != "packed":  # TRL lays those rows itself
        layouts.append(config.sft.row_layout)
    make_chat(tokenizer, config)  # a template that cannot be used is refused here
    difference = check_base(model, config.model, layouts)
    report_progress(0, largest_difference=difference)
    run.add_provenance(largest_difference=difference)
    save_weights(run, BASE, None, model, tokenizer, step=0)
    num_parameters = sum(p.numel() for p in model.parameters())
    run.mark_done(BASE, {"num_parameters": num_parameters, "largest_difference": difference})
