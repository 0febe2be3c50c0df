"""Brief of family cto: names of the options and the requirements, no figure of any option."""

from collections.abc import Mapping
from typing import Any

from scenarios.base import Form
from scenarios.briefs.forms import Fact, Sheet, join_words, vocabulary, write_form


def write_brief(sector: str, facts: Mapping[str, Any], form: Form) -> str:
    """What the CTO reads."""
    letters = list(dict.fromkeys(option[0] for option in facts["architectures"]))
    builds = list(dict.fromkeys(option[1:] for option in facts["architectures"] if option[1:]))
    if form == "lines":
        return _write_lines(sector, letters, builds, facts["limits"])
    return write_form(_lay_out(sector, letters, builds, facts["limits"]), form)


def _write_lines(sector: str, letters: list[str], builds: list[str], limits: Mapping[str, Any]) -> str:
    in_builds = f" in builds {' '.join(builds)}" if builds else ""
    brief = (
        f"{sector.capitalize()} case. Options {' '.join(letters)}{in_builds}. "
        f"Latency at most {limits['max_latency']}. Availability at least {limits['min_availability']}."
    )
    if limits["min_throughput"] is not None:
        brief += f" Throughput at least {limits['min_throughput']}."
    return brief


def _lay_out(sector: str, letters: list[str], builds: list[str], limits: Mapping[str, Any]) -> Sheet:
    latency, availability = limits["max_latency"], limits["min_availability"]
    facts = [
        Fact(label="options", value=" ".join(letters), sentence=f"Candidates are {join_words(letters)}.")
    ]
    if builds:
        sentence = f"Each comes in builds {join_words(builds)}, named like {letters[0]}{builds[0]}."
        facts.append(Fact(label="builds of each", value=" ".join(builds), sentence=sentence))
    facts += [
        Fact(
            label="latency at most (ms)",
            value=str(latency),
            sentence=f"Answers may take {latency} ms and no more.",
        ),
        Fact(
            label="availability at least (%)",
            value=str(availability),
            sentence=f"Availability must reach {availability} percent.",
        ),
    ]
    if (throughput := limits["min_throughput"]) is not None:
        sentence = f"Peaks of {throughput} thousand requests per second must get through."
        facts.append(Fact(label="throughput at least (k/s)", value=str(throughput), sentence=sentence))
    return Sheet(
        reader="CTO",
        sector=sector,
        subject=vocabulary(sector).system,
        task="Choose the cheapest architecture that meets every requirement.",
        facts=tuple(facts),
    )
