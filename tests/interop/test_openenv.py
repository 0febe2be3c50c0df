"""OpenEnv: its validator on package and server, its graders, and its severity policy as an audit."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from played_cases import GARBAGE, PLAYED, expert_steps, list_plays, name_case

from scenarios.base import Step
from serving.environments.plays import KINDS, ScenarioName, start_play

pytest.importorskip("openenv", reason="make interop")

import uvicorn
from openenv.cli.__main__ import app as openenv_cli
from openenv.core import GenericEnvClient
from openenv.validation import Level, load_policy, run_validation
from openenv.validation.types import ProviderCapability
from typer.testing import CliRunner

from serving.environments.openenv_env import make_app

PACKAGE = Path(__file__).parent.parent.parent / "environments" / "emads_openenv"
Record = Callable[[str, object], None]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The real server on a port of this machine, in a thread."""
    server = uvicorn.Server(uvicorn.Config(make_app(), port=0, log_level="critical"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


def play(url: str, name: ScenarioName, steps: tuple[Step, ...]) -> Any:
    """The last result of an episode played by OpenEnv's own client."""
    with GenericEnvClient(base_url=url).sync() as client:
        reset = name.model_dump()
        result = client.reset(**reset)
        assert result.observation["messages"] == start_play(name).messages
        for step in steps:
            assert not result.done
            call = step.call
            action = (
                {"answer": step.text}
                if call is None
                else {"tool": call.name, "arguments": dict(call.arguments)}
            )
            result = client.step(action)
    assert result.done
    return result


def test_the_running_server_is_valid(url: str, record_property: Record) -> None:
    record_property("row", f"OpenEnv | {version('openenv')} | openenv validate --url")
    done = CliRunner().invoke(openenv_cli, ["validate", "--url", url, "--timeout", "30"])
    assert done.exit_code == 0, done.output


def test_the_package_is_valid(record_property: Record) -> None:
    record_property("row", f"OpenEnv | {version('openenv')} | openenv validate PACKAGE --level static")
    done = CliRunner().invoke(openenv_cli, ["validate", str(PACKAGE), "--level", "static"])
    assert done.exit_code == 0, done.output


class RunningServer:
    """A subject of OpenEnv's graders that is not in a container: the server of this test."""

    def __init__(self, url: str) -> None:
        self.base_url = url

    def inspect(self) -> dict[str, Any]:
        return {}

    def logs(self, max_bytes: int = 65536) -> str:
        return ""

    def stop(self) -> None:
        pass


class OnThisMachine:
    """A provider that builds nothing and starts the server of this test."""

    name = "local"
    capabilities = frozenset({ProviderCapability.IMAGE_BUILD})
    supported_network_modes = frozenset({"public"})

    def __init__(self, url: str) -> None:
        self._url = url

    def build(self, root: Path, execution: Any) -> str:
        return "sha256:" + "0" * 64

    def start(self, spec: Any) -> Any:
        return RunningServer(self._url)


def test_openenvs_runtime_graders_pass(url: str, record_property: Record) -> None:
    record_property("row", f"OpenEnv | {version('openenv')} | runtime graders on a played episode")
    report = run_validation(PACKAGE, max_level=Level.RUNTIME, provider=OnThisMachine(url))
    graded = {one.check_id: (one.status.value, one.evidence) for one in report.results}
    asked = (
        "runtime.startup",
        "runtime.reward_well_formed",
        "runtime.observation_schema",
        "runtime.state_contract",
    )
    assert {check: graded[check][0] for check in asked} == dict.fromkeys(asked, "pass"), graded
    assert not [check for check, (status, _) in graded.items() if status in ("fail", "error")], graded


def test_rewards_are_those_of_the_core(url: str, record_property: Record) -> None:
    record_property("row", f"OpenEnv | {version('openenv')} | same rewards, {len(PLAYED)} families")
    for name, steps, reward in list_plays():
        assert play(url, name, steps).reward == reward, name


@pytest.mark.parametrize("family", PLAYED)
def test_verifiers_keep_openenvs_severity_policy(family: str, url: str, record_property: Record) -> None:
    """The policy's semantic checks, which this release names and does not ship, on the verifier's score."""
    record_property("row", f"OpenEnv | {version('openenv')} | severity policy v2 on verifiers")
    policy = load_policy("v2")
    named = {
        entry for entry in policy.entries_for_lane(policy.entries[0].lane) if entry.startswith("semantic.")
    }
    assert {"semantic.oracle_max", "semantic.floor_gap", "semantic.verifier_determinism"} <= named
    for index in range(3):
        name = name_case(family, index)
        steps = expert_steps(name)
        score = play(url, name, steps).observation["metadata"]["score"]
        again = play(url, name, steps).observation["metadata"]["score"]
        assert score == again, "semantic.verifier_determinism"
        optimum, _ = KINDS[family].family.certify(start_play(name).scenario)
        most = 1.0 if not family.startswith("team_") else optimum
        assert score >= most - policy.bounds.max_oracle_tolerance, "semantic.oracle_max"
        scenario = start_play(name).scenario
        blind = [Step(text=text) for text in ("", "{}", "null", scenario.brief[:2000])]
        for one in (*((step,) for step in blind), GARBAGE):
            floor = play(url, name, tuple(one)).observation["metadata"]["score"]
            assert score - floor >= policy.bounds.min_floor_margin, "semantic.floor_gap"
        shown = json.dumps(start_play(name).messages)
        assert steps[-1].text not in shown, "semantic.no_solution_leakage"
