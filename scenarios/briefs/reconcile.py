"""Brief of family reconcile: what four reports say, favourites and vetoes; worth comes from the tool."""

from collections.abc import Mapping
from typing import Any

from roles.team import NO_OPTION, SPECIALISTS
from scenarios.base import Form
from scenarios.briefs.forms import Fact, Record, Sheet, join_words, vocabulary, write_form


def write_brief(sector: str, facts: Mapping[str, Any], form: Form) -> str:
    """What ReconcileGPT reads. Weights appear where they can differ."""
    return _write_lines(sector, facts) if form == "lines" else write_form(_lay_out(sector, facts), form)


def _is_weighted(facts: Mapping[str, Any]) -> bool:
    return any(weight != 1 for weight in facts["weights"].values())


def _favourite(facts: Mapping[str, Any], name: str) -> str:
    utilities: dict[str, int] = facts["utilities"][name]
    return max(utilities, key=utilities.__getitem__)


def _vetoed(facts: Mapping[str, Any], name: str) -> list[str]:
    utilities, limit = facts["utilities"][name], facts["limits"][name]
    return [option for option in facts["options"] if utilities[option] < limit]


def _write_lines(sector: str, facts: Mapping[str, Any]) -> str:
    lines = [f"{sector.capitalize()} case. Options {' '.join(facts['options'])}."]
    for name in SPECIALISTS:
        weight = f" weight {facts['weights'][name]}" if _is_weighted(facts) else ""
        vetoed = " ".join(_vetoed(facts, name)) or NO_OPTION
        lines.append(f"{name}{weight} best {_favourite(facts, name)} veto {vetoed}")
    return "\n".join(lines)


def _lay_out(sector: str, facts: Mapping[str, Any]) -> Sheet:
    options = facts["options"]
    weight = ("weight",) if _is_weighted(facts) else ()
    return Sheet(
        reader="ReconcileGPT",
        sector=sector,
        subject=f"{vocabulary(sector).system} and {vocabulary(sector).project}",
        task="Choose the fairest option that nobody vetoes.",
        facts=(
            Fact(label="options", value=" ".join(options), sentence=f"Options are {join_words(options)}."),
        ),
        columns=("stakeholder", *weight, "likes best", "vetoes"),
        records=tuple(_lay_out_report(facts, name) for name in SPECIALISTS),
    )


def _lay_out_report(facts: Mapping[str, Any], name: str) -> Record:
    favourite, vetoed = _favourite(facts, name), _vetoed(facts, name)
    weight = str(facts["weights"][name])
    shown = (weight,) if _is_weighted(facts) else ()
    counts = f", whose word has weight {weight}," if shown else ""
    return Record(
        cells=(name, *shown, favourite, " ".join(vetoed) or NO_OPTION),
        sentence=f"Stakeholder {name}{counts} likes {favourite} best and vetoes "
        f"{join_words(vetoed) if vetoed else 'nothing'}.",
    )
