"""Loads the models of an exported team, which was checked byte by byte when its folder was opened."""

from typing import cast

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from training.export.team_folder import TeamFolder
from training.models.adapters import load_adapters
from training.models.base_model import load_checkpoint, load_frozen_base
from training.models.weights import Team


def load_exported_models(folder: TeamFolder) -> tuple[Team, PreTrainedTokenizerBase]:
    """Return every role's model and the tokenizer of all; roles with adapters share one model.

    Raises:
        UserError: weights that cannot be loaded.
    """
    record = folder.record
    if folder.base is not None:
        base, tokenizer = load_frozen_base(folder.base, record.config.model)
        model = cast(PreTrainedModel, load_adapters(base, folder.adapters))
        return dict.fromkeys(record.roles, model), tokenizer
    loaded = {
        role: load_checkpoint(path) for role in record.roles if (path := folder.model_of(role)) is not None
    }
    return {role: model for role, (model, _) in loaded.items()}, next(iter(loaded.values()))[1]
