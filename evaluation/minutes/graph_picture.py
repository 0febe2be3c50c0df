"""A graph as an inline SVG, laid out here from its edges alone: no script, no network, no other program.

Nodes stand in layers from left to right; edges that skip a layer arch above, edges that go back arch below.
Or from top to bottom, for graphs of many layers: those edges then arch on the right and on the left.
Colours are the page's own (CSS variables --ink, --muted, --line, --paper, --accent), so dark pages work.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

Edge = tuple[str, str, bool]  # from, to, whether a condition chooses it
LAYER_WIDTH, ROW_HEIGHT, NODE_HEIGHT = 148, 52, 34
TALL_STEP, MARGIN = 62, 96  # from layer to layer, and beside them for arches, in a tall picture
CHAR_WIDTH = 8.2  # of a label, in the page's font at 14 px
END_NAMES = {"__start__": "start", "__end__": "end"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Box:
    x: float  # centre
    y: float
    width: float

    @property
    def left(self) -> float:
        return self.x - self.width / 2

    @property
    def right(self) -> float:
        return self.x + self.width / 2


def draw_graph(
    edges: Sequence[Edge],
    *,
    title: str,
    labels: Mapping[str, str] = {},
    visits: Mapping[str, int] = {},
    order: Sequence[str] = (),
    is_tall: bool = False,
) -> Markup:
    """The picture as an <svg> element.

    `labels` replace node names. `visits` counts how often a node ran: nodes named there with 0 are drawn
    faint, those above 1 carry the number. Nodes named in `order` stand in that order within their layer.
    `is_tall` draws from top to bottom.
    """
    ranks = {node: rank for rank, node in enumerate(order)}
    layers = [sorted(layer, key=lambda node: ranks.get(node, len(ranks))) for layer in find_layers(edges)]
    rows = max(map(len, layers))
    depth = {node: place for place, layer in enumerate(layers) for node in layer}
    if is_tall:
        boxes = _place_tall(layers, labels, visits)
        width, height = LAYER_WIDTH * rows + 2 * MARGIN, TALL_STEP * len(layers) + 8
        strokes = Markup("").join(_draw_tall_edge(edge, boxes, depth, width) for edge in edges)
    else:
        boxes = _place(layers, labels, visits)
        width, height = LAYER_WIDTH * len(layers), ROW_HEIGHT * (rows + 1) + 40
        strokes = Markup("").join(_draw_edge(edge, boxes, depth, height) for edge in edges)
    shapes = Markup("").join(_draw_node(node, boxes[node], labels, visits) for node in boxes)
    return Markup(
        '<svg class="graph" viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img" aria-label="{title}">'
        "<title>{title}</title>"
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0 8 4 0 8z" class="tip"/></marker></defs>{strokes}{shapes}</svg>'
    ).format(w=width, h=height, title=title, strokes=strokes, shapes=shapes)


def find_layers(edges: Sequence[Edge]) -> list[list[str]]:
    """Nodes by their longest way from the start; edges that close a circle do not count.

    Example: find_layers([("a", "b", False), ("b", "a", True)]) == [["a"], ["b"]]
    """
    following: dict[str, list[str]] = {}
    for source, target, _ in edges:
        following.setdefault(source, []).append(target)
        following.setdefault(target, [])
    done: dict[str, int] = {}  # node -> 1 on the way down, 2 finished
    finished: list[str] = []
    backward: set[tuple[str, str]] = set()

    def visit(node: str) -> None:
        done[node] = 1
        for target in following[node]:
            if done.get(target) == 1:
                backward.add((node, target))
            elif target not in done:
                visit(target)
        done[node] = 2
        finished.append(node)

    targets = {target for _, target, _ in edges}
    for node in sorted(following, key=lambda node: node in targets):  # nodes that nothing leads to come first
        if node not in done:
            visit(node)
    layer = dict.fromkeys(following, 0)
    for node in reversed(finished):
        for target in following[node]:
            if (node, target) not in backward:
                layer[target] = max(layer[target], layer[node] + 1)
    return [[node for node in layer if layer[node] == place] for place in range(max(layer.values()) + 1)]


def _place(
    layers: Sequence[Sequence[str]], labels: Mapping[str, str], visits: Mapping[str, int]
) -> dict[str, _Box]:
    rows = max(map(len, layers))
    middle = 20 + ROW_HEIGHT * (rows + 1) / 2
    return {
        node: _Box(
            x=LAYER_WIDTH * (place + 0.5),
            y=middle + ROW_HEIGHT * (row - (len(layer) - 1) / 2),
            width=min(LAYER_WIDTH - 22.0, max(52.0, CHAR_WIDTH * len(_label(node, labels, visits)) + 24)),
        )
        for place, layer in enumerate(layers)
        for row, node in enumerate(layer)
    }


def _place_tall(
    layers: Sequence[Sequence[str]], labels: Mapping[str, str], visits: Mapping[str, int]
) -> dict[str, _Box]:
    middle = MARGIN + LAYER_WIDTH * max(map(len, layers)) / 2
    return {
        node: _Box(
            x=middle + LAYER_WIDTH * (column - (len(layer) - 1) / 2),
            y=TALL_STEP * (place + 0.5),
            width=min(LAYER_WIDTH - 14.0, max(64.0, CHAR_WIDTH * len(_label(node, labels, visits)) + 24)),
        )
        for place, layer in enumerate(layers)
        for column, node in enumerate(layer)
    }


def _draw_tall_edge(edge: Edge, boxes: Mapping[str, _Box], depth: Mapping[str, int], width: float) -> Markup:
    source, target, is_conditional = edge
    span = depth[target] - depth[source]
    start, end = boxes[source], boxes[target]
    if span == 1:
        begin_y, end_y = start.y + NODE_HEIGHT / 2, end.y - NODE_HEIGHT / 2 - 1
        bend = (end_y - begin_y) / 2
        path = (
            f"M{start.x:.1f} {begin_y:.1f} C{start.x:.1f} {begin_y + bend:.1f} "
            f"{end.x:.1f} {end_y - bend:.1f} {end.x:.1f} {end_y:.1f}"
        )
    elif span == 0:  # to itself: a small loop on the left
        path = (
            f"M{start.left:.1f} {start.y - 8:.1f} C{start.left - 34:.1f} {start.y - 22:.1f} "
            f"{start.left - 34:.1f} {start.y + 22:.1f} {start.left - 1:.1f} {start.y + 8:.1f}"
        )
    else:
        is_forward = span > 1
        begin_x, end_x = (start.right, end.right + 1) if is_forward else (start.left, end.left - 1)
        edge_x = max(begin_x, end_x) if is_forward else min(begin_x, end_x)
        room = (width - edge_x if is_forward else edge_x) - 10.0
        reach = min(room, 26.0 + 13.0 * abs(span))  # longer arches stand further out
        bend_x = edge_x + (reach if is_forward else -reach) / 0.75
        path = (
            f"M{begin_x:.1f} {start.y:.1f} C{bend_x:.1f} {start.y:.1f} "
            f"{bend_x:.1f} {end.y:.1f} {end_x:.1f} {end.y:.1f}"
        )
    return Markup('<path d="{}" class="{}" marker-end="url(#arrow)"/>').format(
        path, "edge chosen" if is_conditional else "edge"
    )


def _label(node: str, labels: Mapping[str, str], visits: Mapping[str, int]) -> str:
    name = labels.get(node, END_NAMES.get(node, node))
    return f"{name} x{visits[node]}" if visits.get(node, 1) > 1 else name


def _draw_node(node: str, box: _Box, labels: Mapping[str, str], visits: Mapping[str, int]) -> Markup:
    kind = "end" if node in END_NAMES else "idle" if visits.get(node, 1) == 0 else "ran"
    return Markup(
        '<g class="node {}"><rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{}" rx="{}"/>'
        '<text x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text></g>'
    ).format(
        kind,
        box.left,
        box.y - NODE_HEIGHT / 2,
        box.width,
        NODE_HEIGHT,
        NODE_HEIGHT / 2 if node in END_NAMES else 7,
        box.x,
        box.y + 5,
        _label(node, labels, visits),
    )


def _draw_edge(edge: Edge, boxes: Mapping[str, _Box], depth: Mapping[str, int], height: float) -> Markup:
    source, target, is_conditional = edge
    span = depth[target] - depth[source]
    start, end = boxes[source], boxes[target]
    if span == 1:
        bend = (end.left - start.right) / 2
        path = (
            f"M{start.right:.1f} {start.y:.1f} C{start.right + bend:.1f} {start.y:.1f} "
            f"{end.left - bend:.1f} {end.y:.1f} {end.left - 1:.1f} {end.y:.1f}"
        )
    else:
        side = -1 if span > 1 else 1  # above, below
        begin_y, end_y = start.y + side * NODE_HEIGHT / 2, end.y + side * (NODE_HEIGHT / 2 + 1)
        peak = 12.0 if side < 0 else height - 12.0
        bend_y = (peak - (begin_y + end_y) / 8) / 0.75  # where a cubic's controls must be to reach the peak
        path = (
            f"M{start.x:.1f} {begin_y:.1f} C{start.x:.1f} {bend_y:.1f} "
            f"{end.x:.1f} {bend_y:.1f} {end.x:.1f} {end_y:.1f}"
        )
    return Markup('<path d="{}" class="{}" marker-end="url(#arrow)"/>').format(
        path, "edge chosen" if is_conditional else "edge"
    )
