"""Pictures of rounds: who computes what, and who sends what to whom.

    ```{round} server | client k
    server -> client k: model
    client k: local training
    client k -> server: model delta
    server: mean
    ```

The argument names the participants, the lanes of the picture. A line with an arrow is a message,
and one without is a participant's step. The picture is an SVG in the page itself, so that its text
follows the theme's colours.
"""

import re
import textwrap
from html import escape

_LANE_WIDTH = 300
_LETTERS = 38  # Letters of a line of a step's text.
_LINE_HEIGHT = 17
_STEP = re.compile(r"(?P<sender>[^:>]+?)\s*(?:->\s*(?P<receiver>[^:]+?))?\s*:\s*(?P<text>.+)")


def draw(lanes: list[str], lines: list[str]) -> str:
    """Draws a round as an `<svg>` element.

    Args:
      lanes: Names of the participants.
      lines: Messages `A -> B: text` and steps `A: text`, in order of time.

    Raises:
      ValueError: If a line is neither, or names somebody without a lane.
    """
    centres = {lane: _LANE_WIDTH * (i + 0.5) for i, lane in enumerate(lanes)}
    width = _LANE_WIDTH * len(lanes)
    shapes, y = [], 60.0
    for line in lines:
        match = _STEP.fullmatch(line.strip())
        if not match or not {match["sender"], match["receiver"] or lanes[0]} <= centres.keys():
            raise ValueError(f"write `A: text` or `A -> B: text` with A, B of {lanes}; got {line}")
        x = centres[match["sender"]]
        if match["receiver"]:
            drawn, y = _message(x, centres[match["receiver"]], y, match["text"])
        else:
            drawn, y = _box(x, y, match["text"])
        shapes += drawn
    lines_of_lanes = [
        f'<line class="lane" x1="{x}" y1="34" x2="{x}" y2="{y}"/>' for x in centres.values()
    ]
    names = [_texts([lane], x, 24, 'class="name" ')[0] for lane, x in centres.items()]
    label = escape("; ".join(line.strip() for line in lines), quote=True)
    return (
        f'<svg class="round" viewBox="0 0 {width} {y + 6}" role="img" aria-label="{label}" '
        f'style="max-width: {width}px">{"".join(lines_of_lanes + names + shapes)}</svg>'
    )


def _texts(rows: list[str], x: float, y: float, kind: str = "") -> list[str]:
    """Lines of text, the first at the height `y`."""
    rest = 'text-anchor="middle">'
    return [
        f'<text {kind}x="{x}" y="{y + _LINE_HEIGHT * i}" {rest}{escape(row)}</text>'
        for i, row in enumerate(rows)
    ]


def _box(x: float, y: float, text: str) -> tuple[list[str], float]:
    rows = textwrap.wrap(text, _LETTERS)
    height = _LINE_HEIGHT * len(rows) + 12
    half = _LANE_WIDTH / 2 - 8
    box = f'<rect x="{x - half}" y="{y}" width="{2 * half}" height="{height}" rx="6"/>'
    return [box, *_texts(rows, x, y + 18)], y + height + 14


def _message(start: float, end: float, y: float, text: str) -> tuple[list[str], float]:
    rows = textwrap.wrap(text, _LETTERS)
    middle, sign = (start + end) / 2, 1 if end > start else -1
    texts = _texts(rows, middle, y + 10, 'class="message" ')
    y += _LINE_HEIGHT * len(rows) + 4
    tip = f"{end - sign * 9},{y - 5} {end},{y} {end - sign * 9},{y + 5}"
    arrow = [
        f'<line class="arrow" x1="{start}" y1="{y}" x2="{end - sign * 8}" y2="{y}"/>',
        f'<polygon points="{tip}"/>',
    ]
    return [*arrow, *texts], y + 20
