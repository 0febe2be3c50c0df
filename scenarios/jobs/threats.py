"""The Risk officer's whole job: find which threats are real, say how severe each is, buy the best controls.

Real is a threat on every asset of which all its conditions hold. Severity is likelihood (0 to 3) times impact
(0 to 4). Best is the set of controls within the budget that leaves no severity above the appetite and the
least severity in all; of equal severity the cheaper. The optimum is found over all sets of controls and
certified from the words (`from_words`), with severities worked out a second time.
"""

import itertools
import random
from collections.abc import Mapping, Sequence
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
    join_words,
    make_job_role,
    make_tool,
    refuse_limits,
    score_named,
)

NAME = "threats"
NUM_ASSETS = (2, 2, 3, 3, 3, 4, 4, 5, 5, 6)  # by difficulty 1-10
NUM_THREATS = (3, 3, 4, 5, 5, 6, 7, 8, 9, 10)
NUM_CONDITIONS = (1, 1, 2, 2, 2, 3, 3, 3, 4, 4)  # of a threat, at most
NUM_CONTROLS = (2, 3, 3, 4, 4, 5, 5, 6, 6, 7)
MOST_SETS = (3, 4, 5, 6, 7, 7, 8, 8, 8, 8)  # sets of controls that the search looks at
BOUND_FROM, COVERS_FROM, SPREADS_FROM = 3, 6, 8  # difficulties
IMPACTS = (50, 200, 500, 1000)  # k$: an asset worth so much has impact 1, 2, 3, 4; below the first 0
MOST_LIKELIHOOD, MOST_SEVERITY = 3, 12
WEIGHTS = {"identification": 0.2, "severity": 0.1, "mitigation": 0.2}

# Signs of an asset: name -> the words in which a case tells it, by value.
SIGNS: Mapping[str, tuple[str, str]] = {  # (words where it does not hold, words where it does)
    "exposed": ("reached from inside only", "reached from the internet"),
    "password": ("login with a second factor", "login by password alone"),
    "untested": ("backups tested", "backups never tested"),
    "shared": ("run by the company alone", "a supplier has access"),
    "unreviewed": ("access rights reviewed", "access rights never reviewed"),
    "plain": ("data encrypted", "data not encrypted"),
    "single": ("two sites", "one site"),
    "unrehearsed": ("changes rehearsed", "changes go live unrehearsed"),
    "lone": ("several people know it", "one person knows it"),
    "solo": ("approvals need two people", "approvals need one person"),
}
OLD_MONTHS = 6  # a patch older than this is a sign, too
# Name -> the signs that make a threat real, the first ones at low levels.
THREATS: Mapping[str, tuple[str, ...]] = {
    "ransomware": ("untested", "old", "exposed", "password"),
    "stolen password": ("password", "exposed", "unreviewed", "old"),
    "break-in from the internet": ("exposed", "old", "plain", "password"),
    "leak through a supplier": ("shared", "plain", "unreviewed", "password"),
    "theft by an insider": ("unreviewed", "plain", "solo", "password"),
    "failed change": ("unrehearsed", "lone", "single", "old"),
    "fire or flood": ("single", "untested", "lone", "unrehearsed"),
    "loss of know-how": ("lone", "unrehearsed", "untested", "old"),
    "false approval": ("solo", "password", "unreviewed", "exposed"),
    "flood of requests": ("exposed", "single", "unrehearsed", "old"),
    "tampered records": ("unreviewed", "untested", "solo", "password"),
    "known hole": ("old", "exposed", "shared", "unrehearsed"),
}
OPENINGS: Wordings = (
    "{situation} It asks for its yearly risk register.",
    "{situation} Which threats to its systems are real, how severe are they, and what should be bought?",
    "{situation} Before that, you review the risks of its systems.",
    "{situation} The board wants to know first what can go wrong with its systems, and what to do about it.",
    "Write the risk register of this company and choose its controls. {situation}",
)
ASSETS: Wordings = ("Assets:", "Assets, that is, systems:", "Systems of the company:", "Its systems:", "IT:")
REAL: Wordings = (
    "Threats, each real where all of these hold:",
    "Threats, and what must hold at once to make each of them real:",
    "Threats with their conditions, all of which are needed:",
    "Threats that are real where every condition is met:",
    "Threats (real only if all of it holds):",
)
STEPS: Wordings = (
    "Controls, with the steps by which they lower threats:",
    "Controls on offer, their cost, and the steps by which they lower threats:",
    "Controls: what each costs, and the steps taken off each threat:",
    "Controls that can be bought, with the threats and steps that they lower:",
    "Controls (cost; steps off each threat):",
)
LIMITS: Wordings = (
    "Budget: {budget} k$. Appetite: no severity above {appetite}.",
    "You may spend {budget} k$. No severity above {appetite} may remain: that is the appetite.",
    "The board gives {budget} k$ and has an appetite for severities up to {appetite}.",
    "With at most {budget} k$, bring every severity down to the appetite of {appetite} or less.",
    "Appetite: {appetite}. Nothing more severe may be left, for {budget} k$ in all.",
)
CONDITION_WORDS: Mapping[str, str] = {
    **{name: words[1] for name, words in SIGNS.items()},
    "old": f"last patch more than {OLD_MONTHS} months ago",
}
CONTROLS: Mapping[str, str] = {  # name -> the sign that it answers
    "second factor": "password",
    "patch service": "old",
    "restore tests": "untested",
    "supplier contract": "shared",
    "access review": "unreviewed",
    "encryption": "plain",
    "second site": "single",
    "change rehearsals": "unrehearsed",
    "job rotation": "lone",
    "second signature": "solo",
    "traffic filter": "exposed",
}
# Threats that can pass from one system to a connected one.
SPREADING = ("ransomware", "stolen password", "break-in from the internet", "failed change", "known hole")
# Controls beside which another one, named second, has nothing left to do.
COVERS = (
    ("second site", "restore tests"),
    ("restore tests", "second site"),
    ("encryption", "supplier contract"),
    ("supplier contract", "encryption"),
    ("access review", "second signature"),
    ("second signature", "access review"),
    ("second factor", "access review"),
    ("traffic filter", "patch service"),
    ("patch service", "traffic filter"),
    ("change rehearsals", "job rotation"),
    ("job rotation", "change rehearsals"),
)

RULES = (
    "A threat is real on an asset if all its conditions hold there; it is then one risk. Its likelihood is "
    "1, plus 1 if the asset is reached from the internet, plus 1 if the asset had an incident in the last "
    "12 months. Its impact follows from the value of the asset: 0 under 50 k$, 1 from 50, 2 from 200, 3 "
    "from 500, 4 from 1000 k$. Severity is likelihood times impact, 0 to 12. A control lowers the "
    "likelihood of the threats that it names by the steps stated, on every asset, never below 0; steps of "
    "several controls add up, unless the case says that a control covers another: then the covered control "
    "lowers nothing beside it. Where the case says that a threat spreads, it is real also on every asset "
    "connected to an asset on which its conditions hold; there its likelihood is 1, without additions. "
    "State the severities before any control."
)


class Risk(Answer):
    """Example: Risk(threat="ransomware", asset="fuel cards", severity=8)"""

    threat: str
    asset: str
    severity: Annotated[int, Field(ge=0, le=MOST_SEVERITY)]


class ApplyArguments(Answer):
    """Example: ApplyArguments(risks=[Risk(threat="ransomware", asset="fuel cards", severity=8)],
    controls=[])"""

    risks: Annotated[list[Risk], Field(max_length=100)]
    controls: Annotated[list[str], Field(max_length=20)]


class ThreatsAnswer(ApplyArguments):
    """Example: ThreatsAnswer(risks=[Risk(threat="ransomware", asset="fuel cards", severity=8)],
    controls=["restore tests"], escalate=False)"""

    escalate: bool


APPLY = make_tool(
    "apply",
    "Cost of controls, and what they leave of the risks that you name: the sum and the highest.",
    ApplyArguments,
)
ROLE = make_job_role(
    NAME,
    "Risk",
    (
        "You are the Risk officer of a company. You find which threats are real on which assets and how "
        "severe each is, and choose the controls to buy.",
        "The best controls cost at most the budget, leave no severity above the appetite, and leave the "
        "least severity in all; of equal severity the cheaper ones. If no controls within the budget keep "
        "the appetite, buy none and escalate.",
        f"Rules. {RULES}",
        "Tool: apply(risks, controls) applies controls to the risks as you state them, and tells the cost. "
        f"It does not check your risks. You may call it {MAX_CALLS} times.",
        "End with one JSON object with exactly these keys: risks (a list with one entry for every real risk, "
        "in any order, with the keys threat, asset, severity), controls (a list of names, in any order), "
        "escalate (true or false). Nothing may follow it. Example of an answer in another case: "
        '{"risks": [{"threat": "bad weather", "asset": "harbour crane", "severity": 6}], "controls": ["storm '
        'watch"], "escalate": false}',
    ),
    ThreatsAnswer,
    (APPLY,),
    "R",
)


def draw(rng: random.Random, sector: Sector, difficulty: int) -> Draft:
    """A candidate without budget and appetite: assets with signs, threats, controls."""
    level = difficulty - 1
    threats: dict[str, dict[str, Any]] = {}
    for name in rng.sample(list(THREATS), NUM_THREATS[level]):
        conditions = THREATS[name][: rng.randint(max(1, NUM_CONDITIONS[level] - 1), NUM_CONDITIONS[level])]
        threats[name] = {"when": list(conditions)}
    if difficulty >= SPREADS_FROM:
        able = [name for name in SPREADING if name in threats]
        for name in rng.sample(able, min(len(able), 2)):
            threats[name]["spreads"] = True
    used = [sign for threat in threats.values() for sign in threat["when"]]
    signs = [sign for sign in SIGNS if sign in used or sign == "exposed"]
    chance = 1 - 0.55 / NUM_CONDITIONS[level]  # of a sign; several must meet to make a threat real
    assets: dict[str, dict[str, Any]] = {}
    for name in rng.sample(sector.systems, NUM_ASSETS[level]):
        asset: dict[str, Any] = {"value": 10 * rng.randint(2, 150)}
        asset |= {sign: rng.random() < (0.5 if sign == "exposed" else chance) for sign in signs}
        if "old" in used:
            asset["months"] = (
                rng.randint(OLD_MONTHS + 1, 20) if rng.random() < chance else rng.randint(1, OLD_MONTHS)
            )
        asset["incidents"] = rng.choice((0, 0, 1, 2))
        assets[name] = asset
    if sector.systems[0] in assets:  # the company lives on it
        dearest = max(assets.values(), key=lambda asset: asset["value"])
        central = assets[sector.systems[0]]
        central["value"], dearest["value"] = dearest["value"], central["value"]
    controls: dict[str, dict[str, Any]] = {}
    fitting = [name for name, sign in CONTROLS.items() if sign in used]
    for name in rng.sample(fitting, min(len(fitting), NUM_CONTROLS[level])):
        against = [threat for threat, about in threats.items() if CONTROLS[name] in about["when"]]
        controls[name] = {
            "cost": rng.randint(3, 20),
            "steps": {threat: rng.randint(1, 2) for threat in against},
        }
    facts: Draft = {"assets": assets, "threats": threats, "controls": controls}
    pairs = [list(pair) for pair in COVERS if set(pair) <= set(controls)]
    if difficulty >= COVERS_FROM and pairs:
        facts["covers"] = rng.choice(pairs)
    if difficulty >= SPREADS_FROM:
        names = list(assets)
        facts["links"] = [
            [names[place], names[place + 1]] for place in range(len(names) - 1) if rng.random() < 0.5
        ]
    return facts


def holds(asset: Mapping[str, Any], sign: str) -> bool:
    """Tell whether a condition of a threat holds on an asset."""
    return asset["months"] > OLD_MONTHS if sign == "old" else bool(asset[sign])


def find_impact(asset: Mapping[str, Any]) -> int:
    """The impact, 0 to 4, of a threat on an asset."""
    return sum(asset["value"] >= least for least in IMPACTS)


Risks = dict[tuple[str, str], tuple[int, int]]  # (threat, asset) -> (likelihood, impact)


def find_risks(facts: Facts) -> Risks:
    """Every real risk, threats in the order of the case, assets within."""
    risks: Risks = {}
    for threat, about in facts["threats"].items():
        hit = [name for name, a in facts["assets"].items() if all(holds(a, sign) for sign in about["when"])]
        reached = {
            other
            for link in facts.get("links", [])
            for one, other in (link, link[::-1])
            if about.get("spreads") and one in hit and other not in hit
        }
        for name, asset in facts["assets"].items():
            impact = find_impact(asset)
            if name in hit:
                risks[threat, name] = (1 + asset["exposed"] + (asset["incidents"] > 0), impact)
            elif name in reached:
                risks[threat, name] = (1, impact)
    return risks


def count_steps(facts: Facts, controls: Sequence[str]) -> dict[str, int]:
    """Steps by which these controls lower the likelihood of each threat."""
    steps = dict.fromkeys(facts["threats"], 0)
    for name in controls:
        covering, covered = facts.get("covers", ("", ""))
        if name == covered and covering in controls:
            continue
        for threat, number in facts["controls"][name]["steps"].items():
            steps[threat] += number
    return steps


def apply_controls(facts: Facts, risks: Risks, controls: Sequence[str]) -> tuple[int, int, int]:
    """(cost, severity that is left in all, highest severity that is left)."""
    steps = count_steps(facts, controls)
    left = [max(0, likely - steps[threat]) * impact for (threat, _), (likely, impact) in risks.items()]
    return sum(facts["controls"][name]["cost"] for name in controls), sum(left), max(left, default=0)


def list_sets(facts: Facts) -> list[tuple[str, ...]]:
    """The sets of controls within the budget to which no further control can be added."""
    names = list(facts["controls"])
    costs = {name: facts["controls"][name]["cost"] for name in names}
    sets = []
    for size in range(len(names), -1, -1):
        for chosen in itertools.combinations(names, size):
            rest = facts["budget"] - sum(costs[name] for name in chosen)
            if rest >= 0 and all(costs[name] > rest for name in names if name not in chosen):
                sets.append(chosen)
    return sets


def list_affordable(facts: Facts, risks: Risks) -> list[tuple[int, int, int, tuple[str, ...]]]:
    """(severity left, cost, highest left, controls) of every set within the budget."""
    names, found = list(facts["controls"]), []
    costs = {name: control["cost"] for name, control in facts["controls"].items()}
    for size in range(len(names) + 1):
        for chosen in itertools.combinations(names, size):
            if sum(costs[name] for name in chosen) <= facts["budget"]:
                cost, left, highest = apply_controls(facts, risks, chosen)
                found.append((left, cost, highest, chosen))
    return found


def rank_kept(
    facts: Facts, affordable: Sequence[tuple[int, int, int, tuple[str, ...]]]
) -> list[tuple[int, int, tuple[str, ...]]]:
    """(severity left, cost, controls) of the affordable sets that keep the appetite, best first."""
    return sorted(
        (left, cost, chosen) for left, cost, highest, chosen in affordable if highest <= facts["appetite"]
    )


def settle(facts: Draft, difficulty: int, escalates: bool, rng: random.Random) -> tuple[Truth, int]:
    """Set budget and appetite, and find the best controls.

    Raises:
        NoCaseError: too few risks, two best sets, nothing to choose, or too many sets to look at.
    """
    risks = find_risks(facts)
    severities = [likely * impact for likely, impact in risks.values()]
    costs = [control["cost"] for control in facts["controls"].values()]
    num_pairs = len(facts["assets"]) * len(facts["threats"])
    if len(costs) < NUM_CONTROLS[difficulty - 1] or not 2 <= len(risks) <= 0.7 * num_pairs:
        raise NoCaseError
    facts["budget"] = rng.randint(min(costs), sum(costs) - 1)
    sets = list_sets(facts)
    if len(sets) > MOST_SETS[difficulty - 1]:
        raise NoCaseError
    affordable = list_affordable(facts, risks)
    lowest = min(highest for _, _, highest, _ in affordable)
    facts["appetite"] = lowest - 1 if escalates else min(lowest + rng.choice((0, 0, 0, 1)), MOST_SEVERITY)
    if difficulty >= BOUND_FROM and not escalates and min(affordable)[2] > lowest:
        facts["appetite"] = lowest  # the least severity in all would break it
    if facts["appetite"] < (2 if escalates else 0):
        raise NoCaseError
    found = rank_kept(facts, affordable)
    if (not found) != escalates:
        raise NoCaseError
    said = list_named(risks)
    if escalates:
        nothing = {"controls": [], "escalate": True, "left": 0, "cost": 0, "blind": [0, 1]}
        return {"risks": said, **nothing}, len(sets)
    if len(found) < 2 or found[0][:2] == found[1][:2] or found[0][0] == sum(severities):
        raise NoCaseError
    blind = [sum(left for left, _, _ in found), len(found)]
    left, cost, chosen = found[0]
    if blind[0] == left * blind[1]:
        raise NoCaseError
    bought = {"controls": list(chosen), "escalate": False, "left": left, "cost": cost, "blind": blind}
    return {"risks": said, **bought}, len(plan_search(facts, risks)[0])


def plan_search(facts: Facts, risks: Risks) -> tuple[list[tuple[str, ...]], str]:
    """The sets that a demonstration applies: the largest within the budget, then the best made lean."""
    sets = list_sets(facts)
    best = min(sets, key=lambda chosen: apply_controls(facts, risks, chosen)[1])
    lean, dropped = list(best), list[str]()
    for name in best:
        fewer = [other for other in lean if other != name]
        if apply_controls(facts, risks, fewer)[1] == apply_controls(facts, risks, best)[1]:
            lean, dropped = fewer, [*dropped, name]
    return [*sets, *([tuple(lean)] if dropped else [])], join_words(dropped) if dropped else ""


def write_brief(facts: Facts) -> str:
    """Every figure of the case."""
    wording = facts["wording"]
    lines = [OPENINGS[wording].format(**facts), ASSETS[wording]]
    for name, asset in facts["assets"].items():
        said = [f"{name}: worth {asset['value']} k$"]
        said += [words[asset[sign]] for sign, words in SIGNS.items() if sign in asset]
        if "months" in asset:
            said.append(f"last patch {_write_months(asset)} ago")
        said.append(f"{asset['incidents'] or 'no'} incident{'s' * (asset['incidents'] != 1)} in 12 months")
        lines.append(", ".join(said))
    for one, other in facts.get("links", []):
        lines.append(f"{one} and {other} are connected.")
    lines.append(REAL[wording])
    for name, about in facts["threats"].items():
        spreads = " (spreads)" if about.get("spreads") else ""
        lines.append(f"{name}{spreads}: {', '.join(CONDITION_WORDS[sign] for sign in about['when'])}")
    lines.append(STEPS[wording])
    for name, control in facts["controls"].items():
        steps = ", ".join(f"{threat} {number}" for threat, number in control["steps"].items())
        lines.append(f"{name}: {control['cost']} k$; {steps}")
    if "covers" in facts:
        lines.append("{} covers {}.".format(*facts["covers"]))
    lines.append(LIMITS[wording].format(**facts))
    return "\n".join(lines)


def _write_months(asset: Mapping[str, Any]) -> str:
    return f"{asset['months']} month{'s' * (asset['months'] != 1)}"


def judge(facts: Facts, truth: Truth, answer: ThreatsAnswer) -> Verdict:
    """Reward 0.1 limits + 0.2 risks found + 0.1 severities + 0.2 severity taken away + 0.4 exact.

    Severities are scored over the risks named right, times the identification; what the controls leave lies
    between the mean of the sets that keep the limits (0) and the least (1). Controls over the budget or the
    appetite get 0.1 times the mean of both and of the risks found, and so does a wrong escalation.
    """
    real = {(risk["threat"], risk["asset"]): risk["severity"] for risk in truth["risks"]}
    said = {(risk.threat, risk.asset): risk.severity for risk in answer.risks}
    found = score_named(set(said), set(real), len(facts["assets"]) * len(facts["threats"]))
    both = set(said) & set(real)
    distance = sum(abs(said[pair] - real[pair]) for pair in both) / (MOST_SEVERITY * max(1, len(both)))
    graded = {"identification": found, "severity": found * (1 - distance)}
    right = said == real
    if truth["escalate"]:
        kept = {"escalation": answer.escalate and not answer.controls}
        graded["mitigation"] = float(kept["escalation"])
    elif answer.escalate:
        kept = {"escalation": False}
    else:
        cost, left, highest = apply_controls(facts, find_risks(facts), answer.controls)
        kept = {"budget": cost <= facts["budget"], "appetite": highest <= facts["appetite"]}
        total, count = truth["blind"]
        graded["mitigation"] = share_of_room(-left, -truth["left"], (-total, count))
        right &= set(answer.controls) == set(truth["controls"])
    if not all(kept.values()):
        return refuse_limits(kept, identification=found)
    best = join_words(truth["controls"]) if truth["controls"] else "nothing"
    says = f"{len(both)} of {len(real)} risks found; best controls: {best}, leaving {truth['left']}"
    return accept(kept, graded, WEIGHTS, right, says)


def find_mistake(facts: Facts, stated: ApplyArguments) -> str:
    """A threat, asset or control that there is not, or that stands twice; "" for none.

    Of a call also a severity that no likelihood and impact of the asset make.
    """
    for risk in stated.risks:
        if risk.threat not in facts["threats"]:
            return f"no threat {risk.threat[:40]!r}"
        if risk.asset not in facts["assets"]:
            return f"no asset {risk.asset[:40]!r}"
    if len({(risk.threat, risk.asset) for risk in stated.risks}) < len(stated.risks):
        return "a threat stands twice for one asset"
    unknown = [name for name in stated.controls if name not in facts["controls"]]
    if unknown:
        return f"no control {unknown[0][:40]!r}"
    if len(set(stated.controls)) < len(stated.controls):
        return "a control stands twice"
    for risk in () if isinstance(stated, ThreatsAnswer) else stated.risks:
        impact = find_impact(facts["assets"][risk.asset])
        if risk.severity % max(1, impact) or risk.severity > MOST_LIKELIHOOD * impact:
            return f"severity {risk.severity} of {risk.threat} on {risk.asset} is no likelihood x impact"
    return ""


def apply_stated(facts: Facts, stated: ApplyArguments) -> str:
    """The tool apply(risks, controls): on the severities as the caller states them."""
    risks: Risks = {}
    for risk in stated.risks:
        impact = find_impact(facts["assets"][risk.asset])
        risks[risk.threat, risk.asset] = (risk.severity // impact if impact else 0, impact)
    cost, left, highest = apply_controls(facts, risks, stated.controls)
    return f"cost {cost}, severity left {left}, highest {highest}"


def demonstrate(scenario: Scenario) -> tuple[list[Step], str]:
    """The conditions asset by asset, then every largest set of controls within the budget applied."""
    facts, truth = scenario.facts, scenario.truth
    risks = find_risks(facts)
    sets, dropped = plan_search(facts, risks) if not truth["escalate"] else (list_sets(facts), "")
    text = f"{_write_risks(facts, risks)}\nControls that can be bought together within {facts['budget']}: "
    text += "; ".join(" + ".join(chosen) or "none" for chosen in list_sets(facts)) + "."
    steps: list[Step] = []
    best: tuple[int, tuple[str, ...]] | None = None
    for place, chosen in enumerate(sets):
        if dropped and place == len(sets) - 1:
            text += f" Without {dropped}, which changes nothing, it is cheaper:"
        call = ToolCall(name="apply", arguments={"risks": truth["risks"], "controls": list(chosen)})
        steps.append(Step(text=text, call=call))
        _, left, highest = apply_controls(facts, risks, chosen)
        if highest > facts["appetite"]:
            text = f"{highest} is above {facts['appetite']}."
        elif best is None or left < best[0]:
            best = (left, chosen)
            text = f"Keeps the appetite, {left} left, the best so far."
        else:
            text = f"Keeps the appetite, {left} left."
    if truth["escalate"]:
        text += " No set keeps the appetite, and a smaller one leaves no less: escalate."
    else:
        text += f" Least is {truth['left']}, with {join_words(truth['controls'])} at {truth['cost']}."
    return steps, text


def _write_risks(facts: Facts, risks: Risks) -> str:
    """Per threat: where it is real and how severe, and the condition that fails elsewhere."""
    lines = []
    for threat, about in facts["threats"].items():
        said = []
        for name, asset in facts["assets"].items():
            if (threat, name) in risks:
                likely, impact = risks[threat, name]
                said.append(f"{name} real, {likely} x {impact} = {likely * impact}")
            else:
                fails = next(sign for sign in about["when"] if not holds(asset, sign))
                said.append(f"{name} no ({_write_failed(asset, fails)})")
        lines.append(f"{threat}: {'; '.join(said)}.")
    return "\n".join(lines)


def _write_failed(asset: Mapping[str, Any], sign: str) -> str:
    return f"patched {_write_months(asset)} ago" if sign == "old" else SIGNS[sign][0]


def follow_rule(facts: Facts) -> dict[str, Any]:
    """Controls by severity taken away per k$, one after the other while the budget lasts."""
    risks, chosen = find_risks(facts), list[str]()
    while True:
        cost, left, _ = apply_controls(facts, risks, chosen)
        gains = []
        for name, control in facts["controls"].items():
            if name not in chosen and cost + control["cost"] <= facts["budget"]:
                gain = left - apply_controls(facts, risks, [*chosen, name])[1]
                gains.append((gain / control["cost"], name))
        if not gains or max(gains)[0] <= 0:
            break
        chosen.append(max(gains)[1])
    keeps = apply_controls(facts, risks, chosen)[2] <= facts["appetite"]
    return {"controls": [name for name in facts["controls"] if name in chosen] if keeps else []}


def list_named(risks: Risks) -> list[dict[str, Any]]:
    """The risks as they stand in an answer."""
    return [
        {"threat": threat, "asset": asset, "severity": likely * impact}
        for (threat, asset), (likely, impact) in risks.items()
    ]


def answer_greedily(facts: Facts) -> dict[str, Any]:
    """Finds every risk, buys by the rule of thumb."""
    controls = follow_rule(facts)["controls"]
    return {"risks": list_named(find_risks(facts)), "controls": controls, "escalate": not controls}


def answer_randomly(facts: Facts, rng: random.Random) -> dict[str, Any]:
    """Any threats on any assets, any severities and controls."""
    said = [
        {"threat": threat, "asset": asset, "severity": rng.randint(0, MOST_SEVERITY)}
        for threat in facts["threats"]
        for asset in facts["assets"]
        if rng.random() < 0.5
    ]
    controls = [name for name in facts["controls"] if rng.random() < 0.4]
    return {"risks": said, "controls": controls, "escalate": rng.random() < 0.1}


FAMILY = build_family(
    ROLE,
    ApplyArguments,
    draw=draw,
    settle=settle,
    write_brief=write_brief,
    find_mistake=find_mistake,
    judge=judge,
    claim=lambda truth: -1 if truth["escalate"] else 1000 * truth["left"] + truth["cost"],
    observe=apply_stated,
    demonstrate=demonstrate,
    follow_rule=follow_rule,
    answer_randomly=answer_randomly,
    answer_greedily=answer_greedily,
    constant={"risks": [], "controls": [], "escalate": False},
    escalates_by=None,
)
