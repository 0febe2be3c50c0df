"""Brief of a specialist's seat in the team family: its stakes, its utilities, its hard limit."""

from collections.abc import Mapping
from typing import Any

from scenarios.base import Form
from scenarios.briefs.forms import Fact, Record, Sheet, vocabulary, write_form


def write_seat_brief(sector: str, title: str, facts: Mapping[str, Any], form: Form = "lines") -> str:
    """What a seat reads; `facts` hold utilities, stakes and limit."""
    if form != "lines":
        return write_form(_lay_out(sector, title, facts), form)
    utilities = " ".join(f"{option} {utility}" for option, utility in facts["utilities"].items())
    return (
        f"{sector.capitalize()} case. {title} seat. Stakes {facts['stakes']}. {utilities}. "
        f"Limit {facts['limit']}."
    )


def _lay_out(sector: str, title: str, facts: Mapping[str, Any]) -> Sheet:
    stakes, limit = facts["stakes"], facts["limit"]
    return Sheet(
        reader=f"{title} seat",
        sector=sector,
        subject=vocabulary(sector).project,
        task=f"Report on the options from the {title} seat.",
        facts=(
            Fact(label="stakes", value=str(stakes), sentence=f"Your stakes are {stakes}."),
            Fact(
                label="limit",
                value=str(limit),
                sentence=f"Whatever is worth less than {limit} you must veto.",
            ),
        ),
        columns=("option", "worth"),
        records=tuple(
            Record(cells=(option, str(utility)), sentence=f"Option {option} is worth {utility}.")
            for option, utility in facts["utilities"].items()
        ),
    )
