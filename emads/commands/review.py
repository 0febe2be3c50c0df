"""Answers to judge: those of cases in which the trained team is unsure, and labels of simulated reviewers.

A case is uncertain when the team escalated it, wrote no valid decision, decided differently when asked again
on the same reports, or when a specialist objected. `emads review RUN` shows the queue; what people say of it
becomes labels (`training/feedback`), of which `emads labels` makes some from real plays of a run.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from roles.registry import ROLES
from roles.team import RECONCILER
from scenarios.base import Scenario
from scenarios.registry import families
from scenarios.team import PlanGame, TeamScenario
from scenarios.team.offers import offers_on
from simulator.agents.solo import SoloEpisode
from simulator.engines.base import Sampling
from simulator.engines.embedded.engine import TransformersEngine
from simulator.engines.embedded.hf_chat import HFChat
from simulator.governance.governed_graph import describe_case
from simulator.graph.runner import play_decisions, play_team
from simulator.reading import ReadEpisode, read_episode, read_reports
from simulator.records import Episode
from training.config.run_config import FIRST_REVIEW_INDEX
from training.data.demonstrations import role_scenario, team_scenario
from training.feedback.labels import (
    MAX_NAME,
    QUEUE_FILE,
    Label,
    Provenance,
    QueuedItem,
    Reason,
    add_label,
    read_labels,
    resolve_labels,
    write_queue,
)
from training.feedback.reviewers import EXACT, Kind, LabelReviewer, LabelWriter
from training.feedback.rows import read_transcript
from training.models.base_model import quiet_libraries
from training.models.engine_factory import serve
from training.models.weights import load_team, load_weights
from training.rl.hosts import serve_roles
from training.rl.solo.play import SoloPlayer
from training.runs.run_errors import StoppedRunError
from training.runs.run_folder import Run
from training.stages.from_config import choose_game, make_chat
from training.stages.table import STAGES

REVIEW = "review"
WEIGHTS = "marl"  # the stage whose team is reviewed
NO_DECISION = "none valid"
MOST_CASES = 50  # of the queue, the most uncertain first
DECISIONS_PER_CASE = 8  # sampled on the same reports, to see how sure the team is
LOW_MARGIN = 0.3  # under this difference of the two most frequent decisions' shares a case is uncertain
BATCH = 50  # scenarios that are played side by side for labels
MOST_SCENARIOS_PER_LABEL = 40  # beyond it the answers are all alike, or all right


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
    cases = [
        team_scenario(config.data, "train", FIRST_REVIEW_INDEX + place)
        for place in range(config.review.num_scenarios)
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
                with_replies=False,
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
            queued.append((doubt, case, episode, others))
    queued.sort(key=lambda one: (-len(one[0].reasons), one[0].margin))
    items = [
        make_item(case, episode, others, doubt, chat, run=run)
        for doubt, case, episode, others in queued[:MOST_CASES]
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


def count_labels(file: Path) -> list[str]:
    """Return lines of how many labels of each kind a file holds, and how far reviewers agree."""
    labels = read_labels(file)
    kinds = Counter((one.seat, one.kind) for one in labels)
    found = resolve_labels(labels)
    share = "no item with two reviewers" if found.agreement is None else f"{found.agreement:.2f}"
    return [
        *(f"{seat} {kind}: {number}" for (seat, kind), number in sorted(kinds.items())),
        f"{len(found.labels)} items ruled on, {len(found.disputed)} disputed, {found.num_replaced} labels"
        f" replaced; agreement of pairs of reviewers: {share}",
    ]


def simulate_labels(
    run: Run,
    role: str,
    kind: Kind,
    outs: Mapping[LabelReviewer, Path],
    *,
    stage: str,
    count: int,
    first: int = 0,
) -> None:
    """Play training scenarios with a role's weights of a stage; every reviewer writes `count` labels.

    The scenarios begin `first` after those of the review queue: no other stage meets them. Reviewers who
    judge the same weights judge the same plays.

    Raises:
        UserError: no weights; or too few answers that differ.
    """
    quiet_libraries()
    played: dict[str, list[LabelReviewer]] = {}
    for reviewer in outs:
        weights = (STAGES[stage].source or stage) if reviewer.habit == "slow" else stage
        played.setdefault(weights, []).append(reviewer)
    for weights, reviewers in played.items():
        made: dict[LabelReviewer, list[Label]] = {reviewer: [] for reviewer in reviewers}
        for plays, writer in _play(run, role, kind, weights, first):
            for reviewer in [one for one, labels in made.items() if len(labels) < count]:
                label = replace(writer, reviewer=reviewer).write(plays, number=len(made[reviewer]))
                made[reviewer] += [] if label is None else [label]
            if all(len(labels) == count for labels in made.values()):
                break
        else:
            few = min(map(len, made.values()))
            raise StoppedRunError(f"only {few} of {count} labels: the answers of {role} are too alike")
        for reviewer, labels in made.items():
            add_label(outs[reviewer], *labels)


def _play(
    run: Run, role: str, kind: Kind, weights: str, first: int
) -> Iterator[tuple[list[SoloEpisode], LabelWriter]]:
    config = run.config
    model, tokenizer = load_weights(run, weights, role)
    chat, family = make_chat(tokenizer, config), families(config.model.prompts)[role]
    writer = LabelWriter(
        kind=kind,
        reviewer=EXACT,
        role=ROLES[role],
        family=family,
        chat=chat,
        provenance=Provenance(
            run=config.name, weights=weights, style=config.model.prompts, source="simulated"
        ),
    )
    player = SoloPlayer(config=config.grpo, chat=chat, families={family.name: family})
    engine = serve_roles(TransformersEngine(end_id=chat.end_id, seed=config.seed), {role: model}, 0)
    size = 2 if kind == "comparison" else 1
    for batch in range(MOST_SCENARIOS_PER_LABEL * 10):
        scenarios: list[Scenario] = []
        for place in range(BATCH):
            index = FIRST_REVIEW_INDEX + first + batch * BATCH + place
            scenario = role_scenario(
                role, "train", config.data.seed, index, config.data.difficulties, config.model.prompts
            )
            scenarios += [scenario] * size
        played = player.play_once(
            engine, scenarios, f"labels/{first}/{batch}", temperature=config.grpo.temperature
        )
        for place in range(0, len(played), size):
            plays = [one for one in played[place : place + size] if isinstance(one, SoloEpisode)]
            if len(plays) == size:
                yield plays, writer
