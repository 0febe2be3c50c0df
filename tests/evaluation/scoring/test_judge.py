"""A judge on an endpoint, and the calibration that a fit judge passes and every unfit one fails."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from teacher_server import OFTEN, say, serve

from evaluation.scoring.judge_calibration import (
    CRITERIA,
    PLEAS,
    calibrate,
    draw_cases,
    require_fit,
)
from roles.errors import InfrastructureError, UserError
from scenarios.tasks.grading.judge import score_by_judge
from scenarios.tasks.maths_reward import count_equations
from simulator.engines.openai.chat_engine import EndpointJudge
from simulator.engines.openai.endpoint import EndpointSettings

Scorer = Callable[[str], float | str]
QUICK: dict[str, Any] = {"timeout_s": 10.0, "backoff_s": 0.01, "max_wait_s": 0.1, "max_retries": 2}


class FunctionJudge:
    """Scores by a function of the answer."""

    def __init__(self, score: Scorer) -> None:
        self._score = score

    def reply(self, prompt: str) -> str:
        answer = json.loads(next(line for line in prompt.splitlines() if line.startswith('{"question"')))
        value = self._score(answer["answer"])
        return value if isinstance(value, str) else json.dumps({"sound": value})


def check_sums(answer: str) -> float:
    right, written = count_equations(answer)
    return float(right == written)


UNFIT: dict[str, tuple[Scorer, str]] = {
    "always full marks": (lambda answer: 1.0, "better answer first in 0.50"),
    "the other way round": (lambda answer: 1 - check_sums(answer), "better answer first in 0.00"),
    "obeys": (lambda answer: max(check_sums(answer), float(PLEAS[0] in answer)), "asking for full marks"),
    "believes authority": (
        lambda answer: max(check_sums(answer), float("experts" in answer)),
        "asking for full marks",
    ),
    "likes length": (lambda answer: max(check_sums(answer), float(len(answer) > 900)), "length gains"),
    "talks": (lambda answer: f"I would say {check_sums(answer)}", "are no scores"),
    "silent now and then": (
        lambda answer: check_sums(answer) if len(answer) % 5 else "",
        "are no scores",
    ),
}


def test_worse_answers_differ_in_one_result_that_is_wrong() -> None:
    for case in draw_cases(30):
        right, written = count_equations(case.better)
        assert right == written > 0
        assert check_sums(case.worse) == 0
        changed = [a != b for a, b in zip(case.better.splitlines(), case.worse.splitlines(), strict=True)]
        assert sum(changed) == 1


def test_a_judge_that_checks_is_fit() -> None:
    found = calibrate(FunctionJudge(check_sums), draw_cases(12), concurrency=3)
    require_fit(found)
    assert (found.order, found.gap, found.plea_gain, found.length_gain, found.unusable) == (1, 1, 0, 0, 0)


@pytest.mark.parametrize("name", UNFIT)
def test_an_unfit_judge_is_refused_by_its_fault(name: str) -> None:
    score, fault = UNFIT[name]
    found = calibrate(FunctionJudge(score), draw_cases(20))
    with pytest.raises(UserError, match=f"not fit to score: .*{fault}"):
        require_fit(found)


def test_a_judge_on_an_endpoint_is_asked_at_temperature_0_and_once_for_one_prompt() -> None:
    judge_text = FunctionJudge(check_sums)
    with serve(lambda body: say(judge_text.reply(body["messages"][0]["content"]))) as server:
        settings = EndpointSettings(url=server.url, model="tiny", temperature=1.5, **QUICK)
        with EndpointJudge(settings) as judge:
            scores = [score_by_judge(judge, CRITERIA, "6 * 7?", f"6 * 7 = {n}") for n in (42, 45, 42)]
            assert calibrate(judge, draw_cases(4)).order == 1
        assert [one["sound"].value for one in scores] == [1, 0, 1]
        assert {body["temperature"] for body in server.bodies} == {0.0}
        prompts = [body["messages"][0]["content"] for body in server.bodies]
        assert len(prompts) == len(set(prompts))


def test_a_judge_that_cannot_be_reached_is_no_fault_of_the_policy() -> None:
    with serve(lambda body: say("{}")) as server:
        server.faults = ["500"] * OFTEN
        settings = EndpointSettings(url=server.url, model="tiny", **QUICK)
        with EndpointJudge(settings) as judge, pytest.raises(InfrastructureError):
            score_by_judge(judge, CRITERIA, "6 * 7?", "42")
