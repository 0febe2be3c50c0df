"""The notebook runs from its first cell to its last, and its page shows every cell."""

import json
from importlib import import_module, util
from pathlib import Path
from typing import Any

import pytest
from doc_pages import ROOT

NOTEBOOK = ROOT / "examples" / "quickstart.ipynb"


@pytest.mark.slow
def test_the_notebook_plays_trains_plots_and_plays_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cells take about two minutes on two cores."""
    nbformat: Any = import_module("nbformat")
    nbclient: Any = import_module("nbclient")
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=900, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    kinds = [
        {kind for output in cell.outputs for kind in output.get("data", {"text": ""})}
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]
    assert sum("image/png" in one for one in kinds) == 2  # reward over steps, the team's figures
    assert "text" in kinds[1]
    assert "text" in kinds[-1]  # both plays are printed
    assert (tmp_path / "runs/quickstart/stages/marl.json").is_file()


def test_the_page_of_the_notebook_holds_every_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = util.spec_from_file_location("generate_reference", ROOT / "docs" / "generate_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "TARGET", tmp_path)
    page = module.render_notebook(NOTEBOOK)
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        assert "".join(cell["source"]) in page
    assert page.count(".png)") == len(list(tmp_path.glob("*.png"))) == 2
