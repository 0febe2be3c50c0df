"""S1: malicious model folders, runs, checkpoints and states: weights, code, templates, manifests, links.

Every file carries a payload that would create a marker file. A probe makes the file and has the product's
own loader read it. input_files.py has more of them.
"""

import json
import pickle
import shutil
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from reliability.malicious.probes import Payload, Probe, model_folder, prepared_run
from roles.errors import UserError
from simulator.engines.embedded.hf_chat import HFChat
from training.config.loading import load_config
from training.data.folders.validation import validate_folder
from training.models.base_model import load_pretrained
from training.models.weights import load_weights, weights_identity
from training.runs.checkpoints import publish, verify
from training.runs.run_folder import Run
from training.runs.state_files import read_state

SYSTEM_CALL = "{{ cycler.__init__.__globals__.os.system('touch MARKER') }}"
CLASS_WALK = "{% for c in ''.__class__.__mro__[1].__subclasses__() %}{{ c.__init__.__globals__ }}{% endfor %}"
EVIL_CODE = "import os\nos.system('touch MARKER')\nclass Evil: pass\n"


def _edit(path: Path, **changes: Any) -> None:
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(content | changes))


def _pickled_weights(folder: Path, marker: Path) -> None:
    model_folder(folder)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Payload(marker)))
    load_pretrained(str(folder))


def _torch_zip(folder: Path, marker: Path) -> None:
    model_folder(folder)
    (folder / "model.safetensors").unlink()
    torch.save({"x": Payload(marker)}, folder / "pytorch_model.bin")
    load_pretrained(str(folder))


def _pickle_named_safetensors(folder: Path, marker: Path) -> None:
    model_folder(folder)
    (folder / "model.safetensors").write_bytes(pickle.dumps(Payload(marker)))
    load_pretrained(str(folder))


def _remote_model(folder: Path, marker: Path) -> None:
    model_folder(folder)
    (folder / "evil.py").write_text(EVIL_CODE.replace("MARKER", str(marker)))
    auto = {"AutoConfig": "evil.Evil", "AutoModelForCausalLM": "evil.Evil"}
    _edit(folder / "config.json", model_type="evil", architectures=["Evil"], auto_map=auto)
    load_pretrained(str(folder))


def _remote_model_of_known_type(folder: Path, marker: Path) -> None:
    model_folder(folder)
    (folder / "evil.py").write_text(EVIL_CODE.replace("MARKER", str(marker)))
    _edit(folder / "config.json", auto_map={"AutoModelForCausalLM": "evil.Evil"})
    load_pretrained(str(folder))


def _remote_tokenizer(folder: Path, marker: Path) -> None:
    model_folder(folder)
    (folder / "evil.py").write_text(EVIL_CODE.replace("MARKER", str(marker)))
    auto = {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}
    _edit(folder / "tokenizer_config.json", tokenizer_class="Evil", auto_map=auto)
    load_pretrained(str(folder))


def _huge_header(folder: Path, marker: Path) -> None:
    model_folder(folder)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 1 << 62) + b"{}")
    load_pretrained(str(folder))


def _offsets_outside(folder: Path, marker: Path) -> None:
    model_folder(folder)
    header = json.dumps({"x": {"dtype": "F32", "shape": [4], "data_offsets": [0, 1 << 40]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    load_pretrained(str(folder))


def _index_outside(folder: Path, marker: Path) -> None:
    model_folder(folder)
    (folder / "model.safetensors").unlink()
    (folder.parent / "outside.bin").write_bytes(pickle.dumps(Payload(marker)))
    weight_map = {"model.embed_tokens.weight": "../outside.bin"}
    _edit(folder / "model.safetensors.index.json", metadata={"total_size": 1}, weight_map=weight_map)
    load_pretrained(str(folder))


def _only_gguf(folder: Path, marker: Path) -> None:
    (folder / "model.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1 << 60) + b"\xff" * 64)
    load_pretrained(str(folder))


def _broken_tokenizer(folder: Path, marker: Path) -> None:
    model_folder(folder)
    (folder / "tokenizer.json").write_text('{"model": {"type": "Unigram", "vocab": ' + "[" * 100_000)
    load_pretrained(str(folder))


def template(text: str) -> Callable[[Path, Path], None]:
    def attack(folder: Path, marker: Path) -> None:
        model_folder(folder)
        (folder / "chat_template.jinja").write_text(text.replace("MARKER", str(marker)))
        _, tokenizer = load_pretrained(str(folder))
        HFChat(tokenizer, short_prompts=True)

    return attack


def _republished(folder: Path, change: Callable[[Path], None]) -> Run:
    """A whole run from a stranger: its base is spoilt, its manifest is right."""
    run = prepared_run(folder / "run")
    (step,) = (run.path / "checkpoints" / "base").iterdir()
    sound = folder / "copy"
    shutil.copytree(step, sound)
    (sound / "MANIFEST.json").unlink()
    change(sound)
    shutil.rmtree(step)
    publish(
        step.parent,
        step.name,
        partial(_copy, sound),
        run=weights_identity(run, "base", None),
        step=0,
    )
    return run


def _strange_run_pickle(folder: Path, marker: Path) -> None:
    def change(model: Path) -> None:
        (model / "model.safetensors").unlink()
        (model / "pytorch_model.bin").write_bytes(pickle.dumps(Payload(marker)))

    load_weights(_republished(folder, change), "base", "cto")


def _strange_run_code(folder: Path, marker: Path) -> None:
    def change(model: Path) -> None:
        (model / "evil.py").write_text(EVIL_CODE.replace("MARKER", str(marker)))
        auto = {"AutoConfig": "evil.Evil", "AutoModelForCausalLM": "evil.Evil"}
        _edit(model / "config.json", model_type="evil", auto_map=auto)

    load_weights(_republished(folder, change), "base", "cto")


def _yaml(text: str) -> Callable[[Path, Path], None]:
    def attack(folder: Path, marker: Path) -> None:
        (folder / "config.yaml").write_text(text.replace("MARKER", str(marker)))
        Run.open(folder)

    return attack


def _alias_bomb() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    return "\n".join(lines) + "\n"


def _override(folder: Path, marker: Path) -> None:
    load_config(None, [f'name=!!python/object/apply:os.system ["touch {marker}"]'])


def _name_outside(folder: Path, marker: Path) -> None:
    load_config(None, ["name=../../outside"])


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, dirs_exist_ok=True)


def _write_x(target: Path) -> None:
    (target / "x").write_text("x")


def _manifest_outside(folder: Path, marker: Path) -> None:
    publish(folder, "step_1", _write_x, run="r", step=1)
    manifest = json.loads((folder / "step_1" / "MANIFEST.json").read_text())
    manifest["files"] = [{"path": "../../../../etc/hostname", "size": 1, "sha256": "0" * 64}]
    (folder / "step_1" / "MANIFEST.json").write_text(json.dumps(manifest))
    verify(folder / "step_1")


def _link_outside(folder: Path, marker: Path) -> None:
    publish(folder, "step_1", _write_x, run="r", step=1)
    (folder / "step_1" / "x").unlink()
    (folder / "step_1" / "x").symlink_to("/etc/hostname")
    verify(folder / "step_1")


def _pickled_state(folder: Path, marker: Path) -> None:
    (folder / "optimizer.json").write_bytes(pickle.dumps(Payload(marker)))
    read_state(folder, "optimizer")


def _pickled_state_tensors(folder: Path, marker: Path) -> None:
    (folder / "optimizer.json").write_text('{"$tensor": "0"}')
    (folder / "optimizer.safetensors").write_bytes(pickle.dumps(Payload(marker)))
    read_state(folder, "optimizer")


def _unknown_mark(folder: Path, marker: Path) -> None:
    (folder / "optimizer.json").write_text('{"$object": ["os.system", "touch x"]}')
    read_state(folder, "optimizer")


def _missing_tensor(folder: Path, marker: Path) -> None:
    save_file({"0": torch.zeros(1)}, folder / "optimizer.safetensors")
    (folder / "optimizer.json").write_text('{"$tensor": "../../x"}')
    read_state(folder, "optimizer")


def _deep_json(folder: Path, marker: Path) -> None:
    (folder / "optimizer.json").write_text("[" * 200_000 + "]" * 200_000)
    read_state(folder, "optimizer")


def _deep_record(folder: Path, marker: Path) -> None:
    run = prepared_run(folder / "run")
    (run.path / "stages" / "base.json").write_text('{"payload":' * 100_000)
    run.read_payload("base")


def _data_folder(index: str) -> Callable[[Path, Path], None]:
    def attack(folder: Path, marker: Path) -> None:
        (folder / "dataset.json").write_text(index)
        (folder / "shard.parquet").write_bytes(pickle.dumps(Payload(marker)))
        problems = validate_folder(folder).problems
        if problems:
            raise UserError(str(problems[0]))

    return attack


_OUTSIDE_INDEX = json.dumps(
    {
        "format": "emads-dataset/2",
        "shards": [
            {
                "path": "../../../../etc/passwd", "family": "cto", "split": "train", "seed": 0,
                "difficulties": [1], "generator": "x", "certified": True, "start": 0, "stop": 1,
                "num_scenarios": 1, "num_exact_repeats": 0, "num_near_repeats": 0, "num_rows": 1,
                "sha256": "0",
            }
        ],
    }
)  # fmt: skip

MODEL_PROBES: dict[str, Probe] = {
    "pickled weights": Probe(attack=_pickled_weights),
    "pickle in a torch archive": Probe(attack=_torch_zip),
    "pickle named safetensors": Probe(attack=_pickle_named_safetensors),
    "remote code: model": Probe(attack=_remote_model),
    "remote code: model of a known type": Probe(attack=_remote_model_of_known_type, may_load=True),
    "remote code: tokenizer": Probe(attack=_remote_tokenizer, may_load=True),
    "safetensors: huge header": Probe(attack=_huge_header),
    "safetensors: offsets outside": Probe(attack=_offsets_outside),
    "weights index outside the folder": Probe(attack=_index_outside),
    "malformed GGUF": Probe(attack=_only_gguf),
    "broken tokenizer": Probe(attack=_broken_tokenizer),
    "chat template: system call": Probe(attack=template(SYSTEM_CALL)),
    "chat template: class walk": Probe(attack=template(CLASS_WALK)),
    "stranger's run: pickle under a right manifest": Probe(attack=_strange_run_pickle),
    "stranger's run: code under a right manifest": Probe(attack=_strange_run_code),
    "config: YAML object": Probe(attack=_yaml('name: !!python/object/apply:os.system ["touch MARKER"]')),
    "config: YAML alias bomb": Probe(attack=_yaml(_alias_bomb())),
    "override: YAML object": Probe(attack=_override),
    "run name outside the folder": Probe(attack=_name_outside),
    "manifest: path outside": Probe(attack=_manifest_outside),
    "checkpoint: link outside": Probe(attack=_link_outside),
    "state: pickle": Probe(attack=_pickled_state),
    "state: pickled tensors": Probe(attack=_pickled_state_tensors),
    "state: unknown mark": Probe(attack=_unknown_mark),
    "state: tensor that is not there": Probe(attack=_missing_tensor),
    "state: deep nesting": Probe(attack=_deep_json),
    "stage record: deep nesting": Probe(attack=_deep_record),
    "data folder: no index": Probe(attack=_data_folder("{}")),
    "data folder: shards outside": Probe(attack=_data_folder(_OUTSIDE_INDEX)),
}
