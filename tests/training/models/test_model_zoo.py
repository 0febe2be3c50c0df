"""Families of open models, each as a tiny random one, through every stage, export and reload.

docs/model_families.json says what becomes of each; the page of supported families is made from it.
"""

import json
from pathlib import Path

import pytest
from model_zoo import FAMILIES
from zoo_trials import RECORD, TARGETS, try_family

# of the fast suite: a window, a layout that does not fit, a template without a system role; a refusal
QUICK = ("Mistral", "GPT-2 without a chat")


def check(name: str, folder: Path, adapter: str) -> None:
    recorded = json.loads(RECORD.read_text())[name]
    trial = try_family(name, folder, adapter)
    found = trial.as_json()
    largest = recorded.pop("largest_difference")
    del found["largest_difference"]
    if adapter == "none":
        recorded["needs"] = [one for one in recorded["needs"] if one != TARGETS]
    assert found == recorded
    assert trial.difference <= 10 * largest < 1e-3


def test_every_family_is_recorded() -> None:
    assert list(json.loads(RECORD.read_text())) == list(FAMILIES)


@pytest.mark.parametrize("adapter", ["lora", "none"])
@pytest.mark.parametrize("name", QUICK)
def test_some_families_are_trained_exported_and_loaded_or_refused_by_name(
    name: str, adapter: str, tmp_path: Path
) -> None:
    check(name, tmp_path, adapter)


@pytest.mark.slow
@pytest.mark.parametrize("adapter", ["lora", "none"])
@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in QUICK])
def test_a_family_is_trained_exported_and_loaded_or_refused_by_name(
    name: str, adapter: str, tmp_path: Path
) -> None:
    check(name, tmp_path, adapter)
