"""`emads labels`: simulated reviewers label real plays of a run; counts of a label file."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from roles.registry import ROLES
from scenarios.base import Scenario
from scenarios.registry import families
from simulator.agents.solo import SoloEpisode
from simulator.engines.embedded.engine import TransformersEngine
from training.config.run_config import FIRST_REVIEW_INDEX
from training.data.demonstrations import role_scenario
from training.feedback.labels import Label, Provenance, add_label, read_labels, resolve_labels
from training.feedback.reviewers import EXACT, Kind, LabelReviewer, LabelWriter
from training.models.base_model import quiet_libraries
from training.models.weights import load_weights
from training.rl.hosts import serve_roles
from training.rl.solo.play import SoloPlayer
from training.runs.run_errors import StoppedRunError
from training.runs.run_folder import Run
from training.stages.from_config import make_chat
from training.stages.table import STAGES

BATCH = 50  # scenarios that are played side by side
MOST_SCENARIOS_PER_LABEL = 40  # beyond it the answers are all alike, or all right


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
