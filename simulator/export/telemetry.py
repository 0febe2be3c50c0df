"""Episodes as OpenTelemetry spans, by option: the only module that knows OpenTelemetry, and only when asked.

An episode is `invoke_workflow`, each role in it `invoke_agent`; below a role stand its completions (`chat`)
and its tool calls (`execute_tool`). Reports, questions, drafts, votes and entries of the decision log are
events of the episode. No prompt, no completion text, no truth and no score is in a span.
Source: github.com/open-telemetry/semantic-conventions-genai, model/gen-ai/spans.yaml.
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
PROVIDER = "emads"  # the conventions name no provider for weights of one's own
WORKFLOW = "team"
UNTOLD = ("interrupt_id", "expires_at_s", "feedback", "action")  # permissions, and words of people
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
        from opentelemetry import trace
    except ImportError:
        raise UserError(MISSING) from None

    def watch(case: PlayableCase, session: str) -> SpanObserver:
        return SpanObserver(tracer, trace, case, session)

    return watch


class _AgentSpan:
    """The span of one role, and what its completions used so far."""

    def __init__(self, span: Any, context: Any) -> None:
        self.span, self.context = span, context
        self.num_read = self.num_written = self.num_transcript = 0  # tokens
        self.end_ns = 0

    def end(self) -> None:
        self.span.set_attribute("gen_ai.usage.input_tokens", self.num_read)
        self.span.set_attribute("gen_ai.usage.output_tokens", self.num_written)
        self.span.end(end_time=self.end_ns)


class SpanObserver:
    """An Observer that writes one episode as spans."""

    def __init__(self, tracer: Any, api: Any, case: PlayableCase, session: str) -> None:
        """`api`: the module `opentelemetry.trace`."""
        self._tracer, self._api, self._session = tracer, api, session
        self._episode, self._inside = self._start(
            "invoke_workflow",
            WORKFLOW,
            {
                "gen_ai.workflow.name": WORKFLOW,
                "emads.session": session,
                "emads.scenario_key": case.key,
                "emads.seats": list(case.seats),
                "emads.num_options": len(case.options),
            },
        )
        self._agents: dict[str, _AgentSpan] = {}

    def on_turn(self, role: str, turn: Turn, duration_s: float) -> None:
        end_ns = time.time_ns()
        start_ns = end_ns - round(duration_s * 1e9)
        agent = self._find_agent(role, start_ns, turn.policy_version)
        num_read, num_written = agent.num_transcript + len(turn.context_ids), len(turn.completion_ids)
        span, _ = self._start(
            "chat",
            turn.policy_version,
            {
                "gen_ai.provider.name": PROVIDER,
                "gen_ai.conversation.id": self._session,
                "gen_ai.request.model": turn.policy_version,
                "gen_ai.response.model": turn.policy_version,
                "gen_ai.response.finish_reasons": [turn.finish_reason],
                "gen_ai.usage.input_tokens": num_read,
                "gen_ai.usage.output_tokens": num_written,
            },
            context=agent.context,
            start_ns=start_ns,
        )
        span.end(end_time=end_ns)
        agent.num_transcript = num_read + num_written
        agent.num_read, agent.num_written = agent.num_read + num_read, agent.num_written + num_written
        agent.end_ns = end_ns

    def on_tool(self, role: str, call: str, observation: str) -> None:
        try:
            parsed = parse_tool_calls(call)
        except BadToolCallError:
            parsed = ()
        name = parsed[0].name if parsed else "malformed"
        agent = self._find_agent(role, time.time_ns())
        attributes = {"gen_ai.tool.name": name, "gen_ai.tool.type": "function"}
        span, _ = self._start("execute_tool", name, attributes, context=agent.context)
        if observation.startswith("error: "):
            self._fail(span, "tool_error")
        agent.end_ns = time.time_ns()
        span.end(end_time=agent.end_ns)

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
        for agent in self._agents.values():
            agent.end()
        if error is not None:
            self._fail(self._episode, "_OTHER", error[:200])
        self._episode.end()

    def _find_agent(self, role: str, start_ns: int, model: str | None = None) -> _AgentSpan:
        """Return the role's span; it begins with the role's first completion or call."""
        if role not in self._agents:
            attributes = {
                "gen_ai.provider.name": PROVIDER,
                "gen_ai.agent.name": role,
                "gen_ai.conversation.id": self._session,
            }
            if model is not None:
                attributes["gen_ai.request.model"] = model
            self._agents[role] = _AgentSpan(
                *self._start("invoke_agent", role, attributes, context=self._inside, start_ns=start_ns)
            )
        return self._agents[role]

    def _start(
        self,
        operation: str,
        name: str,
        attributes: Mapping[str, Any],
        *,
        context: Any = None,
        start_ns: int | None = None,
    ) -> tuple[Any, Any]:
        """Return a new span, named as the conventions say, and the context for its children."""
        kinds = self._api.SpanKind
        span = self._tracer.start_span(
            f"{operation} {name}",
            context=context,
            kind=kinds.CLIENT if operation == "chat" else kinds.INTERNAL,
            start_time=start_ns,
            attributes={"gen_ai.operation.name": operation, **attributes},
        )
        return span, self._api.set_span_in_context(span)

    def _fail(self, span: Any, kind: str, description: str | None = None) -> None:
        span.set_attribute("error.type", kind)
        span.set_status(self._api.Status(self._api.StatusCode.ERROR, description))

    def _add(self, name: str, role: str, parsed: Mapping[str, Any], **more: Any) -> None:
        attributes = {f"emads.{key}": value for key, value in {"role": role, **parsed, **more}.items()}
        self._episode.add_event(name, attributes)
