"""Checks before a run starts, and what a failed start leaves. Imports no torch: a refusal takes no second."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from roles.errors import UserError

USER_MISTAKE = 2  # exit status


def check_model_folder(preset: str) -> None:
    """Refuse a `model.preset` that names a folder in which there is no model; a hub's id passes.

    Raises:
        UserError: names the folder and what is missing.
    """
    from training.config.model_config import PRESETS

    folder = Path(preset).expanduser()
    is_path = preset.startswith((".", "/", "~")) or preset.count("/") > 1 or folder.parent.is_dir()
    if preset in PRESETS or not is_path or (folder / "config.json").is_file():
        return
    missing = "no config.json in that folder" if folder.is_dir() else "no such folder"
    raise UserError(
        f"model.preset {preset!r}: {missing}; give a model's folder, or a hub id such as ORG/NAME"
    )


@contextmanager
def undone_where_nothing_began(path: Path) -> Iterator[None]:
    """Remove the run folder that the block made if a mistake ended it before anything was trained.

    Else the corrected command would be refused: the folder would hold another config.
    """
    is_new = not path.exists() or not any(path.iterdir())
    try:
        yield
    except UserError as error:
        has_begun = any((path / name).exists() for name in ("metrics.jsonl", "stages", "checkpoints"))
        if is_new and not has_begun and error.status == USER_MISTAKE:
            shutil.rmtree(path, ignore_errors=True)
        raise


def check_page_folder(option: str, path: Path) -> None:
    """Refuse a folder of pages that is a file, or is named like one.

    Raises:
        UserError: names the option, what is there and the remedy.
    """
    if path.exists() and not path.is_dir():
        raise UserError(f"{option} {path} is a file: name a folder, in which each episode becomes a page")
    if path.suffix.lower() in (".html", ".htm", ".json") and not path.exists():
        raise UserError(f"{option} {path} must be a folder: try {option} {path.with_suffix('')}/")


def check_file_target(option: str, path: Path) -> None:
    """Refuse a file to write that is a folder, or stands in what is no folder.

    Raises:
        UserError: names option and path.
    """
    if path.is_dir():
        raise UserError(f"{option} {path} is a folder: name a file in it")
    if path.parent.exists() and not path.parent.is_dir():
        raise UserError(f"{option} {path}: {path.parent} is a file, not a folder")


def refuse_missing_run(path: Path) -> None:
    """Refuse a folder that holds neither a run, nor runs, nor an exported team.

    Raises:
        UserError: no run there.
    """
    if not any((path / name).is_file() for name in ("config.yaml", "team.json")) and not any(
        path.glob("*/config.yaml")
    ):
        raise UserError(f"no run in {path} (no config.yaml there); start one with `emads demo {path}`")
