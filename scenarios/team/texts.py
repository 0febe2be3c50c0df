"""The texts that pass between seats: what ReconcileGPT decides from and what a specialist votes on."""

from collections.abc import Iterable, Mapping, Sequence

from roles.team import NO_OPTION, SPECIALISTS, Decision, SpecialistReport

Reports = Mapping[str, SpecialistReport | None]  # seat -> its report; None for a malformed one


def speaking_order(roles: Iterable[str]) -> list[str]:
    """These roles as ReconcileGPT hears them: the house's specialists in their order, then others."""
    given = list(roles)
    known = [role for role in SPECIALISTS if role in given]
    return known + [role for role in given if role not in SPECIALISTS]


def decision_brief(options: Sequence[str], reports: Reports) -> str:
    """All that ReconcileGPT reads: what is vetoed, then pick and flag per seat, in speaking order.

    A pick that somebody vetoes is marked "out". Seats are the keys of `reports`.

    Example: "Options A B C. Vetoed C.\\ncto B 3\\ncoo A 0\\nrisk C 2 out\\ncost A 1"
    """
    still_open = open_options(options, reports)
    vetoed = " ".join(option for option in options if option not in still_open)
    lines = [f"Options {' '.join(options)}. Vetoed {vetoed or NO_OPTION}."]
    for role in speaking_order(reports):
        report = reports[role]
        if report is None:
            lines.append(f"{role} no report")
        else:
            lines.append(f"{role} {report.pick} {report.flag}{'' if report.pick in still_open else ' out'}")
    return "\n".join(lines)


def open_options(options: Sequence[str], reports: Reports) -> list[str]:
    """The options that no report vetoes."""
    vetoed = {option for report in reports.values() if report is not None for option in report.veto}
    return [option for option in options if option not in vetoed]


def vote_brief(decision: Decision | None) -> str:
    """What a specialist reads before it votes, after its own brief."""
    return "No decision. Vote." if decision is None else f"Decision {decision.option}. Vote."
