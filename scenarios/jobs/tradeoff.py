"""ReconcileGPT's whole job: a fair trade-off between the seats' positions, by the rule that the case states.

Given are packages with their cost, every seat's points for each, walk-away points, vetoes and one of three
rules of fairness: the largest product of gains (Nash), the best for the worst-off (leximin), the most equal
shares of the best reachable gains (Kalai-Smorodinsky on a finite set). Right is the package that the rule
selects among those that can be chosen, with the conflicts between seats named.
The optimum is found over all packages and extras, and certified from the words (`from_words`).
"""

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any

from pydantic import Field

from roles.base import Answer
from scenarios.base import Scenario, Step, ToolCall, Verdict, rejected
from scenarios.company.sectors import Sector
from scenarios.headroom import blind_baseline
from scenarios.jobs.from_words import number_outcome
from scenarios.jobs.job import (
    MAX_CALLS,
    Draft,
    Facts,
    NoCaseError,
    Truth,
    Wordings,
    accept,
    build_family,
    join_broken,
    join_words,
    make_job_role,
    make_tool,
    refuse_limits,
    score_named,
)

NAME = "tradeoff"
NONE = "none"
NOTHING = {"package": NONE, "extras": [], "conflicts": [], "escalate": True}  # the answer that escalates
NUM_PACKAGES = (3, 4, 6, 6, 6, 6, 7, 7, 8, 8)  # by difficulty 1-10
NUM_SEATS = (3, 3, 3, 4, 4, 4, 5, 5, 6, 6)
MOST_OUTCOMES = (3, 4, 4, 5, 5, 6, 7, 8, 9, 9)  # that can be chosen in one case
NASH_SHARE = 0.5  # of the cases with weights, beside those that draw this rule
BOUND_FROM, WEIGHTS_FROM, CLAIMS_FROM, EXTRAS_FROM = 3, 4, 6, 8  # difficulties
MICRO = 10**6  # fairness is counted in millionths for its zero
CONFLICT_LOSS = 10  # points that each of two seats in conflict loses by the other's favourite
SEATS = ("CTO", "COO", "Risk", "Cost", "Sales", "Staff council")
LIMITS: Mapping[str, tuple[str, str, int, int]] = {  # seat -> (figure, unit, from, to) that a veto hangs on
    "CTO": ("minutes of downtime a month", "min", 5, 60),
    "COO": ("weeks until it runs", "weeks", 4, 40),
    "Risk": ("open findings", "findings", 0, 20),
    "Cost": ("running cost", "k$ a month", 10, 90),
    "Sales": ("customers lost", "customers", 0, 30),
    "Staff council": ("posts moved", "posts", 0, 25),
}
RULE_WORDS: Mapping[str, str] = {
    "nash": "the largest product of the gains of all seats",
    "leximin": "the gain of the seat that gains least is as large as possible; where two are equal in that, "
    "the second least gain, and so on",
    "equal shares": "every seat's gain is taken as a share of the best gain that this seat could have by "
    "any outcome that can be chosen, and the smallest share is as large as possible; where two are equal "
    "in that, the second smallest share, and so on",
}
OPENINGS: Wordings = (
    "{situation} The seats have stated their positions. Find the fair outcome.",
    "{situation} The seats cannot agree. Which package should the company take?",
    "{situation} You reconcile the positions of the seats on it.",
    "{situation} Every seat wants something else. What is fair?",
    "Settle a quarrel of the seats fairly. {situation}",
)
FAIR: Wordings = (
    "Fair is: {rule}.",
    "The rule of fairness here: {rule}.",
    "The company calls this fair: {rule}.",
    "What is sought by the rule of fairness: {rule}.",
    "By agreement, fair means: {rule}.",
)
BUDGETS: Wordings = (
    "Budget: {budget} k$.",
    "There are {budget} k$ to spend.",
    "At most {budget} k$ may be spent.",
    "The budget ends at {budget} k$.",
    "No more than {budget} k$ is there.",
)
PACKAGES: Wordings = (
    "{letter}: {name}, costs {cost} k$",
    "{letter}: {name}, for {cost} k$",
    "{letter}: {name}, at a cost of {cost} k$",
    "{letter}: {cost} k$, {name}",
    "{letter}: costs {cost} k$, {name}",
)
POSITIONS: Wordings = (
    "{seat}: points {points}; walks away below {away}{weight}.",
    "{seat}: gives the points {points}; leaves below {away}{weight}.",
    "{seat}: its points are {points}; it walks away below {away}{weight}.",
    "{seat}: rates {points} points; accepts nothing under its walk-away points of {away}{weight}.",
    "{seat}: walks away below {away} points; rates {points}{weight}.",
)
GRADES = {"fairness": 0.15, "satisfaction": 0.05, "conflicts": 0.1}

RULES = (
    "An outcome is one package, with any of the extras that the case offers. It costs what the package and "
    "the extras cost. A seat's points are those of the package plus what the extras add for that seat. An "
    "outcome can be chosen if it costs at most the budget, leaves no seat below its walk-away points, and "
    "no valid veto stands against its package. A veto is valid only where the seat's own figure for the "
    "package is above the seat's own limit; a seat that claims a veto without that has none, and a seat "
    "whose figure is above its limit has one only if it claims it. A seat's gain is its points less its "
    "walk-away points. A seat with weight 2 counts as two seats with the same points. What a seat says it "
    "prefers does not count; its points do. A seat's favourite is the package on which it has the most "
    "points, without extras, among the packages that can be chosen without extras. Two seats are in "
    f"conflict if their favourites differ and each has at least {CONFLICT_LOSS} points less on the other's "
    "favourite than on its own. If no outcome can be chosen, the case is escalated and no conflict is "
    "named."
)


class TradeoffAnswer(Answer):
    """Example: TradeoffAnswer(package="D", extras=[], conflicts=[["CTO", "Cost"]], escalate=False)"""

    package: str  # letter, or "none"
    extras: Annotated[list[str], Field(max_length=10, default_factory=list)]
    conflicts: Annotated[list[Annotated[list[str], Field(min_length=2, max_length=2)]], Field(max_length=30)]
    escalate: bool


class WeighArguments(Answer):
    """Example: WeighArguments(package="D", extras=[])"""

    package: Annotated[str, Field(description="letter of the package")]
    extras: Annotated[list[str], Field(max_length=10)]


WEIGH = make_tool(
    "weigh",
    "Cost of an outcome, whether it can be chosen, and the gain of every seat.",
    WeighArguments,
)
ROLE = make_job_role(
    NAME,
    "ReconcileGPT",
    (
        "You are ReconcileGPT. The seats of a company disagree. You choose the outcome that is fair by the "
        "rule that the case states, and name the conflicts.",
        f"Rules. {RULES}",
        "Tool: weigh(package, extras) tells what an outcome costs, whether it can be chosen, and every "
        f"seat's gain. You may call it {MAX_CALLS} times.",
        'End with one JSON object with these keys: package (the letter, or "none" to escalate), extras (a '
        "list of names, in any order; may be left out where the case offers none), conflicts (a list of "
        "pairs of seats, in any order), escalate (true or false). Nothing may follow it. Example of an "
        'answer in another case: {"package": "K", "extras": [], "conflicts": [["CTO", "Cost"]], "escalate": '
        "false}",
    ),
    TradeoffAnswer,
    (WEIGH,),
    "M",
)

Outcome = tuple[str, tuple[str, ...]]  # package, extras in the order of the case


def draw(rng: random.Random, sector: Sector, difficulty: int) -> Draft:
    """A candidate without budget: packages, seats with points, vetoes, a rule."""
    letters = "ABCDEFGH"[: NUM_PACKAGES[difficulty - 1]]
    ways = [f"{option}{extent}" for option in sector.options for extent in (", as a trial", ", in full")]
    options = rng.sample(ways, len(letters))
    costs = {name: rng.randint(10, 60) for name in options}
    for option in sector.options:  # a trial costs no more than the whole
        both = [name for name in ways if name.startswith(f"{option},") and name in costs]
        costs |= dict(zip(both, sorted(costs[name] for name in both), strict=True))
    packages = {
        letter: {"name": name, "cost": costs[name]} for letter, name in zip(letters, options, strict=True)
    }
    seats: dict[str, dict[str, Any]] = {}
    for seat in SEATS[: NUM_SEATS[difficulty - 1]]:
        points = {letter: rng.randint(20, 100) for letter in letters}
        about: dict[str, Any] = {"points": points, "leaves_below": rng.randint(5, 45)}
        if difficulty >= WEIGHTS_FROM and rng.random() < 0.6:
            about["weight"] = 2
        if difficulty >= CLAIMS_FROM and rng.random() < 0.5:
            about["says"] = rng.choice(letters)
        if rng.random() < (0.35 if difficulty < BOUND_FROM else 0.55):
            _, _, low, high = LIMITS[seat]
            limit = rng.randint(low + (high - low) // 3, high)
            about["limit"] = limit
            about["figures"] = {letter: rng.randint(low, high) for letter in letters}
            about["vetoes"] = sorted(rng.sample(letters, rng.randint(1, 2)))
        seats[seat] = about
    facts: Draft = {"packages": packages, "seats": seats, "rule": rng.choice(list(RULE_WORDS))}
    if any("weight" in about for about in seats.values()) and rng.random() < NASH_SHARE:
        facts["rule"] = "nash"  # by the other rules a weight seldom decides
    if difficulty >= EXTRAS_FROM:
        facts["extras"] = {
            name: {"cost": rng.randint(2, 10), "adds": {rng.choice(list(seats)): rng.randint(4, 15)}}
            for name in rng.sample(("training days", "longer notice", "extra audit", "quarterly review"), 2)
        }
    return facts


def list_outcomes(facts: Mapping[str, Any]) -> list[Outcome]:
    """Every package with every set of extras."""
    extras = list(facts.get("extras", {}))
    sets = [chosen for size in range(len(extras) + 1) for chosen in itertools.combinations(extras, size)]
    return [(letter, chosen) for letter in facts["packages"] for chosen in sets]


def find_cost(facts: Mapping[str, Any], outcome: Outcome) -> int:
    letter, extras = outcome
    return sum([facts["packages"][letter]["cost"], *(facts["extras"][name]["cost"] for name in extras)])


def find_gains(facts: Mapping[str, Any], outcome: Outcome) -> dict[str, int]:
    """Points less walk-away points of every seat."""
    letter, extras = outcome
    return {
        seat: about["points"][letter]
        + sum(facts["extras"][name]["adds"].get(seat, 0) for name in extras)
        - about["leaves_below"]
        for seat, about in facts["seats"].items()
    }


def list_vetoes(facts: Mapping[str, Any], letter: str) -> list[str]:
    """Seats with a valid veto against a package."""
    return [
        seat
        for seat, about in facts["seats"].items()
        if letter in about.get("vetoes", ()) and about["figures"][letter] > about["limit"]
    ]


def can_choose(facts: Mapping[str, Any], outcome: Outcome) -> dict[str, bool]:
    """The conditions of an outcome, each with whether it holds."""
    return {
        "budget": find_cost(facts, outcome) <= facts["budget"],
        "walk-away": min(find_gains(facts, outcome).values()) >= 0,
        "veto": not list_vetoes(facts, outcome[0]),
    }


def list_open(facts: Mapping[str, Any]) -> list[Outcome]:
    """The outcomes that can be chosen."""
    return [outcome for outcome in list_outcomes(facts) if all(can_choose(facts, outcome).values())]


def repeat_by_weight(facts: Mapping[str, Any], values: Mapping[str, Any]) -> list[Any]:
    """One value per seat, two for a seat of weight 2."""
    return [value for seat, value in values.items() for _ in range(facts["seats"][seat].get("weight", 1))]


def find_key(facts: Mapping[str, Any], outcome: Outcome, best: Mapping[str, int]) -> tuple[Any, ...]:
    """Values that the rule compares, larger is fairer; `best`: every seat's best gain by an open outcome."""
    gains = find_gains(facts, outcome)
    if facts["rule"] == "nash":
        return (math.prod(repeat_by_weight(facts, gains)),)
    if facts["rule"] == "equal shares":
        shares = {
            seat: Fraction(gain, best[seat]) if best[seat] else Fraction(1) for seat, gain in gains.items()
        }
        return tuple(sorted(repeat_by_weight(facts, shares)))
    return tuple(sorted(repeat_by_weight(facts, gains)))


def find_best_gains(facts: Mapping[str, Any], outcomes: Sequence[Outcome]) -> dict[str, int]:
    gains = [find_gains(facts, outcome) for outcome in outcomes]
    return {seat: max(gain[seat] for gain in gains) for seat in facts["seats"]}


def rank(facts: Mapping[str, Any], outcomes: Sequence[Outcome]) -> list[tuple[tuple[Any, ...], Outcome]]:
    """(what the rule compares, outcome), fairest first."""
    best = find_best_gains(facts, outcomes)
    return sorted(((find_key(facts, outcome, best), outcome) for outcome in outcomes), reverse=True)


def find_favourites(facts: Mapping[str, Any]) -> dict[str, str] | None:
    """Every seat's favourite; None where a seat has two, or no package can be chosen without extras."""
    letters = [letter for letter, extras in list_open(facts) if not extras]
    favourites = {}
    for seat, about in facts["seats"].items():
        ranked = sorted(letters, key=lambda letter: -about["points"][letter])
        if not ranked or (len(ranked) > 1 and about["points"][ranked[0]] == about["points"][ranked[1]]):
            return None
        favourites[seat] = ranked[0]
    return favourites


def find_conflicts(facts: Mapping[str, Any], favourites: Mapping[str, str]) -> list[list[str]]:
    """Pairs of seats in conflict, in the order of the seats."""
    pairs = []
    for one, other in itertools.combinations(facts["seats"], 2):
        mine, yours = facts["seats"][one]["points"], facts["seats"][other]["points"]
        a, b = favourites[one], favourites[other]
        if a != b and mine[a] - mine[b] >= CONFLICT_LOSS and yours[b] - yours[a] >= CONFLICT_LOSS:
            pairs.append([one, other])
    return pairs


def measure_fairness(facts: Mapping[str, Any], key: tuple[Any, ...]) -> float:
    """One number of what the rule compares: the geometric mean of the gains, or the least gain or share."""
    if facts["rule"] == "nash":
        num = sum(about.get("weight", 1) for about in facts["seats"].values())
        return math.pow(key[0], 1 / num)
    return float(key[0])


def settle(facts: Draft, difficulty: int, escalates: bool, rng: random.Random) -> tuple[Truth, int]:
    """Set the budget, and find the fair outcome.

    Raises:
        NoCaseError: two fair outcomes, two favourites of a seat, too few or too many that can be chosen.
    """
    costs = sorted(package["cost"] for package in facts["packages"].values())
    is_bound = BOUND_FROM <= difficulty < EXTRAS_FROM  # later the extras make the budget bind
    facts["budget"] = costs[rng.randrange(len(costs) // 2 - is_bound, len(costs))] + rng.randint(0, 6)
    outcomes = list_open(facts)
    if escalates != (not outcomes):
        raise NoCaseError
    if escalates:
        return {**NOTHING}, 0
    favourites = find_favourites(facts)
    if favourites is None or not 2 <= len(outcomes) <= MOST_OUTCOMES[difficulty - 1]:
        raise NoCaseError
    ranked = rank(facts, outcomes)
    if ranked[0][0] == ranked[1][0]:
        raise NoCaseError
    (_, (letter, extras)) = ranked[0]
    fairness = [measure_fairness(facts, key) for key, _ in ranked]
    conflicts = find_conflicts(facts, favourites)
    if fairness[0] - sum(fairness) / len(fairness) < 0.5 / (100 if facts["rule"] == "equal shares" else 1):
        raise NoCaseError
    truth = {"package": letter, "extras": list(extras), "conflicts": conflicts, "escalate": False}
    total, count = blind_baseline([round(value * MICRO) for value in fairness], difficulty)
    return {**truth, "fairness": fairness[0], "blind": total / count / MICRO}, len(outcomes)


def write_brief(facts: Facts) -> str:
    """Every figure of the case; nothing in it is ranked."""
    wording = facts["wording"]
    lines = [OPENINGS[wording].format(**facts), FAIR[wording].format(rule=RULE_WORDS[facts["rule"]])]
    lines.append(BUDGETS[wording].format(**facts))
    lines += [PACKAGES[wording].format(letter=letter, **about) for letter, about in facts["packages"].items()]
    for name, extra in facts.get("extras", {}).items():
        adds = ", ".join(f"{points} points for {seat}" for seat, points in extra["adds"].items())
        lines.append(f"Extra, {name}: costs {extra['cost']} k$, {adds}")
    for seat, about in facts["seats"].items():
        points = ", ".join(f"{letter} {number}" for letter, number in about["points"].items())
        weight = ", weight 2" if "weight" in about else ""
        told = {"seat": seat, "points": points, "away": about["leaves_below"], "weight": weight}
        lines.append(POSITIONS[wording].format(**told))
        if "says" in about:
            lines.append(f'{seat} says: "We would rather have {about["says"]} than anything else."')
        if "limit" in about:
            figure, unit, _, _ = LIMITS[seat]
            figures = ", ".join(f"{letter} {number}" for letter, number in about["figures"].items())
            against = join_words(about["vetoes"])
            lines.append(f"{seat} vetoes {against}: {figure} {figures}, limit {about['limit']} {unit}.")
    return "\n".join(lines)


def judge(facts: Facts, truth: Truth, answer: TradeoffAnswer) -> Verdict:
    """Reward 0.1 limits + 0.15 fairness + 0.05 satisfaction + 0.1 conflicts + 0.6 exact.

    Fairness lies between a blind choice of the open outcomes (0) and the fair one (1); satisfaction is the
    mean gain over that of the fair outcome, at most 1. Both count only where the outcome can be chosen.
    """
    if answer.escalate or truth["escalate"]:
        says = "the case is to be escalated, without more" if truth["escalate"] else "an outcome is open"
        return rejected("infeasible", says)
    outcome = (answer.package, tuple(name for name in facts.get("extras", {}) if name in answer.extras))
    kept = can_choose(facts, outcome)
    if not all(kept.values()):
        return refuse_limits(kept)
    outcomes = list_open(facts)
    fairness = measure_fairness(facts, find_key(facts, outcome, find_best_gains(facts, outcomes)))
    fair = (truth["package"], tuple(truth["extras"]))
    mean, best = sum(find_gains(facts, outcome).values()), sum(find_gains(facts, fair).values())
    named, real = ({frozenset(pair) for pair in pairs} for pairs in (answer.conflicts, truth["conflicts"]))
    conflicts = score_named(named, real, math.comb(len(facts["seats"]), 2))
    is_fair = outcome == fair
    graded = {
        "fairness": 1.0
        if is_fair
        else max(0.0, (fairness - truth["blind"]) / (truth["fairness"] - truth["blind"])),
        "satisfaction": min(1.0, mean / best) if best else 1.0,
        "conflicts": conflicts if is_fair or fairness > truth["blind"] else 0.0,
    }
    if not is_fair:
        graded["fairness"] = min(graded["fairness"], 0.99)
        graded["satisfaction"] *= graded["fairness"]
    says = f"fair is {' + '.join([fair[0], *fair[1]])}"
    return accept(kept, graded, GRADES, is_fair and conflicts == 1.0, says)


def find_mistake(facts: Facts, stated: TradeoffAnswer | WeighArguments) -> str:
    """A package, extra or seat that there is not, or that stands twice; "" for none."""
    offered = list(facts.get("extras", {}))
    escalates = isinstance(stated, TradeoffAnswer) and stated.escalate
    if isinstance(stated, TradeoffAnswer) and (stated.package == NONE) != escalates:
        return 'package is "none" exactly where escalate is true'
    if stated.package not in facts["packages"] and not escalates:
        return f"no package {stated.package[:20]!r}"
    if set(stated.extras) - set(offered) or len(set(stated.extras)) < len(stated.extras):
        return f"extras are, each once: {', '.join(offered) or 'none'}"
    if isinstance(stated, WeighArguments):
        return ""
    for pair in stated.conflicts:
        if len(set(pair)) < 2 or any(seat not in facts["seats"] for seat in pair):
            return f"a conflict is a pair of two seats of the case, got {str(pair)[:60]}"
    pairs = {frozenset(pair) for pair in stated.conflicts}
    return "a conflict stands twice" if len(pairs) < len(stated.conflicts) else ""


def _name_outcome(outcome: Outcome) -> str:
    return " + ".join([outcome[0], *outcome[1]])


def weigh(facts: Facts, stated: WeighArguments) -> str:
    """The tool weigh(package, extras)."""
    outcome = (stated.package, tuple(stated.extras))
    kept = can_choose(facts, outcome)
    gains = ", ".join(f"{seat} {gain}" for seat, gain in find_gains(facts, outcome).items())
    can = "can be chosen" if all(kept.values()) else f"cannot be chosen ({join_broken(kept)})"
    return f"cost {find_cost(facts, outcome)}, {can}, gains: {gains}"


def demonstrate(scenario: Scenario) -> tuple[list[Step], str]:
    """Rule packages out, weigh every open outcome, apply the rule and name the conflicts."""
    facts, truth = scenario.facts, scenario.truth
    text = _write_ruled_out(facts)
    if truth["escalate"]:
        return [], f"{text}\nNothing can be chosen: escalate."
    steps: list[Step] = []
    outcomes = list_open(facts)
    for letter, extras in outcomes:
        call = ToolCall(name="weigh", arguments={"package": letter, "extras": list(extras)})
        steps.append(Step(text=text, call=call))
        text = ""
    best = find_best_gains(facts, outcomes)
    lines = [f"{_name_outcome(o)}: {_write_key(facts, find_key(facts, o, best))}" for o in outcomes]
    lines.append(f"Fair is {_name_outcome((truth['package'], tuple(truth['extras'])))}.")
    lines.append(_write_favourites(facts, truth["conflicts"]))
    return steps, "\n".join(lines)


def _write_key(facts: Facts, key: tuple[Any, ...]) -> str:
    if facts["rule"] == "nash":
        return f"product {key[0]}"
    kind = "shares" if facts["rule"] == "equal shares" else "gains"
    return f"{kind} from the least: {', '.join(str(value) for value in key)}"


def _write_ruled_out(facts: Facts) -> str:
    """Per package: its cost against the budget, vetoes, and seats below their walk-away points."""
    lines = []
    for letter, package in facts["packages"].items():
        problems = []
        if package["cost"] > facts["budget"]:
            problems.append(f"{package['cost']} is over {facts['budget']}")
        problems += [f"valid veto of {seat}" for seat in list_vetoes(facts, letter)]
        for seat, gain in find_gains(facts, (letter, ())).items():
            if gain < 0:
                away = facts["seats"][seat]["leaves_below"]
                problems.append(f"{seat} has {gain + away} of {away}")
        lines.append(f"{letter}: {'; '.join(problems) or 'can be chosen'}.")
    return "\n".join(lines)


def _write_favourites(facts: Facts, conflicts: Sequence[Sequence[str]]) -> str:
    favourites = find_favourites(facts)
    assert favourites is not None  # settled cases have one favourite per seat
    told = join_words([f"{seat} {letter}" for seat, letter in favourites.items()])
    pairs = join_words([f"{one} and {other}" for one, other in conflicts]) if conflicts else "nobody"
    return f"Favourites: {told}. In conflict: {pairs}."


def follow_rule(facts: Facts) -> dict[str, Any]:
    """The outcome with the largest sum of gains among those that can be chosen."""
    outcomes = list_open(facts)
    if not outcomes:
        return {"package": NONE, "extras": []}
    letter, extras = max(outcomes, key=lambda outcome: sum(find_gains(facts, outcome).values()))
    return {"package": letter, "extras": list(extras)}


def answer_greedily(facts: Facts) -> dict[str, Any]:
    """The largest sum of gains, with the conflicts named right."""
    chosen = follow_rule(facts)
    favourites = find_favourites(facts) if chosen["package"] != NONE else None
    conflicts = find_conflicts(facts, favourites) if favourites else []
    return {**chosen, "conflicts": conflicts, "escalate": chosen["package"] == NONE}


def answer_randomly(facts: Facts, rng: random.Random) -> dict[str, Any]:
    """Any package, any extras, any conflicts."""
    pairs = [list(pair) for pair in itertools.combinations(facts["seats"], 2) if rng.random() < 0.5]
    extras = [name for name in facts.get("extras", {}) if rng.random() < 0.5]
    package = rng.choice(list(facts["packages"]))
    return {"package": package, "extras": extras, "conflicts": pairs, "escalate": False}


FAMILY = build_family(
    ROLE,
    WeighArguments,
    draw=draw,
    settle=settle,
    write_brief=write_brief,
    find_mistake=find_mistake,
    judge=judge,
    claim=lambda truth: number_outcome(truth["package"], truth["extras"]),
    observe=weigh,
    demonstrate=demonstrate,
    follow_rule=follow_rule,
    answer_randomly=answer_randomly,
    answer_greedily=answer_greedily,
    constant=NOTHING,
    escalates_by=NOTHING,
)
