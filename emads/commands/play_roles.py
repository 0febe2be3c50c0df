"""`emads play`: roles alone on validation scenarios, so that reading plays spends nothing sealed."""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from evaluation.minutes.words import visible
from evaluation.stats.intervals import mean_interval, paired_interval
from evaluation.summary.tables import PlainTable, print_tables, role_title
from roles.errors import UserError
from scenarios.base import Scenario
from scenarios.registry import families
from simulator.agents.solo import SoloEpisode, play_solos
from simulator.engines.base import Sampling
from training.models.base_model import quiet_libraries, use_threads
from training.models.engine_factory import serve
from training.models.weights import load_weights, stage_marker
from training.runs.run_folder import Run
from training.stages.from_config import make_chat
from training.stages.rl import draw_scenario

RESPONSE = re.compile(r"<tool_response>\n?(.*?)\n?</tool_response>", re.DOTALL)  # what chat templates write
Decode = Callable[[list[int]], str]  # token ids -> their text without special tokens
TRAINED = ("sft", "grpo", "marl")
TITLES = ("role", "stage", "plays", "reward", "exact", "feasible", "gain", "own tokens", "faults")


def play_roles(
    path: Path,
    roles: Sequence[str],
    stages: Sequence[str],
    *,
    count: int,
    temperature: float = 1.0,
    num_shown: int = 0,
) -> None:
    """Print the first plays in words, then what each role earns after each stage on the same scenarios.

    No `stages`: every stage that is finished for the role. It plays with the run's `threads_per_worker`, so
    that several commands can play side by side.

    Raises:
        UserError: no such weights.
    """
    quiet_libraries()
    run = Run.open(path)
    use_threads(run.config.threads_per_worker)
    rows: list[tuple[str, ...]] = []
    for role in roles:
        scenarios = [draw_scenario(run, role, "validation", 0, place) for place in range(count)]
        first: list[float] | None = None
        for stage in stages or _list_finished(run, role):
            episodes, decode = _play(run, role, stage, scenarios, temperature)
            for episode in episodes[:num_shown]:
                print("\n".join(tell_play(episode, stage, decode)), flush=True)
            rewards = [episode.verdict.reward for episode in episodes]
            gain = "" if first is None else f"{paired_interval(rewards, first):+.2f}"
            first = first or rewards
            rows.append((role_title(role), stage, *sum_up(episodes, gain)))
    title = f"Validation scenarios, temperature {temperature:g}"
    caption = "gain: over the first stage, on the same scenarios; brackets: 95 % intervals"
    print_tables([PlainTable(title=title, titles=TITLES, rows=tuple(rows), num_names=2, caption=caption)])


def _list_finished(run: Run, role: str) -> list[str]:
    finished = [stage for stage in TRAINED if run.is_done(stage_marker(run, stage, role))]
    if not finished:
        raise UserError(f"role {role!r} has no trained weights in {run.path}; play the base by --stage base")
    return finished


def _play(
    run: Run, role: str, stage: str, scenarios: Sequence[Scenario], temperature: float
) -> tuple[list[SoloEpisode], Decode]:
    grpo = run.config.grpo
    model, tokenizer = load_weights(run, stage, role)
    chat = make_chat(tokenizer, run.config)
    with serve(run, {role: model}, stage, end_id=chat.end_id) as engine:
        episodes = asyncio.run(
            play_solos(
                scenarios,
                policy=role,
                engine=engine,
                chat=chat,
                sampling=Sampling(temperature=temperature, max_completion_tokens=grpo.max_completion_tokens),
                stream="play",
                max_turns=grpo.max_turns,
                max_failed_calls=grpo.max_failed_calls,
                families=families(run.config.model.prompts),
                kind=grpo.agent,
            )
        )
    return episodes, lambda ids: str(tokenizer.decode(ids, skip_special_tokens=True))


def sum_up(episodes: Sequence[SoloEpisode], gain: str = "") -> tuple[str, ...]:
    """The cells of a table row: plays, reward, shares, `gain`, mean of sampled tokens, kinds of fault."""
    verdicts = [episode.verdict for episode in episodes]
    tokens = [one.trajectory.num_own for one in episodes]
    faults = Counter(
        f"cut off by {one.trajectory.ended_by}" if one.trajectory.truncated else str(one.verdict.failure)
        for one in episodes
        if one.verdict.failure is not None
    )
    return (
        str(len(episodes)),
        f"{mean_interval([one.reward for one in verdicts]):.2f}",
        f"{sum(one.exact for one in verdicts) / len(verdicts):.0%}",
        f"{sum(one.feasible for one in verdicts) / len(verdicts):.0%}",
        gain,
        f"{sum(tokens) / len(tokens):.0f}",
        ", ".join(f"{kind} {number}" for kind, number in faults.most_common()),
    )


def tell_play(episode: SoloEpisode, stage: str, decode: Decode) -> Iterator[str]:
    """Lines of one play: the brief, what the role said and what its tools answered, the verdict."""
    scenario, verdict = episode.scenario, episode.verdict
    yield f"== {scenario.key}, after {stage}"
    yield visible(scenario.brief)
    for place, turn in enumerate(episode.trajectory.turns):
        if place:
            read = decode(list(turn.context_ids))
            observed = "\n".join(RESPONSE.findall(read)) or read.strip()
            yield from (f"   {line}" for line in visible(observed).splitlines())
        yield f"-> {visible(turn.text)}"
    yield f"== {verdict.reward:.2f}: {verdict.explanation}\n"
