"""Labels of what people ruled on a trained team's plans, kept beside the store of the cases."""

from collections.abc import Sequence
from pathlib import Path

from emads.seats.mixed_team import MixedTeam
from emads.teams import ScriptedTeam, Team
from roles.team import RECONCILER
from scenarios.team.playable import PlayableCase
from simulator.governance.record import GovernedRecord
from simulator.graph.seating import Seating


def keep_ruling_labels(
    cases: Sequence[PlayableCase],
    records: Sequence[GovernedRecord],
    team: Team,
    seating: Seating,
    store: Path | None,
) -> list[str]:
    """Add what the label file lacks of the people's rulings; return a line on it.

    There are labels where a run plays ReconcileGPT: only its drafts can be learnt from.
    """
    chair = team
    if isinstance(team, MixedTeam):
        player = team.seats.player_of(RECONCILER)
        chair = next((one for known, one in team.runs.items() if known == player), team)
    if store is None or isinstance(chair, ScriptedTeam | MixedTeam):
        return []
    from emads.trained_team import TrainedTeam
    from simulator.engines.embedded.hf_chat import HFChat
    from training.feedback.labels import MAX_NAME, Provenance, add_label, labels_beside, read_labels
    from training.feedback.rulings import label_rulings

    assert isinstance(chair, TrainedTeam)
    assert isinstance(chair.chat, HFChat)
    path = labels_beside(store)
    known = read_labels(path) if path.is_file() else []
    name = chair.config.name[:MAX_NAME]
    provenance = Provenance(run=name, weights=chair.stage, style=chair.style, source="gate")
    new = [
        label
        for case, record in zip(cases, records, strict=True)
        for label in label_rulings(
            record,
            chat=chair.chat,
            role=seating.list_prompt_roles(case)[RECONCILER],
            provenance=provenance,
            spoken_in=None if team is chair else seating.chat,
        )
        if label not in known
    ]
    if not new:
        return []
    add_label(path, *new)
    return [f"labels:   {path} ({len(new)} from rulings of people)"]
