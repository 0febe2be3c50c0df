"""Episodes in the Agent Trajectory Interchange Format (ATIF v1.8, RFC 0001 of the Harbor framework).

One document per episode: the root tells the meeting, and every role's transcript is an embedded subagent
trajectory with exact token ids and logprobs. docs/how-to/play-cases.md lists the fields. No truth, no score.
"""

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from roles.base import Role, parse_answer
from roles.registry import ROLES
from roles.team import RECONCILER, AskMessage
from simulator.agents.dialogue import TranscriptMessage, read_messages
from simulator.chat import Chat
from simulator.export.atomic_files import write_document
from simulator.export.episode_files import SECRET
from simulator.governance.record import GovernedRecord
from simulator.records import Episode, Trajectory, Turn
from simulator.tool_calls import BadToolCallError, parse_tool_calls

SCHEMA_VERSION = "ATIF-v1.8"


def write_atif(
    path: Path, played: Episode | GovernedRecord, chat: Chat, *, roles: Mapping[str, Role] = ROLES
) -> Path:
    """Write one episode as a JSON document; it appears under its name only once it is whole."""
    to_atif = episode_to_atif if isinstance(played, Episode) else governed_to_atif
    return write_document(path, to_atif(played, chat, roles=roles))  # type: ignore[arg-type]


def governed_to_atif(
    record: GovernedRecord, chat: Chat, *, roles: Mapping[str, Role] = ROLES
) -> dict[str, Any]:
    """Return the record as an ATIF document: the episode, then every entry of the decision log as a step."""
    document = episode_to_atif(record.episode, chat, roles=roles)
    log = [
        {
            "source": "system",
            "message": f"Decision log: {entry.kind}.",
            "extra": {
                "kind": entry.kind,
                "at_s": entry.at_s,
                "hash": entry.hash,
                **{name: value for name, value in entry.body.items() if name not in SECRET},
            },
        }
        for entry in record.log
    ]
    document["steps"] = _number(document["steps"] + log)
    document["final_metrics"]["total_steps"] = len(document["steps"])
    document["extra"] |= {
        "protocol": "full",
        "status": record.status,
        "accountable": record.accountable,
        "num_proposals": len(record.chapters),
        "num_replans": max((chapter.attempt for chapter in record.chapters), default=0),
        "option": next(
            (one.proposal["option"] for one in reversed(record.chapters) if one.is_committed), None
        ),
        "is_log_sound": record.is_log_sound,
    }
    return document


def episode_to_atif(episode: Episode, chat: Chat, *, roles: Mapping[str, Role] = ROLES) -> dict[str, Any]:
    """Return the episode as an ATIF document; `chat` is the one it was played with."""
    subagents = [
        _role_document(episode, trajectory, chat, roles[role])
        for role, trajectory in episode.trajectories.items()
    ]
    steps = [
        {"source": "system", "message": f"A team meeting on case {episode.scenario_key}."},
        *_meeting_steps(episode),
    ]
    counts = {
        name: sum(document["final_metrics"][name] for document in subagents)
        for name in ("total_prompt_tokens", "total_completion_tokens")
    }
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "session_id": _session(episode),
        "trajectory_id": f"{_session(episode)}/team",
        "agent": {"name": "emads-team", "version": version("emads")},
        "steps": _number(steps),
        "final_metrics": {**counts, "total_steps": len(steps)},
        "extra": {
            "scenario_key": episode.scenario_key,
            "index_in_group": episode.index_in_group,
            "error": episode.error,
        },
    }
    return {**document, "subagent_trajectories": subagents} if subagents else document


def _meeting_steps(episode: Episode) -> list[dict[str, Any]]:
    """Return reports, questions, decision and votes as steps, dispatched by the graph without a model."""
    steps = []
    if episode.reports:
        steps.append(_dispatch(episode, "The specialists report.", episode.reports))
    for question in episode.asked:
        seat = parse_answer(question.ask, AskMessage).ask.seat
        steps.append(_dispatch(episode, "ReconcileGPT asks for another offer.", {RECONCILER: question.ask}))
        steps.append(_dispatch(episode, "The asked specialist replies.", {seat: question.reply}))
    if episode.decision or RECONCILER in episode.trajectories:
        steps.append(_dispatch(episode, "ReconcileGPT decides.", {RECONCILER: episode.decision}))
    if episode.votes:
        steps.append(_dispatch(episode, "The specialists vote.", episode.votes))
    return steps


def _dispatch(episode: Episode, message: str, said: Mapping[str, str]) -> dict[str, Any]:
    results = []
    for role, text in said.items():
        result: dict[str, Any] = {"content": text, "extra": {"role": role}}
        if role in episode.trajectories:
            result["subagent_trajectory_ref"] = [{"trajectory_id": _trajectory_id(episode, role)}]
        results.append(result)
    return {
        "source": "agent",
        "message": message,
        "llm_call_count": 0,
        "observation": {"results": results},
    }


def _role_document(episode: Episode, trajectory: Trajectory, chat: Chat, role: Role) -> dict[str, Any]:
    steps: list[dict[str, Any]] = []
    num_before = num_read = num_written = 0  # tokens
    for message in read_messages(trajectory, chat, role):
        if message.turn is None:
            _add_heard(steps, message)
            continue
        num_prompt = num_before + len(message.turn.context_ids)
        prompt_ids = trajectory.token_ids[:num_prompt]
        steps.append(_agent_step(message.turn, prompt_ids, f"call-{len(steps) + 1}"))
        num_before = num_prompt + len(message.turn.completion_ids)
        num_read, num_written = num_read + num_prompt, num_written + len(message.turn.completion_ids)
    if not steps:
        steps.append({"source": "system", "message": "This role did not speak."})
    return {
        "schema_version": SCHEMA_VERSION,
        "session_id": _session(episode),
        "trajectory_id": _trajectory_id(episode, trajectory.role),
        "agent": {
            "name": trajectory.role,
            "version": version("emads"),
            **({"model_name": trajectory.turns[0].policy_version} if trajectory.turns else {}),
            "tool_definitions": [tool.as_chat_tool() for tool in role.tools],
            "extra": {"title": role.title, "session": trajectory.session},
        },
        "steps": _number(steps),
        "final_metrics": {
            "total_prompt_tokens": num_read,
            "total_completion_tokens": num_written,
            "total_steps": len(steps),
        },
        "extra": {
            "truncated": trajectory.truncated,
            "ended_by": trajectory.ended_by,
            "num_tool_calls": trajectory.num_tool_calls,
            "num_valid_tool_calls": trajectory.num_valid_tool_calls,
        },
    }


def _add_heard(steps: list[dict[str, Any]], message: TranscriptMessage) -> None:
    """Add a message to the role: a step of its own, or the observation of the step that called the tool."""
    if message.source == "user":
        steps.append({"source": "user", "message": message.text})
        return
    result: dict[str, Any] = {"content": message.text}
    results = steps[-1].setdefault("observation", {"results": []})["results"]
    if "tool_calls" in steps[-1]:
        result["source_call_id"] = steps[-1]["tool_calls"][len(results)]["tool_call_id"]
    results.append(result)


def _agent_step(turn: Turn, prompt_ids: tuple[int, ...], call_id: str) -> dict[str, Any]:
    step: dict[str, Any] = {
        "source": "agent",
        "message": turn.text,
        "model_name": turn.policy_version,
        "llm_call_count": 1,
        "metrics": {
            "prompt_tokens": len(prompt_ids),
            "completion_tokens": len(turn.completion_ids),
            "prompt_token_ids": list(prompt_ids),
            "completion_token_ids": list(turn.completion_ids),
            "logprobs": list(turn.logprobs),
        },
        "extra": {"finish_reason": turn.finish_reason},
    }
    try:
        calls = parse_tool_calls(turn.text)
    except BadToolCallError:
        calls = ()
    if calls:
        step["tool_calls"] = [
            {
                "tool_call_id": f"{call_id}.{number}" if number > 1 else call_id,
                "function_name": call.name,
                "arguments": dict(call.arguments),
            }
            for number, call in enumerate(calls, 1)
        ]
    return step


def _number(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**step, "step_id": number} for number, step in enumerate(steps, 1)]


def _session(episode: Episode) -> str:
    return f"{episode.scenario_key}#{episode.index_in_group}"


def _trajectory_id(episode: Episode, role: str) -> str:
    return f"{_session(episode)}/{role}"
