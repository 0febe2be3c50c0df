"""The kinds of agents that can play a role: plain chat, ReAct with tools, or one that also writes Python.

`chat` writes its answer and nothing else. `react` may call tools, several in a turn. `code` may also
write one ```python block per turn instead: it runs in the sandbox alone, and what it prints comes back.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal, get_args

from roles.base import Role
from roles.errors import UserError, unknown

AgentKind = Literal["chat", "react", "code"]
AGENT_KINDS: tuple[AgentKind, ...] = get_args(AgentKind)
CODE_NOTE = (
    " Instead of an answer a turn may hold one ```python block: it runs alone, without network or files, and"
    " you read what it printed."
)


def read_kinds(given: Sequence[str], roles: Mapping[str, Role]) -> dict[str, AgentKind]:
    """Read kinds by role from words like "cto=code" or "code" (every role).

    Raises:
        UserError: an unknown role or kind, or a role twice.
    """
    kinds: dict[str, AgentKind] = {}
    for one in given:
        role, found, word = one.rpartition("=")
        kind = next((kind for kind in AGENT_KINDS if kind == word), None)
        if kind is None:
            raise unknown("kind of agent", word, list(AGENT_KINDS))
        if found and role not in roles:
            raise unknown("role", role, list(roles))
        for name in [role] if found else list(roles):
            if name in kinds:
                raise UserError(f"--agent names {name!r} twice; say it once")
            kinds[name] = kind
    return kinds


def introduce(role: Role, kind: AgentKind) -> Role:
    """Return the role as its prompt introduces it, under its own name: chats remember prompts by name."""
    if kind != "code":
        return role
    return replace(role, name=f"{role.name}+code", mandate=role.mandate + CODE_NOTE)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLimits:
    """Limits of an agent's work, named as in `Trajectory.ended_by`. None: the team's default.

    Example: read_limits(["total_tokens=900"]) == AgentLimits(total_tokens=900)
    """

    turns: int | None = None  # per message
    turn_tokens: int | None = None  # written in one turn
    total_tokens: int | None = None  # read and written in the whole transcript
    tool_calls: int | None = None  # in the whole transcript, programs included; one more ends the work
    failed_calls: int | None = None  # as many end the work


def read_limits(given: Sequence[str]) -> AgentLimits:
    """Read limits from words like "turns=6".

    Raises:
        UserError: an unknown name, a name twice, or no whole number of 1 or more (0 for tool_calls).
    """
    known = [field.name for field in fields(AgentLimits)]
    limits: dict[str, int] = {}
    for one in given:
        name, _, word = one.partition("=")
        if name not in known:
            raise unknown("limit", name, known)
        least = 0 if name == "tool_calls" else 1
        if not word.isascii() or not word.isdigit() or int(word) < least:
            raise UserError(f"--limit {name} = {word!r}: give a whole number of {least} or more")
        if name in limits:
            raise UserError(f"--limit names {name!r} twice; say it once")
        limits[name] = int(word)
    return AgentLimits(**limits)
