"""Inspect AI runs our tasks: real package, scripted models; skipped where it is not installed beside ours."""

import random
import sys
from pathlib import Path

import pytest

from scenarios.base import Step
from scenarios.registry import FAMILIES

inspect_ai = pytest.importorskip(
    "inspect_ai", reason="pip install 'emads[inspect]' in an environment of its own"
)
sys.path.insert(0, str(Path(__file__).parent.parent.parent / "examples"))


def play(role: str, steps: list[Step], folder: Path) -> tuple[dict[str, float], list[str]]:
    """Scores, and the messages' roles, of one sample on which a model plays these steps."""
    from inspect_ai.log import read_eval_log
    from inspect_ai.model import ModelOutput, ModelUsage, get_model
    from inspect_tasks import make_task

    outputs = [
        ModelOutput.from_content("mock", step.text)
        if step.call is None
        else ModelOutput.for_tool_call("mock", step.call.name, dict(step.call.arguments), content=step.text)
        for step in steps
    ]
    for output in outputs:
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)  # else it asks a tokenizer
    model = get_model("mockllm/model", custom_outputs=outputs)
    (log,) = inspect_ai.eval(
        make_task(role, 1, 1, 0, "", "marl"), model=model, log_dir=str(folder), display="none"
    )
    assert log.status == "success", log.error
    stored = read_eval_log(log.location)  # what `inspect view` shows
    assert stored.samples is not None
    (sample,) = stored.samples
    assert sample.scores is not None
    return dict(sample.scores["verified"].value), [message.role for message in sample.messages]


@pytest.mark.parametrize("role", ["cto", "coo", "risk", "cost", "reconcile"])
def test_the_experts_play_scores_1_through_inspects_own_tool_loop(role: str, tmp_path: Path) -> None:
    scenario = FAMILIES[role].generate("test", 0, 0, 1)
    steps = list(FAMILIES[role].demonstrate(scenario, random.Random(0)))
    scores, roles = play(role, steps, tmp_path)
    assert scores == {"reward": 1.0, "exact": 1.0}
    assert roles.count("tool") == sum(step.call is not None for step in steps)


def test_a_wrong_answer_scores_0_and_a_refused_call_is_an_observation(tmp_path: Path) -> None:
    from scenarios.base import ToolCall

    steps = [
        Step(text="", call=ToolCall(name="measure", arguments={"option": "Z"})),
        Step(text="I would take A."),
    ]
    scores, roles = play("cto", steps, tmp_path)
    assert scores == {"reward": 0.0, "exact": 0.0}
    assert roles == ["system", "user", "assistant", "tool", "assistant"]
