"""`emads simulate`: a run's team plays test cases, or cases that people wrote, and what was said is kept."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from emads.commands.simulation_outputs import Outputs, watching
from evaluation.minutes.minutes import NOT_SCORED, minutes_file, write_minutes
from evaluation.minutes.transcript import render_text, transcript
from roles.errors import UserError
from roles.registry import ROLES
from scenarios.team import TeamScenario
from scenarios.team.playable import PlayableCase
from scenarios.written.written_case import FreeCase, read_case
from simulator.agents.agent_kinds import AgentKind, AgentLimits
from simulator.chat import Chat
from simulator.engines.base import Sampling
from simulator.export.atif import write_atif
from simulator.export.episode_files import episode_to_dict, write_episodes
from simulator.graph.runner import play_episodes
from simulator.graph.seating import list_speakers
from simulator.records import Episode
from simulator.reward import TeamRewardWeights, TeamVerdict, score_episode
from training.runs.run_folder import Run

if TYPE_CHECKING:
    from training.models.weights import Team


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A case, its episode, and the verdict where the case has a truth."""

    case: PlayableCase
    episode: Episode
    verdict: TeamVerdict | None


def simulate(
    path: Path,
    stage: str,
    *,
    cases: Sequence[Path] = (),
    index: int = 0,
    count: int = 1,
    outputs: Outputs,
    kinds: Mapping[str, AgentKind] | None = None,
    limits: AgentLimits | None = None,
    engine_name: str | None = None,
) -> None:
    """Play written cases, or (without any) `count` test cases from `index` on, greedily; print who said what.

    `kinds` and `limits`: see `simulator.agents.agent_kinds`. `engine_name`: in place of the run's own engine.

    Raises:
        UserError: a damaged case file, no weights of this stage, or a brief too long for the team's model.
    """
    run = Run.open(path)
    config, data = run.config, run.config.data
    case_first = config.model.prompt_layout == "case_first"
    written = [
        read_case(case, figures_only=config.model.short_prompts, case_first=case_first) for case in cases
    ]
    from training.data.demonstrations import team_scenario
    from training.models import engine_factory as engines
    from training.models.base_model import quiet_libraries
    from training.models.weights import load_team
    from training.stages import stages

    quiet_libraries()
    chosen_engine = engines.choose_engine(config.engine, engine_name)
    models, tokenizer = load_team(run, stage)
    chat = stages.make_chat(tokenizer, config)
    drawn = range(index, index + count) if not cases else ()
    chosen: list[PlayableCase] = [
        *written,
        *(team_scenario("test", data.seed, one, data.difficulties, data.conventions) for one in drawn),
    ]
    check_room(dict(zip(cases, written, strict=True)), models, chat)
    with (
        watching(outputs, len(chosen)) as watch,
        engines.serve(
            run, models, stage, end_id=chat.end_id, engine=chosen_engine, constrained=True
        ) as engine,
    ):
        episodes = asyncio.run(
            play_episodes(
                chosen,
                {role: role for role in models},
                engine,
                chat,
                Sampling(temperature=0.0, max_completion_tokens=config.marl.max_completion_tokens),
                rounds=config.marl.rounds,
                stream="simulate",
                watch=watch,
                kinds=kinds,
                limits=limits,
            )
        )
    weights = stages.reward_weights(config)
    played = [_score(case, episode, weights) for case, episode in zip(chosen, episodes, strict=True)]
    label = f"{stage} team of run {config.name}"
    for one in played:
        print(_say_result(one) if outputs.live else _render(one, label))
    for line in _write(played, outputs, label, chat, weights, kinds or {}):
        print(line)


def _score(case: PlayableCase, episode: Episode, weights: TeamRewardWeights) -> Played:
    verdict = None
    if isinstance(case, TeamScenario) and episode.error is None:
        verdict = score_episode(case, episode, weights)
    return Played(case=case, episode=episode, verdict=verdict)


def check_room(cases: Mapping[Path, FreeCase], models: "Team", chat: Chat) -> None:
    """Refuse a brief that the role's model has no positions for.

    Raises:
        UserError: names file, seat and both numbers.
    """
    for path, case in cases.items():
        for role, seat in case.seats.items():
            most = models[role].config.max_position_embeddings
            used = len(chat.open(ROLES[role], seat.brief, with_tools=False))
            if used > most * 3 // 4:
                raise UserError(
                    f"{path}: what {role} reads is {used} tokens, but this team's model has room for"
                    f" {most * 3 // 4}; shorten the case, give figures, or play it with a larger model"
                )


def _say_result(played: Played) -> str:
    if played.verdict is None:
        return f"{played.case.key}  {played.episode.error or NOT_SCORED}"
    return f"{played.case.key}  team reward {played.verdict.reward:.3f}: {played.verdict.explanation}"


def _render(played: Played, label: str) -> str:
    shown = asdict(played.verdict) if played.verdict is not None else {"explanation": NOT_SCORED}
    text = render_text(
        transcript(
            episode_to_dict(played.episode),
            shown,
            briefs={role: seat.brief for role, seat in played.case.seats.items()},
            label=label,
        )
    )
    if isinstance(played.case, FreeCase):
        options = [f"  {letter}. {meaning}" for letter, meaning in played.case.meanings.items()]
        text = "\n".join([played.case.title, *options, "", text])
    return text + "\n"


def _write(
    played: Sequence[Played],
    outputs: Outputs,
    label: str,
    chat: Chat,
    weights: TeamRewardWeights,
    kinds: Mapping[str, AgentKind],
) -> list[str]:
    """Write what was asked for; one line for each place."""
    lines = []
    speakers = {one.case.key: list_speakers(one.case, ROLES, kinds) for one in played}
    if outputs.html is not None:
        for one in played:
            page = outputs.html / minutes_file(one.episode)
            write_minutes(
                page,
                one.case,
                one.episode,
                label=label,
                chat=chat,
                verdict=one.verdict,
                weights=weights,
                speakers=speakers[one.case.key],
            )
            lines.append(f"minutes:  {page}")
    if outputs.atif is not None:
        for one in played:
            document = outputs.atif / minutes_file(one.episode).replace(".html", ".json")
            lines.append(f"ATIF:     {write_atif(document, one.episode, chat, roles=speakers[one.case.key])}")
    if outputs.episodes is not None:
        write_episodes(outputs.episodes, [one.episode for one in played])
        lines.append(f"episodes: {outputs.episodes}")
    if outputs.spans is not None:
        lines.append(f"spans:    {outputs.spans}")
    return lines
