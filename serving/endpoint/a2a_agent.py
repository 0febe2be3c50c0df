"""The team as an A2A agent: a message with a case is a task, `input-required` is the human gate.

A task is played in a governed thread of its own, as far as the gate lets it, and goes on after a restart; it
ends with its minutes as an artifact. The gate is the governance's own. A ruling is kept only for a registered
reviewer who shows a token of their own: whoever may call the endpoint may not rule by that alone.
"""

import asyncio
import hmac
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from a2a.helpers import (
    get_data_parts,
    get_message_text,
    new_data_part,
    new_task_from_user_message,
    new_text_part,
)
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Artifact,
    ListTasksRequest,
    Message,
    Part,
    Role,
    Task,
    TaskState,
    TaskStatus,
)
from google.protobuf.json_format import MessageToJson, Parse, ParseError
from google.protobuf.timestamp_pb2 import Timestamp
from pydantic import BaseModel, ConfigDict, ValidationError

from evaluation.minutes.minutes import render_governed
from roles.errors import UserError
from scenarios.written.written_case import FreeCase
from serving.endpoint.tables import BusyError, ServedTeam, Tables, Tell
from serving.review.request_view import render_request
from simulator.export.atomic_files import remove_leftovers, write_atomic
from simulator.governance.outcomes import FreeOutcomes
from simulator.governance.proposal import ReviewRequest, ReviewResponse, Ruling
from simulator.governance.record import read_record
from simulator.governance.reviewers import AbsentReviewer
from simulator.governance.runner import WAITING, GovernanceServices, play_governed
from simulator.governance.seals import NotApprovedError

MOST_TASK_BYTES = 4 << 20
ENDING = ".json"


class FileTaskStore(InMemoryTaskStore):
    """Tasks in memory, and in a folder where there is one.

    Example: FileTaskStore(Path("company.db.tasks"))
    """

    def __init__(self, folder: Path | None) -> None:
        super().__init__()
        self._folder = folder
        self._written: dict[str, tuple[int, int]] = {}  # state and number of artifacts in each file
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            remove_leftovers(folder)

    async def load(self) -> None:
        """Take up every stored task.

        Raises:
            UserError: a damaged file; names it.
        """
        for path in sorted(self._folder.glob(f"*{ENDING}")) if self._folder is not None else ():
            try:
                if path.stat().st_size > MOST_TASK_BYTES:
                    raise ParseError("too large")
                task = Parse(path.read_text(encoding="utf-8"), Task())
            except (ParseError, UnicodeDecodeError) as error:
                reason = str(error).splitlines()[0]
                raise UserError(f"{path} is no stored task ({reason}); move it away") from None
            await super().save(task, ServerCallContext())

    async def save(self, task: Task, context: ServerCallContext) -> None:
        """Save a task; it is on disk when this returns, except for lines of progress since its last state."""
        stands = (task.status.state, len(task.artifacts))
        if self._folder is not None and self._written.get(task.id) != stands:
            write_atomic(self._locate(task.id), MessageToJson(task))
            self._written[task.id] = stands
        await super().save(task, context)

    async def delete(self, task_id: str, context: ServerCallContext) -> None:
        """Delete a task."""
        if self._folder is not None:
            self._locate(task_id).unlink(missing_ok=True)
            self._written.pop(task_id, None)
        await super().delete(task_id, context)

    def _locate(self, task_id: str) -> Path:
        assert self._folder is not None
        if not task_id.replace("-", "").isalnum() or len(task_id) > 64:
            raise ValueError(f"{task_id!r} is no task's id")
        return self._folder / f"{task_id}{ENDING}"


ROUNDS = 2  # of votes on one draft
CLOSED = ("completed", "completed_with_alerts", "handed_over", "not_approved")


class RulingMessage(BaseModel):
    """A reviewer's answer as it comes in a message; the reviewer's token comes apart from it.

    Example: RulingMessage(interrupt_id="9f2c", digest="4f...", reviewer="ann", decision="approve")
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    interrupt_id: str  # of the request that was shown
    digest: str  # of the proposal that was shown
    reviewer: str
    decision: Ruling
    option: str | None = None  # with edit
    feedback: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GovernedPlay:
    """Progress of a governed case.

    Example: (await governed.play("t1", case)).status == "waiting"
    """

    status: str  # see GovernedEpisode.status
    minutes: str
    request: ReviewRequest | None  # what a person is asked; None unless it waits
    error: str | None

    @property
    def is_closed(self) -> bool:
        """Tell whether nothing will be done in it any more."""
        return self.status in CLOSED


class GovernedTables:
    """The team's governed cases in one store.

    Example: await GovernedTables(tables, services, {}).play("t1", case)
    """

    def __init__(self, tables: Tables, services: GovernanceServices, reviewers: Mapping[str, str]) -> None:
        """`reviewers`: the token of each person who may rule here; each is registered in the store.

        Raises:
            UserError: a name that cannot rule.
        """
        self._tables, self._services, self._tokens = tables, services, dict(reviewers)
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        for name in reviewers:
            try:
                services.reviewers.register(name)
            except NotApprovedError as error:
                raise UserError(f"reviewer {name!r}: {error}") from None

    async def play(self, task: str, case: FreeCase, tell: Tell | None = None) -> GovernedPlay:
        """Play the task's case from where it is as far as the gate lets it.

        Raises:
            BusyError: the queue is full.
            UserError: the store was changed.
        """
        async with self._locks[task], self._tables.place("governed"):
            seating = self._tables.make_seating(self._name_stream(task), tell)
            (played,) = await play_governed(
                [self._tables.settle(case)],
                self._services,
                seating,
                AbsentReviewer(),
                lambda one: FreeOutcomes(one, seed=0),
                rounds=ROUNDS,
                concurrency=1,
            )
            record = read_record(case, played, self._services, stream=seating.stream)
            request = self._services.gate.find_open(played.thread) if played.status == WAITING else None
            return GovernedPlay(
                status=played.status, minutes=render_governed(record), request=request, error=played.error
            )

    def keep_ruling(self, task: str, case: FreeCase, message: object, token: str | None) -> None:
        """Sign and keep a reviewer's answer to the task's open request.

        Raises:
            UserError: no ruling, no reviewer's own token, or one that the gate refuses; nothing is kept.
        """
        try:
            ruling = RulingMessage.model_validate(message)
            response = ReviewResponse(
                decision=ruling.decision, option=ruling.option, feedback=ruling.feedback
            )
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise UserError(
                f"ruling: {'.'.join(map(str, first['loc'])) or 'message'}: {first['msg']}"
            ) from None
        known = self._tokens.get(ruling.reviewer)
        if known is None or token is None or not hmac.compare_digest(known.encode(), token.encode()):
            raise UserError("ruling: no reviewer of this name and token; a person rules, not the caller")
        request = self._services.gate.find_open(f"{self._name_stream(task)}/{case.key}")
        if request is None or request.interrupt_id != ruling.interrupt_id:
            raise UserError("ruling: this request is not open in this task")
        try:
            self._services.gate.submit(ruling.interrupt_id, ruling.digest, response, ruling.reviewer)
        except NotApprovedError as error:
            raise UserError(f"ruling: {error.reason}: {error}") from None

    def is_answered(self, interrupt_id: str) -> bool:
        """Tell whether a person has ruled on the request, here or elsewhere on the same store."""
        return self._services.gate.find_answer(interrupt_id) is not None

    def _name_stream(self, task: str) -> str:
        return f"{self._tables.team.stream}/serve/{task}"


REVIEWER_HEADER = "x-reviewer-token"
OPEN_STATES = (TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING)
POLL_S = 2.0  # between looks for rulings that were given elsewhere


def make_card(team: ServedTeam, name: str, url: str, *, version: str) -> AgentCard:
    """Return the agent's card; `url` is where its JSON-RPC is called."""
    skill = AgentSkill(
        id="decide",
        name="Decide a case",
        description="Plays a written case: reports, one plan, votes; a person approves before it runs.",
        tags=["decision", "multi-agent", "governance"],
        examples=["title: ...\nbudget: 40\noptions: ...\nseats: ..."],
        input_modes=["text/plain", "text/yaml"],
        output_modes=["text/plain", "application/json"],
    )
    return AgentCard(
        name=name,
        description=f"{team.label}: company roles that decide a written case under a human gate",
        version=version,
        supported_interfaces=[AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0")],
        capabilities=AgentCapabilities(streaming=True, push_notifications=False),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[skill],
    )


class TeamExecutor(AgentExecutor):
    """Plays tasks, takes rulings, and takes up what a stopped process left.

    Example: TeamExecutor(tables, governed, store)
    """

    def __init__(self, tables: Tables, governed: GovernedTables, store: FileTaskStore) -> None:
        self._read_case, self._governed, self._store = tables.read_case, governed, store

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Play a new task as far as the gate, or one at the gate after a ruling."""
        task, message = context.current_task, context.message
        assert message is not None
        if task is None:
            task = new_task_from_user_message(message)
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        try:
            case = self._read_case(_find_case(task, message))
            if task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED:
                token = context.call_context.state.get("headers", {}).get(REVIEWER_HEADER)
                try:
                    ruling = next(iter(get_data_parts(message.parts)), None)
                    self._governed.keep_ruling(task.id, case, ruling, token)
                except UserError as error:
                    waiting = [new_text_part(str(error)), *task.status.message.parts[1:]]
                    await updater.requires_input(updater.new_agent_message(waiting))
                    return
            lines: asyncio.Queue[str | None] = asyncio.Queue()
            playing = asyncio.create_task(self._play(task.id, case, lines))
            try:
                while (line := await lines.get()) is not None:
                    await updater.start_work(updater.new_agent_message([new_text_part(line)]))
                played = await playing
            finally:
                playing.cancel()
        except UserError as error:
            await updater.reject(updater.new_agent_message([new_text_part(str(error))]))
        except BusyError as error:
            retry = {"retry_after_s": error.retry_after_s}
            await updater.reject(updater.new_agent_message([new_text_part(str(error)), new_data_part(retry)]))
        else:
            state, parts = _describe(played)
            if played.is_closed:
                await updater.add_artifact([new_text_part(played.minutes)], name="minutes")
            await updater.update_status(state, updater.new_agent_message(parts))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Give a task up; its open request can be answered no more, since nothing plays it."""
        assert context.task_id is not None
        assert context.context_id is not None
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()

    async def resume_all(self) -> None:
        """Play on what a stopped process left, then, until cancelled, tasks that were ruled on elsewhere."""
        for task in await self._list(OPEN_STATES):
            await self._resume(task)
        while True:
            await asyncio.sleep(POLL_S)
            for task in await self._list((TaskState.TASK_STATE_INPUT_REQUIRED,)):
                shown: Mapping[str, Any] = next(iter(get_data_parts(task.status.message.parts)), {})
                if self._governed.is_answered(str(shown.get("interrupt_id", ""))):
                    await self._resume(task)

    async def _resume(self, task: Task) -> None:
        """Play a task that no request plays at the moment, and store where it stands then."""
        try:
            case = self._read_case(_find_case(task, None))
            played = await self._governed.play(task.id, case)
        except BusyError:
            return  # it stays open, and is looked at again
        except UserError as error:
            state, parts = TaskState.TASK_STATE_FAILED, [new_text_part(str(error))]
        else:
            state, parts = _describe(played)
            if played.is_closed:
                parts_of_minutes = [new_text_part(played.minutes)]
                task.artifacts.append(Artifact(artifact_id="minutes", name="minutes", parts=parts_of_minutes))
        now = Timestamp()
        now.GetCurrentTime()
        message = Message(role=Role.ROLE_AGENT, message_id=f"{task.id}-{now.seconds}", parts=parts)
        task.status.CopyFrom(TaskStatus(state=state, message=message, timestamp=now))
        await self._store.save(task, ServerCallContext())

    async def _play(self, task: str, case: Any, lines: asyncio.Queue[str | None]) -> GovernedPlay:
        try:
            return await self._governed.play(task, case, lines.put_nowait)
        finally:
            lines.put_nowait(None)

    async def _list(self, states: tuple[TaskState, ...]) -> list[Task]:
        found: list[Task] = []
        for state in states:
            request = ListTasksRequest(status=state, page_size=100, include_artifacts=True)
            while True:
                page = await self._store.list(request, ServerCallContext())
                found += page.tasks
                if not page.next_page_token:
                    break
                request.page_token = page.next_page_token
        return found


def _describe(played: GovernedPlay) -> tuple[TaskState, list[Part]]:
    """Return the state of a task that went this far, and what its message says."""
    if played.request is not None:
        shown: Mapping[str, Any] = {
            "interrupt_id": played.request.interrupt_id,
            "digest": played.request.digest,
            "proposal": played.request.proposal.model_dump(mode="json"),
        }
        return TaskState.TASK_STATE_INPUT_REQUIRED, [
            new_text_part(render_request(played.request)),
            new_data_part(shown),
        ]
    if played.is_closed:
        outcome = {"status": played.status}
        return TaskState.TASK_STATE_COMPLETED, [new_text_part(played.minutes), new_data_part(outcome)]
    return TaskState.TASK_STATE_FAILED, [new_text_part(played.error or played.status)]


def _find_case(task: Task, message: Message | None) -> str:
    """Return the text of the task's first message, which is its case."""
    first = next((one for one in task.history if one.role == Role.ROLE_USER), message)
    return "" if first is None else get_message_text(first)
