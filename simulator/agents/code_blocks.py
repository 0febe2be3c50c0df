"""Runs Python that an agent writes in a turn, in the sandbox; its output is an observation.

Nothing is ever run outside `scenarios.tasks.sandbox`; where that does not work here, nothing is run
at all. Every block starts from nothing: no variable of an earlier one is left.
"""

import asyncio
import re

from scenarios.base import ToolError
from scenarios.tasks.sandbox import ProgramRun, SandboxLimits, run_program
from simulator.tool_calls import BadToolCallError

FENCE = "```"
MAX_CODE_CHARS = 20_000
CODE_LIMITS = SandboxLimits(wall_s=6.0, cpu_s=2, output_bytes=16 << 10)
_OPENING = re.compile(r"^[ \t]*```(?:python|py)[ \t]*$", re.MULTILINE)
_CLOSING = re.compile(r"^[ \t]*```[ \t]*$", re.MULTILINE)


def parse_code(text: str) -> str | None:
    """Return the single ```python block of a turn; None where there is none.

    Raises:
        BadToolCallError: several blocks, one that is not closed, words after it, or more than 20,000
            characters.
    """
    openings = list(_OPENING.finditer(text))
    if not openings:
        return None
    closing = _CLOSING.search(text, openings[0].end())
    if len(openings) > 1 or closing is None:
        raise BadToolCallError("write exactly one ```python block per turn, closed by ```")
    if text[closing.end() :].strip():
        raise BadToolCallError("nothing may follow a ```python block in the same turn")
    source = text[openings[0].end() : closing.start()].strip("\n")
    if len(source) > MAX_CODE_CHARS:
        raise BadToolCallError(f"the program has {len(source)} characters, at most {MAX_CODE_CHARS}")
    return source


async def run_code(source: str, *, limits: SandboxLimits = CODE_LIMITS) -> str:
    """Run the program and return what it printed.

    Raises:
        ToolError: it failed, or passed a limit; with the end of what it wrote.
        InfrastructureError: the sandbox failed before the program started.
        UserError: no sandbox works here; nothing was run.
    """
    run = await asyncio.to_thread(run_program, source, limits=limits)
    if run.outcome == "finished" and run.exit_code == 0:
        return run.stdout.strip() or "(the program printed nothing)"
    raise ToolError(f"{_say_end(run, limits)}: {_last_words(run)}")


def _say_end(run: ProgramRun, limits: SandboxLimits) -> str:
    if run.outcome == "timeout":
        return f"the program was stopped after {limits.wall_s:g} seconds"
    if run.outcome == "output_limit":
        return f"the program was stopped at {limits.output_bytes} bytes of output"
    return f"the program ended with status {run.exit_code}"


def _last_words(run: ProgramRun) -> str:
    words = run.stderr.strip() or run.stdout.strip()
    return words[-500:] if words else "it wrote nothing"
