"""Episodes as OpenTelemetry spans, by option: the only module that knows OpenTelemetry, and only when asked.

One span per episode with one child per completion (GenAI semantic conventions) and per tool call; reports,
questions, drafts, votes and entries of the decision log are events of the episode. No prompt, no completion
text, no truth and no score is in a span.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from roles.errors import UserError
from scenarios.team.playable import PlayableCase
from simulator.observer import Watch
from simulator.records import Turn
from simulator.tool_calls import BadToolCallError, parse_tool_calls

SCOPE = "emads.simulator"
UNTOLD = ("interrupt_id", "nonce", "signature", "feedback", "action")  # permissions, and words of people
MISSING = (
    "spans need OpenTelemetry, which is not installed; pip install 'emads[otel]', or leave the option out"
)


@contextmanager
def write_spans(path: Path) -> Iterator[Watch]:
    """Watch episodes and write their spans into a file, one JSON object per line.

    Raises:
        UserError: OpenTelemetry is not installed.
    """
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
    except ImportError:
        raise UserError(MISSING) from None
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        provider = TracerProvider(resource=Resource.create({"service.name": "emads"}))
        exporter = ConsoleSpanExporter(
            out=file, formatter=lambda span: str(span.to_json(indent=None)).replace("\n", " ") + "\n"
        )
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        try:
            yield trace_episodes(provider.get_tracer(SCOPE))
        finally:
            provider.shutdown()


def trace_episodes(tracer: Any) -> Watch:
    """Return a watch that writes into `tracer` (of any OpenTelemetry provider, with any exporter).

    Raises:
        UserError: OpenTelemetry is not installed.
    """
    try:
        from opentelemetry.trace import set_span_in_context
    except ImportError:
        raise UserError(MISSING) from None

    def watch(case: PlayableCase, session: str) -> SpanObserver:
        return SpanObserver(tracer, set_span_in_context, case, session)

    return watch


class SpanObserver:
    """An Observer that writes one episode as spans."""

    def __init__(self, tracer: Any, set_span_in_context: Any, case: PlayableCase, session: str) -> None:
        self._tracer = tracer
        self._episode = tracer.start_span(
            "invoke_agent team",
            attributes={
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": "team",
                "gen_ai.conversation.id": session,
                "emads.scenario_key": case.key,
                "emads.seats": list(case.seats),
                "emads.num_options": len(case.options),
            },
        )
        self._inside = set_span_in_context(self._episode)
        self._num_tokens: dict[str, int] = {}  # of each role's transcript so far

    def on_turn(self, role: str, turn: Turn, duration_s: float) -> None:
        end_ns = time.time_ns()
        num_read = self._num_tokens.get(role, 0) + len(turn.context_ids)
        self._num_tokens[role] = num_read + len(turn.completion_ids)
        span = self._tracer.start_span(
            f"chat {role}",
            context=self._inside,
            start_time=end_ns - round(duration_s * 1e9),
            attributes={
                "gen_ai.operation.name": "chat",
                "gen_ai.agent.name": role,
                "gen_ai.response.model": turn.policy_version,
                "gen_ai.response.finish_reasons": [turn.finish_reason],
                "gen_ai.usage.input_tokens": num_read,
                "gen_ai.usage.output_tokens": len(turn.completion_ids),
            },
        )
        span.end(end_time=end_ns)

    def on_tool(self, role: str, call: str, observation: str) -> None:
        try:
            parsed = parse_tool_calls(call)
        except BadToolCallError:
            parsed = ()
        name = parsed[0].name if parsed else "malformed"
        span = self._tracer.start_span(
            f"execute_tool {name}",
            context=self._inside,
            attributes={
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.agent.name": role,
                "gen_ai.tool.name": name,
                "emads.tool.is_error": observation.startswith("error: "),
            },
        )
        span.end()

    def on_report(self, role: str, text: str, parsed: Any) -> None:
        told = {}
        if parsed is not None:
            told = {
                "needs": parsed["needs"],
                "veto": parsed["veto"],
                "num_offers": len(parsed["offers"]),
                "num_false_claims": len(parsed["false_claims"]),
            }
        self._add("report", role, told, is_valid=parsed is not None)

    def on_ask(self, text: str, ask: Mapping[str, Any]) -> None:
        self._add("ask", "reconcile", ask, is_valid=True)

    def on_reply(self, role: str, text: str, parsed: Any) -> None:
        self._add("reply", role, {}, is_valid=parsed is not None)

    def on_decision(self, text: str, parsed: Any, round: int) -> None:
        kept = {name: parsed[name] for name in ("option", "fund", "escalate")} if parsed else {}
        self._add("decision", "reconcile", kept, is_valid=parsed is not None, round=round)

    def on_vote(self, role: str, text: str, parsed: Any) -> None:
        self._add("vote", role, {"vote": parsed["vote"]} if parsed else {}, is_valid=parsed is not None)

    def on_governance(self, kind: str, body: Mapping[str, Any]) -> None:
        kept = {name: value for name, value in body.items() if isinstance(value, str | int | bool)}
        shown = {name: value for name, value in kept.items() if name not in UNTOLD}
        kpis = body.get("kpis")
        if isinstance(kpis, Mapping):
            shown |= {f"kpi.{role}": kpi for role, kpi in kpis.items()}
        self._episode.add_event(
            f"governance.{kind}", {f"emads.{name}": value for name, value in shown.items()}
        )
        if kind == "closed":
            self._episode.set_attribute("emads.status", str(body["status"]))

    def on_end(self, error: str | None) -> None:
        if error is not None:
            self._episode.set_attribute("error.type", error[:200])
        self._episode.end()

    def _add(self, name: str, role: str, parsed: Mapping[str, Any], **more: Any) -> None:
        attributes = {f"emads.{key}": value for key, value in {"role": role, **parsed, **more}.items()}
        self._episode.add_event(name, attributes)
