"""Labels on real plays of a small untrained model, with rulings drawn by a seed."""

import random
from collections.abc import Sequence
from typing import Any

from tiny_models import DIFFICULTIES

from roles.registry import ROLES
from scenarios.registry import families
from simulator.agents.solo import SoloEpisode
from simulator.engines.embedded.engine import TransformersEngine
from simulator.engines.embedded.hf_chat import HFChat
from training.config.rl_config import GrpoConfig
from training.data.demonstrations import role_scenario
from training.feedback.labels import Comparison, Label, Provenance, VerdictLabel
from training.feedback.reviewers import START, LabelReviewer, LabelWriter
from training.feedback.rows import read_transcript
from training.rl.hosts import serve_roles
from training.rl.solo.play import SoloPlayer

ROLE = "cto"
PLAY = GrpoConfig(max_turns=2, max_completion_tokens=6)
PROVENANCE = Provenance(run="tiny", weights="sft", style="short", source="simulated")


def play(model: Any, chat: HFChat, count: int, stream: str = "labels") -> list[SoloEpisode]:
    """`count` scenarios, each played once; another stream gives other answers."""
    player = SoloPlayer(config=PLAY, chat=chat, families=families("short"))
    engine = serve_roles(TransformersEngine(end_id=chat.end_id, seed=0), {ROLE: model}, 0)
    scenarios = [role_scenario(ROLE, "train", 0, index, DIFFICULTIES) for index in range(count)]
    played = player.play_once(engine, scenarios, stream, temperature=1.0)
    return [one for one in played if isinstance(one, SoloEpisode)]


def write(kind: str, plays: Sequence[SoloEpisode], chat: HFChat, reviewer: str = "exact") -> Label | None:
    """What a simulated reviewer says of plays of one scenario."""
    writer = LabelWriter(
        kind=kind,  # type: ignore[arg-type]
        reviewer=LabelReviewer.parse(reviewer),
        role=ROLES[ROLE],
        family=families("short")[ROLE],
        chat=chat,
        provenance=PROVENANCE,
    )
    return writer.write(plays, number=0)


def draw_labels(model: Any, chat: HFChat, count: int) -> list[Label]:
    """A comparison, a verdict and a correction on each of `count` scenarios; rulings by chance."""
    rng, labels = random.Random(0), list[Label]()
    firsts, seconds = play(model, chat, count), play(model, chat, count, "other")
    for first, second in zip(firsts, seconds, strict=True):
        prompt, tools, answer = read_transcript(first.trajectory, chat, ROLES[ROLE], with_tools=True)
        _, _, other = read_transcript(second.trajectory, chat, ROLES[ROLE], with_tools=True)
        common: dict[str, Any] = {
            "case": first.scenario.key,
            "seat": ROLE,
            "prompt": prompt,
            "tools": tools,
            "reviewer": "chance",
            "time": START,
            "provenance": PROVENANCE,
        }
        labels.append(
            Comparison(first=answer, second=other, preferred=rng.choice(("first", "second")), **common)
        )
        labels.append(VerdictLabel(answer=answer, approved=rng.random() < 0.5, **common))
        corrected = write("correction", [first], chat)
        assert corrected is not None  # an untrained model is never right
        labels.append(corrected)
    return labels
