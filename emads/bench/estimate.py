"""Estimates what a bench will ask of API models, from the pinned sizes of the experts' plays."""

from collections.abc import Sequence

from emads.bench.cases import BenchCase, read_pins
from emads.seats.mixed_team import MixedTeam
from emads.seats.players import ApiPlayer

CHARS_PER_TOKEN = 4.0
FACTOR = 2.0  # models write more than the experts do, and call tools more often


def estimate(team: MixedTeam, cases: Sequence[BenchCase]) -> str:
    """Return cases, requests, tokens and cost of these cases in one sentence.

    It is no bound: a model that reasons at length costs more. `--api max_cost=X` is the bound.
    """
    sizes = read_pins()["sizes"]
    requests = tokens_in = tokens_out = cost = 0.0
    unpriced: set[str] = set()
    for case in cases:
        for seat, (turns, chars_in, chars_out) in sizes[case.cell.name].items():
            player = team.seats.player_of(seat)
            if not isinstance(player, ApiPlayer):
                continue
            read, written = FACTOR * chars_in / CHARS_PER_TOKEN, FACTOR * chars_out / CHARS_PER_TOKEN
            requests, tokens_in, tokens_out = requests + turns, tokens_in + read, tokens_out + written
            price = team.api.find_price(player.model)
            if price is None:
                unpriced.add(player.model)
            else:
                cost += (read * price.input + written * price.output) / 1e6
    if not requests:
        return f"{len(cases)} cases; no seat is played by an API model, nothing is paid"
    money = (
        f"about {cost:.2f} by the given prices"
        if not unpriced
        else f"no price is given of {', '.join(sorted(unpriced))} (--api price=INPUT,OUTPUT)"
    )
    limit = "" if team.api.max_cost is None else f"; it stops at {team.api.max_cost:g} (max_cost)"
    return (
        f"{len(cases)} cases, about {requests:,.0f} requests, {tokens_in / 1e6:.2f} M tokens in,"
        f" {tokens_out / 1e6:.2f} M out (twice what the experts take): {money}{limit}"
    )
