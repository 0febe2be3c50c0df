"""Signal in the gradients of credits: hand-made gradients, and a report's gradient by plain passes."""

import torch
from tiny_models import small_model

from benchmarks.joint.credit_signal import CaseReports, compare, report_gradient
from simulator.records import Trajectory, Turn
from training.config.run_config import RunConfig


def make_turn(given: tuple[int, ...], own: tuple[int, ...]) -> Turn:
    return Turn(
        context_ids=given,
        completion_ids=own,
        logprobs=(-0.1,) * len(own),
        finish_reason="stop",
        text="",
        policy_version="cto@0",
    )


def test_a_reports_gradient_is_that_of_its_own_tokens_without_the_votes() -> None:
    turns = (make_turn((5, 6), (7, 8)), make_turn((9,), (4, 3)), make_turn((2, 6), (11,)))
    trajectory = Trajectory(
        role="cto",
        session="s",
        turns=turns,
        num_tool_calls=0,
        num_valid_tool_calls=0,
        ended_by="answer",
        final_text="",
    )
    ids, own = [5, 6, 7, 8, 9, 4, 3], [0, 0, 1, 1, 0, 1, 1]
    model = small_model()
    logprobs = torch.log_softmax(model(input_ids=torch.tensor([ids])).logits[0, :-1], -1)
    taken = logprobs[range(len(ids) - 1), ids[1:]]
    torch.autograd.backward((taken * torch.tensor(own[1:])).sum())
    expected = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    found, tokens = report_gradient(small_model(), trajectory, 2, 1.0)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
    assert tokens == 4


def make_case(*gradients: tuple[float, float], team: list[float], own: list[float]) -> CaseReports:
    return CaseReports(gradients=torch.tensor(gradients), tokens=[1] * len(gradients), team=team, own=own)


def test_credits_are_compared_by_the_direction_that_each_gives_the_cases() -> None:
    """By the team's scores all say (1, 0); by its own ones the second says nothing, the third the reverse."""
    cases = [
        make_case((1.0, 0.0), (0.0, 0.0), team=[0.4, 0.0], own=[1.0, 0.0]),
        make_case((1.0, -1.0), (0.0, -1.0), team=[0.4, 0.0], own=[0.5, 0.5]),
        make_case((1.0, 0.0), (0.0, 0.0), team=[0.2, 0.0], own=[0.0, 1.0]),
    ]
    config = RunConfig().changed(marl__report_sets=2)
    team, _, own, _ = compare(cases[:2], config)
    assert "team score, dr_grpo: mean cosine of two cases +1.000" in team
    assert "own score" in own
    assert "mean cosine of two cases +0.000" in own  # the second case says nothing
    against = list(compare([cases[0], cases[2]], config))
    assert "mean cosine of two cases +1.000, noise / signal" in against[1]
    assert "mean cosine of two cases -1.000" in against[2]
