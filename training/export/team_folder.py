"""The folder of an exported team: what stands where, its record `team.json`, and the check of every byte.

    FOLDER/team.json        the record below
           MANIFEST.json    path, size and SHA-256 of every other file (training/runs/checkpoints.py)
           README.md        model card
           base/            the frozen model and its tokenizer          } with adapters
           adapters/OWNER/  one PEFT adapter per role, or one for all   }
           roles/ROLE/      model and tokenizer of one role             with full weights
           merged/OWNER/    base and adapter as one model               (--merged)
           gguf/            the same for llama.cpp                      (--gguf)

Nothing here needs torch. No path comes from a file of the folder: the layout follows from the record.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from roles.errors import UserError
from roles.registry import ROLES
from simulator.engines.adapter_names import SHARED
from training.config.run_config import RunConfig
from training.config.section import StrictRecord
from training.runs.checkpoints import MANIFEST, DamagedCheckpointError, verify

RECORD = "team.json"
FORMAT = "emads-team/1"
CARD = "README.md"
BASE, ADAPTERS, FULL, MERGED, GGUF = "base", "adapters", "roles", "merged", "gguf"
HUB_FILES = frozenset({".gitattributes", ".cache"})  # a download from a hub adds them; never read
SUFFIXES = frozenset({".gguf", ".jinja", ".json", ".md", ".model", ".safetensors", ".txt"})
MOST_FILES = 2_000
MOST_TEXT_BYTES = 64 << 20  # of one file that holds no weights; tokenizers of large vocabularies have 20 MiB
MOST_RECORD_BYTES = 4 << 20

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Stage = Literal["sft", "grpo", "marl"]


class Versions(StrictRecord):
    """Digests of what the weights were trained with: another digest means another game.

    Example: describe_versions(record.config.model).prompts == record.versions.prompts
    """

    emads: str = Field(max_length=64)
    graph: Digest  # edges of the graphs
    prompts: Digest  # what every seat reads in pinned cases
    verifier: Digest  # what verifiers say of pinned plays


class WeightsSource(StrictRecord):
    """Origin of the weights. Example: WeightsSource(run="demo", digest="4f...", steps={"cto": "step_60"})"""

    run: str
    digest: Digest  # of the run's config
    steps: dict[str, str]  # owner -> name of its checkpoint


class TeamRecord(StrictRecord):
    """`team.json`.

    Example: open_team_folder(Path("exported/demo")).record.roles == {"cto": "cto", "coo": "coo", ...}
    """

    format: Literal["emads-team/1"]
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
    stage: Stage
    weights: Literal["adapters", "roles"]  # the folder that holds them
    roles: dict[str, str]  # role -> owner of its weights: itself, or `team` where all share one adapter
    merged: bool  # whether merged/ is there
    gguf: bool
    base_model: str | None = Field(max_length=200)  # hub id of the frozen base; None: it has none
    versions: Versions
    source: WeightsSource
    config: RunConfig  # as resolved; addresses and paths of the machine left out
    evaluation: dict[str, Any] | None  # sealed scores of this stage; None: not evaluated

    @model_validator(mode="after")
    def _check_roles(self) -> Self:
        if set(self.roles) != set(ROLES):
            raise ValueError(f"roles are {', '.join(self.roles)}, not {', '.join(ROLES)}")
        owners = set(self.roles.values())
        if owners != {SHARED} and any(role != owner for role, owner in self.roles.items()):
            raise ValueError("every role owns its weights, or all share those of `team`")
        return self

    @property
    def owners(self) -> tuple[str, ...]:
        """Return the owners of weights, each once, in the order of roles."""
        return tuple(dict.fromkeys(self.roles[role] for role in ROLES))


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamFolder:
    """An exported team whose every byte is what was exported.

    Example: open_team_folder(Path("exported/demo")).model_of("cto")
    """

    path: Path
    record: TeamRecord

    @property
    def base(self) -> Path | None:
        """Return the folder of the frozen base; None where every role has full weights."""
        return self.path / BASE if self.record.weights == ADAPTERS else None

    @property
    def adapters(self) -> Mapping[str, Path]:
        """Return the adapter folder of each owner; none where every role has full weights."""
        if self.record.weights != ADAPTERS:
            return {}
        return {owner: self.path / ADAPTERS / owner for owner in self.record.owners}

    def model_of(self, role: str) -> Path | None:
        """Return the folder of a role's whole model: its full weights, or the merged ones where there are."""
        if self.record.weights == FULL:
            return self.path / FULL / self.record.roles[role]
        return self.path / MERGED / self.record.roles[role] if self.record.merged else None


def is_team_folder(path: Path) -> bool:
    """Tell whether a folder claims to be an exported team; nothing is checked."""
    return (path / RECORD).is_file()


def find_stage(path: Path, default: str = "marl") -> str:
    """Return the stage of an exported team, `default` for any other folder; raises as `read_record`."""
    return read_record(path).stage if is_team_folder(path) else default


def open_team_folder(path: Path) -> TeamFolder:
    """Return an exported team after a check of every byte.

    Raises:
        UserError: no such folder; a file that is missing, changed or foreign; a damaged record.
    """
    if not is_team_folder(path):
        raise UserError(
            f"no exported team in {path} (no {RECORD} there); make one with `emads export RUN --to FOLDER`"
        )
    _check_files(path)
    try:
        manifest = verify(path, ignored=HUB_FILES)
    except DamagedCheckpointError as error:
        raise UserError(f"{error}; get the folder again, or export the run again") from None
    record = read_record(path)
    if manifest.run != name_identity(record):
        raise UserError(f"{path}: {RECORD} and {MANIFEST} are of different teams; export the run again")
    folder = TeamFolder(path=path, record=record)
    models = [f"{FULL}/{owner}" for owner in record.owners] if record.weights == FULL else [BASE]
    needed = [
        RECORD,
        CARD,
        *(f"{one}/{file}" for one in models for file in ("config.json", "tokenizer.json")),
    ]
    files = ("adapter_config.json", "adapter_model.safetensors")
    needed += [f"{ADAPTERS}/{owner}/{file}" for owner in folder.adapters for file in files]
    needed += [f"{MERGED}/{owner}/config.json" for owner in record.owners if record.merged]
    listed = {entry.path for entry in manifest.files}
    if missing := next((one for one in needed if one not in listed), None):  # else the record is not true
        raise UserError(f"{path}: {missing} is missing; export the run again")
    return folder


def read_record(path: Path) -> TeamRecord:
    """Return the record of an exported team; the other files are not looked at.

    Raises:
        UserError: missing, too large, or not such a record.
    """
    file = path / RECORD
    try:
        if file.stat().st_size > MOST_RECORD_BYTES:
            raise UserError(f"{file} has more than {MOST_RECORD_BYTES} bytes: it is no team's record")
        return TeamRecord.model_validate_json(file.read_bytes())
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "file"
        raise UserError(
            f"{file}: {where}: {first['msg']}; it was made by another version, or damaged"
        ) from None


def name_identity(record: TeamRecord) -> str:
    """Return what the manifest names as its run."""
    return f"{record.source.digest}/export/{record.stage}"


def _check_files(path: Path) -> None:
    """Refuse a folder that holds anything but data of bounded size, before any of it is read."""
    found = [file.relative_to(path) for file in sorted(path.rglob("*"))]
    found = [relative for relative in found if relative.parts[0] not in HUB_FILES]
    if len(found) > MOST_FILES:
        raise UserError(f"{path} holds more than {MOST_FILES} files: it is no exported team")
    for relative in found:
        file = path / relative
        if file.is_symlink() or not (file.is_file() or file.is_dir()):
            raise UserError(f"{path}: {relative} is neither a plain file nor a folder; delete it")
        if file.is_dir():
            continue
        if relative.suffix not in SUFFIXES:
            raise UserError(
                f"{path}: {relative} is no file of an exported team (it holds data alone); delete it"
            )
        size = file.stat().st_size
        if relative.suffix not in (".safetensors", ".gguf") and size > MOST_TEXT_BYTES:
            raise UserError(
                f"{path}: {relative} has {size} bytes, more than {MOST_TEXT_BYTES}; export the run again"
            )
