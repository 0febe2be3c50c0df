"""A stranger who knows nothing but the texts plays legally: it reads schema and figures out of the prompts.

The player here shares no code with the game: it finds the keys of an answer in the filled example of the
prompt, and fills them with what it reads of the case, by tools where the prompt names some.
"""

import json
import random
import re
from itertools import combinations, product
from typing import Any

import pytest
from fast_loop import slow_except
from trial_counts import num_trials

from roles.team import RECONCILER
from scenarios.base import Style, ToolCall
from scenarios.team import PlanGame, generate

LISTED = re.compile(
    r"Upgrades on option ([A-Z]), with their cost: (.*?)(?:; with at least .*)?\.$", re.MULTILINE
)
MEASURED = re.compile(r"cost (\d+), worth (-?\d+); hard limit (holds|BREAKS)$")


def find_example(text: str, start: str) -> dict[str, Any]:
    """The filled example of another case whose object begins with this key."""
    position = text.index("{" + json.dumps(start))
    value, _ = json.JSONDecoder().raw_decode(text, position)
    assert isinstance(value, dict)
    return value


def shuffle(values: list[Any], rng: random.Random) -> list[Any]:
    return rng.sample(values, rng.randint(0, len(values)))


class Stranger:
    """Plays one seat of a full-style case from system text, brief and observations alone."""

    def __init__(self, game: PlanGame, seat: str, rng: random.Random) -> None:
        self.game, self.seat, self.rng = game, seat, rng
        self.system = game.prompt_role(seat).mandate

    def measure(self, option: str, part: list[str]) -> tuple[int, int, bool] | None:
        """Cost, worth and whether the limit holds; None where the tool refuses."""
        assert "measure(option, part)" in self.system
        try:
            call = ToolCall(name="measure", arguments={"option": option, "part": part})
            told = self.game.call_tool(self.seat, call, {})
        except Exception:  # the tool's refusal, whatever its form
            return None
        found = MEASURED.search(told)
        assert found is not None, told
        return int(found[1]), int(found[2]), found[3] == "holds"

    def report(self) -> str:
        example = find_example(self.system, "offers")
        offer_keys = list(example["offers"][0])
        offers: list[dict[str, Any]] = []
        needs: list[str] = []
        veto: list[str] = []
        for option, listed in LISTED.findall(self.game.write_report_brief(self.seat)):
            names = [name.rsplit(" ", 1)[0] for name in listed.split(", ")]
            parts = [shuffle(names, self.rng) for _ in range(6)] + [[name] for name in names]
            measured = {
                tuple(part): found for part in parts if part and (found := self.measure(option, part))
            }
            holding = [part for part, (_, _, holds) in measured.items() if holds]
            nothing = self.measure(option, [])
            assert nothing is not None
            if not nothing[2]:
                (needs if holding else veto).append(option)
            if holding:
                chosen = self.rng.choice(holding)
                cost, worth, _ = measured[chosen]
                offers.append(dict(zip(offer_keys, [option, list(chosen), cost, worth], strict=True)))
        return self.write(dict(zip(example, [offers, needs, [], "read from the texts"], strict=True)))

    def write(self, answer: dict[str, Any]) -> str:
        words = self.rng.choice(["", "I weighed this.\n", "<think>{maybe}</think>\n"])
        return words + json.dumps(answer)


def decide(brief: str, system: str, rng: random.Random) -> dict[str, Any]:
    """A decision on an option of the brief, funded with labels that it shows, one per seat."""
    example = find_example(system, "option")
    sections = re.split(r"^(?=Option [A-Z]: )", brief, flags=re.MULTILINE)[1:]
    section = rng.choice(sections)
    option = section[len("Option ")]
    labels: dict[str, str] = {}
    for label in re.findall(r"^- \[(\w+)\]", section, re.MULTILINE):
        labels.setdefault(label.rstrip("0123456789"), label)
    fund = shuffle(list(labels.values()), rng)
    values = [option, fund, False, [], "It looked best."]
    if rng.random() < 0.1:
        values = ["none", [], True, [], "Nothing fits."]
    return dict(zip(example, values, strict=True))


@pytest.mark.parametrize("count", slow_except((25, num_trials(350, 1000)), 25))
def test_a_stranger_plays_every_seat_and_round_of_full_prompts_legally(count: int) -> None:
    """Report, question, reply, decision and vote; `count` cases have four times as many seats' reports."""
    for index in range(count):
        rng = random.Random(index)
        game = PlanGame(generate("train", 3, index, 1 + index % 10))
        strangers = {seat: Stranger(game, seat, rng) for seat in game.case.seats}
        reports = {seat: game.read_report(seat, one.report()) for seat, one in strangers.items()}
        for seat, report in reports.items():
            assert report is not None, seat
            assert report["false_claims"] == [], seat
        head = game.prompt_role(RECONCILER).mandate
        brief = game.write_decision_brief(reports)
        ask_example = find_example(head, "ask")["ask"]
        seat = rng.choice(list(game.case.seats))
        option = rng.choice(re.findall(r"^Option ([A-Z]):", brief, re.MULTILINE))
        asked = {"ask": dict(zip(ask_example, [seat, option, rng.randint(1, 60)], strict=True))}
        ask = game.read_ask(json.dumps(asked))
        assert ask is not None
        reply = answer_ask(strangers[seat], game.write_ask(seat, ask), rng)
        reports[seat] = game.add_offer(reports[seat], game.read_reply(seat, ask, reports[seat], reply))
        decision = game.read_decision(
            reports, json.dumps(decide(game.write_decision_brief(reports), head, rng))
        )
        assert decision is not None
        for seat in game.case.seats:
            text = game.write_vote_brief(decision, seat, reports)
            votes = re.findall(r"\{\"vote\".*?\}", text)
            assert len(votes) == 2
            assert game.read_vote(rng.choice(votes)) is not None
        objections = {
            seat: {"vote": "object", "reason": "No."} for seat in shuffle(list(game.case.seats), rng)
        }
        again = find_example(game.write_objection_brief(objections), "option")
        assert set(again) == set(find_example(head, "option"))


def answer_ask(stranger: Stranger, message: str, rng: random.Random) -> str:
    """A reply by the example in the question, with the best single upgrade within the amount."""
    example = find_example(message, "offer")
    found = re.search(r"option ([A-Z]) that costs at most (\d+) k\$", message)
    assert found is not None
    option, most = found[1], int(found[2])
    listed = dict(LISTED.findall(stranger.game.write_report_brief(stranger.seat)))[option]
    parts = [[name.rsplit(" ", 1)[0]] for name in listed.split(", ")]
    measured = [(part, figures) for part in parts if (figures := stranger.measure(option, part))]
    fitting = [(part, cost, worth) for part, (cost, worth, holds) in measured if holds and cost <= most]
    if not fitting:
        return json.dumps({"offer": None})
    part, cost, worth = max(fitting, key=lambda one: one[2])
    offer = dict(zip(example["offer"], [option, part, cost, worth], strict=True))
    reply = json.dumps({"offer": offer})
    known = stranger.game.read_reply(
        stranger.seat, {"option": option, "cost_at_most": most, "seat": stranger.seat}, None, reply
    )
    assert known is not None, "a stranger's honest reply holds"
    return reply


SHORT_LINE = re.compile(r"^([A-Z])( need| veto)?: (.*)$")
SHORT_PART = re.compile(r"([A-Z]\d*) (\d+) (-?\d+)$")


def report_shortly(system: str, brief: str, rng: random.Random) -> str:
    """A report by the example in the system text, with parts by their codes."""
    example = find_example(system, "offers")
    offer_keys = list(example["offers"][0])
    offers, needs, veto = [], [], []
    for line in brief.splitlines():
        if found := SHORT_LINE.match(line):
            option, flag, listed = found.groups()
            parts = [part for item in re.split(r"[,|] ", listed) if (part := SHORT_PART.search(item))]
            if parts:
                code, cost, worth = rng.choice(parts).groups()
                offers.append(dict(zip(offer_keys, [option, [code], int(cost), int(worth)], strict=True)))
            needs += [option] if flag == " need" else []
            veto += [option] if flag == " veto" else []
    return json.dumps(dict(zip(example, [offers, needs, veto, ""], strict=True)))


def decide_shortly(system: str, brief: str, rng: random.Random) -> str:
    """A decision by the example in the system text, on labels of an option's line."""
    example = find_example(system, "option")
    options = dict(re.findall(r"^([A-Z]) -?\d+: (.*)$", brief.split("\nBudget")[0], re.MULTILINE))
    option = rng.choice(list(options))
    labels = re.findall(r"(?:^|, )(\w+) \d+ -?\d+", options[option])
    return json.dumps(dict(zip(example, [option, shuffle(labels, rng), False], strict=True)))


@pytest.mark.parametrize("count", slow_except((25, num_trials(350, 1000)), 25))
def test_a_stranger_reports_and_decides_legally_by_short_prompts(count: int) -> None:
    """Short prompts hold the schema of reports and decisions; votes and replies are learnt."""
    for index in range(count):
        rng = random.Random(index)
        game = PlanGame(generate("train", 3, index, 1 + index % 10), "short")
        reports: dict[str, dict[str, Any] | None] = {}
        for seat in game.case.seats:
            text = report_shortly(game.prompt_role(seat).mandate, game.write_report_brief(seat), rng)
            report = game.read_report(seat, text)
            assert report is not None
            assert report["false_claims"] == []
            reports[seat] = report
        brief = game.write_decision_brief(reports)
        assert game.read_decision(reports, decide_shortly(game.prompt_role(RECONCILER).mandate, brief, rng))


@pytest.mark.parametrize("count", slow_except((12, num_trials(300, 1000)), 12))
def test_texts_and_tools_alone_determine_the_optimum(count: int) -> None:
    """Every set of listed upgrades is measured, every plan within the budget is added up."""
    for index in range(count):
        scenario = generate("train", 4, index, 1 + index % 10)
        game = PlanGame(scenario)
        rng = random.Random(index)
        briefs = {seat: game.write_report_brief(seat) for seat in game.case.seats}
        public = briefs["cto"]
        base = re.findall(r"^Option ([A-Z]): .*Worth (-?\d+) k\$", public, re.MULTILINE)
        money = re.search(r"^Budget for all seats together: (\d+) k\$", public, re.MULTILINE)
        assert money is not None
        best: int | None = None
        for option, worth in base:
            reached = {0: int(worth)}  # cost -> greatest worth
            for seat, brief in briefs.items():
                stranger = Stranger(game, seat, rng)
                names = [name.rsplit(" ", 1)[0] for name in dict(LISTED.findall(brief))[option].split(", ")]
                sets = [list(one) for n in range(len(names) + 1) for one in combinations(names, n)]
                parts = [part for one in sets if (part := stranger.measure(option, one)) and part[2]]
                grown: dict[int, int] = {}
                for (spent, gained), (cost, more, _) in product(reached.items(), parts):
                    if spent + cost <= int(money[1]):
                        grown[spent + cost] = max(gained + more, grown.get(spent + cost, gained + more))
                reached = grown
            best = max([*reached.values(), *([] if best is None else [best])], default=None)
        assert best == (None if scenario.optimum is None else scenario.optimum.worth)


@pytest.mark.parametrize("style", ["full", "short"])
def test_the_examples_in_the_prompts_are_legal_answers(style: Style) -> None:
    """Each filled example parses by the schema that it shows, though it is of another case."""
    game = PlanGame(generate("train", 3, 0, 1), style)
    for seat in game.case.seats:
        example = find_example(game.prompt_role(seat).mandate, "offers")
        assert game.read_report(seat, json.dumps(example)) is not None
    decision = find_example(game.prompt_role(RECONCILER).mandate, "option")
    assert game.read_decision({}, json.dumps({**decision, "fund": []})) is not None
