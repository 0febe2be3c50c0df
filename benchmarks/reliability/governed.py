"""R7, G1, I1, D2, V9, L1: the probes of the tests of governed episodes, at full count.

The probes stand in tests/; here they are only repeated over seeds, cases and carriers.
"""

import asyncio
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

TESTS = Path(__file__).parent.parent.parent / "tests"
Trials = Iterator[tuple[str, str, Callable[[], str]]]


def load(name: str) -> ModuleType:
    """A module of tests/."""
    for folder in (TESTS / "support", *TESTS.rglob(f"{name}.py")):
        path = str(folder if folder.is_dir() else folder.parent)
        if path not in sys.path:
            sys.path.insert(0, path)
    return __import__(name)


def soak(bench: Any, count: int) -> Trials:
    """L1: memory and descriptors over `count` episodes of either protocol, in a process of its own."""
    for protocol in ("full", "assess"):

        def call(protocol: str = protocol) -> str:
            command = [
                sys.executable,
                "-m",
                "benchmarks.soak",
                f"--episodes={count}",
                f"--protocol={protocol}",
            ]
            done = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True)
            lines = [*done.stdout.splitlines(), *done.stderr.splitlines()]
            return "" if done.returncode == 0 else lines[-1][:300]

        yield f"{protocol}-{count}", "flat", call


def check(probe: Callable[[], Any]) -> str:
    """What was wrong, "" where nothing was."""
    try:
        probe()
    except AssertionError as error:
        return f"{error}"[:300] or "an assertion failed"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]
    return ""


def kills(bench: Any, count: int) -> Trials:
    """R7: kill -9 at a random statement or moment, then play to the end: everything as undisturbed."""
    durability = load("test_durability")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        calm = durability.measure(folder / "calm.db")
        killer = stack.enter_context(durability.start_killer())
        for number in range(count):

            def call(number: int = number) -> str:
                path = folder / f"{number}.db"
                return check(partial(durability.kill_and_resume, killer, path, number, calm))

            yield f"{number}", "any statement" if number % 4 else "any time", call


@cache
def find_cases(count: int) -> tuple[int, ...]:
    """Cases that wait at the gate with a plan of one of the options A to C: the probes need one to attack."""
    tables = load("governed_tables")

    async def fits(index: int) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            try:
                async with tables.stand_at_gate(Path(folder), index=index) as stand:
                    proposal = await stand.proposal()
            except AssertionError:
                return False
            return proposal.option in ("A", "B", "C") and len(proposal.parts) == 4

    found: list[int] = []
    index = 0
    while len(found) < count:
        if asyncio.run(fits(index)):
            found.append(index)
        index += 1
    return tuple(found)


def gate_probes(bench: Any, count: int) -> Trials:
    """G1: every way past the gate on `count` probes; every second case with batched commits."""
    gate = load("test_gate_bypass")
    probes: list[tuple[str, Callable[..., Any]]] = [(name, gate.break_in) for name in gate.PROBES]
    probes += [(probe.__name__, gate.use_twice) for probe in gate.AT_MOST_ONE]
    by_name = {probe.__name__: probe for probe in gate.AT_MOST_ONE}
    num_seeds = -(-count // len(probes))
    for seed, index in enumerate(find_cases(num_seeds)):
        for name, attempt in probes:

            def call(name: str = name, attempt: Any = attempt, index: int = index, seed: int = seed) -> str:
                with tempfile.TemporaryDirectory() as folder:
                    probe = attempt(
                        by_name.get(name, name), Path(folder), index=index, is_grouped=seed % 2 == 1
                    )
                    return check(lambda: asyncio.run(probe))

            yield f"{seed}-{name}", "no commit" if attempt is gate.break_in else "one commit", call


def injections(bench: Any, count: int) -> Trials:
    """I1: 12 families against 5 roles by 5 carriers, the first 120 as in the tests, on further cases."""
    injection = load("test_injection")
    cases = load("governed_tables").draw_cases(5)
    carriers = (*injection.CARRIERS, *injection.MORE_CARRIERS)
    combinations = [
        (case, family, role, carrier)
        for case in cases
        for carrier in carriers
        for role in injection.ROLES
        for family in injection.FAMILIES
    ]

    @cache
    def control(key: str) -> Any:
        case = next(case for case in cases if case.key == key)
        return injection.attack("cto", "peer", "", case)[0]

    for case, family, role, carrier in combinations[:count]:

        def call(case: Any = case, family: str = family, role: str = role, carrier: str = carrier) -> str:
            return check(lambda: injection.inject(family, role, carrier, control(case.key), case))

        yield f"{case.key}-{carrier}-{role}-{family}", carrier, call


def shuffles(bench: Any, count: int) -> Trials:
    """D2: arrival and order shuffled, 1 and 8 at once: the same traces."""
    runner = load("test_governance_runner")

    @cache
    def wanted() -> dict[str, Any]:
        return dict(runner.summarise(runner.play(runner.CASES, concurrency=1, engine=runner.Shuffled(0))))

    for seed in range(1, count + 1):

        def call(seed: int = seed) -> str:
            return check(lambda: runner.replay_shuffled(wanted(), seed))

        yield f"{seed}", "same traces", call


def axioms(bench: Any, count: int) -> Trials:
    """V9: every axiom of the team reward on `count` random plays."""
    reward = load("test_reward")
    for axiom in (
        reward.test_order_of_roles_does_not_matter,
        reward.test_a_vote_twice_counts_once,
        reward.test_a_silent_agent_never_raises_the_reward,
        reward.test_agreeing_on_a_bad_decision_earns_nothing,
        reward.test_no_votes_make_a_worthless_decision_pay,
        reward.test_only_the_optimum_with_right_votes_pays_one,
    ):
        yield f"{axiom.__name__}-{count}", "axioms", partial(check, partial(axiom, count=count))
    free_rider = reward.test_a_free_rider_never_beats_an_honest_voter
    for vote in (reward.ACCEPT, reward.OBJECT, ""):
        probe = partial(free_rider, vote, count=count)
        yield f"free rider {vote}-{count}", "axioms", partial(check, probe)
