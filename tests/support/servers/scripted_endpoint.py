"""An OpenAI-compatible endpoint on this machine that plays a script per first user message."""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from scenarios.base import Step


def _text_of(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content)
    return str(content or "")


@contextmanager
def serve_script(steps_by_brief: Mapping[str, Sequence[Step]]) -> Iterator[str]:
    """Serve until the block ends; yields the base URL. An assistant turn is the script's next step.

    The script is the one whose brief stands last in the conversation; steps are counted by turns after it.
    """

    def reply(body: Mapping[str, Any]) -> dict[str, Any]:
        messages = body["messages"]
        found = [
            (place, steps)
            for place, message in enumerate(messages)
            for brief, steps in steps_by_brief.items()
            if message["role"] == "user" and brief in _text_of(message)
        ]
        place, steps = found[-1]
        turn = sum(message["role"] == "assistant" for message in messages[place:])
        step = steps[min(turn, len(steps) - 1)]
        message: dict[str, Any] = {"role": "assistant", "content": step.text}
        if step.call is not None:
            function = {"name": step.call.name, "arguments": json.dumps(dict(step.call.arguments))}
            message["tool_calls"] = [{"id": f"call_{turn}", "type": "function", "function": function}]
        reason = "stop" if step.call is None else "tool_calls"
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return {
            "id": "x",
            "object": "chat.completion",
            "created": 0,
            "model": "m",
            "choices": [choice],
            "usage": usage,
        }

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            whole = reply(body)
            if body.get("stream"):
                choice = whole["choices"][0]
                delta = {**choice["message"]}
                for number, call in enumerate(delta.get("tool_calls", [])):
                    call["index"] = number
                first = {
                    **whole,
                    "object": "chat.completion.chunk",
                    "choices": [{"index": 0, "delta": delta, "finish_reason": None}],
                }
                last = {
                    **whole,
                    "object": "chat.completion.chunk",
                    "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}],
                }
                first.pop("usage")
                data = "".join(f"data: {json.dumps(one)}\n\n" for one in (first, last)) + "data: [DONE]\n\n"
                kind = "text/event-stream"
            else:
                data, kind = json.dumps(whole), "application/json"
            raw = data.encode()
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        thread.join()
