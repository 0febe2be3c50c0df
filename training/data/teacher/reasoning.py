"""Binds what a play says to what it has read: each figure to its thing, each conclusion to the answer.

A thing is a set of names (upgrades, or seats whose offers are funded) on one option. What the brief, messages
and tools say of it is kept; a sentence about it must say the same. Words in other forms are not judged.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roles.team import NO_OPTION

Thing = tuple[str, frozenset[str]]  # option, names; no names: the option as it is
Named = Iterator[tuple[int, str, float]]  # place, name, value

_LETTER = "«[A-Z]»"
_NAME = "«[a-z]+»"
_AND = r"(?:, and |, | \+ | and | with | & | )"
_MENTION = re.compile(rf"(?:({_LETTER})(?::|,)? ?(?:fund )?)?({_NAME}(?:{_AND}{_NAME})*)|({_LETTER})")
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_AFTER = re.compile(rf"(?: for| at|:)? ({_NUMBER})(?![0-9.]*[0-9])")
_VERSUS = re.compile(r"\s*(?:for|instead of|rather than|than|over|versus|vs\.?|to)\s*")
SENTENCE = re.compile(r"\n|[.;!?](?=\s|$)")
_COMPARED = re.compile(rf"([a-z]+) ({_NUMBER}) to ({_NUMBER})(?:: (no more|no less|more|less|equal))?")
_MONEY = re.compile(rf"cost (?:[-+0-9 ]+ = )?({_NUMBER}) of ({_NUMBER})(?:: (fits|over))?")
_OWN_AMOUNT = re.compile(rf"\bfor at most ({_NUMBER})")
_AMOUNT = re.compile(
    rf"(?:at most|[Bb]udget[^.0-9]*|costs at most|(?:[Uu]p to|[Nn]ot? more than)(?= \d+ k\$)) ?({_NUMBER})"
)
_LIMIT = r"(?:limit|SLO|deadline|appetite|floor)"
_BREAKS = re.compile(rf"\b(?:break|violate|miss|exceed|fail)\w*\b[^,]*\b{_LIMIT}|\bcannot be run")
_KEEPS = re.compile(
    rf"\b(?:hold|keep|kept|meet|respect)\w*\b[^,]*\b{_LIMIT}|\b{_LIMIT}\b[^,]*\b(?:hold|kept)"
)
_NOT = re.compile(r"\b(?:not|no|never|nothing|neither|n't|unless|would|if)\b")
_CONCLUDES = re.compile(
    r"\b(?:best|better|choose|chosen|take|buy|pick|answer|decide|decision|optimum|recommend|therefore|so)\b"
    rf"[^«.0-9\n]{{0,40}}(?={_LETTER}|{_NAME})"
)
_SWAPPED = re.compile(rf"{_NAME} for {_NAME}: worth [0-9]+ to [0-9]+: more, cost .*: fits\b")
_EARLIER = re.compile(r"\b(?:best|so far|before|earlier|previous|than)\b")
_SAID = re.compile(rf"({_NAME}) (yes|no)\b")
TOKEN = re.compile(r"\n|[A-Za-z][A-Za-z0-9_]*|[0-9]+(?:\.[0-9]+)?|\S")
_IDENTIFIER = re.compile(r"[A-Z][0-9]{0,2}")
_FILLERS = frozenset(
    ["a", "an", "at", "are", "be", "for", "in", "is", "of", "option", "only", "the", "was", *":=(\"'*|$"]
)
_NO_NAMES = frozenset(["to", "by", "from", "than", "over", "under", "most", "least", "per"])
_MOST_FILLERS = 8


def read_figures(text: str) -> Iterator[tuple[str, float]]:
    """Named figures of a text: a word, at most some filler ("of option B is", ":"), a number, on one line.

    Example: list(read_figures("latency: 53 ms, cost 66")) == [("latency", 53.0), ("cost", 66.0)]
    """
    for _, name, value in _locate_figures(text):
        yield name, value


def _locate_figures(text: str) -> Iterator[tuple[int, str, float]]:
    """(place of the name, name, value)."""
    found = list(TOKEN.finditer(text))
    tokens = [one[0] for one in found]
    for position, token in enumerate(tokens):
        if not (token.isascii() and token[0].isalpha()) or token in _FILLERS or token in _NO_NAMES:
            continue
        for following in tokens[position + 1 : position + 2 + _MOST_FILLERS]:
            if following[0].isdigit() and following.isascii():
                is_named = _IDENTIFIER.fullmatch(token) is not None  # A, K2: as they are
                name = token if is_named else token.lower().removesuffix("s")
                yield found[position].start(), name, float(following)
            elif following.lower() in _FILLERS or _IDENTIFIER.fullmatch(following):
                continue
            break


@dataclass(slots=True)
class KnownThing:
    """What is known of one thing."""

    figures: dict[str, set[float]] = field(default_factory=dict)  # "": without a name
    breaks: bool | None = None  # its limit, or that of a seat; None: nobody told


@dataclass(frozen=True, slots=True)
class Mention:
    """A thing that a sentence names, and where."""

    start: int
    end: int
    thing: Thing


class Reading:
    """What has been read so far, and the fault of a text that says otherwise."""

    def __init__(self, names: Collection[str], labels: Collection[str], brief: str) -> None:
        """`labels` are names that are words besides."""
        self._codes = {name: _code(number) for number, name in enumerate(sorted({*names, *labels}))}
        self._names = {code: name for name, code in self._codes.items()}
        by_length = sorted(names, key=len, reverse=True)
        self._long = _any_of(by_length) if by_length else None
        self._labels = _any_of(sorted(labels, key=len, reverse=True)) if labels else None
        self._records: dict[Thing, KnownThing] = {}
        self._option = ""
        self._last: Thing | None = None
        self._best: Thing | None = None
        self._amounts: set[float] = set()
        self._own_amount: float | None = None
        self.concluded: Thing | None = None
        self.num_figures = 0  # that tools gave and the play stated
        self._given: set[float] = set()
        self._told: set[str] = set()  # names of figures that tools gave
        self.hear(brief)

    def hear(self, text: str) -> None:
        """The brief, or a message to the player."""
        self._amounts.update(float(found) for found in _AMOUNT.findall(text))
        for line in text.splitlines():
            if found := re.match(r".*\b[Oo]ption ([A-Z])\b", line):
                self._option = found[1]
            for sentence in SENTENCE.split(line):
                self._learn(sentence, (self._option, frozenset()))

    def observe(self, arguments: Mapping[str, Any], text: str) -> None:
        """What a tool said of what it was asked about."""
        self._option = str(arguments.get("option", self._option))
        listed = next((value for value in arguments.values() if isinstance(value, list)), None)
        asked: Thing = (self._option, frozenset(map(str, listed or ())))
        for line in text.splitlines():
            self._learn(line, asked)
        self._last = asked if listed is not None else None
        for _, name, value in _locate_figures(text):
            self._told.add(name)
            self._given.add(value)

    def _learn(self, text: str, about: Thing) -> None:
        masked = self._mask(text)
        mentions = self._find_mentions(masked)
        claims = {mention.thing for mention in mentions} or {about}
        for place, name, value in _locate_figures(masked):
            before = [mention for mention in mentions if mention.end <= place]
            things = {before[-1].thing if before else about}
            if before and masked.startswith("«"):
                things.add((before[0].thing[0], frozenset()))
            for thing in things:
                self._record(thing).figures.setdefault(name, set()).add(value)
        for mention in mentions:
            if found := _AFTER.match(masked, mention.end):
                self._record(mention.thing).figures.setdefault("", set()).add(float(found[1]))
        if "cannot be run" in text or "BREAKS" in text:
            is_broken = True
        elif "limit holds" in text or "worth" in text:
            is_broken = False
        else:
            return
        for thing in claims:
            self._record(thing).breaks = is_broken
            if masked.startswith("«"):
                self._record((thing[0], frozenset())).breaks = is_broken

    def _record(self, thing: Thing) -> KnownThing:
        return self._records.setdefault(thing, KnownThing())

    def _mask(self, text: str) -> str:
        """The text with «code» for each known name, «A» for an option where it is not the article."""
        if self._long is not None:
            text = self._long.sub(lambda found: f"«{self._codes[found[0]]}»", text)
        text = re.sub(r"(?<![\w«])([A-Z])(?=:| for | fund | [a-z]+ (?:yes|no)\b)", r"«\1»", text)
        text = re.sub(r"\b([Oo]ption|best|favour) ([A-Z])\b", r"\1 «\2»", text)
        text = re.sub(r"(?<![\w«])([A-Z])(?=,? «)", r"«\1»", text)
        if self._labels is None:
            return text
        label = self._labels.pattern
        text = re.sub(rf"(?<![\w«])([A-Z]) (?={label} {label}|{label} [0-9])", r"«\1» ", text)
        run = rf"((?:{_LETTER} |fund |\[|\bfor )(?:{label})(?:(?:, | \+ | and | )(?:{label}))*)"
        text = re.sub(run + r"(?=$|\W)(?! (?:of|[-+=]))", self._mask_labels, text)
        return re.sub(rf"{label}(?= (?:for|yes|no)\b)", self._mask_labels, text)

    def _mask_labels(self, found: re.Match[str]) -> str:
        assert self._labels is not None
        return self._labels.sub(lambda label: f"«{self._codes[label[0]]}»", found[0])

    def _find_mentions(self, masked: str) -> list[Mention]:
        mentions = []
        for found in _MENTION.finditer(masked):
            option = (found[1] or found[3] or self._option).strip("«»")
            names = frozenset(self._names[code] for code in re.findall("«([a-z]+)»", found[2] or ""))
            mentions.append(Mention(found.start(), found.end(), (option, names)))
        return mentions

    def find_figures(self, sentence: str) -> Named:
        """The named figures of a sentence; a figure's name that is part of a thing's is none."""
        return _locate_figures(self._mask(sentence))

    def check(self, text: str) -> str | None:
        """The first thing that a text says otherwise than what was read; None if there is none."""
        for sentence in SENTENCE.split(text):
            masked = self._mask(sentence)
            fault = self._check_sentence(masked)
            if fault is not None:
                return fault
        return None

    def _check_sentence(self, masked: str) -> str | None:
        mentions = self._find_mentions(masked)
        if found := _OWN_AMOUNT.search(masked):
            self._own_amount = float(found[1])
            self._best = None
        figures = list(_locate_figures(masked))
        self.num_figures += sum(value in self._given for _, _, value in figures)
        for place, name, value in figures:
            allowed = self._list_allowed(masked, place, name, mentions)
            if allowed is not None and value not in allowed:
                return f"{name} {value:g}, which is another's"
        return (
            self._check_comparisons(masked, mentions)
            or self._check_money(masked)
            or self._check_limits(masked, mentions)
            or self._check_values(masked, mentions)
            or self._conclude(masked, mentions)
        )

    def _list_allowed(
        self, masked: str, place: int, name: str, mentions: Sequence[Mention]
    ) -> set[float] | None:
        """What may be stated there under this name; None: nothing is known of what it is about."""
        if name not in self._told or re.match(rf"\w+ {_NUMBER} [-+*/=]", masked[place:]):
            return None
        before = [mention for mention in mentions if mention.end <= place]
        after = [mention for mention in mentions if mention.start > place]
        if before:
            about = [before[-1].thing]
            for one, other in zip(reversed(before[:-1]), reversed(before), strict=False):
                if not _VERSUS.fullmatch(masked, one.end, other.start):
                    break
                about.append(one.thing)
        else:
            about = ([] if self._last is None else [self._last]) + [mention.thing for mention in after[:1]]
            if _EARLIER.search(masked[:place]):
                return None
        known = [self._records[thing].figures for thing in about if thing in self._records]
        values = [figures[name] | figures.get("", set()) for figures in known if name in figures]
        return set[float]().union(*values) if values else None

    def _check_comparisons(self, masked: str, mentions: Sequence[Mention]) -> str | None:
        for found in _COMPARED.finditer(masked):
            name, one, other, said = found[1], float(found[2]), float(found[3]), found[4]
            right = {"more": one > other, "less": one < other, "equal": one == other}
            right |= {"no more": one <= other, "no less": one >= other}
            if said is not None and not right[said]:
                return f"{found[0]!r}, which is false"
            compared = [mention.thing for mention in mentions if mention.end <= found.start()]
            if len(compared) < 2 or compared[-1][1] == frozenset():
                compared = [] if self._best is None else [self._best]
            known = [self._records[thing].figures for thing in compared if thing in self._records]
            if not known:
                known = [record.figures for record in self._records.values()]
            if not any(other in figures.get(name, ()) for figures in known):
                return f"{name} {other:g}, to which nothing compares"
        return None

    def _check_money(self, masked: str) -> str | None:
        for found in _MONEY.finditer(masked):
            cost, amount, said = float(found[1]), float(found[2]), found[3]
            if amount not in self._amounts and amount != self._own_amount:
                return f"{found[0]!r}, which is not the amount"
            if said is not None and (said == "fits") != (cost <= amount):
                return f"{found[0]!r}, which is false"
        return None

    def _check_limits(self, masked: str, mentions: Sequence[Mention]) -> str | None:
        """A claim that a limit breaks or holds, against what was told of the thing next before it."""
        for claim, is_broken in ((_BREAKS, True), (_KEEPS, False)):
            for found in claim.finditer(masked):
                if _NOT.search(masked[max(0, found.start() - 20) : found.end()]):
                    continue
                before = [mention.thing for mention in mentions if mention.end <= found.start()]
                after = [mention.thing for mention in mentions if mention.start > found.start()]
                thing = before[-1] if before else self._last if self._last is not None else None
                thing = after[0] if thing is None and after else thing
                if thing is not None and self._is_broken(thing) is (not is_broken):
                    return f"{found[0]!r}, which the tools deny"
        return None

    def _is_broken(self, thing: Thing) -> bool | None:
        return self._records[thing].breaks if thing in self._records else None

    def _check_values(self, masked: str, mentions: Sequence[Mention]) -> str | None:
        """A number right after a thing is a figure of this thing."""
        for mention in mentions:
            found = _AFTER.match(masked, mention.end)
            if found is None or not mention.thing[1]:
                continue
            self.num_figures += float(found[1]) in self._given
            record = self._records.get(mention.thing, KnownThing())
            if not any(float(found[1]) in values for values in record.figures.values()):
                return f"{float(found[1]):g} of {' + '.join(sorted(mention.thing[1]))}, which nobody gave"
        return None

    def _conclude(self, masked: str, mentions: Sequence[Mention]) -> str | None:
        for found in _CONCLUDES.finditer(masked):
            mention = next((one for one in mentions if one.start >= found.end()), None)
            if mention is None or _NOT.search(masked[max(0, found.start() - 12) : found.start()]):
                continue
            if self._is_broken(mention.thing):
                return f"best {' + '.join(sorted(mention.thing[1]))}, which breaks a limit"
            self.concluded = self._best = mention.thing
            self._option = mention.thing[0]
        swap = _SWAPPED.match(masked)
        if swap is not None and self._best is not None and len(mentions) > 1:
            one, other = mentions[0].thing[1], mentions[1].thing[1]
            self.concluded = self._best = (self._best[0], self._best[1] - other | one)
        return None

    def find_contradiction(self, text: str, answer: Mapping[str, Any]) -> str | None:
        """Why what was said does not lead to this answer; None if it does. `text`: the words before it."""
        if "offers" in answer:
            return self._check_offers(text, answer["offers"])
        if "part" in answer:
            wanted: Thing = (self._option, frozenset(answer["part"]))
        elif answer.get("option") == NO_OPTION:
            is_said = re.search(
                r"\b[Nn]o(?:ne)?\b|cannot be run|escalat", f"{text} {answer.get('reason', '')}"
            )
            return None if is_said else "no reason to escalate"
        elif "fund" in answer:
            wanted = (str(answer["option"]), frozenset(answer["fund"]))
        else:
            return None
        if self.concluded is None:
            return "no conclusion: its words do not lead to the answer"
        if self.concluded != wanted:
            return f"that best is {' + '.join(sorted(self.concluded[1])) or 'nothing'}, and answers otherwise"
        if self.num_figures == 0:
            return "no figure that a tool gave"
        said = {self._names[name.strip("«»")]: word for name, word in _SAID.findall(self._mask(text))}
        conflicts = answer.get("conflicts", ())
        wrong = [seat for seat, word in said.items() if (word == "no") != (seat in conflicts)]
        return f"{said[wrong[0]]} of {wrong[0]}, and answers otherwise" if wrong else None

    def _check_offers(self, text: str, offers: Sequence[Mapping[str, Any]]) -> str | None:
        if offers and self.num_figures == 0:
            return "no figure that a tool gave"
        wanted = {offer["option"]: frozenset(offer["part"]) for offer in offers}
        for line in text.splitlines():
            masked = self._mask(line)
            if not masked.startswith("«") or "at most" in masked:
                continue
            for mention in self._find_mentions(masked)[:1]:
                option, names = mention.thing
                if names and wanted.get(option, names) != names:
                    return f"{' + '.join(sorted(names))} on {option}, and offers otherwise"
        return None


def list_upgrades(facts: Any) -> Iterator[str]:
    """The names of all upgrades in a case's facts."""
    if isinstance(facts, Mapping):
        for key, value in facts.items():
            if key == "upgrades" and isinstance(value, Mapping):
                yield from map(str, value)
            else:
                yield from list_upgrades(value)


def _any_of(words: Iterable[str]) -> re.Pattern[str]:
    return re.compile(rf"(?<![A-Za-z0-9«])(?:{'|'.join(map(re.escape, words))})(?![A-Za-z0-9»])")


def _code(number: int) -> str:
    """Letters for a number: no digit may be read as a figure."""
    return "".join("abcdefghij"[int(digit)] for digit in f"{number:02d}")
