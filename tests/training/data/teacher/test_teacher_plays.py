"""A teacher on a real endpoint: the rows of an oracle come out, and what it is told is fair."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from teacher_server import Body, Oracle, draw, expect_row, play_seats, say, serve
from teaching import play_all, read_rows, reasons, teach

from roles.errors import UserError
from roles.team import RECONCILER, TEAM_ROLES
from scenarios.base import Step, ToolCall
from scenarios.registry import FAMILIES
from scenarios.team import TeamScenario
from scenarios.team import generate as generate_team
from training.data.folders.rows import build_rows
from training.data.folders.validation import validate_folder
from training.data.teacher.teacher import TeachingRules

pytestmark = pytest.mark.usefixtures("no_hang")


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_an_oracle_behind_an_endpoint_writes_the_oracles_rows(family: str, native: bool) -> None:
    scenarios = draw(family, 4)
    rules = TeachingRules(tool_shape="native" if native else "text")
    with serve(Oracle(scenarios, native=native)) as server:
        outcomes = play_all(server, scenarios, rules=rules)
    for scenario, outcome in zip(scenarios, outcomes, strict=True):
        expected = expect_row(scenario)
        assert outcome.row == expected | {"author": "teacher:tiny"}
        assert list(outcome.row) == list(expected)


class TeamOracle:
    """Plays every seat as the experts of the case's meeting do; `spoil` changes a seat's steps."""

    def __init__(self, cases: Sequence[TeamScenario], spoil: Any = lambda steps: steps) -> None:
        self._steps = {brief: spoil(steps) for case in cases for brief, steps in play_seats(case).items()}

    def __call__(self, body: Body) -> Body:
        roles = [message["role"] for message in body["messages"]]
        step = self._steps[body["messages"][1]["content"]][roles.count("assistant")]
        return say(step.text) if step.call is None else say(step.text, step.call)


def draw_meetings() -> list[TeamScenario]:
    """Cases in whose meetings ReconcileGPT asks a seat, or does not."""
    return [generate_team("train", 0, index, 1) for index in range(6)]


def test_a_teacher_at_the_table_writes_the_experts_rows_of_every_seat(tmp_path: Path) -> None:
    """Reports, replies in ReconcileGPT's transcript, decisions and votes; a folder of them validates."""
    with serve(TeamOracle(draw_meetings())) as server:
        report = teach(tmp_path, server, 2, families=("team",), rules=TeachingRules(min_reward=0.5))
    (shard,) = report.shards
    assert shard.num_scenarios == 2
    assert shard.num_rows + sum(shard.rejected.values()) == 2 * 5
    rows = read_rows(tmp_path / shard.path)
    assert {row["role"] for row in rows} == set(TEAM_ROLES)
    num_asked = 0
    for row in rows:
        expert = {one["role"]: one for one in build_rows("team", "train", 0, row["index"], 1)}[row["role"]]
        told = [place for place, message in enumerate(row["messages"]) if message["role"] == "user"]
        if row["role"] == RECONCILER:
            num_asked += len(told) > 1
            assert row == expert | {"author": "teacher:tiny"}
        else:  # the expert may be asked for another offer before it votes
            assert row["messages"][: told[1]] == expert["messages"][: told[1]]
            assert row["messages"][-1]["content"] in (
                '{"vote": "accept", "reason": ""}',
                expert["messages"][-1]["content"],
            )
    assert num_asked > 0
    checked = validate_folder(tmp_path)
    assert (checked.num_clean, checked.problems) == (len(rows), ())


@pytest.mark.parametrize(
    ("words", "other", "reason"),
    [
        ('"vote": "', '"vote": "never ', "answer"),
        ('"worth": ', '"worth": 1', "answer"),
        ('{"offers"', 'Worth 7777. {"offers"', "chain"),
    ],
)
def test_a_seats_bad_words_are_rejected_with_their_reason(words: str, other: str, reason: str) -> None:
    """A malformed vote, false offers, and a figure that nobody gave."""

    def spoil(steps: Sequence[Step]) -> list[Step]:
        return [one if one.call else replace(one, text=one.text.replace(words, other, 1)) for one in steps]

    cases = draw_meetings()[:1]
    with serve(TeamOracle(cases)) as server:
        sound = reasons(play_all(server, cases, rules=TeachingRules(min_reward=0.01)))
    with serve(TeamOracle(cases, spoil)) as server:
        spoilt = reasons(play_all(server, cases, rules=TeachingRules(min_reward=0.01)))
    assert sound != spoilt
    assert {one for one, before in zip(spoilt, sound, strict=True) if one != before} == {reason}


def rephrase(brief: str) -> str:
    """The brief of a risk case, told in any wording, in other words and another order."""
    *told, question = brief.split("\n")
    (offered,) = (line for line in told if "in k$ a month: " in line)
    (terms,) = (line for line in told if "expected loss" in line)
    situation = " ".join(line for line in told if line not in (offered, terms))
    (amount,) = re.findall(r"(\d+) k\$", question)
    (option,) = set(re.findall(r"option [A-Z]", question))
    *_, appetite = re.findall(r"(\d+) k\$", terms)
    return (
        f"Find the best part on {option} with no more than {amount} k$ a month. {situation} You may buy: "
        f"{offered.partition(': ')[2]} Each k$ of loss prevented counts 1 k$. The loss we expect must not "
        f"exceed {appetite} k$."
    )


def test_briefs_in_other_words_are_kept_if_they_read_back_to_the_same_facts(tmp_path: Path) -> None:
    """Of every other case the teacher changes a figure: it is rejected. The rest of a row is the oracle's."""
    odd = {one.brief for one in draw("risk", 4) if one.index % 2}

    def model(body: Body) -> Body:
        assert "tools" not in body
        brief = body["messages"][1]["content"]
        text = rephrase(brief)
        return say(text.replace("counts 1 k$", "counts 2 k$") if brief in odd else text)

    rules = TeachingRules(writes="brief")
    with serve(model) as server:
        report = teach(tmp_path, server, 4, families=("risk",), rules=rules)
        with pytest.raises(UserError, match="'reconcile': its brief cannot be paraphrased; name some"):
            teach(tmp_path / "other", server, 4, families=("reconcile",), rules=rules)
    (shard,) = report.shards
    assert (shard.num_rows, shard.rejected) == (2, {"answer": 2})
    for row in read_rows(tmp_path / shard.path):
        (expected,) = build_rows("risk", "train", 0, row["index"], 1)
        assert row["brief"] == row["messages"][1]["content"] == rephrase(expected["brief"])
        assert row["messages"][2:] == expected["messages"][2:]
        assert (row["answer"], row["author"]) == (expected["answer"], "paraphrase:tiny")
    assert validate_folder(tmp_path).num_clean == 2
    path = tmp_path / shard.path
    table = pq.read_table(path)
    briefs = [text.replace("exceed", "fall below") for text in table["brief"].to_pylist()]
    spoilt = table.set_column(table.schema.get_field_index("brief"), table.schema.field("brief"), [briefs])
    pq.write_table(spoilt, path)
    checked = validate_folder(tmp_path)
    assert checked.num_clean == 0
    assert all("brief:" in str(problem) for problem in checked.problems)


def test_the_teacher_is_told_mandate_tools_schema_and_brief_and_no_truth() -> None:
    scenarios = draw("cost", 1)
    with serve(Oracle(scenarios)) as server:
        play_all(server, scenarios)
        first, last = server.bodies[0], server.bodies[-1]
    system, user = first["messages"]
    assert "You are the Cost Officer" in system["content"]
    assert '"required": ["part", "cost", "worth"]' in system["content"]
    assert user == {"role": "user", "content": scenarios[0].brief}
    assert [tool["function"]["name"] for tool in first["tools"]] == ["describe", "measure"]
    call_turn, observation = last["messages"][2:4]
    call = call_turn["tool_calls"][0]
    assert observation["tool_call_id"] == call["id"]
    arguments = json.loads(call["function"]["arguments"])
    said = FAMILIES["cost"].call_tool(
        scenarios[0], ToolCall(name=call["function"]["name"], arguments=arguments)
    )
    assert observation == {"role": "tool", "tool_call_id": call["id"], "content": said}


def test_a_teacher_that_writes_calls_as_text_is_told_and_answered_in_text() -> None:
    scenarios = draw("cto", 1)
    with serve(Oracle(scenarios, native=False)) as server:
        play_all(server, scenarios, rules=TeachingRules(tool_shape="text"))
        body = server.bodies[1]
    assert "tools" not in body
    assert '"name": "measure"' in body["messages"][0]["content"]
    assert body["messages"][2]["content"].endswith("</tool_call>")
    assert body["messages"][3]["content"].startswith("<tool_response>\nlatency ")
