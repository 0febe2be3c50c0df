"""Columns of a data folder: their types in Parquet and in the data card, and how chats are stored in them.

`messages` is a list of structs, so that trainers see a conversation. The arguments of a call and the entries
of `tools` have another schema for every tool: they are JSON text, which `datasets.load_dataset` turns into
values again, as the data card's header declares it.
"""

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Message = dict[str, Any]  # as chat templates take it
_CALL = pa.struct(
    [("type", pa.string()), ("function", pa.struct([("name", pa.string()), ("arguments", pa.string())]))]
)
_MESSAGE = pa.struct(
    [("role", pa.string()), ("content", pa.string()), ("name", pa.string()), ("tool_calls", pa.list_(_CALL))]
)
SCHEMA = pa.schema(
    [
        ("key", pa.string()),  # family/split/seed/index/difficulty
        ("family", pa.string()),
        ("split", pa.string()),
        ("seed", pa.int64()),
        ("index", pa.int64()),
        ("difficulty", pa.int64()),
        ("domain", pa.string()),  # the sector that the case plays in; "" where it has none
        ("role", pa.string()),  # who answers
        ("brief", pa.string()),
        ("messages", pa.list_(_MESSAGE)),  # the whole chat, tool calls and true observations included
        ("tools", pa.list_(pa.string())),  # JSON: signatures in the `tools=` format of chat templates
        ("answer", pa.string()),  # JSON: the final answer alone
        ("author", pa.string()),  # who wrote it: "oracle", or "teacher:" and the model's name
    ]
)
COLUMNS: Mapping[str, type] = {
    field.name: str if field.type == pa.string() else int if field.type == pa.int64() else list
    for field in SCHEMA
}
_CHAT_FEATURES: Mapping[str, Any] = {
    "messages": [
        {"name": "role", "dtype": "string"},
        {"name": "content", "dtype": "string"},
        {"name": "name", "dtype": "string"},
        {
            "name": "tool_calls",
            "list": [
                {"name": "type", "dtype": "string"},
                {
                    "name": "function",
                    "struct": [{"name": "name", "dtype": "string"}, {"name": "arguments", "dtype": "json"}],
                },
            ],
        },
    ],
    "tools": "json",
}


def list_features() -> list[dict[str, Any]]:
    """The columns as `dataset_info.features` of a data card lists them."""
    dtypes = {str: "string", int: "int64"}
    return [
        {"name": name, "list": _CHAT_FEATURES[name]}
        if kind is list
        else {"name": name, "dtype": dtypes[kind]}
        for name, kind in COLUMNS.items()
    ]


def store_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """A chat as its column holds it: absent keys are None, arguments of calls are JSON text."""
    return [
        {
            "role": message["role"],
            "content": message["content"],
            "name": message.get("name"),
            "tool_calls": [_store_call(call) for call in message["tool_calls"]]
            if "tool_calls" in message
            else None,
        }
        for message in messages
    ]


def load_messages(stored: Sequence[Mapping[str, Any]]) -> list[Message]:
    """The chat of a row, without absent keys.

    Raises:
        ValueError: arguments that are not JSON.
    """
    messages = [{name: value for name, value in message.items() if value is not None} for message in stored]
    for message in messages:
        if "tool_calls" in message:
            message["tool_calls"] = [_load_call(call) for call in message["tool_calls"]]
    return messages


def store_tools(tools: Sequence[Mapping[str, Any]]) -> list[str]:
    """Signatures of tools as their column holds them."""
    return [json.dumps(tool) for tool in tools]


def load_tools(stored: Sequence[str]) -> list[dict[str, Any]]:
    """The signatures of a row's tools."""
    return [json.loads(tool) for tool in stored]


def encode_shard(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """A Parquet file of these rows; equal rows give equal bytes."""
    buffer = io.BytesIO()
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    pq.write_table(table, buffer, compression="zstd", write_page_checksum=True)
    return buffer.getvalue()


def read_text(row: Mapping[str, Any], column: str) -> str:
    """A text column's content, of chats and tools as JSON."""
    value = row[column]
    if column == "messages":
        return json.dumps(load_messages(value))
    return json.dumps(load_tools(value)) if column == "tools" else str(value)


def _store_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = json.dumps(function["arguments"])
    return {"type": call["type"], "function": {"name": function["name"], "arguments": arguments}}


def _load_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = json.loads(function["arguments"])
    return {"type": call["type"], "function": {"name": function["name"], "arguments": arguments}}
