"""Small pictures of an interval beside a margin, as inline SVG."""

import math

_WIDTH, _HEIGHT, _SIDE, _LINE = 300, 46, 26, 16  # Sizes of the picture, and the interval's height.


def draw(mean: float, low: float, high: float, margin: float, html_class: str, unit: str) -> str:
    """A dot with its interval, a dashed line at the margin, and the side on which a claim holds.

    An infinite interval, that of a single seed, is a dot alone.
    """
    ends = [value for value in (mean, low, high, margin, 0.0) if math.isfinite(value)]
    least, most = min(ends), max(ends)
    room = (most - least) or 1.0

    def x(value: float) -> float:
        return round(_SIDE + (value - least) / room * (_WIDTH - 2 * _SIDE), 1)

    def text(value: float, row: int, word: str = "") -> str:
        label = f"{word}{value:,.{0 if abs(value) >= 100 or value == round(value) else 1}f}"
        return f'<text x="{x(value)}" y="{row}">{label}</text>'

    has_interval = math.isfinite(low) and math.isfinite(high)
    interval = f"{low:,.1f} to {high:,.1f}" if has_interval else "unknown, of one seed"
    parts = [
        f"<title>{mean:,.1f}{unit}, 95 % interval {interval}; the margin is {margin:,.1f}</title>",
        f'<rect class="beyond" x="{x(margin)}" y="4" width="{_WIDTH - x(margin)}" height="24"/>',
        f'<line class="margin" x1="{x(margin)}" x2="{x(margin)}" y1="4" y2="28"/>',
    ]
    if has_interval:
        ends_of_line = f'x1="{x(low)}" x2="{x(high)}" y1="{_LINE}" y2="{_LINE}"'
        parts.append(f'<line class="interval" {ends_of_line}/>')
    parts.append(f'<circle cx="{x(mean)}" cy="{_LINE}" r="5"/>')
    parts.append(text(margin, 42))
    if abs(x(0.0) - x(margin)) > 34:
        parts += [f'<line class="zero" x1="{x(0)}" x2="{x(0)}" y1="8" y2="24"/>', text(0.0, 42)]
    opening = f'<svg class="interval {html_class}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">'
    return f"{opening}{''.join(parts)}</svg>"
