"""Answers for people: where the trained team is unsure, what it read and said, and what it might have said.

A case is uncertain when the team escalated it, wrote no valid decision, decided differently when asked again
on the same reports, or when a specialist objected. `emads review RUN` shows the queue; what people say of it
becomes labels (`training/feedback`).
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from roles.team import RECONCILER
from scenarios.team import PlanGame, TeamScenario
from scenarios.team.offers import offers_on
from simulator.engines.base import Sampling
from simulator.engines.embedded.hf_chat import HFChat
from simulator.governance.governed_graph import describe_case
from simulator.graph.runner import play_decisions, play_team
from simulator.reading import ReadEpisode, read_episode, read_reports
from simulator.records import Episode
from training.config.run_config import FIRST_REVIEW_INDEX
from training.data.demonstrations import team_scenario
from training.feedback.labels import MAX_NAME, QUEUE_FILE, Provenance, QueuedItem, Reason, write_queue
from training.feedback.rows import read_transcript
from training.models.engine_factory import serve
from training.models.weights import load_team
from training.runs.run_folder import Run
from training.stages.from_config import choose_game, make_chat

REVIEW = "review"
WEIGHTS = "marl"  # the stage whose team is reviewed
NO_DECISION = "none valid"


MOST_CASES = 50  # of the queue, the most uncertain first
DECISIONS_PER_CASE = 8  # sampled on the same reports, to see how sure the team is
LOW_MARGIN = 0.3  # under this difference of the two most frequent decisions' shares a case is uncertain


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """Uncertainty of the team in one case.

    Example: Doubt(reasons=("low margin",), margin=0.25, decisions={"A": 2, "B": 1})
    """

    reasons: tuple[Reason, ...]  # none: it was sure
    margin: float  # share of the most frequent decision minus that of the next, 0 to 1
    decisions: dict[str, int]  # what was decided on the same reports, and how often


def build_queue(run: Run) -> int:
    """Play new cases with the trained team and write the uncertain ones; how many there are."""
    config = run.config
    models, tokenizer = load_team(run, WEIGHTS)
    chat = make_chat(tokenizer, config)
    data, first = config.data, FIRST_REVIEW_INDEX
    cases = [
        team_scenario("train", data.seed, first + i, data.difficulties)
        for i in range(config.review.num_scenarios)
    ]
    with serve(run, models, WEIGHTS, end_id=chat.end_id) as engine:
        episodes = play_team(
            cases,
            engine=engine,
            chat=chat,
            temperature=0.0,
            max_completion_tokens=config.marl.max_completion_tokens,
            stream=REVIEW,
            make_game=choose_game(config),
            rounds=config.marl.rounds,
        )
        again = asyncio.run(
            play_decisions(
                list(zip(cases, episodes, strict=True)),
                {role: role for role in models},
                engine,
                chat,
                Sampling(
                    temperature=config.marl.temperature,
                    max_completion_tokens=config.marl.max_completion_tokens,
                ),
                num_decisions=DECISIONS_PER_CASE,
                with_votes=False,
                stream=f"{REVIEW}/again",
                make_game=choose_game(config),
            )
        )
    num = DECISIONS_PER_CASE
    queued = []
    for place, (case, episode) in enumerate(zip(cases, episodes, strict=True)):
        others = again[place * num : (place + 1) * num]
        doubt = measure_doubt(case, episode, others)
        if doubt.reasons and episode.error is None:
            queued.append((doubt, place))
    queued.sort(key=lambda one: (-len(one[0].reasons), one[0].margin, one[1]))
    items = [
        make_item(cases[place], episodes[place], again[place * num : (place + 1) * num], doubt, chat, run=run)
        for doubt, place in queued[:MOST_CASES]
    ]
    write_queue(run.path / QUEUE_FILE, items)
    return len(items)


def measure_doubt(case: TeamScenario, episode: Episode, again: Sequence[Episode]) -> Doubt:
    """Measure how sure the team was; `again` are decisions on the same reports."""
    read = read_episode(case, episode)
    counts = Counter(_name(read_episode(case, one)) for one in again if one.error is None)
    ranked = [count for _, count in counts.most_common(2)] + [0, 0]
    margin = (ranked[0] - ranked[1]) / max(1, sum(counts.values()))
    reasons: list[Reason] = []
    if read.decision is None:
        reasons.append("no valid decision")
    elif read.decision.escalate:
        reasons.append("escalated")
    if margin < LOW_MARGIN:
        reasons.append("low margin")
    if "object" in read.votes.values():
        reasons.append("objection")
    return Doubt(reasons=tuple(reasons), margin=margin, decisions=dict(sorted(counts.items())))


def make_item(
    case: TeamScenario, episode: Episode, again: Sequence[Episode], doubt: Doubt, chat: HFChat, *, run: Run
) -> QueuedItem:
    """Return the team's decision as an answer to judge, beside another that it might have written."""
    style = run.config.model.prompts
    game, read = choose_game(run.config)(case), read_episode(case, episode)
    role = game.prompt_role(RECONCILER)
    prompt, tools, answer = read_transcript(
        episode.trajectories[RECONCILER], chat, role, with_tools=True, last=True
    )
    answers = [answer]
    for one in again:
        if one.error is None and RECONCILER in one.trajectories:
            unasked = game.without_questions().prompt_role(RECONCILER)
            asked, _, other = read_transcript(
                one.trajectories[RECONCILER], chat, unasked, with_tools=True, last=True
            )
            is_same_question = [message.content for message in asked[1:]] == [
                message.content for message in prompt[1:]
            ]
            if is_same_question and other[-1].content != answer[-1].content:
                answers.append(other)
                break
    words, full = describe_case(case), PlanGame(case)
    return QueuedItem(
        case=case.key,
        seat=RECONCILER,
        prompt=prompt,
        tools=tools,
        answers=tuple(answers),
        reasons=doubt.reasons,
        margin=doubt.margin,
        decisions=doubt.decisions,
        title=words.title,
        table=full.write_decision_brief(read_reports(case, episode)),
        briefs={role: full.write_report_brief(role) for role in case.seats},
        reports=dict(episode.reports),
        votes=dict(episode.votes),
        options={option: [offer.label for offer in offers_on(read.table, option)] for option in case.options},
        provenance=Provenance(run=run.path.name[:MAX_NAME] or "run", weights=WEIGHTS, style=style),
    )


def _name(read: ReadEpisode) -> str:
    if read.decision is None:
        return NO_DECISION
    return (
        "escalated"
        if read.decision.escalate
        else " ".join([read.decision.option, *sorted(read.decision.fund)])
    )


def queue_cases(path: Path) -> None:
    """Write the review queue of a run, as a task of it."""
    run = Run.open(path)
    if run.is_done(REVIEW):
        return
    run.mark_done(REVIEW, {"num_cases": build_queue(run)})
