"""The COO's whole job: who does which work package, and when.

Right is the plan of least cost (day rates, contractors, days late) in which every package is done once by
somebody with its skill who is free, in the stated order and by the hard deadlines; of equal cost the plan
whose start days add up to least. The optimum is found by assignments in order of their rates, each with the
best order of work per person, and certified from the words (`from_words`) by branch and bound in time.
"""

import itertools
import random
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Annotated, Any

from pydantic import Field

from roles.base import Answer
from scenarios.base import Scenario, Step, ToolCall, Verdict
from scenarios.company.sectors import Sector
from scenarios.headroom import share_of_room
from scenarios.jobs.job import (
    MAX_CALLS,
    Draft,
    Facts,
    NoCaseError,
    Truth,
    Wordings,
    accept,
    build_family,
    combine_by_cost,
    join_words,
    make_job_role,
    make_tool,
    refuse_limits,
)

NAME = "allocation"
NUM_PACKAGES = (2, 3, 3, 4, 4, 5, 5, 6, 6, 7)  # by difficulty 1-10
NUM_PEOPLE = (2, 2, 3, 3, 4, 4, 5, 7, 7, 7)  # contractors included
MOST_TRIED = (3, 4, 5, 6, 7, 8, 8, 9, 9, 9)  # assignments that the search in order of rates looks at
ORDER_FROM, LATE_FROM, CONTRACTOR_FROM, ABSENT_FROM, SITES_FROM = 2, 3, 4, 6, 8  # difficulties
LAST_DAY = 60
MOST_PER_PERSON = 3  # packages that one person takes, a rule of the job
WEIGHTS = {"cost": 0.5}
LATE_SKILLS = ("testing", "training")  # such work always follows other work
OPENINGS: Wordings = (
    "{situation} Plan who does what, and when.",
    "{situation} The project starts on day 1. Assign every package, at the least cost.",
    "{situation} You are asked for the staffing plan of the project.",
    "{situation} These work packages must be done. Who should do them, and from which day?",
    "Staff this project at the least cost. {situation}",
)
WORK: Wordings = ("Packages:", "Work packages:", "The work, package by package:", "To be done:", "Tasks:")
STAFF: Wordings = ("People:", "Who is there:", "Staff and contractors:", "Those who can do it:", "Team:")
HARD: Wordings = (
    "must be finished on day {day}",
    "to be finished by day {day} without fail",
    "hard deadline on day {day}",
    "must not end after day {day}",
    "no later than day {day}",
)
DUE: Wordings = (
    "due on day {day}, {late} k$ a day late",
    "wanted on day {day}, every day late costs {late} k$",
    "{late} k$ for each day after day {day}",
    "should end on day {day}, else {late} k$ a day",
    "each day past day {day} costs {late} k$",
)

RULES = (
    "Every package is done once, by one person with its skill, on consecutive days. A package that starts "
    "on day 4 and takes 3 days fills days 4, 5 and 6 and is finished on day 6. A person works on one "
    "package at a time and takes 3 packages at most, starts on or after the first day on which that person "
    "is free, and never works on a day of absence. A package starts only after the packages that it "
    "follows are finished. Where packages have sites, a person needs one day of travel between two "
    "packages at different sites. A package with a hard deadline is finished on that day or before; one "
    "with another deadline costs the stated amount for every day that it is finished later. The cost of a "
    "plan is, over all packages, the days of work times the day rate of the person, plus the cost of the "
    f"days late. Days begin with 1, and no package starts after day {LAST_DAY}."
)


class Assignment(Answer):
    """Example: Assignment(package="label change", who="Enzo", start=4)"""

    package: str
    who: str
    start: Annotated[int, Field(ge=1, le=LAST_DAY, description="day, from 1")]


class AllocationAnswer(Answer):
    """Example: AllocationAnswer(plan=[Assignment(package="label change", who="Enzo", start=4)])"""

    plan: Annotated[list[Assignment], Field(max_length=20)]


CHECK = make_tool(
    "check", "The finish days and the cost of a plan, and every rule that it breaks.", AllocationAnswer
)
ROLE = make_job_role(
    NAME,
    "COO",
    (
        "You are the COO of a company. You plan a project: who does which work package, and from which day.",
        "The best plan is the one of least cost that keeps all rules; of equal cost the one whose start days "
        "add up to least. If no plan keeps all rules, answer with an empty plan.",
        f"Rules. {RULES}",
        "Tool: check(plan) tells when every package of a plan is finished, what the plan costs and which "
        f"rules it breaks. You may call it {MAX_CALLS} times.",
        "End with one JSON object with exactly this key: plan (a list with one entry for every package, in "
        "any order; each entry has the keys package, who and start, a day). Nothing may follow it. Example "
        'of an answer in another case: {"plan": [{"package": "paint hall", "who": "Ada", "start": 3}]}',
    ),
    AllocationAnswer,
    (CHECK,),
    "O",
)


Starts = dict[str, int]  # package -> day
Doers = tuple[str, ...]  # of the packages in their order
BestStarts = tuple[int, Starts, bool]  # cost of days late, starts, whether another order is as good


def draw(rng: random.Random, sector: Sector, difficulty: int) -> Draft:
    """A candidate without deadlines: packages in the sector's own order of work, people, contractors."""
    places = sorted(rng.sample(range(len(sector.packages)), NUM_PACKAGES[difficulty - 1]))
    packages: dict[str, dict[str, Any]] = {}
    names = [list(sector.packages)[place] for place in places]
    for place, name in enumerate(names):
        package: dict[str, Any] = {"skill": sector.packages[name], "days": rng.randint(1, 6), "after": []}
        follows = rng.random() < 0.5 or package["skill"] in LATE_SKILLS
        if difficulty >= ORDER_FROM and place and follows:
            package["after"] = [names[rng.randrange(max(0, place - 2), place)]]
        if difficulty >= SITES_FROM:
            package["site"] = rng.choice(("north", "south"))
        packages[name] = package
    people: dict[str, dict[str, Any]] = {}
    num = NUM_PEOPLE[difficulty - 1]
    num_contractors = 0 if difficulty < CONTRACTOR_FROM else max(1, num - len(sector.people))
    needed = sorted({package["skill"] for package in packages.values()})
    for name in rng.sample(sector.people, num - num_contractors):
        skills = [skill for skill in needed if rng.random() < (0.7 if difficulty < 4 else 0.5)] or [
            rng.choice(needed)
        ]
        people[name] = {"skills": skills, "rate": rng.randint(1, 5), "from": rng.choice((1, 1, 1, 2, 3, 4))}
        if difficulty >= ABSENT_FROM and rng.random() < 0.5:
            first = max(rng.randint(3, 9), people[name]["from"] + 1)
            people[name]["absent"] = [first, first + rng.randint(0, 3)]
    for name in rng.sample(("Atlas agency", "Beacon agency"), num_contractors):
        people[name] = {"skills": needed, "rate": rng.randint(5, 8), "from": rng.choice((1, 1, 2))}
    return {"packages": packages, "people": people}


def list_assignments(facts: Facts) -> Iterator[tuple[int, Doers]]:
    """(cost of rates, who does each package), cheapest first."""
    for cost, doers in combine_by_cost([list_able(facts, package) for package in facts["packages"].values()]):
        if max(map(doers.count, doers)) <= MOST_PER_PERSON:
            yield cost, doers


def list_able(facts: Facts, package: Mapping[str, Any]) -> list[tuple[int, str]]:
    """(cost, person) of everybody with the skill of a package, cheapest first."""
    return sorted(
        (person["rate"] * package["days"], name)
        for name, person in facts["people"].items()
        if package["skill"] in person["skills"]
    )


def find_best_starts(facts: Facts, doers: Doers) -> BestStarts | None:
    """The best order per person; None where a hard deadline is missed."""
    packages = facts["packages"]
    work: dict[str, list[str]] = {}
    for name, who in zip(packages, doers, strict=True):
        work.setdefault(who, []).append(name)
    found = [
        (late, sum(starts.values()), starts)
        for orders in itertools.product(*(list_orders(facts, names) for names in work.values()))
        if (starts := start_early(facts, dict(zip(work, orders, strict=True)))) is not None
        and (late := find_lateness(facts, starts)) is not None
    ]
    if not found:
        return None
    late, total, starts = min(found, key=itemgetter(0, 1))
    return late, starts, [best[:2] for best in found].count((late, total)) > 1


def list_orders(facts: Facts, names: list[str]) -> list[tuple[str, ...]]:
    """The orders of one person's packages in which each comes after those that it directly follows."""
    pairs = [(other, name) for name in names for other in facts["packages"][name]["after"] if other in names]
    orders = itertools.permutations(names)
    return [order for order in orders if all(order.index(a) < order.index(b) for a, b in pairs)]


def start_early(facts: Facts, orders: Mapping[str, tuple[str, ...]]) -> Starts | None:
    """The earliest starts when every person works in this order; None where the orders wait in a circle."""
    packages = facts["packages"]
    doer = {name: who for who, names in orders.items() for name in names}
    before = {
        name: names[place - 1] for names in orders.values() for place, name in enumerate(names) if place
    }
    starts: Starts = {}
    waiting = list(packages)
    while waiting:
        ready = [
            name
            for name in waiting
            if all(other in starts for other in packages[name]["after"])
            and (name not in before or before[name] in starts)
        ]
        if not ready:
            return None
        for name in ready:
            starts[name] = find_start(facts, name, doer[name], starts, before.get(name))
            waiting.remove(name)
    return starts


def find_start(facts: Facts, name: str, who: str, starts: Starts, previous: str | None) -> int:
    """The first day on which a person can start a package after the `previous` one of this person."""
    packages, person = facts["packages"], facts["people"][who]
    package = packages[name]
    days = [person["from"], *(starts[other] + packages[other]["days"] for other in package["after"])]
    if previous is not None:
        travel = int(packages[previous].get("site") != package.get("site"))
        days.append(starts[previous] + packages[previous]["days"] + travel)
    return skip_absence(person, max(days), package["days"])


def skip_absence(person: Mapping[str, Any], day: int, days: int) -> int:
    """The first start, on `day` or later, of work of `days` days that avoids the person's absence."""
    if "absent" in person:
        first, last = person["absent"]
        if day <= last and day + days - 1 >= first:
            return int(last) + 1
    return day


def find_lateness(facts: Facts, starts: Mapping[str, int]) -> int | None:
    """Cost of the days late; None where a hard deadline is missed."""
    cost = 0
    for name, package in facts["packages"].items():
        if "deadline" in package:
            days = starts[name] + package["days"] - 1 - package["deadline"]
            if days > 0:
                if package["late"] is None:
                    return None
                cost += days * package["late"]
    return cost


def search(facts: Facts, most: int) -> tuple[list[tuple[int, Doers, BestStarts | None]], int | None]:
    """The assignments that the search looks at, and the place of the best one (None: none keeps).

    It stops where the rates alone cost more than the best plan so far.

    Raises:
        NoCaseError: two best plans, or more than `most` assignments to look at.
    """
    tried: list[tuple[int, Doers, BestStarts | None]] = []
    best: tuple[int, int, int, bool] | None = None
    for rates, doers in list_assignments(facts):
        if best is not None and rates > best[0]:
            break
        found = find_best_starts(facts, doers)
        tried.append((rates, doers, found))
        if found is not None:
            key = (rates + found[0], sum(found[1].values()), len(tried) - 1, found[2])
            if best is not None and key[:2] == best[:2]:
                raise NoCaseError  # two best plans
            best = key if best is None else min(best, key)
        if len(tried) > most:
            raise NoCaseError
    if best is not None and best[3]:
        raise NoCaseError  # two best orders of work
    return tried, None if best is None else best[2]


def settle(facts: Draft, difficulty: int, escalates: bool, rng: random.Random) -> tuple[Truth, int]:
    """Set deadlines so that the search looks at some assignments, and find the best plan.

    Raises:
        NoCaseError: no plan, two best plans, or a search that is too short or too long.
    """
    packages = facts["packages"]
    for package in packages.values():
        package.pop("deadline", None)
        package.pop("late", None)
    cheapest = next(list_assignments(facts), None)
    if cheapest is None:
        raise NoCaseError
    free = find_best_starts(facts, cheapest[1])
    assert free is not None  # without deadlines every plan holds
    names = rng.sample(list(packages), max(1, len(packages) * rng.randint(4, 8) // 10))
    for name in names:
        finish = free[1][name] + packages[name]["days"] - 1
        is_hard = difficulty < LATE_FROM or rng.random() < 0.5
        packages[name]["deadline"] = max(packages[name]["days"], finish + rng.randint(-3, 1))
        packages[name]["late"] = None if is_hard else rng.randint(1, 4)
    if escalates:
        name = rng.choice(list(packages))
        earliest = find_earliest_finish(facts)[name]
        if earliest <= packages[name]["days"]:
            raise NoCaseError
        packages[name] |= {"deadline": earliest - rng.randint(1, 2), "late": None}
        packages[name]["deadline"] = max(packages[name]["days"], packages[name]["deadline"])
        return {"plan": [], "cost": 0, "starts": 0, "blind": 0}, 0
    tried, best = search(facts, MOST_TRIED[difficulty - 1])
    if best is None:
        raise NoCaseError
    rates, doers, found = tried[best]
    assert found is not None
    plan = write_plan(facts, doers, found[1])
    dearest = sum(list_able(facts, package)[-1][0] for package in packages.values())
    cost = rates + found[0]
    truth = {"plan": plan, "cost": cost, "starts": sum(found[1].values()), "blind": max(dearest, cost + 1)}
    return truth, len(tried)


def find_earliest_finish(facts: Facts) -> dict[str, int]:
    """The first day on which each package can be finished at all: the quickest person, nobody else's work."""
    finish: dict[str, int] = {}
    for name, package in facts["packages"].items():
        after = max((finish[other] + 1 for other in package["after"]), default=1)
        days = package["days"]
        able = [person for person in facts["people"].values() if package["skill"] in person["skills"]]
        finish[name] = min(skip_absence(p, max(after, p["from"]), days) + days - 1 for p in able)
    return finish


def write_plan(facts: Facts, doers: Doers, starts: Mapping[str, int]) -> list[dict[str, Any]]:
    """The plan as it stands in an answer, in the order of the packages."""
    return [
        {"package": name, "who": who, "start": starts[name]}
        for name, who in zip(facts["packages"], doers, strict=True)
    ]


def write_brief(facts: Facts) -> str:
    """Every figure of the case."""
    wording = facts["wording"]
    lines = [OPENINGS[wording].format(**facts), WORK[wording]]
    for name, package in facts["packages"].items():
        said = [f"{name}: {package['skill']}, {package['days']} day{'s' * (package['days'] != 1)}"]
        if "site" in package:
            said.append(f"at the {package['site']} site")
        said += [f"after {other}" for other in package["after"]]
        if "deadline" in package:
            day, late = package["deadline"], package["late"]
            said.append((HARD if late is None else DUE)[wording].format(day=day, late=late))
        lines.append(", ".join(said))
    lines.append(STAFF[wording])
    for name, person in facts["people"].items():
        said = [f"{name}: {join_words(person['skills'])}", f"{person['rate']} k$ a day"]
        said.append(f"free from day {person['from']}")
        if "absent" in person:
            first, last = person["absent"]
            said.append(f"absent on day {first}" if first == last else f"absent from day {first} to {last}")
        lines.append(", ".join(said))
    return "\n".join(lines)


def judge_plan(facts: Facts, plan: list[dict[str, Any]]) -> tuple[dict[str, bool], int, list[str]]:
    """Which rules a plan of known packages and people keeps, its cost, and what it breaks in words."""
    packages, people = facts["packages"], facts["people"]
    kept = dict.fromkeys(("packages", "skills", "capacity", "order", "deadlines"), True)
    said: list[str] = []

    def break_rule(rule: str, text: str) -> None:
        kept[rule] = False
        said.append(text)

    names = [entry["package"] for entry in plan]
    for name in packages:
        if names.count(name) != 1:
            break_rule("packages", f"{name} is planned {names.count(name)} times")
    finish: dict[str, int] = {}  # a package that is planned twice ends on the later day
    for entry in plan:
        day = entry["start"] + packages[entry["package"]]["days"] - 1
        finish[entry["package"]] = max(day, finish.get(entry["package"], day))
    cost = 0
    for entry in plan:
        name, who, start = entry["package"], entry["who"], entry["start"]
        package, person = packages[name], people[who]
        cost += package["days"] * person["rate"]
        if package["skill"] not in person["skills"]:
            break_rule("skills", f"{who} lacks {package['skill']} for {name}")
        if start < person["from"]:
            break_rule("capacity", f"{who} is free from day {person['from']} only")
        if skip_absence(person, start, package["days"]) != start:
            break_rule("capacity", f"{who} is absent during {name}")
        for other in package["after"]:
            if other in finish and start <= finish[other]:
                break_rule("order", f"{name} starts before {other} is finished")
        if "deadline" in package and finish[name] > package["deadline"]:
            if package["late"] is None:
                break_rule(
                    "deadlines",
                    f"{name} is finished on day {finish[name]}, hard deadline {package['deadline']}",
                )
            else:
                cost += (finish[name] - package["deadline"]) * package["late"]
    doers = [entry["who"] for entry in plan]
    for who in dict.fromkeys(doers):
        if doers.count(who) > MOST_PER_PERSON:
            break_rule("capacity", f"{who} has {doers.count(who)} packages, at most {MOST_PER_PERSON}")
    for one, other in itertools.combinations(plan, 2):
        if one["who"] == other["who"]:
            first, second = sorted((one, other), key=lambda entry: entry["start"])
            sites = {packages[entry["package"]].get("site") for entry in (first, second)}
            if second["start"] <= finish[first["package"]] + len(sites) - 1:
                break_rule(
                    "capacity", f"{one['who']} cannot do {second['package']} so soon after {first['package']}"
                )
    return kept, cost, said


def find_mistake(facts: Facts, stated: AllocationAnswer) -> str:
    """A package or person that there is not; "" for none."""
    for entry in stated.plan:
        if entry.package not in facts["packages"]:
            return f"no package {entry.package[:40]!r}"
        if entry.who not in facts["people"]:
            return f"nobody is called {entry.who[:40]!r}"
    return ""


def judge(facts: Facts, truth: Truth, answer: AllocationAnswer) -> Verdict:
    """Reward 0.1 rules + 0.5 cost between the dearest people's (0) and the least (1) + 0.4 exact.

    A plan that breaks rules gets 0.1 times the share of rules kept.
    """
    plan = [entry.model_dump() for entry in answer.plan]
    kept, cost, said = judge_plan(facts, plan)
    if said:
        return refuse_limits(kept, "; ".join(said)[:300])
    room = share_of_room(-cost, -truth["cost"], (-truth["blind"], 1))
    starts = sum(entry["start"] for entry in plan)
    exact = (cost, starts) == (truth["cost"], truth["starts"])
    return accept(
        kept, {"cost": room}, WEIGHTS, exact, f"cost {cost} (least {truth['cost']}), starts {starts}"
    )


def check_plan(facts: Facts, stated: AllocationAnswer) -> str:
    """The tool check(plan)."""
    plan = [entry.model_dump() for entry in stated.plan]
    _, cost, said = judge_plan(facts, plan)
    days = facts["packages"]
    finished = [
        f"{entry['package']} day {entry['start'] + days[entry['package']]['days'] - 1}" for entry in plan
    ]
    return f"finished: {', '.join(finished) or 'nothing'}; cost {cost}; " + (
        f"broken: {'; '.join(said)}" if said else "all rules kept"
    )


def demonstrate(scenario: Scenario) -> tuple[list[Step], str]:
    """Assignments in order of their rates, each checked with its best starts, until rates exceed the best."""
    facts = scenario.facts
    if not scenario.truth["plan"]:
        return [], _write_hopeless(facts)
    tried, best = search(facts, max(MOST_TRIED))
    steps: list[Step] = []
    text = f"{_write_able(facts)}\nIn order of the rates alone: "
    least: int | None = None
    for place, (rates, doers, found) in enumerate(tried):
        who = join_words([f"{name} by {doer}" for name, doer in zip(facts["packages"], doers, strict=True)])
        starts = found[1] if found else _start_anyhow(facts, doers)
        call = ToolCall(name="check", arguments={"plan": write_plan(facts, doers, starts)})
        steps.append(Step(text=f"{text}{who}, rates {rates}, each as early as it can.", call=call))
        if found is None:
            text = "No order of the work meets the hard deadlines with these people. Next: "
            continue
        cost = rates + found[0]
        if least is None or cost < least or place == best:
            least, text = cost, f"{cost} in all, the best so far. Next: "
        else:
            text = f"{cost} in all, not better than {least}. Next: "
    end = f"{text.removesuffix('Next: ')}All other assignments cost more than {least} in rates alone."
    return steps, end


def _write_hopeless(facts: Facts) -> str:
    """The package that nobody can finish by its hard deadline, and why."""
    for name, earliest in find_earliest_finish(facts).items():
        package = facts["packages"][name]
        if package.get("late", 0) is None and earliest > package["deadline"]:
            return (
                f"{name} takes {package['days']} days and must be finished on day {package['deadline']}. "
                f"Even with nothing else to do, whoever has the skill {package['skill']} finishes it on day "
                f"{earliest} at the earliest. No plan keeps the rules."
            )
    raise AssertionError("a case without a plan names a package that cannot be finished")


def _write_able(facts: Facts) -> str:
    """Per package everybody with its skill and the cost, cheapest first."""
    lines = []
    for name, package in facts["packages"].items():
        lines.append(f"{name}: " + ", ".join(f"{who} {cost}" for cost, who in list_able(facts, package)))
    return "\n".join(lines)


def _start_anyhow(facts: Facts, doers: Doers) -> Starts:
    """Earliest starts in the order of the packages, hard deadlines left out of account."""
    orders: dict[str, tuple[str, ...]] = {}
    for name, who in zip(facts["packages"], doers, strict=True):
        orders[who] = (*orders.get(who, ()), name)
    starts = start_early(facts, orders)
    assert starts is not None  # the order of the packages has no circle
    return starts


def follow_rule(facts: Facts) -> dict[str, Any]:
    """Package by package the cheapest person who meets the deadline, as early as that person is free."""
    packages, people = facts["packages"], facts["people"]
    starts: Starts = {}
    busy: dict[str, str] = {}
    plan: list[dict[str, Any]] = []
    for name, package in packages.items():
        options = []
        doers = [entry["who"] for entry in plan]
        for who, person in people.items():
            if package["skill"] not in person["skills"] or doers.count(who) == MOST_PER_PERSON:
                continue
            day = find_start(facts, name, who, starts, busy.get(who))
            is_late = "deadline" in package and day + package["days"] - 1 > package["deadline"]
            options.append((is_late, person["rate"], day, who))
        if not options:
            return {"plan": []}
        _, _, day, who = min(options)
        starts[name], busy[who] = day, name
        plan.append({"package": name, "who": who, "start": day})
    return {"plan": plan}


def answer_randomly(facts: Facts, rng: random.Random) -> dict[str, Any]:
    """Somebody with the skill, one package after the other."""
    day, plan = 1, []
    for name, package in facts["packages"].items():
        able = [who for who, p in facts["people"].items() if package["skill"] in p["skills"]]
        plan.append({"package": name, "who": rng.choice(able), "start": day + rng.randint(0, 1)})
        day = min(LAST_DAY - 1, day + rng.randint(0, package["days"]))
    return {"plan": plan}


FAMILY = build_family(
    ROLE,
    AllocationAnswer,
    draw=draw,
    settle=settle,
    write_brief=write_brief,
    find_mistake=find_mistake,
    judge=judge,
    claim=lambda truth: 1000 * truth["cost"] + truth["starts"],
    observe=check_plan,
    demonstrate=demonstrate,
    follow_rule=follow_rule,
    answer_randomly=answer_randomly,
    constant={"plan": []},
    escalates_by={"plan": []},
)
