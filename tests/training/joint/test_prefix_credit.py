"""Credit of a report's single tokens, by hand, and in the rows of a joint step."""

import statistics

import pytest
from joint_learning import SEATS, WEIGHTS, Engines, change, draw, make_learner, play, rows_of

from roles.team import RECONCILER
from simulator.reading import read_episode
from training.joint.credit.estimators import share_by_prefix
from training.joint.credit.offer_values import coalition_reward


def test_a_token_is_judged_by_the_messages_that_begin_alike() -> None:
    messages = [(7, 1, 1), (7, 1, 2), (7, 2, 5), (9, 3)]
    credits = share_by_prefix(messages, [0.4, 0.0, -0.1, -0.3])
    assert credits[0] == pytest.approx([0.1, 0.1, 0.2])  # means: 7 .1, 7 1 .2, 7 1 1 .4
    assert credits[1] == pytest.approx([0.1, 0.1, -0.2])
    assert credits[2] == pytest.approx([0.1, -0.2, 0.0])  # what follows 7 2 has no alternative
    assert credits[3] == pytest.approx([-0.3, 0.0])


def test_credits_of_a_message_add_up_to_its_value_and_equal_messages_get_exact_zeros() -> None:
    messages, values = [(1, 2, 8), (1, 2, 3), (4, 8), (1, 2, 8)], [0.4, -0.1, 0.1, -0.2]
    sums = [sum(credit) for credit in share_by_prefix(messages, values)]
    assert sums == pytest.approx([0.1, -0.1, 0.1, 0.1])  # the two equal ones share what they were worth
    third = 0.1 + 0.2
    assert share_by_prefix([(5, 6)] * 2, [third - 0.3, 0.3 - third]) == [[0.0, 0.0]] * 2
    assert share_by_prefix([], []) == []


def test_rows_credit_the_tokens_of_a_report_one_by_one(scripted: Engines) -> None:
    """The same groups with and without: alike tokens have the report's advantage, the others its parts."""
    alike = make_learner(change(credit__token_credit="alike", credit__scheme="cross_valued"))
    learner = make_learner(change(credit__token_credit="prefix", credit__scheme="cross_valued"))
    groups = play(learner, draw(4))
    differing = 0
    for role in SEATS:
        plain, rows = rows_of(alike, role, groups), rows_of(learner, role, groups)
        texts = [one.first.episode.reports[role] for group in groups for one in group.report_sets]
        for number in range(0, len(rows), 3):
            for one in range(number, number + 3):
                assert rows[one].own_advantages()[-1] == plain[one].own_advantages()[-1]  # the vote's
                assert rows[one].advantage == plain[one].advantage
                pairs = zip(rows[one].own_advantages(), plain[one].own_advantages(), strict=True)
                report = [credit for credit, value in pairs if value == plain[one].advantage]
                if plain[one].advantage == plain[one].own_advantages()[-1]:
                    continue  # the vote's cannot be told apart
                same = [plain[n].advantage for n in range(number, number + 3) if texts[n] == texts[one]]
                assert sum(report) == pytest.approx(statistics.fmean(same))
                differing += len(set(report)) > 1
    assert differing > 3


def test_a_decision_is_compared_with_the_best_plan_by_its_reports(scripted: Engines) -> None:
    learner = make_learner(change(credit__scheme="cross_valued"))
    groups, negative = play(learner, draw(6)), 0
    rows = iter(rows_of(learner, RECONCILER, groups))
    weights = WEIGHTS
    for group in groups:
        for one in group.report_sets:
            table = read_episode(group.scenario, one.first.episode).table
            best = coalition_reward(group.scenario, table, table, weights)
            for scored in one.scored:
                verdict = scored.verdict
                faults = 0.2 * verdict.unresolved + 0.1 * verdict.escalation
                advantage = next(rows).advantage
                assert advantage == pytest.approx(verdict.value - faults - best, abs=1e-9)
                negative += advantage < 0
    assert next(rows, None) is None
    assert negative > 3


@pytest.mark.parametrize(
    "options",
    [
        {"credit__scheme": "shared"},
        {"credit__scheme": "cross_valued", "reward": "agreement_only"},
        {"credit__scheme": "cross_valued", "rounds": 2},
    ],
)
def test_else_decisions_are_compared_with_each_other(scripted: Engines, options: dict[str, object]) -> None:
    learner = make_learner(change(**options))
    for group, of_group in zip(
        groups := play(learner, draw(3)),
        learner.credit.assign((RECONCILER,), groups)[RECONCILER],
        strict=True,
    ):
        for one, advantages in zip(group.report_sets, of_group, strict=True):
            assert one.best_reward is None
            assert sum(advantages.episodes) == pytest.approx(0.0)
