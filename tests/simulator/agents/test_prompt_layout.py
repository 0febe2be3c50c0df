"""With the case first, prompts of one case begin alike for every role; the default is as it was."""

import itertools
from dataclasses import replace
from pathlib import Path

from tiny_models import tiny_chat, tiny_tokenizer

from roles.registry import ROLES
from roles.team import SPECIALISTS
from scenarios.written.written_case import read_case
from simulator.engines.embedded.hf_chat import HFChat

EXAMPLE = Path(__file__).parent.parent.parent.parent / "examples" / "city-permits.md"


def common_ids(prompts: list[tuple[int, ...]]) -> int:
    """How many ids all prompts begin with."""
    return sum(1 for _ in itertools.takewhile(lambda ids: len(set(ids)) == 1, zip(*prompts, strict=False)))


def open_all(chat: HFChat, *, case_first: bool) -> list[tuple[int, ...]]:
    case = read_case(EXAMPLE, case_first=case_first)
    return [chat.open(ROLES[role], case.seats[role].brief, with_tools=False) for role in SPECIALISTS]


def test_case_first_puts_all_that_is_shared_before_the_first_difference() -> None:
    chat = HFChat(tiny_tokenizer(), case_first=True)
    prompts = open_all(chat, case_first=True)
    shared = chat.decode(prompts[0][: common_ids(prompts)])
    case = read_case(EXAMPLE)
    for text in (case.title, case.context, *case.meanings.values()):
        assert text.split("\n")[0] in shared
    assert common_ids(open_all(HFChat(tiny_tokenizer()), case_first=False)) < 20
    for role, prompt in zip(SPECIALISTS, prompts, strict=True):
        text = chat.decode(prompt)
        own_note = text.index(case.notes[role].split("\n")[0])
        assert text.index(ROLES[role].mandate) < text.index(case.title) < own_note
        assert text.endswith(f"You are {ROLES[role].title}.<|end|><|assistant|>")


def test_mandates_are_shared_by_all_cases_and_a_strangers_stands_after_the_case() -> None:
    chat, stranger = HFChat(tiny_tokenizer(), case_first=True), replace(ROLES["cto"], mandate="You sell.")
    prompts = [
        chat.open(ROLES[role], brief, with_tools=False) for role in ROLES for brief in ("One.", "Two.")
    ]
    shared = chat.decode(prompts[0][: common_ids(prompts)])
    assert all(role.mandate in shared for role in ROLES.values())
    text = chat.decode(HFChat(tiny_tokenizer(), case_first=True).open(stranger, "One.", with_tools=False))
    assert text.startswith(shared)
    assert text.endswith("One.\n\nYou are CTO. You sell.<|end|><|assistant|>")


def test_openings_with_tools_and_the_default_layout_do_not_change() -> None:
    brief = "Retail case. CTO seat. Stakes 83. A 45 B 72. Limit 30."
    first, plain = HFChat(tiny_tokenizer(), case_first=True), HFChat(tiny_tokenizer())
    for role in ROLES.values():
        assert first.open(role, brief, with_tools=True) == plain.open(role, brief, with_tools=True)
        assert first.open(role, brief, with_tools=False) != plain.open(role, brief, with_tools=False)
    text = tiny_chat().decode(tiny_chat().open(ROLES["cto"], brief, with_tools=False))
    assert text == f"<|system|>CTO.<|end|><|user|>{brief}<|end|><|assistant|>"
