"""Test cases as the team of every training stage plays them, chosen by a fixed rule, for the report."""

from collections.abc import Iterable
from typing import Any

from evaluation.minutes.transcript import Transcript, choose_cases, transcript, write_side_by_side
from evaluation.scoring.sealed_plays import play_team
from evaluation.summary.tables import STAGE_TITLES
from roles.team import TEAM_ROLES
from simulator.export.episode_files import episode_to_dict
from simulator.reward import score_episode
from training.data.demonstrations import team_scenario
from training.models.base_model import quiet_libraries
from training.models.weights import Team, load_team, stage_marker
from training.runs.run_folder import Run
from training.stages.from_config import choose_game, make_chat, team_engine

NUM_CASES = 24  # played after every stage, of which `choose_cases` shows three
STAGES = ("sft", "grpo", "marl")


def write_episodes_side_by_side(run: Run) -> None:
    """Play the first test cases after every finished stage and store the chosen ones in the run folder."""
    quiet_libraries()
    finished = [stage for stage in STAGES if stage == "marl" or _is_trained(run, stage)]
    plays = [play_transcripts(run, *load_team(run, stage), range(NUM_CASES), stage) for stage in finished]
    write_side_by_side(run.path, choose_cases(list(zip(*plays, strict=True))))


def _is_trained(run: Run, stage: str) -> bool:
    return all(run.is_done(stage_marker(run, stage, role)) for role in TEAM_ROLES)


def play_transcripts(
    run: Run, models: Team, tokenizer: Any, indices: Iterable[int], stage: str
) -> list[Transcript]:
    """Greedy episodes of test cases by their index, as readable transcripts."""
    config = run.config
    data = config.data
    cases = [team_scenario("test", data.seed, index, data.difficulties) for index in indices]
    episodes = play_team(
        cases,
        engine=team_engine(models, tokenizer, config, stage),
        chat=make_chat(tokenizer, config),
        temperature=0.0,
        max_completion_tokens=config.marl.max_completion_tokens,
        stream="simulate",
        make_game=choose_game(config),
        rounds=config.marl.rounds,
    )
    weights = config.team_reward
    return [
        transcript(
            episode_to_dict(episode),
            _verdict_numbers(score_episode(case, episode, weights)),
            briefs={role: choose_game(config)(case).write_report_brief(role) for role in case.seats},
            label=STAGE_TITLES[stage],
        )
        for case, episode in zip(cases, episodes, strict=True)
    ]


def _verdict_numbers(verdict: Any) -> dict[str, Any]:
    names = ("reward", "value", "consensus", "unresolved", "escalation", "explanation")
    return {name: getattr(verdict, name) for name in names}
