"""Demonstrations as token rows: the transcript that the engine would produce, labels on own tokens only.

In some of them a tool first refuses a call with a wrong name, as a small model makes it, and the right call
follows: a model so learns to go on after its own slip. The wrong turn is not learnt from.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import chain, groupby, islice

from roles.base import Role
from roles.registry import ROLES
from roles.team import TEAM_ROLES
from scenarios import team
from scenarios.base import Family, Scenario, Split, Step, Style, ToolCall, ToolError
from scenarios.registry import families
from scenarios.team import PlanGame, TeamScenario
from scenarios.team.demonstrations import Meeting, hold_meeting
from simulator.chat import Chat
from simulator.tool_calls import format_tool_call
from training.config.run_config import DataConfig, RunConfig


def refuse_one_call(
    steps: Sequence[Step], call_tool: Callable[[ToolCall], str], rng: random.Random
) -> tuple[Step, ...]:
    """The steps with one of their calls refused first; as they are where no wrong name is refused.

    Wrong names are made of those that the steps' calls list: one of another call, two that are mixed, or one
    that is repeated.
    """
    known = list(dict.fromkeys(name for step in steps for _, names in _name_lists(step) for name in names))
    order = list(range(len(steps)))
    rng.shuffle(order)
    for at in order:
        wrong = list(_misname(steps[at], known))
        rng.shuffle(wrong)
        for call in wrong:
            try:
                call_tool(call)
            except ToolError:
                slip = Step(text=steps[at].text, call=call, is_slip=True)
                return (*steps[:at], slip, replace(steps[at], text=""), *steps[at + 1 :])
    return tuple(steps)


def _name_lists(step: Step) -> Iterator[tuple[str, list[str]]]:
    for key, value in ({} if step.call is None else step.call.arguments).items():
        if isinstance(value, list) and value and all(isinstance(name, str) for name in value):
            yield key, value


def _misname(step: Step, known: Sequence[str]) -> Iterator[ToolCall]:
    for key, names in _name_lists(step):
        first, _, rest = names[-1].partition(" ")
        mixed = [f"{first} {other.partition(' ')[2]}" for other in known if rest and " " in other]
        for wrong in ([*names, names[-1]], *([*names[:-1], other] for other in (*known, *mixed))):
            assert step.call is not None
            yield replace(step.call, arguments={**step.call.arguments, key: wrong})


IGNORED_LABEL = -100
CallTool = Callable[[ToolCall], str]
Habits = tuple[str, str]  # of experts: how they report, how they fund


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """One transcript for supervised training.

    Example: TokenRow(token_ids=(3, 8, 5, 41, 1), loss_mask=(0, 0, 0, 1, 1))
    """

    token_ids: tuple[int, ...]
    loss_mask: tuple[int, ...]  # 1 on the role's own tokens, 0 on prompt, tool and peer tokens
    at_table: bool = field(default=False, compare=False, repr=False)  # shows the seat in the team

    @property
    def longest_turn(self) -> int:
        """Tokens of the role's longest turn."""
        return max((sum(its) for own, its in groupby(self.loss_mask) if own), default=0)

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

    def given(self, ids: Sequence[int], bit: int = 0) -> "Transcript":
        self._ids += ids
        self._mask += [bit] * len(ids)
        return self

    def played(self, steps: Sequence[Step], call_tool: CallTool) -> "Transcript":
        """The role's steps, but for slips trained; every call is answered by the tool."""
        for step in steps:
            turn = step.text if step.call is None else format_tool_call(step.text, step.call)
            self.given([*self._chat.encode(turn), self._chat.end_id], bit=int(not step.is_slip))
            if step.call is not None:
                self.given(self._chat.observe(answer_call(step, call_tool)))
        return self

    def row(self, *, at_table: bool = False) -> TokenRow:
        return TokenRow(token_ids=tuple(self._ids), loss_mask=tuple(self._mask), at_table=at_table)


def answer_call(step: Step, call_tool: CallTool) -> str:
    """Return what the tool says to a step's call, to a slip its refusal as play words it."""
    assert step.call is not None
    if not step.is_slip:
        return call_tool(step.call)
    try:
        said = call_tool(step.call)
    except ToolError as error:
        return f"error: {error}"
    raise ValueError(f"a slip that the tool does not refuse: {step.call} ({said})")


def is_in_share(number: int, share: float) -> bool:
    """Tell whether a number is of those, evenly spread, that make up the share of all."""
    return int((number + 1) * share) > int(number * share)


def difficulty_of(index: int, difficulties: Sequence[int]) -> int:
    """Difficulties take turns by index, so that every prefix of a split is balanced."""
    return difficulties[index % len(difficulties)]


def role_scenario(
    role: str, split: Split, seed: int, index: int, difficulties: Sequence[int], style: Style = "short"
) -> Scenario:
    """The index-th scenario of a role's own family, in one style of prompts."""
    return families(style)[role].generate(split, seed, index, difficulty_of(index, difficulties))


def team_scenario(data: DataConfig, split: Split, index: int, levels: Sequence[int] = ()) -> TeamScenario:
    """The index-th team case of a run's data; `levels` are difficulties in place of the run's."""
    level = difficulty_of(index, levels or data.difficulties)
    return team.generate(split, data.seed, index, level, data.offers_per_option)


def demonstration_row(
    family: Family,
    scenario: Scenario,
    chat: Chat,
    roles: Mapping[str, Role] = ROLES,
    *,
    refused_share: float = 0.0,
) -> TokenRow:
    """The expert's play of one scenario, tools answered for real; in a share of them one call is refused."""
    steps = family.demonstrate(scenario, random.Random(f"demonstration/{scenario.key}"))
    call_tool = partial(family.call_tool, scenario)
    rng = random.Random(f"refused/{scenario.key}")
    steps = refuse_one_call(steps, call_tool, rng) if rng.random() < refused_share else steps
    transcript = Transcript(chat).given(chat.open(roles[family.role], scenario.brief, with_tools=True))
    return transcript.played(steps, call_tool).row()


def seat_row(
    seat: str, game: PlanGame, chat: Chat, *, meeting: Meeting | None = None, refused_share: float = 0.0
) -> TokenRow:
    """A role's part in a meeting of experts: report, replies and vote, or questions and decision.

    Without a `meeting` it is that of experts who draw their habits. In a share of its messages one call is
    refused first.
    """
    role, transcript = game.prompt_role(seat), Transcript(chat)
    rng = random.Random(f"refused/{game.case.key}/{seat}")
    for number, message in enumerate((meeting or hold_meeting(game)).messages[seat]):
        opening = chat.open(role, message.brief, with_tools=bool(role.tools))
        transcript.given(chat.ask(message.brief) if number else opening)
        call_tool = partial(game.call_tool, seat, reports=message.reports)
        is_refused = rng.random() < refused_share
        steps = refuse_one_call(message.steps, call_tool, rng) if is_refused else message.steps
        transcript.played(steps, call_tool)
    return transcript.row(at_table=True)


@lru_cache(maxsize=4)  # the roles of one model take turns: each meeting gives a row to all of them
def _hold(
    data: DataConfig,
    split: Split,
    index: int,
    style: Style,
    questions: int | None,
    habits: Habits | None,
) -> tuple[PlanGame, Meeting]:
    game = PlanGame(team_scenario(data, split, index), style, questions)
    return game, hold_meeting(game, habits=habits)


def corpus(config: RunConfig, count: int) -> Iterator[str]:
    """Every piece of text that a transcript is made of, for training a tokenizer.

    From `count` training scenarios of each role's family, and `count` team cases.
    """
    style, seed, levels = config.model.prompts, config.data.seed, config.data.difficulties
    for role in ROLES.values():
        tools = "".join(f" {tool.name}" for tool in role.tools)
        yield from [f"{role.title}. Tools{tools}", f"{role.title}."] * count
        drawn = (role_scenario(role.name, "train", seed, n, levels, style) for n in range(count))
        yield from family_texts(families(style)[role.name], drawn)
    for index in range(count):
        game = PlanGame(team_scenario(config.data, "train", index), style, config.model.questions)
        for name, messages in hold_meeting(game).messages.items():
            for message in messages:
                yield message.brief
                yield from _write_steps(message.steps, partial(game.call_tool, name, reports=message.reports))


def family_texts(family: Family, scenarios: Iterable[Scenario]) -> Iterator[str]:
    """Briefs, the expert's turns and what tools say to them."""
    for scenario in scenarios:
        yield scenario.brief
        steps = family.demonstrate(scenario, random.Random(f"demonstration/{scenario.key}"))
        yield from _write_steps(steps, partial(family.call_tool, scenario))


def _write_steps(steps: Sequence[Step], call_tool: CallTool) -> Iterator[str]:
    for step in steps:
        if step.call is None:
            yield step.text
        else:
            yield format_tool_call(step.text, step.call)
            yield call_tool(step.call)


def take_turns(streams: Sequence[Iterable[TokenRow]], num_rows: int) -> list[TokenRow]:
    """The first `num_rows` rows, one of each stream in turn."""
    return list(islice(chain.from_iterable(zip(*streams, strict=True)), num_rows))


def supervised_rows(
    config: RunConfig,
    role: str,
    chat: Chat,
    *,
    num_rows: int,
    first_row: int,
    seat_share: float | None = None,
    split: Split = "train",
    habits: Habits | None = None,
) -> Iterator[TokenRow]:
    """Supervised rows of a role as a run's config sets them; `seat_share` in place of the config's.

    A role without a seat in generated cases has its own family alone. `habits`: of all experts at the table;
    None: each draws its own. Row numbers are stable: rows from `first_row` on are other scenarios than the
    rows before.
    """
    data, model, refused = config.data, config.model, config.sft.refused_share
    share = data.seat_share if seat_share is None else seat_share
    for row in range(first_row, first_row + num_rows):
        if role in TEAM_ROLES and is_in_share(row, share):
            game, meeting = _hold(data, split, row, model.prompts, model.questions, habits)
            yield seat_row(role, game, chat, meeting=meeting, refused_share=refused)
        else:
            scenario = role_scenario(role, split, data.seed, row, data.difficulties, model.prompts)
            family = families(model.prompts)[role]
            yield demonstration_row(family, scenario, chat, refused_share=refused)
