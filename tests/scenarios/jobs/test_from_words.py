"""Solvers that read the text of a case alone, and import nothing of the oracles, find the same answers.

`threats`, `bill` and `tradeoff` are certified from their words; the other two are solved here.
"""

import itertools
import re
from fractions import Fraction
from typing import Any

import pytest

from scenarios.base import Scenario
from scenarios.tasks.registry import JOBS, TASK_FAMILIES


def solve_architecture(brief: str) -> dict[str, Any]:
    loads, parts, designs = [], {}, {}
    target, latency, budget = Fraction(0), 0, 0
    for line in brief.split("\n"):
        stated = {unit: number for number, unit in re.findall(r"([\d.]+) (requests|%|ms|k\$)", line)}
        if found := re.match(r"([A-E]) \(.*?\): (.+)", line):
            designs[found[1]] = [step.split(" or ") for step in found[2].split(", then ")]
        elif "k$" in stated and "requests" in stated:
            capacity, price = int(stated["requests"]), int(stated["k$"])
            parts[line.split(":")[0]] = (capacity, Fraction(stated["%"]) / 100, int(stated["ms"]), price)
        elif "k$" in stated:
            target, latency, budget = Fraction(stated["%"]) / 100, int(stated["ms"]), int(stated["k$"])
        elif "requests" in stated:
            loads.append((int(stated["requests"]), int(stated.get("%", 0))))
    best: tuple[int, str, dict[str, int]] | None = None
    for letter, steps in designs.items():
        names = [name for step in steps for name in step]
        if sum(parts[step[0]][2] for step in steps) > latency:
            continue
        for counts in itertools.product((1, 2, 3), repeat=len(names)):
            plan = dict(zip(names, counts, strict=True))
            cost = sum(parts[name][3] * count for name, count in plan.items())
            if cost > budget or (best is not None and cost >= best[0]):
                continue
            carries = True
            for requests, cached in loads:
                reaching = Fraction(requests)
                for step in steps:
                    carries &= all(parts[name][0] * plan[name] >= reaching // 1 for name in step)
                    reaching = (
                        Fraction(requests * (100 - cached), 100) if step == ["cache"] else Fraction(requests)
                    )
            up = Fraction(1)
            for step in steps:
                down = Fraction(1)
                for name in step:
                    down *= (1 - parts[name][1]) ** plan[name]
                up *= 1 - down
            if carries and up >= target:
                best = (cost, letter, plan)
    if best is None:
        return {"design": "none", "instances": {}}
    return {"design": best[1], "instances": best[2]}


def solve_allocation(brief: str) -> dict[str, Any]:
    packages: dict[str, dict[str, Any]] = {}
    people: dict[str, dict[str, Any]] = {}
    for line in brief.split("\n"):
        if found := re.match(r"([^:]+): (\w+), (\d+) days?\b(.*)", line):
            name, skill, days, said = found.groups()
            bound = re.search(r"day (\d+)", said)
            fine = re.search(r"(\d+) k\$", said)
            packages[name] = {
                "skill": skill,
                "days": int(days),
                "after": re.findall(r", after ([^,]+)", said),
                "site": re.search(r"at the (\w+) site", said),
                "due": int(bound[1]) if bound and fine else None,
                "late": int(fine[1]) if fine else 0,
                "hard": int(bound[1]) if bound and not fine else None,
            }
            packages[name]["site"] = packages[name]["site"] and packages[name]["site"][1]
        elif found := re.match(r"(.+): (.+), (\d+) k\$ a day, free from day (\d+)(.*)", line):
            name, said = found[1], found[5]
            away = re.search(r"absent (?:on day (\d+)|from day (\d+) to (\d+))", said)
            absent = set()
            if away:
                first = int(away[1] or away[2])
                absent = set(range(first, int(away[1] or away[3]) + 1))
            skills = re.split(r", | and ", found[2])
            people[name] = {"skills": skills, "rate": int(found[3]), "from": int(found[4]), "absent": absent}
    best: tuple[tuple[int, int], list[dict[str, Any]]] | None = None
    able = [[who for who, p in people.items() if packages[name]["skill"] in p["skills"]] for name in packages]
    for order in itertools.permutations(packages):
        if any(order.index(a) > order.index(name) for name in order for a in packages[name]["after"]):
            continue
        for doers in itertools.product(*able):
            who_of = dict(zip(packages, doers, strict=True))
            if max(doers.count(who) for who in doers) > 3:
                continue
            starts: dict[str, int] = {}
            last: dict[str, str] = {}
            cost = 0
            for name in order:
                package, who = packages[name], who_of[name]
                day = max([people[who]["from"], *(starts[a] + packages[a]["days"] for a in package["after"])])
                if who in last:
                    travel = packages[last[who]]["site"] != package["site"]
                    day = max(day, starts[last[who]] + packages[last[who]]["days"] + travel)
                while people[who]["absent"] & set(range(day, day + package["days"])):
                    day += 1
                starts[name], last[who] = day, name
                finish = day + package["days"] - 1
                if package["hard"] is not None and finish > package["hard"]:
                    break
                late = max(0, finish - package["due"]) if package["due"] is not None else 0
                cost += package["days"] * people[who]["rate"] + late * package["late"]
            else:
                key = (cost, sum(starts.values()))
                if best is None or key < best[0]:
                    plan = [{"package": n, "who": who_of[n], "start": starts[n]} for n in packages]
                    best = (key, plan)
    return {"plan": [] if best is None else best[1]}


READERS = {"architecture": solve_architecture, "allocation": solve_allocation}


def _compare(name: str, case: Scenario) -> None:
    family = TASK_FAMILIES[name]
    if name in READERS:
        assert READERS[name](case.brief) == family.solve(case), case.key
    else:
        value, second = family.certify(case)
        assert value == second, case.key


@pytest.mark.parametrize("name", JOBS)
def test_text_alone_gives_the_oracles_answer(name: str) -> None:
    for index in range(20):
        _compare(name, TASK_FAMILIES[name].generate("validation", 11, index, 1 + index % 5))
    for index in range(5):  # the wording that no other split has
        _compare(name, TASK_FAMILIES[name].generate("test-new-sectors", 11, index, 1 + index))


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
def test_text_alone_gives_the_oracles_answer_in_a_thousand_cases(name: str) -> None:
    most = 5 if name == "allocation" else 8 if name == "architecture" else 10  # what brute force can do
    for index in range(1000):
        _compare(name, TASK_FAMILIES[name].generate("validation", 12, index, 1 + index % most))
