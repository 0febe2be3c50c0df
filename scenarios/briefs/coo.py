"""Brief of family coo: the deadline, and per package hours and predecessors."""

from collections.abc import Mapping
from typing import Any

from scenarios.base import Form
from scenarios.briefs.forms import Fact, Record, Sheet, join_words, vocabulary, write_form


def write_brief(sector: str, facts: Mapping[str, Any], form: Form) -> str:
    """What the COO reads."""
    return _write_lines(sector, facts) if form == "lines" else write_form(_lay_out(sector, facts), form)


def _write_lines(sector: str, facts: Mapping[str, Any]) -> str:
    lines = [f"{sector.capitalize()} case. Deadline {facts['deadline']}."]
    for name, package in facts["packages"].items():
        hours = " ".join(f"{person} {hours}" for person, hours in package["hours"].items())
        after = f" after {' '.join(package['after'])}" if package["after"] else ""
        lines.append(f"{name} {hours}{after}")
    return "\n".join(lines)


def _lay_out(sector: str, facts: Mapping[str, Any]) -> Sheet:
    people, deadline = facts["people"], facts["deadline"]
    return Sheet(
        reader="COO",
        sector=sector,
        subject=vocabulary(sector).project,
        task="Give every package to one person so that all is done as early as possible.",
        facts=(
            Fact(
                label="deadline (hours)",
                value=str(deadline),
                sentence=f"Everything must be done within {deadline} hours.",
            ),
        ),
        columns=("package", *people, "after"),
        records=tuple(_lay_out_package(name, package, people) for name, package in facts["packages"].items()),
    )


def _lay_out_package(name: str, package: Mapping[str, Any], people: list[str]) -> Record:
    hours = [str(package["hours"].get(person, "-")) for person in people]
    ways = [f"by {person} in {needed} hours" for person, needed in package["hours"].items()]
    after = f", once {join_words(package['after'])} is done" if package["after"] else ""
    return Record(
        cells=(name, *hours, " ".join(package["after"]) or "-"),
        sentence=f"Package {name} can be done {join_words(ways, 'or')}{after}.",
    )
