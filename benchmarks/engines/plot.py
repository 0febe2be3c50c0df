"""The scaling curves as one picture, from the JSON lines that the engine benchmarks wrote.

python -m benchmarks.engines.plot runs/engines.jsonl docs/images/engine-scaling.png
"""

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

TITLES = {
    "in_flight": "calls in flight",
    "roles": "roles (adapters), 64 calls in flight",
    "replicas": "replicas of vllm serve",
}


def main(source: str, target: str) -> None:
    """One panel per axis that was measured."""
    records = [json.loads(line) for line in Path(source).read_text().splitlines()]
    records = [record for record in records if record.get("part") == "scaling"]
    axes_names = [name for name in TITLES if any(record["axis"] == name for record in records)]
    widths = [1.6 if name == "in_flight" else 1.0 for name in axes_names]
    figure, panels = pyplot.subplots(
        1,
        len(axes_names),
        figsize=(3.6 * sum(widths), 3.6),
        sharey=True,
        squeeze=False,
        width_ratios=widths,
    )
    labels = sorted({label_of(record) for record in records})
    for name, panel in zip(axes_names, panels[0], strict=True):
        of_axis = [record for record in records if record["axis"] == name]
        for number, label in enumerate(labels):
            points = sorted((r["x"], r["rate"]) for r in of_axis if label_of(r) == label)
            if points:
                panel.plot(*zip(*points, strict=True), marker="o", label=label, color=f"C{number}")
        if name == "in_flight":
            panel.set_xscale("log", base=2)
        else:
            panel.set_xticks(sorted({record["x"] for record in of_axis}))
        panel.set_yscale("log")
        panel.set_xlabel(TITLES[name])
        panel.grid(alpha=0.3, which="both")
        panel.legend(fontsize=7)
    repeats = sorted({record["n"] for record in records})
    panels[0][0].set_ylabel("tokens per second")
    figure.suptitle(f"median of n = {' or '.join(map(str, repeats))} repeats per point", fontsize=9)
    figure.tight_layout()
    figure.savefig(target, dpi=110)


def label_of(record: dict[str, object]) -> str:
    """Shape, engine and weights."""
    return f"{record['shape']}, {record['label']}"


if __name__ == "__main__":
    main(*sys.argv[1:])
