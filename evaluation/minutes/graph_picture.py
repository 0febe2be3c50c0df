"""A graph as an inline SVG: layers by networkx, drawn by matplotlib; no script, no network, no date in it.

Nodes stand in layers from left to right; edges that skip a layer arch above, edges that go back arch below.
Or from top to bottom, for graphs of many layers: those edges then arch on the right and on the left.
Colours are the page's own (CSS variables --ink, --muted, --line, --paper, --accent), so dark pages work.
"""

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib as mpl
import networkx as nx
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path
from matplotlib.transforms import Bbox

Edge = tuple[str, str, bool]  # from, to, whether a condition chooses it
Point = tuple[float, float]  # along the layers, within the layer; in points
NODE_HEIGHT, FONT_SIZE, CHAR_WIDTH = 30.0, 13.0, 8.0
LAYER_STEP, ROW_STEP = 150.0, 46.0  # of a wide picture
TALL_LAYER_STEP, TALL_ROW_STEP = 60.0, 150.0
NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))
END_NAMES = {"__start__": "start", "__end__": "end"}
# Colours that matplotlib can parse, in the place of those that the page defines.
CSS_COLOURS = {
    "#000001": "var(--ink)",
    "#000002": "var(--muted)",
    "#000003": "var(--line)",
    "#000004": "var(--paper)",
    "#000005": "var(--accent)",
    "#000006": "var(--ground)",
}
INK, MUTED, LINE, PAPER, ACCENT, GROUND = CSS_COLOURS


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """Positions of all nodes; the first coordinate runs along the layers, whichever way they lie."""

    positions: Mapping[str, Point]
    layers: Mapping[str, int]
    half_sizes: Mapping[str, Point]
    is_tall: bool

    def turn(self, point: Point) -> Point:
        """Return the point as (x, y), y downwards."""
        return (point[1], point[0]) if self.is_tall else point


def draw_graph(
    edges: Sequence[Edge],
    *,
    title: str,
    labels: Mapping[str, str] = {},
    visits: Mapping[str, int] = {},
    order: Sequence[str] = (),
    is_tall: bool = False,
) -> Markup:
    """Return the picture as an <svg> element; the same graph gives the same bytes.

    `labels` replace node names. `visits` counts how often a node ran: nodes named there with 0 are drawn
    faint, those above 1 carry the number. Nodes named in `order` stand in that order within their layer.
    `is_tall` draws from top to bottom.
    """
    texts = {node: _label(node, labels, visits) for edge in edges for node in edge[:2]}
    layout = _place(find_layers(edges, order), texts, is_tall)
    paths = [_route(edge, layout) for edge in edges]
    left, top, right, bottom = _measure(paths, layout)
    width, height = right - left, bottom - top
    with mpl.rc_context({"svg.hashsalt": "emads", "svg.fonttype": "none", "font.size": FONT_SIZE}):
        figure = Figure(figsize=(width / 72, height / 72))
        axes = figure.add_axes((0, 0, 1, 1), xlim=(left, right), ylim=(bottom, top))
        axes.set_axis_off()
        for path, is_conditional in paths:
            _draw_edge(axes, path, is_conditional)
        for node in layout.positions:
            kind = "end" if node in END_NAMES else "idle" if visits.get(node, 1) == 0 else "ran"
            _draw_node(axes, node, texts[node], kind, layout)
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata=NO_METADATA)
    body = file.getvalue().split("<svg", 1)[1].split(">", 1)[1]
    body = re.sub(r'<g id="(node|edge)', r'<g class="\1', body)  # several of a kind: no ids
    body = re.sub(r"<style.*?</style>", "", body)  # would hold for the whole page
    for stand_in, colour in CSS_COLOURS.items():
        body = body.replace(stand_in, colour)
    return Markup(
        '<svg class="{kind}" viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img" aria-label="{title}">'
        "<title>{title}</title>{body}"
    ).format(
        kind="graph tall" if is_tall else "graph",
        w=f"{width:.1f}",
        h=f"{height:.1f}",
        title=title,
        body=Markup(body),
    )


def find_layers(edges: Sequence[Edge], order: Sequence[str] = ()) -> list[list[str]]:
    """Nodes by their longest way from the start; edges that lead back towards it do not count.

    Example: find_layers([("a", "b", False), ("b", "a", True)]) == [["a"], ["b"]]
    """
    graph: nx.DiGraph[str] = nx.DiGraph((source, target) for source, target, _ in edges)
    ranks = {node: rank for rank, node in enumerate(order)}
    targets = {target for _, target, _ in edges}
    steps: dict[str, int] = {}  # of the shortest way from a node that nothing leads to
    for start in set(graph) - targets:
        for node, length in nx.single_source_shortest_path_length(graph, start).items():
            steps[node] = min(length, steps.get(node, length))
    graph.remove_edges_from(
        [(source, target) for source, target in graph.edges if steps.get(target, 0) < steps.get(source, 0)]
    )
    forward: nx.DiGraph[str] = nx.DiGraph()
    forward.add_nodes_from(graph)
    for start in sorted(graph, key=lambda node: node in targets):  # nodes that nothing leads to come first
        if forward.degree(start):
            continue
        open_nodes: set[str] = set()
        for source, target, kind in nx.dfs_labeled_edges(graph, start):
            if kind == "reverse":
                open_nodes.discard(target)
            elif kind == "forward":
                open_nodes.add(target)
            if kind != "reverse" and source != target and (kind == "forward" or target not in open_nodes):
                forward.add_edge(source, target)
    return [
        sorted(layer, key=lambda node: ranks.get(node, len(ranks)))
        for layer in nx.topological_generations(forward)
    ]


def _place(layers: Sequence[Sequence[str]], texts: Mapping[str, str], is_tall: bool) -> _Layout:
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(node for layer in layers for node in layer)
    span = max(len(layers), *map(len, layers)) - 1
    units = nx.multipartite_layout(
        graph, subset_key={place: list(layer) for place, layer in enumerate(layers)}, scale=span / 2
    )
    step, row = (TALL_LAYER_STEP, TALL_ROW_STEP) if is_tall else (LAYER_STEP, ROW_STEP)
    widths = {node: max(50.0, CHAR_WIDTH * len(text) + 22) for node, text in texts.items()}
    return _Layout(
        positions={node: (float(x) * step, float(y) * row) for node, (x, y) in units.items()},
        layers={node: place for place, layer in enumerate(layers) for node in layer},
        half_sizes={
            node: (NODE_HEIGHT / 2, width / 2) if is_tall else (width / 2, NODE_HEIGHT / 2)
            for node, width in widths.items()
        },
        is_tall=is_tall,
    )


def _measure(paths: Sequence[tuple[Path, bool]], layout: _Layout) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of all that is drawn, with a margin."""
    boxes = [path.get_extents() for path, _ in paths]
    for node, place in layout.positions.items():
        x, y = layout.turn(place)
        half_width, half_height = layout.turn(layout.half_sizes[node])
        boxes.append(Bbox.from_extents(x - half_width, y - half_height, x + half_width, y + half_height))
    left, top, right, bottom = Bbox.union(boxes).padded(4).extents
    return float(left), float(top), float(right), float(bottom)


def _route(edge: Edge, layout: _Layout) -> tuple[Path, bool]:
    """The way of an edge: straight on to the next layer, around what stands between where it goes further."""
    source, target, is_conditional = edge
    span = layout.layers[target] - layout.layers[source]
    (start, start_row), (end, end_row) = layout.positions[source], layout.positions[target]
    half, end_half = layout.half_sizes[source], layout.half_sizes[target]
    if span == 1:
        begin, stop = start + half[0], end - end_half[0]
        middle = (begin + stop) / 2
        points = [(begin, start_row), (middle, start_row), (middle, end_row), (stop, end_row)]
    elif span == 0:  # to itself: a small loop
        edge_row = start_row + half[1]
        points = [(start - 8, edge_row), (start - 20, edge_row + 32)]
        points += [(start + 20, edge_row + 32), (start + 8, edge_row)]
    else:
        side = -1 if (span > 1) != layout.is_tall else 1
        first, last = sorted((layout.layers[source], layout.layers[target]))
        reached = max(
            side * row + layout.half_sizes[node][1]
            for node, (_, row) in layout.positions.items()
            if first <= layout.layers[node] <= last
        )
        peak = side * (reached + 10 + 9 * abs(span))  # longer arches stand further out
        from_row, to_row = start_row + side * half[1], end_row + side * end_half[1]
        bend = (peak - (from_row + to_row) / 8) / 0.75  # where a cubic's controls must be to reach the peak
        points = [(start, from_row), (start, bend), (end, bend), (end, to_row)]
    codes = [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]
    return Path([layout.turn(point) for point in points], codes), is_conditional


def _draw_edge(axes: Axes, path: Path, is_conditional: bool) -> None:
    axes.add_patch(
        FancyArrowPatch(
            path=path,
            arrowstyle="-|>,head_length=4,head_width=2.4",
            mutation_scale=1.4,
            color=MUTED,
            linewidth=1.2,
            linestyle=(0, (3, 3)) if is_conditional else "solid",
            gid="edge chosen" if is_conditional else "edge",
            clip_on=False,
        )
    )


def _draw_node(axes: Axes, node: str, text: str, kind: str, layout: _Layout) -> None:
    x, y = layout.turn(layout.positions[node])
    half_width, half_height = layout.turn(layout.half_sizes[node])
    axes.add_patch(
        FancyBboxPatch(
            (x - half_width, y - half_height),
            2 * half_width,
            2 * half_height,
            boxstyle=f"round,pad=0,rounding_size={half_height if kind == 'end' else 6}",
            facecolor=GROUND if kind == "end" else PAPER,
            edgecolor=ACCENT if kind == "ran" else LINE,
            linewidth=1.4,
            gid=f"node {kind}",
            clip_on=False,
        )
    )
    colour = INK if kind == "ran" else MUTED
    axes.text(x, y, text, ha="center", va="center_baseline", color=colour, parse_math=False)


def _label(node: str, labels: Mapping[str, str], visits: Mapping[str, int]) -> str:
    name = labels.get(node, END_NAMES.get(node, node))
    return f"{name} x{visits[node]}" if visits.get(node, 1) > 1 else name
