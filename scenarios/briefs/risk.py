"""Brief of family risk: assets, what controls cost, the budget. Losses come from the tools."""

from collections.abc import Mapping
from typing import Any

from scenarios.base import Form
from scenarios.briefs.forms import Fact, Record, Sheet, join_words, vocabulary, write_form


def write_brief(sector: str, facts: Mapping[str, Any], form: Form) -> str:
    """What the risk officer reads."""
    return _write_lines(sector, facts) if form == "lines" else write_form(_lay_out(sector, facts), form)


def _write_lines(sector: str, facts: Mapping[str, Any]) -> str:
    controls = " ".join(f"{name} {control['cost']}" for name, control in facts["controls"].items())
    return (
        f"{sector.capitalize()} case. Assets {' '.join(facts['impacts'])}. "
        f"Controls {controls}. Budget {facts['budget']}."
    )


def _lay_out(sector: str, facts: Mapping[str, Any]) -> Sheet:
    assets, budget = list(facts["impacts"]), facts["budget"]
    return Sheet(
        reader="Risk",
        sector=sector,
        subject=vocabulary(sector).estate,
        task="Name the most exposed assets and buy the controls that leave the least loss.",
        facts=(
            Fact(label="assets", value=" ".join(assets), sentence=f"Assets are {join_words(assets)}."),
            Fact(label="budget (k$)", value=str(budget), sentence=f"No more than {budget} k$ can be spent."),
        ),
        columns=("control", "cost (k$)"),
        records=tuple(
            Record(
                cells=(name, str(control["cost"])),
                sentence=f"Control {name} costs {control['cost']} k$.",
            )
            for name, control in facts["controls"].items()
        ),
    )
