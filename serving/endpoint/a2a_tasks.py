"""A2A tasks in files, one each, so that they outlive the process; replaced as a whole, never in part."""

from collections.abc import Iterator
from pathlib import Path

from a2a.server.context import ServerCallContext
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import Task
from google.protobuf.json_format import MessageToJson, Parse, ParseError

from roles.errors import UserError
from simulator.export.atomic_files import remove_leftovers, write_atomic

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
        for task in self._read_all():
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

    def _read_all(self) -> Iterator[Task]:
        if self._folder is None:
            return
        for path in sorted(self._folder.glob(f"*{ENDING}")):
            try:
                if path.stat().st_size > MOST_TASK_BYTES:
                    raise ParseError("too large")
                yield Parse(path.read_text(encoding="utf-8"), Task())
            except (ParseError, UnicodeDecodeError) as error:
                reason = str(error).splitlines()[0]
                raise UserError(f"{path} is no stored task ({reason}); move it away") from None

    def _locate(self, task_id: str) -> Path:
        assert self._folder is not None
        if not task_id.replace("-", "").isalnum() or len(task_id) > 64:
            raise ValueError(f"{task_id!r} is no task's id")
        return self._folder / f"{task_id}{ENDING}"
