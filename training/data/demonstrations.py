"""Demonstrations as token rows: the transcript that the engine would produce, labels on own tokens only."""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from roles.base import Role
from roles.registry import ROLES
from roles.team import RECONCILER, TEAM_ROLES
from scenarios import team
from scenarios.base import Family, Scenario, Split, Step
from scenarios.registry import FAMILIES
from simulator.agents.tool_calls import format_tool_call
from simulator.chat import Chat

IGNORED_LABEL = -100


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """One transcript for supervised training.

    Example: TokenRow(token_ids=(3, 8, 5, 41, 1), loss_mask=(0, 0, 0, 1, 1))
    """

    token_ids: tuple[int, ...]
    loss_mask: tuple[int, ...]  # 1 on the role's own tokens, 0 on prompt, tool and peer tokens

    def as_dict(self) -> dict[str, list[int]]:
        """Columns `input_ids` and `labels` (-100 where masked) as SFT trainers read them."""
        labels = [t if m else IGNORED_LABEL for t, m in zip(self.token_ids, self.loss_mask, strict=True)]
        return {"input_ids": list(self.token_ids), "labels": labels}


class Transcript:
    """Builds one row: contexts masked, own words trained, each closed by the end-of-turn token."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._ids: list[int] = []
        self._mask: list[int] = []

    def given(self, ids: Sequence[int]) -> "Transcript":
        self._ids += ids
        self._mask += [0] * len(ids)
        return self

    def own(self, text: str) -> "Transcript":
        ids = [*self._chat.encode(text), self._chat.end_id]
        self._ids += ids
        self._mask += [1] * len(ids)
        return self

    def row(self) -> TokenRow:
        return TokenRow(token_ids=tuple(self._ids), loss_mask=tuple(self._mask))


def difficulty_of(index: int, difficulties: Sequence[int]) -> int:
    """Difficulties take turns by index, so that every prefix of a split is balanced."""
    return difficulties[index % len(difficulties)]


def role_scenario(role: str, split: Split, seed: int, index: int, difficulties: Sequence[int]) -> Scenario:
    """The index-th scenario of a role's own family."""
    return FAMILIES[role].generate(split, seed, index, difficulty_of(index, difficulties))


def team_scenario(
    split: Split,
    seed: int,
    index: int,
    difficulties: Sequence[int],
    conventions: team.ConventionsName = "house",
) -> team.TeamScenario:
    """The index-th team case."""
    return team.generate(split, seed, index, difficulty_of(index, difficulties), conventions)


def demonstration_row(
    family: Family, scenario: Scenario, chat: Chat, roles: Mapping[str, Role] = ROLES
) -> TokenRow:
    """The expert's play of one scenario, tools answered for real."""
    steps = family.demonstrate(scenario, random.Random(f"demonstration/{scenario.key}"))
    transcript = Transcript(chat).given(chat.open(roles[family.role], scenario.brief, with_tools=True))
    for step in steps:
        if step.call is None:
            transcript.own(step.text)
        else:
            transcript.own(format_tool_call(step.text, step.call))
            transcript.given(chat.observe(family.call_tool(scenario, step.call)))
    return transcript.row()


def expert_episode(
    scenario: team.TeamScenario,
) -> tuple[Mapping[str, Step], str, Step, Mapping[str, Step]]:
    """One team meeting of experts, each of a practice drawn by the shares of the case's conventions.

    Returns: reports by role, what ReconcileGPT reads, its decision, votes by role.
    """
    rng, rules = random.Random(f"practice/{scenario.key}"), scenario.conventions
    reports = {
        role: team.expert_report(scenario, role, team.sample_practice(rng, "report", rules))
        for role in scenario.seats
    }
    parsed = {role: team.parse_report(scenario, step.text) for role, step in reports.items()}
    practice = team.sample_practice(rng, "decision", rules)
    decision = team.expert_decision(scenario.options, parsed, practice, rules)
    final = team.parse_decision(scenario, decision.text)
    votes = {role: team.expert_vote(scenario, role, final) for role in scenario.seats}
    return reports, team.decision_brief(scenario.options, parsed), decision, votes


def seat_row(role: str, scenario: team.TeamScenario, chat: Chat) -> TokenRow:
    """A role's part in an expert meeting: report and vote, or ReconcileGPT's decision."""
    reports, decision_brief, decision, votes = expert_episode(scenario)
    transcript = Transcript(chat)
    if role == RECONCILER:
        transcript.given(chat.open(ROLES[role], decision_brief, with_tools=False)).own(decision.text)
        return transcript.row()
    final = team.parse_decision(scenario, decision.text)
    transcript.given(chat.open(ROLES[role], scenario.seats[role].brief, with_tools=False))
    transcript.own(reports[role].text).given(chat.ask(team.vote_brief(final))).own(votes[role].text)
    return transcript.row()


def corpus(
    *,
    num_role: int,
    num_team: int,
    seed: int,
    difficulties: Sequence[int],
    conventions: team.ConventionsName = "house",
) -> Iterator[str]:
    """Every piece of text that a transcript is made of, from the training split, for training a tokenizer."""
    for role in ROLES.values():
        tools = "".join(f" {tool.name}" for tool in role.tools)
        yield from [f"{role.title}. Tools{tools}", f"{role.title}."] * num_role
        for index in range(num_role):
            scenario = role_scenario(role.name, "train", seed, index, difficulties)
            yield from _demonstration_texts(FAMILIES[role.name], scenario)
    for index in range(num_team):
        case = team_scenario("train", seed, index, difficulties, conventions)
        reports, decision_brief, decision, votes = expert_episode(case)
        yield from [seat.brief for seat in case.seats.values()]
        yield from [step.text for step in (*reports.values(), decision, *votes.values())]
        yield from [decision_brief, team.vote_brief(team.parse_decision(case, decision.text))]


def _demonstration_texts(family: Family, scenario: Scenario) -> Iterator[str]:
    yield scenario.brief
    for step in family.demonstrate(scenario, random.Random(f"demonstration/{scenario.key}")):
        if step.call is None:
            yield step.text
        else:
            yield format_tool_call(step.text, step.call)
            yield family.call_tool(scenario, step.call)


def take_turns(streams: Sequence[Iterable[TokenRow]], num_rows: int) -> list[TokenRow]:
    """The first `num_rows` rows, one of each stream in turn."""
    rows = chain.from_iterable(zip(*streams, strict=True))
    return list(islice(rows, num_rows))


def supervised_rows(
    role: str,
    chat: Chat,
    *,
    num_rows: int,
    first_row: int,
    seat_share: float,
    seed: int,
    difficulties: Sequence[int],
    split: Split = "train",
    conventions: team.ConventionsName = "house",
) -> Iterator[TokenRow]:
    """Supervised rows of a role from one split: its own family, and its team seat for `seat_share`.

    A role without a seat in generated cases has its own family alone.

    Row numbers are stable: rows from `first_row` on are other scenarios than the rows before.
    """
    for row in range(first_row, first_row + num_rows):
        if role in TEAM_ROLES and int((row + 1) * seat_share) > int(row * seat_share):
            yield seat_row(role, team_scenario(split, seed, row, difficulties, conventions), chat)
        else:
            yield demonstration_row(FAMILIES[role], role_scenario(role, split, seed, row, difficulties), chat)
