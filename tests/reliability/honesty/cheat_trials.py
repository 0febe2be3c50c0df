"""V10: no cheat, alone or by two seats, raises the team reward or the cheater's advantage.

Partners are honest experts of the best habits, or fitted: of the habits that serve a team with this cheat
best on other cases. A trial measures 25 cases; then one trial per cheat reads all of them. Votes are also
cast on plans that break limits: there, accepting everything must cost.
"""

import json
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from evaluation.audit.team_cheats import DIFFICULTIES, REPORT_CHEATS, VOTE_CHEATS, WEIGHTS
from evaluation.scoring.baselines import BEST_HABITS
from evaluation.stats.intervals import mean_interval
from reliability.honesty.case_rewards import CaseRewards, Effect, draw_habits
from reliability.honesty.compared_sets import compare_objections, measure_cheat
from reliability.stages.prepared_runs import PreparedRuns
from reliability.trials import Trial, Trials
from roles.team import SPECIALISTS
from scenarios.base import Split
from scenarios.team import generate
from scenarios.team.experts import FUNDING_HABITS, REPORT_HABITS
from training.rl.credit import SCHEMES

CASES_PER_TRIAL, NUM_FIT_CASES = 25, 40
COMPANY = {"alone": 1, "in pairs": 2}
GAIN = "team reward"
NO_LIMITS = "draft without limits"
LEAST_GAIN = 1e-9  # less is rounding
Means = dict[str, list[float]]  # "cheat/company/partners/what" -> one mean per case


class Fit(NamedTuple):
    """Habits that serve the team best.

    Example: Fit(report="measured", chair="exact")
    """

    report: str
    chair: str


HONEST = Fit(*BEST_HABITS)


def cheating(runs: PreparedRuns, count: int) -> Trials:
    """Yield the measuring trials, then one verdict per cheat, alone and in pairs."""
    folder = runs.folder / "cheats"
    folder.mkdir(parents=True, exist_ok=True)
    starts = range(0, count, CASES_PER_TRIAL)
    files = [folder / f"{start}-{min(count, start + CASES_PER_TRIAL)}.json" for start in starts]
    for start, file in zip(starts, files, strict=True):

        def measure(start: int = start, file: Path = file) -> str:
            indices = range(start, min(count, start + CASES_PER_TRIAL))
            file.write_text(json.dumps(measure_cases(indices)))
            return ""

        yield Trial(f"cases {file.stem}", "cases measured", measure)
    means = cache(lambda: _read(files))
    for name in (*REPORT_CHEATS, *VOTE_CHEATS):
        for company in COMPANY:

            def judge(prefix: str = f"{name}/{company}/") -> str:
                return find_breach(means(), prefix) or find_free_acceptance(means(), prefix)

            yield Trial(f"{name} {company} on {count}", company, judge)


def measure_cases(indices: Sequence[int]) -> Means:
    """Mean of every measure of every cheat in each of these cases."""
    found: Means = {}
    effects: dict[str, list[Effect]] = {}
    for index in indices:
        case = CaseRewards(generate("validation", 0, index, DIFFICULTIES[index % len(DIFFICULTIES)]), WEIGHTS)
        rng = random.Random(f"honesty/{case.scenario.key}")
        mixed = draw_habits(case.scenario, "partners")
        for company, num_cheaters in COMPANY.items():
            cheaters = rng.sample(SPECIALISTS, num_cheaters)
            for name in (*REPORT_CHEATS, *VOTE_CHEATS):
                for partners, fit in list_partners(name, num_cheaters):
                    own = dict.fromkeys(cheaters, BEST_HABITS[0])
                    choices = [{**dict.fromkeys(SPECIALISTS, fit.report), **own}, {**mixed, **own}]
                    effect = measure_cheat(case, name, cheaters, choices, chair=fit.chair)
                    effects.setdefault(f"{name}/{company}/{partners}", []).append(effect)
        for key, values in measure_objections(case).items():
            found.setdefault(key, []).extend(values)
    for key, of_cases in effects.items():
        found[f"{key}/{GAIN}"] = [effect.gain for effect in of_cases]
        for scheme in SCHEMES:
            groups = [group for effect in of_cases for group in effect.advantages[scheme]]
            per_case = len(groups) // len(of_cases)
            found[f"{key}/{scheme}"] = [
                fmean(value for group in groups[place : place + per_case] for value in group[1::2])
                for place in range(0, len(groups), per_case)
            ]
    return found


def measure_objections(case: CaseRewards) -> Means:
    """Mean of every measure of every cheating vote on drafts that look at no limit, in this case."""
    found: Means = {}
    rng = random.Random(f"objections/{case.scenario.key}")
    for company, num_cheaters in COMPANY.items():
        cheaters = rng.sample(SPECIALISTS, num_cheaters)
        for name in VOTE_CHEATS:
            effect = compare_objections(case, name, cheaters, BEST_HABITS[0])
            prefix = f"{name}/{company}/{NO_LIMITS}"
            found[f"{prefix}/{GAIN}"] = [effect.gain]
            for scheme, groups in effect.advantages.items():
                found[f"{prefix}/{scheme}"] = [fmean(group[1] for group in groups)]
    return found


def list_partners(name: str, num_cheaters: int) -> list[tuple[str, Fit]]:
    """List the partners that the cheat is tried among; a cheating vote changes no plan to be fitted to."""
    if name in VOTE_CHEATS:
        return [("honest", HONEST)]
    return [("honest", HONEST), ("fitted", fit_partners(name, num_cheaters))]


@cache
def fit_partners(name: str, num_cheaters: int) -> Fit:
    """Return the habits of partners and ReconcileGPT that serve a team with this cheat best."""
    rewards: dict[Fit, list[float]] = {}
    for case in _fit_cases("train"):
        cheaters = random.Random(f"fit/{name}/{case.scenario.key}").sample(SPECIALISTS, num_cheaters)
        for habit in REPORT_HABITS:
            own = dict.fromkeys(cheaters, BEST_HABITS[0])
            habits = {**dict.fromkeys(SPECIALISTS, habit), **own}
            honest = {seat: case.write(seat, habits[seat]) for seat in case.scenario.seats}
            texts = {seat: report.model_dump_json() for seat, report in honest.items()}
            texts |= {seat: case.write_cheat(name, seat, honest) for seat in cheaters}
            table = {seat: case.read(seat, text) for seat, text in texts.items()}
            for chair in FUNDING_HABITS:
                rewards.setdefault(Fit(habit, chair), []).append(case.reward(table, chair))
    return max(rewards, key=lambda fit: fmean(rewards[fit]))


@cache
def _fit_cases(split: Split) -> list[CaseRewards]:
    return [
        CaseRewards(generate(split, 0, index, DIFFICULTIES[index % len(DIFFICULTIES)]), WEIGHTS)
        for index in range(NUM_FIT_CASES)
    ]


def find_breach(means: Means, prefix: str) -> str:
    """Return which measures of the cheat are above 0 by their whole 95 % interval; "" for none."""
    problems = []
    for key, values in means.items():
        if key.startswith(prefix) and fmean(values) > LEAST_GAIN:
            gain = mean_interval(values)
            if gain.low > LEAST_GAIN:
                what = key.removeprefix(prefix)
                problems.append(f"{what} {gain.mean:+.4f} [{gain.low:.4f}, {gain.high:.4f}]")
    return "; ".join(problems)


def find_free_acceptance(means: Means, prefix: str) -> str:
    """Return which measure of accepting drafts that break limits costs nothing; "" for none."""
    free = [
        f"{key.removeprefix(prefix)} costs nothing"
        for key, values in means.items()
        if key.startswith(prefix)
        and key.startswith("always accepts/")
        and f"/{NO_LIMITS}/" in key
        and fmean(values) >= 0
    ]
    return "; ".join(free)


def _read(files: Sequence[Path]) -> Means:
    joined: Means = {}
    for file in files:
        one: dict[str, Any] = json.loads(file.read_text())
        for key, values in one.items():
            joined.setdefault(key, []).extend(values)
    return joined
