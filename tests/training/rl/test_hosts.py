"""Rollout hosts: the same weights wherever a step is played, and no loss when hosts die, hang or lie."""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from joint_learning import CONFIG, Engines, draw, make_learner
from tiny_models import same_weights, small_model, tiny_chat, weights_of

from reliability.joint.scripted_models import ScriptedModelEngine, half_expert_team
from roles.errors import UserError
from roles.registry import ROLES
from training.models.adapters import role_weights
from training.rl.hosts import (
    HostLostError,
    HostPool,
    HostSchedule,
    Job,
    RolloutHost,
    cut_jobs,
    encode_weights,
)
from training.rl.loop import RLLearner
from training.rl.team.algorithm import SHORT_GAME, choose_player
from training.runs.run_errors import WorkerLostError


class FakeHost:
    """Answers at once, in this process; `fails` decides about each call."""

    def __init__(self, number: int, fails: Callable[[str, tuple[Any, ...]], None]) -> None:
        self.number, self.fails = number, fails
        self.loaded: dict[str, int] = {}
        self.is_closed = False

    async def start(self) -> None:
        self.fails("start", ())

    async def call(self, method: str, *arguments: Any) -> Any:
        await asyncio.sleep(0)
        self.fails(method, arguments)
        if method == "load":
            self.loaded[arguments[0]] = arguments[1]
            return None
        job, version = arguments
        assert self.loaded == {"cto": version}, "a host served before its weights were loaded"
        return [(job.stream, place) for place, _ in enumerate(job.cases, job.first_place)]

    def close(self) -> None:
        self.is_closed = True


def run_schedule(
    fails: Callable[[str, tuple[Any, ...]], None], *, num_hosts: int = 2, timeout_s: float = 60.0
) -> tuple[list[Any], list[FakeHost], int]:
    """Two steps of three cases in blocks of one on fake hosts."""
    made: list[FakeHost] = []

    def make(number: int) -> FakeHost:
        made.append(FakeHost(number, fails))
        return made[-1]

    async def play() -> tuple[list[Any], int]:
        schedule = HostSchedule(make, num_hosts, timeout_s=timeout_s)
        try:
            played = [
                await schedule.play({"cto": b""}, step, cut_jobs(draw(3), f"marl/{step}", block_size=1))
                for step in range(2)
            ]
        finally:
            await schedule.close()
        return played, schedule.num_lost

    played, num_lost = asyncio.run(play())
    return played, made, num_lost


EXPECTED = [[[(f"marl/{step}", place)] for place in range(3)] for step in range(2)]


def test_jobs_come_back_in_order_from_hosts_that_hold_their_weights() -> None:
    played, made, num_lost = run_schedule(lambda method, arguments: None)
    assert played == EXPECTED
    assert (len(made), num_lost) == (2, 0)
    assert all(host.is_closed for host in made)


@pytest.mark.parametrize("place", ["start", "load", "play"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_job_of_a_lost_host_is_played_again_whole(place: str, number: int) -> None:
    visits = 0

    def fail(method: str, arguments: tuple[Any, ...]) -> None:
        nonlocal visits
        visits += method == place
        if method == place and visits == number:
            raise HostLostError("killed")

    played, made, num_lost = run_schedule(fail)
    assert played == EXPECTED
    if visits >= number:
        assert (len(made), num_lost) == (3, 1)
        assert all(host.is_closed for host in made)


def test_work_that_kills_every_host_stops_the_run() -> None:
    def fail(method: str, arguments: tuple[Any, ...]) -> None:
        if method == "play" and arguments[0].first_place == 1:
            raise HostLostError("killed")

    with pytest.raises(
        WorkerLostError, match=r"5 rollout hosts in a row.*ended; look at the machine's memory"
    ):
        run_schedule(fail)


@pytest.mark.parametrize("place", ["start", "play"])
def test_a_mistake_in_a_host_is_raised_as_itself(place: str) -> None:
    def fail(method: str, arguments: tuple[Any, ...]) -> None:
        if method == place:
            raise UserError("no sound grpo weights in runs/x")

    with pytest.raises(UserError, match="no sound grpo weights in runs/x"):
        run_schedule(fail)


def test_a_host_refuses_to_play_with_other_weights_than_asked() -> None:
    host = make_host()
    with pytest.raises(RuntimeError, match=r"version 3 is to be played, but loaded are \{\}"):
        host.play(Job(cases=tuple(draw(1)), stream="marl/0"), 3)
    for role, data in encode_weights({r: role_weights(host.models[r], r) for r in ROLES}).items():
        host.load(role, 2, data)
    with pytest.raises(RuntimeError, match="version 3 is to be played"):
        host.play(Job(cases=tuple(draw(1)), stream="marl/0"), 3)


def make_engine() -> ScriptedModelEngine:
    return ScriptedModelEngine(half_expert_team(draw(6)), chat=tiny_chat(), end_id=tiny_chat().end_id)


def make_host(shift: int = 0) -> RolloutHost:
    models = {role: small_model(place + shift) for place, role in enumerate(ROLES)}
    player = choose_player(CONFIG, chat=tiny_chat(), roles=tuple(ROLES), make_game=SHORT_GAME)
    return RolloutHost(models, player, make_engine)


class LocalHost:
    """A real host in this process, that begins with other weights than the learner's."""

    def __init__(self, number: int) -> None:
        self.host = make_host(shift=7)

    async def start(self) -> None: ...

    async def call(self, method: str, *arguments: Any) -> Any:
        return await asyncio.to_thread(getattr(self.host, method), *arguments)

    def close(self) -> None: ...


def learn(learner: RLLearner) -> dict[str, Any]:
    for step in range(2):
        learner.step(draw(6)[3 * step : 3 * step + 3])
    return {role: weights_of(model) for role, model in learner.models.items()}


@pytest.mark.slow
def test_two_steps_on_hosts_give_the_weights_of_no_hosts_to_the_bit(scripted: Engines) -> None:
    alone = learn(make_learner(block_size=2))
    pool = HostPool(LocalHost, 2, timeout_s=300)
    try:
        played = learn(make_learner(hosts=pool, block_size=2))
    finally:
        pool.close()
    assert len(scripted) == 4, "two blocks of two steps in this process, none beside the hosts"
    start = {role: weights_of(small_model(place)) for place, role in enumerate(ROLES)}
    for role, weights in alone.items():
        assert not same_weights(weights, start[role]), f"{role} learnt nothing"
        assert same_weights(weights, played[role])


class VirtualTime(asyncio.SelectorEventLoop):
    """An event loop in which sleeping takes no time."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self._selector: Any
        wait = self._selector.select

        def jump(timeout: float | None) -> Any:
            self.now_s += timeout or 0.0
            return wait(0)

        self._selector.select = jump

    def time(self) -> float:
        return self.now_s


class SleepingHost:
    """Takes an exponential time for each job, as long as the same job would take anywhere."""

    spans: ClassVar[list[tuple[float, float]]] = []  # of all hosts: when each job began and ended

    async def start(self) -> None: ...

    async def call(self, method: str, *arguments: Any) -> Any:
        if method == "play":
            job: Job = arguments[0]
            took_s = random.Random(f"{job.stream}/{job.first_place}").expovariate(1.0)
            began_s = asyncio.get_running_loop().time()
            await asyncio.sleep(took_s)
            self.spans.append((began_s, began_s + took_s))
        return []

    def close(self) -> None: ...


def measure_busy_share(num_hosts: int, blocks_per_host: int, staleness: int, num_steps: int = 5) -> float:
    """Share of the hosts' time at work until the last step is handed out, with a learner that takes 1 s."""
    cases = draw(1) * (num_hosts * blocks_per_host)
    SleepingHost.spans.clear()

    async def train() -> float:
        schedule = HostSchedule(lambda number: SleepingHost(), num_hosts, timeout_s=1e9)
        under_way: deque[asyncio.Task[Any]] = deque()
        last_s = 0.0
        for step in range(num_steps):
            jobs = cut_jobs(cases, f"marl/{step}", block_size=1)
            under_way.append(asyncio.create_task(schedule.play({"cto": b""}, step, jobs)))
            last_s = asyncio.get_running_loop().time()
            if len(under_way) > staleness:
                await under_way.popleft()
                await asyncio.sleep(1.0)
        await asyncio.gather(*under_way)
        await schedule.close()
        return last_s

    with asyncio.Runner(loop_factory=VirtualTime) as runner:
        end_s = runner.run(train())
    busy_s = sum(min(end, end_s) - min(began, end_s) for began, end in SleepingHost.spans)
    return busy_s / (num_hosts * end_s)


@pytest.mark.slow
def test_512_hosts_are_busy_where_play_runs_one_step_ahead() -> None:
    assert measure_busy_share(512, 8, staleness=1) >= 0.95
    assert measure_busy_share(512, 8, staleness=0) < 0.7, "hosts wait for the longest job and the learner"
