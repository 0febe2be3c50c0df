"""Pages that a reader sees (README, CONTRIBUTING, SECURITY, docs/), their fenced blocks and commands."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
README = ROOT / "README.md"
PAGES = [
    README,
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if "reference" not in page.parts),
]
FENCE = re.compile(r"(?:<!-- not run: ([^>]*?) -->\n)?^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block of a page.

    Example: Block(page="README.md", language="bash", text="make demo\n", reason=None)
    """

    page: str  # its path from the root
    language: str
    text: str
    reason: str | None  # from `<!-- not run: REASON -->` above the block; None: it runs


def read_blocks(page: Path, language: str) -> list[Block]:
    """Return the blocks of one language on a page, in order."""
    name = str(page.relative_to(ROOT))
    return [
        Block(page=name, language=found, text=text, reason=reason)
        for reason, found, text in FENCE.findall(page.read_text())
        for reason in [reason or None]
        if found == language
    ]


def read_shell_lines(page: Path) -> list[str]:
    """Return every command line of a page's bash blocks; lines that end with a backslash are joined."""
    text = "".join(block.text for block in read_blocks(page, "bash")).replace("\\\n", " ")
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


def read_emads_commands(page: Path) -> list[str]:
    """Return the `emads ...` lines of bash blocks and the `emads ...` snippets of running text."""
    prose = FENCE.sub("", page.read_text())
    snippets = [" ".join(snippet.split()) for snippet in re.findall(r"`(emads [a-z][^`]*)`", prose)]
    lines = [line for line in read_shell_lines(page) if line.startswith("emads ")]
    return lines + snippets
