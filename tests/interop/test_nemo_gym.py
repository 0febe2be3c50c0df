"""NeMo Gym: its conformance check and typed models on our server, and whole rollouts."""

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import pytest
from fastapi.testclient import TestClient
from played_cases import PLAYED, list_plays, name_case

from scenarios.base import Step
from serving.environments.http_env import make_app
from serving.environments.plays import ScenarioName, make_row, start_play

pytest.importorskip("nemo_gym", reason="make interop")

from nemo_gym.base_resources_server import (
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ResourcesSeedSessionRequest,
    ReverifyMode,
)
from nemo_gym.config_types import AggregateMetrics
from nemo_gym.testing.session_conformance import check_resources_session_contract

Record = Callable[[str, object], None]


def ask_seed(session: str, name: ScenarioName) -> ResourcesSeedSessionRequest:
    return ResourcesSeedSessionRequest.model_validate(
        {
            "resources_session_id": session,
            "episode_id": {"rollout_id": f"rollout-{session}"},
            "task_id": {"taskset": "emads", "task_id": name.family},
            "task_data": make_row(start_play(name)),
        }
    )


def make_response(steps: tuple[Step, ...]) -> dict[str, Any]:
    """The rollout as a Responses object."""
    message = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": steps[-1].text, "annotations": []}],
    }
    return {
        "id": "r",
        "object": "response",
        "created_at": 0,
        "model": "scripted",
        "output": [message],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
    }


@pytest.mark.parametrize("family", ["cto", "team_risk", "maths"])
def test_nemo_gyms_own_session_contract_holds(family: str, record_property: Record) -> None:
    record_property("row", f"NeMo Gym | {version('nemo-gym')} | session_conformance, keeps_state")
    check_resources_session_contract(make_app(), ask_seed("one", name_case(family)), keeps_state=True)


def test_rollouts_are_typed_and_their_rewards_are_those_of_the_core(record_property: Record) -> None:
    record_property(
        "row", f"NeMo Gym | {version('nemo-gym')} | same rewards, typed replies, {len(PLAYED)} families"
    )
    app, verified = make_app(), []
    for number, (name, steps, reward) in enumerate(list_plays()):
        row = make_row(start_play(name))
        BaseRunRequest.model_validate(row)
        client = TestClient(app)
        assert client.post("/seed_session", json=row).status_code == 200
        for step in steps[:-1]:
            assert step.call is not None
            assert client.post(f"/{step.call.name}", json=dict(step.call.arguments)).status_code == 200
        request = {**row, "response": make_response(steps)}
        BaseVerifyRequest.model_validate(request)
        reply = client.post("/verify", json=request).json()
        assert BaseVerifyResponse.model_validate(reply).reward == reward, name
        verified.append({**reply, "_ng_task_index": number // 2})
    client = TestClient(app)
    metrics = AggregateMetrics.model_validate(
        client.post("/aggregate_metrics", json={"verify_responses": verified}).json()
    )
    rewards = [one["reward"] for one in verified]
    assert metrics.key_metrics["mean/reward"] == pytest.approx(sum(rewards) / len(rewards))
    assert len(metrics.group_level_metrics) == len(PLAYED)
    assert client.get("/reverify_mode").json() == ReverifyMode.UNSUPPORTED.value
