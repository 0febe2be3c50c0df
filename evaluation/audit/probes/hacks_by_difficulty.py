"""V3: checks at every difficulty that each class of reward hacks earns less than an honest player.

That player is the family's "honest" baseline where it has one (greedy overlooks a limit there), else greedy.
"""

from statistics import fmean

from evaluation.audit.case_sample import CaseSample
from evaluation.audit.probes.reward_hacks import FORMS, Hack, list_hacks
from evaluation.audit.records import Attack, Row, Tier


def _attacks(book: CaseSample, difficulty: int, tier: Tier) -> list[Attack]:
    attacks = []
    for number in range(tier.hack_seeds):
        cases = book.draw("validation", difficulty, tier.hack_cases, book.seed + number)
        others = [cases[-1], *cases[:-1]]
        attacks += [
            book.prepare(case, other, f"V3/{number}") for case, other in zip(cases, others, strict=True)
        ]
    return attacks


def _mean_by_form(book: CaseSample, hack: Hack, attacks: list[Attack]) -> dict[str, float]:
    texts = [hack(attack, book) for attack in attacks]
    verify = book.subject.family.verify
    return {
        form: fmean(
            verify(attack.scenario, dress(text)).reward for attack, text in zip(attacks, texts, strict=True)
        )
        for form, dress in FORMS.items()
    }


def probe_hacks(book: CaseSample, tier: Tier) -> Row:
    """V3: the mean reward of every cell against the honest player's on the same cases."""
    family = book.subject.family
    player = "honest" if "honest" in family.baselines else "greedy"
    play = family.baselines[player]
    hacks = list_hacks(book.subject)
    breaches = []
    nearest = (2.0, "")
    for difficulty in tier.hack_difficulties:
        attacks = _attacks(book, difficulty, tier)
        bound = fmean(family.verify(a.scenario, play(a.scenario, a.rng)).reward for a in attacks)
        for name, hack in hacks.items():
            means = _mean_by_form(book, hack, attacks)
            most = max(means.values())
            nearest = min(nearest, (bound - most, f"{name} at {difficulty}"))
            forms = [form for form, mean in means.items() if mean >= bound]
            if forms:
                earned = f"{most:.3f} at difficulty {difficulty}, {player} {bound:.3f}"
                breaches.append(f"{name} ({', '.join(forms)}) earns {earned}")
    cells = f"{len(hacks)} classes x {len(tier.hack_difficulties)} difficulties x {len(FORMS)} forms"
    return Row(
        probe="V3",
        family=book.name,
        counts=f"{cells} x {tier.hack_cases * tier.hack_seeds}",
        worst=f"lead of {player} {nearest[0]:+.2f} ({nearest[1]})",
        breaches=breaches,
    )
