"""Fixtures of joint training: the engine that a joint learner makes is replaced and kept."""

from typing import Any

import pytest
from joint_learning import Engines, FaultyEngine, draw
from tiny_models import RecordingEngine, tiny_chat

from reliability.joint.scripted_models import ScriptedModelEngine, half_expert_team
from training.rl import loop


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Engines:
    """Joint learners play scripted words; the engines that they make are collected here."""
    engines: Engines = []

    def make(*, end_id: int, seed: int) -> ScriptedModelEngine:
        engine = FaultyEngine(half_expert_team(draw(8)), chat=tiny_chat(), end_id=end_id, seed=seed)
        engines.append(engine)
        return engine

    monkeypatch.setattr(loop, "TransformersEngine", make)
    return engines


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Engines:
    """Learners play on the real engine, recorded."""
    engines: Engines = []

    def make(**options: Any) -> RecordingEngine:
        engine = RecordingEngine(**options)
        engines.append(engine)
        return engine

    monkeypatch.setattr(loop, "TransformersEngine", make)
    return engines
