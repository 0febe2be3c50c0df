"""langgraph.json: LangGraph's own tools find, load and describe the graph."""

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest
from langgraph.graph.state import CompiledStateGraph

from roles.team import SPECIALISTS
from scenarios.team import PlanGame, generate
from simulator.governance.governed_graph import FullState

ROOT = Path(__file__).parent.parent.parent.parent


def open_graph(key: str) -> CompiledStateGraph[Any, Any, Any, Any]:
    """The graph as LangGraph's server opens it."""
    config = json.loads((ROOT / "langgraph.json").read_text())
    assert set(config) == {"dependencies", "graphs", "python_version"}
    file, _, name = config["graphs"][key].partition(":")
    spec = importlib.util.spec_from_file_location("opened_by_langgraph", ROOT / file)  # as its server does
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    graph = getattr(module, name)()
    assert isinstance(graph, CompiledStateGraph)
    return graph


def test_the_named_factory_compiles_the_graph() -> None:
    graph = open_graph("team")
    assert set(graph.get_graph().nodes) == {
        "__start__",
        "intake",
        *SPECIALISTS,
        "reconcile",
        "answer",
        "vote",
        "__end__",
    }
    assert set(graph.get_input_jsonschema()["properties"]) >= {"options", "briefs", "rounds"}
    assert graph.get_output_jsonschema()["type"] == "object"


def test_the_scripted_graph_plays_a_case_from_its_input_alone() -> None:
    graph = open_graph("scripted")
    assert set(graph.get_input_jsonschema()["properties"]) == {"index", "difficulty"}
    played = asyncio.run(graph.ainvoke({"index": 3, "difficulty": 2}))
    assert played["case"] == "team/train/0/3/2"
    assert set(played["reports"]) == set(played["votes"]) == set(SPECIALISTS)
    game = PlanGame(generate("train", 0, 3, 2))
    reports = {seat: game.read_report(seat, text) for seat, text in played["reports"].items()}
    assert game.read_decision(reports, played["decision"]) is not None


def test_the_governed_graph_opens_too() -> None:
    graph = open_graph("full")
    assert {"propose", "review", "commit", "execute_cto", "monitor", "replan"} <= set(graph.get_graph().nodes)
    assert set(graph.get_input_jsonschema()["properties"]) == set(FullState.__annotations__)


@contextmanager
def run_server(log: Path) -> Iterator[str]:
    """`langgraph dev` on a port of its own; the address."""
    address = "http://127.0.0.1:8463"
    command = [sys.executable, "-m", "langgraph_cli", "dev", "--no-browser", "--no-reload"]
    quiet = {"LANGSMITH_TRACING": "false", "LANGGRAPH_CLI_NO_ANALYTICS": "1", "PYTHONPATH": str(ROOT)}
    with log.open("w") as out:
        server = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", "8463"],
            cwd=ROOT,
            stdout=out,
            stderr=out,
            env=os.environ | quiet,
        )
    try:
        for _ in range(240):
            assert server.poll() is None, log.read_text()[-3000:]
            try:
                httpx.get(f"{address}/ok").raise_for_status()
                break
            except httpx.TransportError:
                time.sleep(0.5)
        yield address
    finally:
        server.terminate()
        server.wait(30)


@pytest.mark.process
@pytest.mark.skipif(find_spec("langgraph_api") is None, reason="pip install 'langgraph-cli[inmem]'")
def test_langgraph_dev_serves_all_graphs_and_plays_the_scripted_case(tmp_path: Path) -> None:
    with run_server(tmp_path / "log") as address:
        found = httpx.post(f"{address}/assistants/search", json={}, timeout=60).json()
        assert {one["graph_id"] for one in found} == {"scripted", "team", "full"}
        asked = {"assistant_id": "scripted", "input": {"index": 3, "difficulty": 2}}
        played = httpx.post(f"{address}/runs/wait", json=asked, timeout=120).json()
    assert played == asyncio.run(open_graph("scripted").ainvoke({"index": 3, "difficulty": 2}))
