"""Commands that put an exported team's models behind servers of other projects."""

from training.export.team_folder import ADAPTERS, BASE, FULL, GGUF, MERGED, TeamRecord

FIRST_PORT = 8000


def list_serve_commands(record: TeamRecord, folder: str) -> list[tuple[str, str]]:
    """Return (what it starts, command) for every server that can take this folder.

    At each server a model has the name of its role, or `team` where all roles share one.
    """
    found: list[tuple[str, str]] = []
    if record.weights == ADAPTERS:
        found.append(("vLLM, all roles on one server", _serve_adapters(record, folder)))
    if record.weights == FULL or record.merged:
        home = FULL if record.weights == FULL else MERGED
        what = "a server per role" if len(record.owners) > 1 else "one server for all roles"
        found.append((f"vLLM, {what}", "\n".join(_serve_models(record, f"{folder}/{home}"))))
    if record.gguf:
        found.append(("llama.cpp", "\n".join(_serve_gguf(record, f"{folder}/{GGUF}"))))
    return found


def _serve_adapters(record: TeamRecord, folder: str) -> str:
    rank = record.config.model.lora_rank
    modules = " ".join(f"{owner}={folder}/{ADAPTERS}/{owner}" for owner in record.owners)
    return (
        f"vllm serve {folder}/{BASE} --served-model-name base --enable-lora"
        f" --max-lora-rank {_round_rank(rank)} --max-loras {len(record.owners)} --lora-modules {modules}"
    )


def _serve_models(record: TeamRecord, home: str) -> list[str]:
    return [
        f"vllm serve {home}/{owner} --served-model-name {owner} --port {FIRST_PORT + number}"
        for number, owner in enumerate(record.owners)
    ]


def _serve_gguf(record: TeamRecord, home: str) -> list[str]:
    commands = []
    for number, owner in enumerate(record.owners):
        model = f"{home}/{owner}.gguf"
        if record.weights == ADAPTERS:
            model = f"{home}/base.gguf --lora {home}/{owner}.lora.gguf"
        commands.append(f"llama-server -m {model} --alias {owner} --port {FIRST_PORT + number}")
    return commands


def _round_rank(rank: int) -> int:
    """Return the least rank that vLLM knows and that holds adapters of this one."""
    return next((known for known in (8, 16, 32, 64, 128, 256, 320, 512) if known >= rank), rank)
