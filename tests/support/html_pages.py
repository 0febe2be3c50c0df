"""HTML pages read back: tags, attributes and text, and texts that must never become markup."""

from html.parser import HTMLParser

VOID = {"meta", "br", "img", "hr", "link", "input"}
ATTACKS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=y>',
    "{{ 7 * 7 }}",
    "</style><b>",
    "\u202e\x1b[2J",
]


class Page(HTMLParser):
    """Tags, attributes and text; fails on a tag that is closed out of order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.attributes: list[tuple[str, str, str]] = []  # tag, name, value
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.elements.append((tag, dict(attrs)))
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.elements.append((tag, dict(attrs)))
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self.words.append(data)

    def named(self, tag: str) -> list[dict[str, str | None]]:
        """Attributes of every element of this tag."""
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())
