"""The scaling curves as one picture, from the JSON lines that the engine benchmarks wrote.

python -m benchmarks.engine_plot runs/engines.jsonl docs/images/engine-scaling.png
"""

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

TITLES = {"in_flight": "calls in flight", "roles": "roles, 64 in flight", "replicas": "replicas"}


def main(source: str, target: str) -> None:
    """One panel per axis that was measured."""
    records = [json.loads(line) for line in Path(source).read_text().splitlines()]
    records = [record for record in records if record.get("part") == "scaling"]
    axes_names = [name for name in TITLES if any(record["axis"] == name for record in records)]
    figure, panels = pyplot.subplots(
        1, len(axes_names), figsize=(4.2 * len(axes_names), 3.4), sharey=True, squeeze=False
    )
    for name, panel in zip(axes_names, panels[0], strict=True):
        of_axis = [record for record in records if record["axis"] == name]
        for label in sorted({(record["shape"], record["label"]) for record in of_axis}):
            points = sorted((r["x"], r["rate"]) for r in of_axis if (r["shape"], r["label"]) == label)
            panel.plot(*zip(*points, strict=True), marker="o", label=", ".join(label))
        if name == "in_flight":
            panel.set_xscale("log", base=2)
        else:
            panel.set_xticks(sorted({record["x"] for record in of_axis}))
        panel.set_yscale("log")
        panel.set_xlabel(TITLES[name])
        panel.grid(alpha=0.3)
        panel.legend(fontsize=8)
    panels[0][0].set_ylabel("tokens per second")
    figure.tight_layout()
    figure.savefig(target, dpi=110)


if __name__ == "__main__":
    main(*sys.argv[1:])
