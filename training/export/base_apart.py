"""An exported team without the base of its adapters: small, and whole again once the base is made anew.

The manifest names the base's files with their SHA-256, so that a base which differs in any byte is refused.
"""

import shutil
import tempfile
from pathlib import Path

from roles.errors import UserError
from simulator.export.atomic_files import explain_os_errors
from training.export.team_folder import ADAPTERS, BASE, TeamFolder, TeamRecord, open_team_folder, read_record
from training.models.base_model import load_pretrained


def check_named_base(record: TeamRecord) -> None:
    """Refuse a team whose base nobody else could make.

    Raises:
        UserError: full weights, or a base that comes from no hub and no package.
    """
    if record.weights != ADAPTERS:
        raise UserError("--without-base: the roles have full weights and no base")
    if record.base_model is None:
        preset = record.config.model.preset
        raise UserError(
            f"--without-base: the base {preset!r} comes from no hub and no package; export it, too"
        )


def leave_base_out(folder: TeamFolder) -> None:
    """Remove the base from a folder that was just exported."""
    shutil.rmtree(folder.path / BASE)


def add_base(path: Path) -> TeamFolder:
    """Make the base that the team's preset names and put it into the folder; one that is there is checked.

    Raises:
        UserError: no exported team with adapters; the base cannot be had, or is another one than exported.
    """
    record = read_record(path)
    if (path / BASE).exists() or record.weights != ADAPTERS:
        return open_team_folder(path)
    model, tokenizer = load_pretrained(record.config.model.preset)
    with explain_os_errors("write the base into", path):
        made = Path(tempfile.mkdtemp(prefix=".base-", dir=path.parent))
        try:
            model.save_pretrained(made)
            tokenizer.save_pretrained(made)
            made.chmod(0o755)
            made.rename(path / BASE)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    try:
        return open_team_folder(path)
    except UserError as error:
        shutil.rmtree(path / BASE)
        raise UserError(
            f"{error}; the base that {record.config.model.preset!r} gives here is not the exported one:"
            f" install what emads {record.versions.emads} was tested with (constraints.txt), or get the base"
        ) from None
