"""Shows episodes on the terminal while they are played: seats, tools, conflicts, drafts, votes, the gate.

Colours on a terminal; plain lines anywhere else. Model text is shown as text.
"""

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from evaluation.minutes.words import join_words, say_call, say_conflict, say_titles, visible
from roles.registry import ROLES
from roles.team import NO_OPTION, RECONCILER
from scenarios.team import PlayableCase, load_table
from simulator.conflicts import find_conflicts
from simulator.governance.resolution import MAX_RISK
from simulator.observer import Watch
from simulator.records import Turn

STYLES = ("cyan", "green", "yellow", "magenta", "blue", "red")  # by seat
MAX_WORDS_CHARS = 300


def live_view(show: Callable[[Text], object] | None = None, *, with_keys: bool = True) -> Watch:
    """Return what shows every episode line by line, as in `play_episodes(..., watch=live_view())`.

    `show` takes each line; None prints it. `with_keys`: every line begins with its case, for several at once.
    """
    say = show or Console(soft_wrap=True, highlight=False).print
    return lambda case, session: _EpisodeView(case, say, with_keys)


class _EpisodeView:
    """An Observer that shows one episode."""

    def __init__(self, case: PlayableCase, show: Callable[[Text], object], with_keys: bool) -> None:
        self._case, self._show, self._with_keys = case, show, with_keys
        self._seats = list(case.seats)
        self._reports: dict[str, dict[str, Any] | None] = {}
        self._say(None, f"the meeting on {case.key} opens; at the table: {self._titles(self._seats)}")

    def on_turn(self, role: str, turn: Turn, duration_s: float) -> None:
        how = f"{len(turn.completion_ids)} tokens in {duration_s:.2f} s"
        cut = ", cut off by the token limit" if turn.finish_reason == "length" else ""
        self._say(role, f"speaks ({how}{cut})", dim=True)

    def on_tool(self, role: str, call: str, observation: str) -> None:
        self._say(role, f"looks up {say_call(call)}: {_short(observation)}")

    def on_report(self, role: str, text: str, parsed: Any) -> None:
        self._reports[role] = parsed
        if parsed is not None:
            self._say(role, f"reports: {_say_report(parsed)}", bad=bool(parsed["false_claims"]))
        else:
            self._say(role, f"reports nothing valid: {_short(text)}", bad=True)
        if len(self._reports) == len(self._seats):
            table = load_table({seat: self._reports[seat] for seat in self._seats})
            for conflict in find_conflicts(self._case.public, table):
                is_hard, sentence = say_conflict(conflict, ROLES)
                self._say(None, f"{'conflict' if is_hard else 'differs'}: {sentence}", bad=is_hard)

    def on_ask(self, text: str, ask: Mapping[str, Any]) -> None:
        whom, most = self._titles([ask["seat"]]), ask["cost_at_most"]
        self._say(RECONCILER, f"asks {whom} for another offer on {ask['option']} at most {most} k$")

    def on_reply(self, role: str, text: str, parsed: Any) -> None:
        self._say(role, f"adds {_say_offer(parsed)}" if parsed else f"adds nothing: {_short(text)}")

    def on_decision(self, text: str, parsed: Any, round: int) -> None:
        words = f"decides nothing valid (draft {round}): {_short(text)}"
        if parsed is not None:
            funded = f"funds {join_words(parsed['fund'])}" if parsed["fund"] else "funds nothing"
            plan = f"decides for {parsed['option']} and {funded}"
            words = f"{'hands the case to a human' if parsed['escalate'] else plan} (draft {round})"
        self._say(RECONCILER, words, bad=parsed is None)

    def on_vote(self, role: str, text: str, parsed: Any) -> None:
        words = f"votes nothing valid: {_short(text)}"
        if parsed is not None:
            words = f"votes: {parsed['vote']}{', ' + _short(parsed['reason']) if parsed['reason'] else ''}"
        self._say(role, words, bad=parsed is None or parsed["vote"] != "accept")

    def on_governance(self, kind: str, body: Mapping[str, Any]) -> None:
        if kind == "requested":
            self._say(None, f"at the gate: {_name(body['option'])}, risk {body['risk_score']} of {MAX_RISK}")
        elif kind == "asked":
            self._say(None, f"waits for the person {_short(str(body['reviewer']))}")
        elif kind == "committed":
            self._say(None, f"approved by {body['reviewer']}: {_name(body['option'])}")
        elif kind in ("edited", "rejected"):
            words = f"to {_name(body['to'])}" if kind == "edited" else _short(str(body["feedback"]))
            self._say(None, f"{kind} by {body['reviewer']}: {words}", bad=kind == "rejected")
        elif kind == "refused":
            self._say(None, f"the answer did not count: {_short(str(body['reason']))}", bad=True)
        elif kind == "executed":
            self._say(str(body["role"]), f"carries out: {_short(str(body['action']))}")
        elif kind == "observed":
            for shock in body["shocks"]:
                self._say(None, f"unforeseen: {_short(shock)}", bad=True)
            kpis = join_words([f"{self._titles([role])} {kpi} %" for role, kpi in body["kpis"].items()])
            money = f"{body['worth']} of {body['promised']} k$ in place, {body['left']} left"
            self._say(None, f"observed: {kpis} of their limits; {money}")
        elif kind == "replanned":
            alert = f"alert of {self._titles(body['alerts'])} on {_name(body['option'])}"
            self._say(None, f"{alert}: planning again with {body['left']} k$", bad=True)
        elif kind == "closed":
            self._say(None, f"closed: {str(body['status']).replace('_', ' ')}")

    def on_end(self, error: str | None) -> None:
        words = "the meeting ends" if error is None else f"broke off: {_short(error)}"
        self._say(None, words, bad=error is not None)

    def _titles(self, roles: list[str]) -> str:
        return say_titles(roles, ROLES)

    def _say(self, role: str | None, words: str, *, dim: bool = False, bad: bool = False) -> None:
        line = Text(f"{self._case.key}  " if self._with_keys else "", style="dim")
        if role is not None:
            place = self._seats.index(role) if role in self._seats else -1
            line.append(f"{self._titles([role])} ", style=f"bold {STYLES[place % len(STYLES)]}")
        line.append(words, style="dim" if dim else "red" if bad else "default")
        self._show(line)


def _name(option: str) -> str:
    return "handing the case over" if option == NO_OPTION else f"option {visible(option)}"


def _short(text: str) -> str:
    return visible(" ".join(text.split()), max_chars=MAX_WORDS_CHARS) or "(nothing)"


def _say_report(report: Mapping[str, Any]) -> str:
    parts = [f"{offer['option']} {_say_offer(offer)}" for offer in report["offers"]]
    parts += [f"needs a part on {join_words(report['needs'])}"] if report["needs"] else []
    parts += [f"vetoes {join_words(report['veto'])}"] if report["veto"] else []
    false = len(report["false_claims"])
    parts += [f"{false} false claim{'s' if false > 1 else ''} struck out"] if false else []
    return _short("; ".join(parts) or "offers nothing")


def _say_offer(offer: Mapping[str, Any]) -> str:
    return visible(f"{', '.join(offer['choice'])} (cost {offer['cost']}, worth {offer['worth']})")
