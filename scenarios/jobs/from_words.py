"""Solvers that read the text of a whole job alone, and import nothing of the oracles: the second method.

Each returns the answer, and the number that the oracle states of it (least cost, severity left, ...), by
brute force. They certify the oracles and score answers in the audit; one with a rule misread must fail.
"""

import itertools
import re
import zlib
from collections.abc import Callable, Collection
from fractions import Fraction
from math import prod
from typing import Any

Answer = dict[str, Any]
Solved = tuple[Answer, float]
MISREAD = {  # family -> the rule that is misread
    "architecture": "the first of 'X or Y' alone counts for availability",
    "allocation": "a day of absence is worked",
    "threats": "incidents add nothing to the likelihood",
    "bill": "a commitment bills no more than the units used",
    "tradeoff": "a seat with weight 2 counts once",
}


def solve_architecture(brief: str, misread: bool = False) -> Solved:
    loads, parts, designs = [], {}, {}
    target, latency, budget = Fraction(0), 0, 0
    for line in brief.split("\n"):
        stated = {unit: number for number, unit in re.findall(r"([\d.]+) (requests|%|ms|k\$)", line)}
        if found := re.match(r"([A-E]) \(.*?\): (.+)", line):
            designs[found[1]] = [step.split(" or ") for step in found[2].split(", then ")]
        elif "k$" in stated and "requests" in stated:
            capacity, price = int(stated["requests"]), int(stated["k$"])
            parts[line.split(":")[0]] = (capacity, Fraction(stated["%"]) / 100, int(stated["ms"]), price)
        elif "k$" in stated and "%" in stated:
            target, latency, budget = Fraction(stated["%"]) / 100, int(stated["ms"]), int(stated["k$"])
        elif "requests" in stated:
            loads.append((int(stated["requests"]), int(stated.get("%", 0))))
    best: tuple[int, str, dict[str, int]] | None = None
    for letter, steps in designs.items():
        if sum(parts[step[0]][2] for step in steps) > latency:
            continue
        least: dict[str, int] = {}  # instances that carry every load
        for requests, cached in loads:
            reaching = requests
            for step in steps:
                for name in step:
                    least[name] = max(least.get(name, 1), -(-reaching // parts[name][0]))
                reaching = requests * (100 - cached) // 100 if step == ["cache"] else requests
        names = [name for step in steps for name in step]
        for counts in itertools.product(*(range(least[name], 4) for name in names)):
            plan = dict(zip(names, counts, strict=True))
            cost = sum(parts[name][3] * count for name, count in plan.items())
            if cost > budget or (best is not None and cost >= best[0]):
                continue
            downs = [
                prod((1 - parts[name][1]) ** plan[name] for name in (step[:1] if misread else step))
                for step in steps
            ]
            if prod(1 - down for down in downs) >= target:
                best = (cost, letter, plan)
    if best is None:
        return {"design": "none", "instances": {}}, 0
    return {"design": best[1], "instances": best[2]}, best[0]


def solve_allocation(brief: str, misread: bool = False) -> Solved:
    packages: dict[str, dict[str, Any]] = {}
    people: dict[str, dict[str, Any]] = {}
    for line in brief.split("\n"):
        if found := re.match(r"([^:]+): (\w+), (\d+) days?\b(.*)", line):
            name, skill, days, said = found.groups()
            bound, fine = re.search(r"day (\d+)", said), re.search(r"(\d+) k\$", said)
            site = re.search(r"at the (\w+) site", said)
            packages[name] = {
                "skill": skill,
                "days": int(days),
                "after": re.findall(r", after ([^,]+)", said),
                "site": site and site[1],
                "due": int(bound[1]) if bound else 10**6,
                "late": (int(fine[1]) if fine else None) if bound else 0,
            }
        elif found := re.match(r"(.+): (.+), (\d+) k\$ a day, free from day (\d+)(.*)", line):
            away = [int(day) for day in re.findall(r"\d+", found[5])]
            people[found[1]] = {
                "skills": re.split(r", | and ", found[2]),
                "rate": int(found[3]),
                "from": int(found[4]),
                "absent": set(range(away[0], away[-1] + 1)) if away and not misread else set(),
            }
    able = {n: [w for w, p in people.items() if one["skill"] in p["skills"]] for n, one in packages.items()}
    least = {n: one["days"] * min(people[w]["rate"] for w in able[n]) for n, one in packages.items()}
    best: list[Any] = [(10**6, 0), []]
    seen: set[frozenset[tuple[str, str, int]]] = set()

    def go_on(done: dict[str, tuple[str, int]], cost: int) -> None:
        key = frozenset((name, who, start) for name, (who, start) in done.items())
        if key in seen or cost + sum(least[name] for name in packages if name not in done) > best[0][0]:
            return
        seen.add(key)
        if len(done) == len(packages):
            value = (cost, sum(start for _, start in done.values()))
            if value < best[0]:
                plan = [{"package": n, "who": done[n][0], "start": done[n][1]} for n in packages]
                best[:] = [value, plan]
            return
        for name, package in packages.items():
            if name in done or any(other not in done for other in package["after"]):
                continue
            for who in able[name]:
                held = [other for other in done if done[other][0] == who]
                if len(held) == 3:
                    continue
                day = max(people[who]["from"], 1)
                for other in package["after"]:
                    day = max(day, done[other][1] + packages[other]["days"])
                for other in held:
                    travel = packages[other]["site"] != package["site"]
                    day = max(day, done[other][1] + packages[other]["days"] + travel)
                while people[who]["absent"] & set(range(day, day + package["days"])):
                    day += 1
                over = max(0, day + package["days"] - 1 - package["due"])
                if over and package["late"] is None:
                    continue
                more = package["days"] * people[who]["rate"] + over * (package["late"] or 0)
                go_on({**done, name: (who, day)}, cost + more)

    go_on({}, 0)
    (cost, starts), plan = best
    return {"plan": plan}, 1000 * cost + starts if plan else 0


def solve_threats(brief: str, misread: bool = False) -> Solved:
    assets: dict[str, list[str]] = {}
    threats: dict[str, list[str]] = {}
    controls: dict[str, tuple[int, dict[str, int]]] = {}
    spreading, links, covers = set(), [], ("", "")
    budget = appetite = 0
    for line in brief.split("\n")[1:]:
        name, _, said = line.partition(": ")
        if found := re.fullmatch(r"(.+) and (.+) are connected\.", line):
            links += [(found[1], found[2]), (found[2], found[1])]
        elif found := re.fullmatch(r"(.+) covers (.+)\.", line):
            covers = (found[1], found[2])
        elif said.startswith("worth "):
            assets[name] = said.split(", ")
        elif found := re.match(r"(\d+) k\$; (.*)", said):
            steps = (one.rsplit(" ", 1) for one in found[2].split(", "))
            controls[name] = (int(found[1]), {threat: int(number) for threat, number in steps})
        elif found := re.search(r"(\d+) k\$", line):
            budget = int(found[1])
            appetite = int(re.findall(r"\d+", line.replace(found[0], ""))[0])
        elif said and not line.endswith(":"):
            name = name.removesuffix(" (spreads)")
            threats[name] = said.split(", ")
            if "(spreads)" in line:
                spreading.add(name)

    def holds(asset: list[str], condition: str) -> bool:
        if condition.startswith("last patch more than"):
            ages = [int(re.findall(r"\d+", said)[0]) for said in asset if said.startswith("last patch")]
            return ages[0] > int(re.findall(r"\d+", condition)[0])
        return condition in asset

    risks: dict[tuple[str, str], tuple[int, int]] = {}
    for threat, conditions in threats.items():
        hit = {name for name, said in assets.items() if all(holds(said, one) for one in conditions)}
        passed = {b for a, b in links if a in hit and b not in hit} if threat in spreading else set()
        for name in hit | passed:
            facts = assets[name]
            value = int(re.findall(r"\d+", facts[0])[0])
            incidents = 0 if misread or facts[-1].startswith("no ") else 1
            likelihood = 1 + ("reached from the internet" in facts) + incidents if name in hit else 1
            risks[threat, name] = (likelihood, sum(value >= bound for bound in (50, 200, 500, 1000)))
    found_sets = []
    for size in range(len(controls) + 1):
        for chosen in itertools.combinations(controls, size):
            cost = sum(controls[name][0] for name in chosen)
            lowered = [n for n in chosen if not (n == covers[1] and covers[0] in chosen)]
            left = [
                max(0, likely - sum(controls[name][1].get(threat, 0) for name in lowered)) * impact
                for (threat, _), (likely, impact) in risks.items()
            ]
            if cost <= budget and max(left, default=0) <= appetite:
                found_sets.append((sum(left), cost, chosen))
    named = [{"threat": t, "asset": a, "severity": x * y} for (t, a), (x, y) in risks.items()]
    if not found_sets:
        return {"risks": named, "controls": [], "escalate": True}, -1
    remaining, cost, bought = min(found_sets)
    return {"risks": named, "controls": list(bought), "escalate": False}, 1000 * remaining + cost


def solve_bill(brief: str, misread: bool = False) -> Solved:
    services: dict[str, dict[str, Any]] = {}
    rebates: dict[str, tuple[int, int]] = {}
    average = budget = 0
    name = ""
    for line in brief.split("\n")[1:]:
        numbers = [int(number) for number in re.findall(r"\d+", line)]
        prices = [int(number) for number in re.findall(r"(\d+) k\$", line)]
        if "; " in line:
            name, _, rest = line.partition(": ")
            needs, quality, *more = rest.split("; ")
            weight = int(re.findall(r"weight (\d+)", quality)[0])
            floors = [int(number) for number in re.findall(r"\d+", re.sub(r"weight \d+", "", quality))]
            service: dict[str, Any] = {"units": [int(n) for n in re.findall(r"\d+", needs)], "tiers": {}}
            service |= {"floor": floors[0], "weight": weight, "commit": None, "step": None, "now": None}
            for said in more:
                figures = [int(number) for number in re.findall(r"\d+", said)]
                if said.startswith("commitment"):
                    service["commit"] = figures
                elif said.startswith("units beyond"):
                    service["step"] = figures
                else:
                    service["now"] = (said.split()[1].rstrip(","), figures[0])
            services[name] = service
        elif line.startswith("- "):
            vendor = line.partition(", from ")[2]
            tier = line[2:].partition(":")[0]
            quality_of = [number for number in numbers if number != prices[0]] or [prices[0]]
            services[name]["tiers"][tier] = (prices[0], quality_of[0], vendor)
        elif found := re.search(r"(?:at least|[Ww]ith) (\d+) k\$", line):
            offered = [one for service in services.values() for *_, one in service["tiers"].values() if one]
            prices.remove(int(found[1]))
            for vendor in offered:  # of a vendor that no service offers, there is nothing to get
                if vendor in line:
                    rebates[vendor] = (int(found[1]), prices[0])
        elif prices:
            budget = prices[0]
            average = int(re.findall(r"\d+", line.replace(f"{budget} k$", ""))[0])
    choices = []
    for service in services.values():
        offers = []
        for tier, (price, quality, vendor) in service["tiers"].items():
            for committed in (False, True) if service["commit"] else (False,):
                fee = service["now"][1] if service["now"] and service["now"][0] != tier else 0
                spends = []
                for units in service["units"]:
                    minimum, less = service["commit"] if committed else (0, 0)
                    billed = units if misread else max(units, minimum)
                    beyond, off = service["step"] or (billed, 0)
                    spends.append(
                        billed * price - min(billed, minimum) * less - max(0, billed - beyond) * off
                    )
                if quality >= service["floor"]:
                    offers.append((tier, committed, spends, fee, quality * service["weight"], vendor))
        choices.append(offers)
    wanted = average * sum(service["weight"] for service in services.values())
    most = len(next(iter(services.values()))["units"]) * sum(off for _, off in rebates.values())
    least = [0] * (len(choices) + 1)  # the least that the services from here on cost
    reach = [0] * (len(choices) + 1)  # the most quality that they can have
    for place in reversed(range(len(choices))):
        least[place] = least[place + 1] + min((sum(o[2]) + o[3] for o in choices[place]), default=10**6)
        reach[place] = reach[place + 1] + max((o[4] for o in choices[place]), default=0)
    best: list[Any] = [budget + 1, None]

    def go_on(picked: list[Any], cost: int, quality: int) -> None:
        place = len(picked)
        if cost + least[place] - most >= best[0] or quality + reach[place] < wanted:
            return
        if place == len(choices):
            back = 0
            for vendor, (bound, off) in rebates.items():
                for year in range(len(picked[0][2])):
                    back += off * (sum(o[2][year] for o in picked if o[5] == vendor) >= bound)
            if cost - back < best[0]:
                best[:] = [cost - back, list(picked)]
            return
        for offer in choices[place]:
            go_on([*picked, offer], cost + sum(offer[2]) + offer[3], quality + offer[4])

    go_on([], 0, 0)
    if best[1] is None:
        return {"tiers": {}, "commit": []}, -1
    named = list(zip(services, best[1], strict=True))
    return {"tiers": {n: o[0] for n, o in named}, "commit": [n for n, o in named if o[1]]}, best[0]


def solve_tradeoff(brief: str, misread: bool = False) -> Solved:
    costs: dict[str, int] = {}
    extras: dict[str, tuple[int, dict[str, int]]] = {}
    seats: dict[str, dict[str, Any]] = {}
    vetoes: set[str] = set()
    _, rule, money, *lines = brief.split("\n")
    budget = int(re.findall(r"(\d+) k\$", money)[0])
    for line in lines:
        if found := re.match(r"Extra, (.+): costs (\d+) k\$, (.+)", line):
            adds = re.findall(r"(\d+) points for ([^,]+)", found[3])
            extras[found[1]] = (int(found[2]), {seat: int(points) for points, seat in adds})
        elif found := re.match(r"([A-H]): ", line):
            costs[found[1]] = int(re.findall(r"(\d+) k\$", line)[0])
        elif found := re.match(r"(.+?) vetoes (.+?): (.+), limit (\d+)", line):
            figures = dict(re.findall(r"\b([A-H]) (\d+)", found[3]))
            claimed = re.findall(r"\b[A-H]\b", found[2])
            vetoes |= {letter for letter in claimed if int(figures[letter]) > int(found[4])}
        elif " says: " not in line:
            seat, _, said = line.partition(": ")
            away = re.findall(r"(?:below|points of) (\d+)", said)
            points = {letter: int(number) for letter, number in re.findall(r"\b([A-H]) (\d+)", said)}
            weight = 2 if "weight 2" in said and not misread else 1
            seats[seat] = {"points": points, "away": int(away[0]), "weight": weight}
    open_outcomes: list[tuple[str, tuple[str, ...], dict[str, int]]] = []
    for letter, size in itertools.product(costs, range(len(extras) + 1)):
        for chosen in itertools.combinations(extras, size):
            gains = {
                seat: one["points"][letter] + sum(extras[e][1].get(seat, 0) for e in chosen) - one["away"]
                for seat, one in seats.items()
            }
            cost = costs[letter] + sum(extras[name][0] for name in chosen)
            if cost <= budget and min(gains.values()) >= 0 and letter not in vetoes:
                open_outcomes.append((letter, chosen, gains))
    if not open_outcomes:
        return {"package": "none", "extras": [], "conflicts": [], "escalate": True}, 0
    most = {seat: max(gains[seat] for _, _, gains in open_outcomes) for seat in seats}

    def value(gains: dict[str, int]) -> Any:
        counted = [seat for seat, one in seats.items() for _ in range(one["weight"])]
        if "product" in rule:
            return prod(gains[seat] for seat in counted)
        if "share of the best gain" in rule:
            return sorted(Fraction(gains[s], most[s]) if most[s] else Fraction(1) for s in counted)
        return sorted(gains[seat] for seat in counted)

    letter, chosen, _ = max(open_outcomes, key=lambda outcome: value(outcome[2]))
    plain = [one for one, used, _ in open_outcomes if not used]
    favourites = {seat: max(plain, key=one["points"].__getitem__) for seat, one in seats.items()}
    conflicts = []
    for one, other in itertools.combinations(seats, 2):
        a, b = favourites[one], favourites[other]
        mine, yours = seats[one]["points"], seats[other]["points"]
        if a != b and mine[a] - mine[b] >= 10 and yours[b] - yours[a] >= 10:
            conflicts.append([one, other])
    answer = {"package": letter, "extras": list(chosen), "conflicts": conflicts, "escalate": False}
    return answer, number_outcome(letter, chosen)


def number_outcome(package: str, extras: Collection[str]) -> int:
    """A number that no other outcome of the case has; 0 for "none"."""
    return 0 if package == "none" else zlib.crc32(" + ".join([package, *sorted(extras)]).encode())


READERS: dict[str, Callable[..., Solved]] = {
    "architecture": solve_architecture,
    "allocation": solve_allocation,
    "threats": solve_threats,
    "bill": solve_bill,
    "tradeoff": solve_tradeoff,
}
