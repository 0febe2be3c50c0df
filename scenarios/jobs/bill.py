"""The Cost officer's whole job: the least bill of several services that keeps every floor of quality.

A tier is chosen for every service, and where it is offered a commitment is made or not. Right is the least
cost over all years, rebates of vendors and fees for changing included, with every service's own floor, the
weighted floor over all and the budget kept. The optimum is found in order of the cost before rebates and
certified from the words (`from_words`) by branch and bound service by service.
"""

import random
from collections.abc import Iterator, Mapping
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
    join_broken,
    join_words,
    make_job_role,
    make_tool,
    refuse_limits,
)

NAME = "bill"
NOTHING: dict[str, Any] = {"tiers": {}, "commit": []}  # the answer that escalates
NUM_SERVICES = (2, 2, 3, 3, 4, 4, 4, 5, 5, 6)  # by difficulty 1-10
NUM_TIERS = (2, 3, 3, 3, 3, 3, 4, 4, 4, 4)
MOST_TRIED = (4, 6, 7, 8, 10, 12, 14, 16, 18, 20)  # choices that the search in order of cost looks at
COMMIT_FROM, FEE_FROM, REBATE_FROM, STEP_FROM, YEARS_FROM = 3, 4, 5, 7, 9  # difficulties
MOST_SPARE = (25, 25, 16, 16, 16, 16, 16, 16, 16, 16)  # percent of the least cost that the budget leaves over
MOST_BILLS = 9  # of these, choices that keep the average: the demonstration has each one billed
TIERS = ("basic", "standard", "premium", "top")
VENDORS = ("Norda", "Velis", "Quanta")
WEIGHTS = {"cost": 0.5}
OPENINGS: Wordings = (
    "{situation} Meanwhile its contracts are renewed. Find the cheapest that are good enough.",
    "{situation} To pay for that, it orders anew what it buys. Which tiers, and which commitments?",
    "{situation} You are asked what the company should order until that is done.",
    "{situation} It wants to pay less for what it buys, without falling below its standards.",
    "Put together the cheapest order that is good enough. {situation}",
)
UNITS: Wordings = (
    "{name}: {units} units{later}",
    "{name}: it needs {units} units{later}",
    "{name}: a demand of {units} units{later}",
    "{name}: {units} units are used{later}",
    "{name}: for {units} units{later}",
)
FLOORS: Wordings = (
    "quality at least {floor}, weight {weight}",
    "quality of {floor} or more, weight {weight}",
    "no quality under {floor}, weight {weight}",
    "floor of quality {floor}, weight {weight}",
    "weight {weight}, quality not below {floor}",
)
TIER_LINES: Wordings = (
    "- {tier}: {price} k$ a unit, quality {quality}{vendor}",
    "- {tier}: quality {quality} at {price} k$ a unit{vendor}",
    "- {tier}: a unit costs {price} k$, with quality {quality}{vendor}",
    "- {tier}: {quality} points of quality, {price} k$ for each unit{vendor}",
    "- {tier}: {price} k$ for a unit of quality {quality}{vendor}",
)
REBATES: Wordings = (
    "{vendor} gives back {off} k$ in a year with at least {least} k$.",
    "With {least} k$ or more in a year, {vendor} gives back {off} k$.",
    "Whoever spends at least {least} k$ in a year with {vendor} gets {off} k$ back.",
    "{vendor} pays a rebate of {off} k$ in every year with at least {least} k$.",
    "A rebate of {off} k$ comes from {vendor} in a year with {least} k$ or more.",
)
LIMITS: Wordings = (
    "Average quality: at least {average}. Budget {span}: {budget} k$.",
    "On average the quality must reach {average}, and {span} there are {budget} k$ to spend.",
    "You have {budget} k$ {span}, and the average quality may not fall below {average}.",
    "The bill {span} may be {budget} k$ at most, with an average quality of {average} or more.",
    "Limits: {budget} k$ {span}, average quality {average}.",
)

RULES = (
    "Every service runs on one tier. In a year a service is billed for its units of that year, each at the "
    "tier's price. Where a commitment is made, at least the committed units are billed every year, used or "
    "not, and each of the first units up to the committed number costs the stated amount less. Where a "
    "step is stated, every unit beyond it costs the stated amount less; a unit may get both. A change away "
    "from the present tier costs its fee once. A vendor with which all services together spend at least "
    "the stated amount in a year, fees left out, gives its rebate in that year. Every tier has a quality. "
    "The quality of a service must reach the service's floor; the average quality over all services, each "
    "counted with its weight, must reach the floor of the average."
)


class BillAnswer(Answer):
    """Example: BillAnswer(tiers={"data lines": "standard"}, commit=["data lines"])"""

    tiers: Annotated[dict[str, str], Field(max_length=20, description="the tier of every service")]
    commit: Annotated[list[str], Field(max_length=20, description="services to commit")]


BILL = make_tool(
    "bill",
    "Cost of a choice before and after rebates, its average quality, and which limits it breaks.",
    BillAnswer,
)
ROLE = make_job_role(
    NAME,
    "Cost",
    (
        "You are the Cost officer of a company. You choose the tiers and commitments of what it buys.",
        "The best choice is the one of least cost that keeps every floor of quality and the budget. If no "
        "choice keeps them all, answer with no tiers and no commitments.",
        f"Rules. {RULES}",
        "Tool: bill(tiers, commit) tells what a choice costs and which limits it breaks. You may call it "
        f"{MAX_CALLS} times.",
        "End with one JSON object with exactly these keys: tiers (an object that gives the tier of every "
        "service), commit (a list of services, in any order). Nothing may follow it. Example of an answer in "
        'another case: {"tiers": {"ship fuel": "basic", "crew meals": "premium"}, "commit": ["ship fuel"]}',
    ),
    BillAnswer,
    (BILL,),
    "C",
)


def draw(rng: random.Random, sector: Sector, difficulty: int) -> Draft:
    """A candidate without the floor of the average and the budget."""
    years = 2 if difficulty >= YEARS_FROM else 1
    tiers = TIERS[: NUM_TIERS[difficulty - 1]]
    services: dict[str, dict[str, Any]] = {}
    for name in rng.sample(sector.items, NUM_SERVICES[difficulty - 1]):
        units = rng.randint(3, 15)
        price, quality = rng.randint(3, 6), rng.randint(35, 60)
        offers: dict[str, dict[str, Any]] = {}
        for tier in tiers:
            offers[tier] = {"price": price, "quality": quality, "vendor": rng.choice(VENDORS)}
            price += rng.randint(1, 3)
            quality += rng.randint(3, 12)
        lowest = [offer["quality"] for offer in offers.values()]
        service: dict[str, Any] = {
            "units": [units] if years == 1 else [units, max(2, units + rng.randint(-6, 8))],
            "floor": rng.choice((lowest[0] - 5, lowest[0] - 2, lowest[0] + 1)),
            "weight": rng.randint(1, 3),
            "tiers": offers,
        }
        if difficulty >= COMMIT_FROM and rng.random() < 0.5:
            service["commit"] = {"units": max(2, units + rng.randint(-4, 5)), "less": rng.randint(1, 2)}
        if difficulty >= FEE_FROM and rng.random() < 0.5:
            service["present"] = {"tier": rng.choice(tiers), "fee": rng.randint(3, 14)}
        if difficulty >= STEP_FROM and rng.random() < 0.5:
            service["step"] = {"beyond": max(1, units - rng.randint(1, 6)), "less": 1}
        services[name] = service
    facts: Draft = {"years": years, "services": services}
    if difficulty >= REBATE_FROM:
        spends = [units * 5 for service in services.values() for units in service["units"][:1]]
        facts["rebates"] = {
            vendor: {
                "from": rng.randint(max(spends), sum(spends) * 2 // 3 + max(spends)),
                "off": rng.randint(4, 11),
            }
            for vendor in rng.sample(VENDORS, 2)
        }
    return facts


Choice = tuple[tuple[str, bool], ...]  # tier and commitment of every service, in the order of the case


def price_service(service: Mapping[str, Any], tier: str, commits: bool) -> tuple[list[int], int]:
    """Spend of each year, and the fee for changing."""
    price, spends = service["tiers"][tier]["price"], []
    committed = service["commit"]["units"] if commits else 0
    for units in service["units"]:
        billed = max(units, committed)
        spend = billed * price
        if committed:
            spend -= committed * service["commit"]["less"]
        if "step" in service:
            spend -= max(0, billed - service["step"]["beyond"]) * service["step"]["less"]
        spends.append(spend)
    present = service.get("present")
    return spends, present["fee"] if present and present["tier"] != tier else 0


def find_bill(facts: Facts, choice: Choice) -> tuple[int, int]:
    """(cost before rebates, rebates) over all years."""
    total, by_vendor = 0, [dict.fromkeys(VENDORS, 0) for _ in range(facts["years"])]
    for service, (tier, commits) in zip(facts["services"].values(), choice, strict=True):
        spends, fee = price_service(service, tier, commits)
        total += sum(spends) + fee
        for year, spend in enumerate(spends):
            by_vendor[year][service["tiers"][tier]["vendor"]] += spend
    rebates = sum(
        rebate["off"]
        for year in by_vendor
        for vendor, rebate in facts.get("rebates", {}).items()
        if year[vendor] >= rebate["from"]
    )
    return total, rebates


def sum_quality(facts: Facts, choice: Choice) -> int:
    """Weighted sum of the qualities."""
    pairs = zip(facts["services"].values(), choice, strict=True)
    return int(sum(service["weight"] * service["tiers"][tier]["quality"] for service, (tier, _) in pairs))


def sum_weights(facts: Facts) -> int:
    return int(sum(service["weight"] for service in facts["services"].values()))


def find_most_rebate(facts: Facts) -> int:
    """The rebates that no choice can exceed."""
    return int(facts["years"] * sum(rebate["off"] for rebate in facts.get("rebates", {}).values()))


def list_offers(service: Mapping[str, Any]) -> list[tuple[int, tuple[str, bool]]]:
    """(cost before rebates, (tier, commitment)) of the tiers that reach the floor, cheapest first."""
    offers = []
    for tier, offer in service["tiers"].items():
        if offer["quality"] >= service["floor"]:
            for commits in (False, True) if "commit" in service else (False,):
                spends, fee = price_service(service, tier, commits)
                offers.append((sum(spends) + fee, (tier, commits)))
    return sorted(offers)


def list_by_cost(facts: Facts) -> Iterator[tuple[int, Choice]]:
    """(cost before rebates, choice) with every service's own floor kept, cheapest first."""
    return combine_by_cost([list_offers(service) for service in facts["services"].values()])


def search(facts: Facts, most: int) -> tuple[list[tuple[int, Choice, bool]], tuple[int, Choice]]:
    """The choices looked at (cost before rebates, choice, average kept), and the best (cost, choice).

    Raises:
        NoCaseError: two best choices, none, or more than `most` to look at.
    """
    tried: list[tuple[int, Choice, bool]] = []
    best: tuple[int, Choice] | None = None
    is_tied = False
    least, slack = facts["average"] * sum_weights(facts), find_most_rebate(facts)
    for before, choice in list_by_cost(facts):
        if best is not None and before - slack > best[0]:
            break
        keeps = sum_quality(facts, choice) >= least
        tried.append((before, choice, keeps))
        if len(tried) > most:
            raise NoCaseError
        if keeps:
            total, rebates = find_bill(facts, choice)
            if best is None or total - rebates < best[0]:
                best, is_tied = (total - rebates, choice), False
            elif total - rebates == best[0]:
                is_tied = True
    if best is None or is_tied:
        raise NoCaseError
    return tried, best


def settle(facts: Draft, difficulty: int, escalates: bool, rng: random.Random) -> tuple[Truth, int]:
    """Set the floor of the average and the budget, and find the best choice.

    Raises:
        NoCaseError: as `search`, or the cheapest choice of all would do.
    """
    first = next(list_by_cost(facts), None)
    if first is None:
        raise NoCaseError
    lowest = -(-sum_quality(facts, first[1]) // sum_weights(facts))
    facts["average"] = lowest + rng.choice((-3, 1, 2, 3, 4, 5, 6, 8))
    tried, (cost, choice) = search(facts, MOST_TRIED[difficulty - 1])
    num_calls = sum(keeps for _, _, keeps in tried)
    if num_calls > MOST_BILLS:
        raise NoCaseError
    if escalates:
        facts["budget"] = cost - rng.randint(1, max(2, cost // 12))
        return {**NOTHING, "cost": 0}, num_calls
    facts["budget"] = cost + max(3, cost * rng.randint(5, MOST_SPARE[difficulty - 1]) // 100)
    return {**name_choice(facts, choice), "cost": cost}, num_calls


def name_choice(facts: Facts, choice: Choice) -> dict[str, Any]:
    """The choice as an answer."""
    named = list(zip(facts["services"], choice, strict=True))
    return {
        "tiers": {name: tier for name, (tier, _) in named},
        "commit": [name for name, (_, commits) in named if commits],
    }


def write_brief(facts: Facts) -> str:
    """Every figure of the case."""
    wording = facts["wording"]
    lines = [OPENINGS[wording].format(**facts)]
    for name, service in facts["services"].items():
        first, *others = service["units"]
        later = "".join(f", then {units}" for units in others)
        said = [UNITS[wording].format(name=name, units=first, later=later), FLOORS[wording].format(**service)]
        if "commit" in service:
            said.append(
                f"commitment to {service['commit']['units']} units: {service['commit']['less']} k$ less each"
            )
        if "step" in service:
            said.append(f"units beyond {service['step']['beyond']}: {service['step']['less']} k$ less each")
        if "present" in service:
            said.append(f"now {service['present']['tier']}, a change costs {service['present']['fee']} k$")
        lines.append("; ".join(said))
        for tier, offer in service["tiers"].items():
            vendor = f", from {offer['vendor']}" if "rebates" in facts else ""
            lines.append(TIER_LINES[wording].format(**{**offer, "tier": tier, "vendor": vendor}))
    for vendor, rebate in facts.get("rebates", {}).items():
        lines.append(REBATES[wording].format(vendor=vendor, least=rebate["from"], off=rebate["off"]))
    span = "for two years" if facts["years"] == 2 else "for the year"
    lines.append(LIMITS[wording].format(**facts, span=span))
    return "\n".join(lines)


def find_mistake(facts: Facts, stated: BillAnswer) -> str:
    """A service, tier or commitment that there is not, or one that is missing or named twice; "" for none."""
    services, tiers, commit = facts["services"], stated.tiers, stated.commit
    if set(tiers) != set(services):
        return f"tiers must name exactly the services: {', '.join(services)}"
    for name, tier in tiers.items():
        if tier not in services[name]["tiers"]:
            return f"{name} has no tier {tier[:40]!r}"
    for name in commit:
        if "commit" not in services.get(name, {}):
            return f"no commitment is offered for {name[:40]!r}"
    return "commit names a service twice" if len(set(commit)) < len(commit) else ""


def read_choice(facts: Facts, stated: BillAnswer) -> Choice:
    """The choice that an answer without a mistake states."""
    return tuple((stated.tiers[name], name in stated.commit) for name in facts["services"])


def check_limits(facts: Facts, choice: Choice) -> dict[str, bool]:
    """Which limits a choice keeps."""
    total, rebates = find_bill(facts, choice)
    pairs = list(zip(facts["services"].items(), choice, strict=True))
    return {
        **{
            f"floor of {name}": service["tiers"][tier]["quality"] >= service["floor"]
            for (name, service), (tier, _) in pairs
        },
        "average": sum_quality(facts, choice) >= facts["average"] * sum_weights(facts),
        "budget": total - rebates <= facts["budget"],
    }


def judge(facts: Facts, truth: Truth, answer: BillAnswer) -> Verdict:
    """Reward 0.1 limits + 0.5 cost between the budget (0) and the least (1) + 0.4 exact.

    A choice that breaks limits gets 0.1 times the share of limits kept.
    """
    choice = read_choice(facts, answer)
    kept = check_limits(facts, choice)
    if not all(kept.values()):
        return refuse_limits(kept)
    total, rebates = find_bill(facts, choice)
    cost = total - rebates
    room = share_of_room(-cost, -truth["cost"], (-facts["budget"], 1))
    says = f"cost {cost} (least {truth['cost']})"
    return accept(kept, {"cost": room}, WEIGHTS, cost == truth["cost"], says)


def bill(facts: Facts, stated: BillAnswer) -> str:
    """The tool bill(tiers, commit)."""
    choice = read_choice(facts, stated)
    total, rebates = find_bill(facts, choice)
    kept = check_limits(facts, choice)
    quality = write_average(facts, choice)
    return f"cost {total - rebates} ({total} less {rebates}), average quality {quality}, " + (
        "every limit kept" if all(kept.values()) else f"breaks {join_broken(kept)}"
    )


def write_average(facts: Facts, choice: Choice) -> str:
    """The average quality, rounded down to a tenth, so that it never looks higher than it is."""
    tenths = 10 * sum_quality(facts, choice) // sum_weights(facts)
    return f"{tenths // 10}.{tenths % 10}"


def demonstrate(scenario: Scenario) -> tuple[list[Step], str]:
    """Choices in order of the cost before rebates, until what rebates can give no longer makes up for it."""
    facts = scenario.facts
    tried, (least, _) = search(facts, max(MOST_TRIED))
    steps: list[Step] = []
    text = f"{_write_offers(facts)}\nIn order of the cost before rebates: "
    best: int | None = None
    for before, choice, keeps in tried:
        named = name_choice(facts, choice)
        words = join_words([f"{name} {tier}" for name, tier in named["tiers"].items()])
        words += f", {join_words(named['commit'])} committed" if named["commit"] else ""
        if not keeps:
            text += f"{words} at {before}: average {write_average(facts, choice)} of {facts['average']}, no. "
            continue
        steps.append(Step(text=f"{text}{words} at {before}.", call=ToolCall(name="bill", arguments=named)))
        total, rebates = find_bill(facts, choice)
        is_better = best is None or total - rebates < best
        best = total - rebates if is_better else best
        text = f"{total - rebates}, the best so far. Next: " if is_better else f"{total - rebates}. Next: "
    end = text[: text.rfind("Next: ")] + text[text.rfind("Next: ") + len("Next: ") :]
    slack = find_most_rebate(facts)
    more = f" by over {slack}, the most that rebates give" if slack else ""
    end += f"All others cost more before rebates{more}."
    if not scenario.truth["tiers"]:
        end += f" The least, {least}, is over the budget of {facts['budget']}: no choice does."
    return steps, end


def _write_offers(facts: Facts) -> str:
    """Per service the tiers that reach its floor, with the cost of each, cheapest first."""
    lines = []
    for name, service in facts["services"].items():
        offers = [
            f"{tier}{' committed' if commits else ''} {cost}"
            for cost, (tier, commits) in list_offers(service)
        ]
        low = [tier for tier, offer in service["tiers"].items() if offer["quality"] < service["floor"]]
        out = f" ({join_words(low)} under {service['floor']})" if low else ""
        lines.append(f"{name}: {', '.join(offers)}{out}")
    return "\n".join(lines)


def follow_rule(facts: Facts) -> dict[str, Any]:
    """Service by service the cheapest tier that keeps its floor; then quality where a point costs least."""
    services = facts["services"]
    picks = {name: list_offers(service)[0] for name, service in services.items()}

    def quality(name: str, offer: tuple[int, tuple[str, bool]]) -> int:
        return int(services[name]["weight"] * services[name]["tiers"][offer[1][0]]["quality"])

    needed = facts["average"] * sum_weights(facts)
    while sum(quality(name, offer) for name, offer in picks.items()) < needed:
        raises = []
        for name, offer in picks.items():
            for other in list_offers(services[name]):
                gain = quality(name, other) - quality(name, offer)
                if gain > 0:
                    raises.append(((other[0] - offer[0]) / gain, name, other))
        if not raises:
            return NOTHING
        _, name, other = min(raises)
        picks[name] = other
    choice = tuple(offer for _, offer in picks.values())
    total, rebates = find_bill(facts, choice)
    return name_choice(facts, choice) if total - rebates <= facts["budget"] else NOTHING


def answer_randomly(facts: Facts, rng: random.Random) -> dict[str, Any]:
    """Any tier of each service, any commitments."""
    services = facts["services"]
    tiers = {name: rng.choice(list(service["tiers"])) for name, service in services.items()}
    commit = [name for name, service in services.items() if "commit" in service and rng.random() < 0.5]
    return {"tiers": tiers, "commit": commit}


FAMILY = build_family(
    ROLE,
    BillAnswer,
    draw=draw,
    settle=settle,
    write_brief=write_brief,
    find_mistake=find_mistake,
    judge=judge,
    claim=lambda truth: truth["cost"] if truth["tiers"] else -1,
    observe=bill,
    demonstrate=demonstrate,
    follow_rule=follow_rule,
    answer_randomly=answer_randomly,
    constant=NOTHING,
    escalates_by=NOTHING,
)
