"""Between transcripts and messages of the protocol: native tool calls there, calls between tags here."""

import json
from collections.abc import Sequence
from typing import Any, Literal, assert_never

from simulator.chat import Said, read_opening
from simulator.engines.openai.reply import ChatReply
from simulator.tool_calls import CLOSE, OPEN, BadToolCallError, describe_tools, parse_tool_calls

ToolShape = Literal["native", "text"]  # how tools are offered: by the protocol, or in the system message
WireMessage = dict[str, Any]

NOT_RUN = "not carried out"
EMPTY = "(nothing was said)"  # several servers refuse every talk that holds an empty message


def write_messages(
    said: Sequence[Said], shape: ToolShape = "native"
) -> tuple[list[WireMessage], list[dict[str, Any]]]:
    """Return the messages and the tools of a request whose transcript is `said`.

    A turn whose calls cannot be read goes out as the text that it was, and what was answered as a user's
    message.
    """
    messages: list[WireMessage] = []
    tools: list[dict[str, Any]] = []
    open_ids: list[str] = []  # calls that have no result yet
    for one in said:
        if one.speaker == "tool" and open_ids:
            messages.append(_write_result(open_ids.pop(0), one.text))
            continue
        messages += [_write_result(name, NOT_RUN) for name in open_ids]
        open_ids = []
        match one.speaker:
            case "system":
                role, with_tools = read_opening(one.text)
                tools = [tool.as_chat_tool() for tool in role.tools] if with_tools else []
                in_words = f"\n\n{describe_tools(tools)}" if tools and shape == "text" else ""
                messages.append({"role": "system", "content": f"{role.mandate}{in_words}"})
            case "assistant":
                messages.append(_write_turn(one.text, f"c{len(messages):04d}", shape))
                open_ids = [call["id"] for call in messages[-1].get("tool_calls", ())]
            case "tool":
                _add_user(messages, f"<tool_response>\n{one.text}\n</tool_response>")
            case "user":
                _add_user(messages, one.text)
            case _:
                assert_never(one.speaker)
    return messages, tools if shape == "native" else []


def write_turn_text(message: ChatReply) -> str:
    """Return a reply as the text that agents read: its words, then its calls, each between tags."""
    calls = [
        f'{OPEN}\n{{"name": {json.dumps(call.name)}, "arguments": {call.arguments.strip() or "{}"}}}\n{CLOSE}'
        for call in message.calls
    ]
    return message.text + "\n".join(calls)


def _write_turn(text: str, name: str, shape: ToolShape) -> WireMessage:
    """Return an assistant's message, its calls in the protocol's own form where all can be read."""
    try:
        calls = parse_tool_calls(text) if shape == "native" else ()
    except BadToolCallError:
        calls = ()
    if not calls:
        return {"role": "assistant", "content": text if text.strip() else EMPTY}
    return {
        "role": "assistant",
        "content": text[: text.index(OPEN)] or None,
        "tool_calls": [
            {
                "id": f"{name}{number:04d}",  # nine letters or digits: Mistral's servers refuse others
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(dict(call.arguments))},
            }
            for number, call in enumerate(calls)
        ],
    }


def _add_user(messages: list[WireMessage], text: str) -> None:
    """Add a user's text, to the message before where that is a user's: users and models take turns."""
    text = text if text.strip() else EMPTY
    if messages and messages[-1]["role"] == "user":
        messages[-1]["content"] += f"\n{text}"
    else:
        messages.append({"role": "user", "content": text})


def _write_result(name: str, text: str) -> WireMessage:
    return {"role": "tool", "tool_call_id": name, "content": text if text.strip() else EMPTY}
