"""The searched policy: its table of values is the verifier's, its weights are the committed ones, it pays."""

import random
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from evaluation.scoring.baselines import check_reports, play_experts
from roles.team import SPECIALISTS, Report
from scenarios.team import searched
from scenarios.team.experts import best_decision, make_offer
from scenarios.team.frontier import list_steps
from scenarios.team.offers import is_needed, is_vetoed
from scenarios.team.scenario import TeamScenario, generate
from scenarios.team.value import decision_value


def _draw_picks(case: TeamScenario, rng: random.Random) -> np.ndarray:
    picks = np.zeros((1, searched.MOST_OPTIONS, len(SPECIALISTS)), np.int64)
    for place, option in enumerate(case.options):
        for number, seat in enumerate(SPECIALISTS):
            steps = list_steps(case, seat, option)
            picks[0, place, number] = rng.randrange(len(steps)) if steps else 0
    return picks


def _verified_value(case: TeamScenario, picks: np.ndarray) -> float:
    """V by the verifier of exact funding on the reports that make these offers."""
    reports = {}
    for number, seat in enumerate(SPECIALISTS):
        offers = []
        for place, option in enumerate(case.options):
            steps = list_steps(case, seat, option)
            if steps:
                offers.append(make_offer(steps[picks[0, place, number]]))
        reports[seat] = Report(
            offers=offers,
            needs=[option for option in case.options if is_needed(case, seat, option)],
            veto=[option for option in case.options if is_vetoed(case, seat, option)],
            note="",
        )
    table = check_reports(case, reports)
    return decision_value(case, table, best_decision(case.public, table, "exact"))


def test_values_of_alternatives_are_those_of_the_verifier() -> None:
    rng = random.Random(0)
    for index in range(12):
        case = generate("train", 3, index, 1 + index % 4)
        if case.optimum is None:
            continue
        table = searched._tabulate([case])
        picks = _draw_picks(case, rng)
        values = searched.value_alternatives(table, picks)
        place, number = rng.randrange(len(case.options)), rng.randrange(4)
        for rank in range(len(list_steps(case, SPECIALISTS[number], case.options[place]))):
            other = picks.copy()
            other[0, place, number] = rank
            assert values[0, place, number, rank] == pytest.approx(_verified_value(case, other))


def test_other_weights_than_the_named_ones_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = tmp_path / "searched.json"
    changed.write_text(searched.FILE.read_text().replace("0.1", "0.2", 1))
    monkeypatch.setattr(searched, "FILE", changed)
    searched.read_weights.cache_clear()
    with pytest.raises(ValueError, match=searched.DIGEST):
        searched.read_weights()
    monkeypatch.undo()
    searched.read_weights.cache_clear()
    assert set(searched.read_weights()) == {"first", "second"}


def test_search_is_deterministic() -> None:
    one, other = (searched.search(num_cases=24, num_steps=3) for _ in range(2))
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_searched_experts_beat_the_best_rule_written_by_hand() -> None:
    """Paired over 300 validation cases at difficulties 1 and 2: a gain above twice its standard error."""
    gains = []
    for index in range(300):
        case = generate("validation", 0, index, 1 + index % 2)
        values = []
        for habit in ("searched", "measured"):
            play = play_experts(habit, "exact")(case, random.Random(0))
            values.append(decision_value(case, check_reports(case, play.reports), play.decision))
        gains.append(values[0] - values[1])
    error = float(np.std(gains)) / len(gains) ** 0.5
    assert fmean(gains) > 2 * error > 0
