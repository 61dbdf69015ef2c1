"""What decides a statement, in a sentence and a small picture of its interval as inline SVG."""

import math

from tff_ssl.reporting import verdicts

# Rows of tables -> shorter names.
SHORT = {
    "Proposed DCCO": "DCCO",
    "Contrastive + FedAvg": "contrastive",
    "Centralized CCO": "centralized",
    "Supervised from scratch": "from scratch",
    "(untrained encoder)": "untrained",
    "Single client training": "single clients",
    "tiny (in place of ResNet-18)": "tiny",
    "small (in place of ResNet-34)": "small",
    "DeNAV, 3000 epochs": "DeNAV",
    "Random route, 3000 epochs": "random route",
    "Gossip learning, 3000 epochs": "gossip",
    "All-reduce, 3000 epochs": "all-reduce",
    "From scratch": "from scratch",
}
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


def html_class(verdict: str) -> str:
    """The class of a verdict in `site.css`."""
    return verdict.replace(" ", "-")


def seen(checked, verdict: str) -> tuple[str, str]:
    """What was seen of some statements: a sentence with the deciding number, and its picture.

    `checked` has each with its table and figures (see `verdicts.check_all`), and `verdict` is that
    on all of them.
    """
    found = verdicts.deciding(checked)
    if found is None:
        return "Nothing was measured.", ""
    (claim, shown, _), contrast, one, learned = found
    factor, unit = (100, " points") if shown.percent else (1, "")
    mean, low, high, needed = (factor * v for v in (one.mean, *one.interval(), one.margin))
    number = f"{_describe(contrast, shown)} is **{mean:,.1f}{unit}**"
    interval = f"95 % interval {low:,.1f} to {high:,.1f}" if math.isfinite(low) else "one seed"
    interval += "" if one.is_paired or math.isinf(one.error) else ", not paired by seed"
    remark = ""
    if not learned:
        remark = (
            " It is not shown that what is compared has learned more than an untrained encoder."
        )
    elif one.p_value() < verdicts.LEVEL and verdict == verdicts.NOT_SHOWN:
        states = verdicts.check_each(checked)
        missing = states.count(verdicts.NOT_MEASURED)
        if missing:
            remark = f" {missing} of {len(states)} statements have not been tried."
        else:
            remark = " Of so many comparisons, one may be as far off by chance (Holm's correction)."
    several = len({of.title for _, of, _ in checked}) > 1
    place = f' in the table "{shown.title}"' if several else ""
    sentence = f"{number} ({interval}){place}. It has to be above {needed:,.1f}: *{claim.text}.*"
    return sentence + remark, draw(mean, low, high, needed, html_class(verdict), unit)


def _describe(contrast, shown) -> str:
    """A contrast in words: rows and columns with their signs."""
    columns = dict.fromkeys(column for _, column in contrast.weights)
    rows = dict.fromkeys(row for row, _ in contrast.weights)
    if len(rows) == len(columns) == 2 and {*contrast.weights.values()} == {1, -1}:
        (row, other), (first, last) = (SHORT.get(one, one) for one in rows), columns
        return f"The fall of {row} from {first} to {last}, less that of {other},"
    parts = []
    for (row, column), weight in contrast.weights.items():
        name = SHORT.get(row, row) if len(rows) > 1 or len(columns) == 1 else ""
        place = column if len(columns) > 1 else ""
        both = f"{name} at {place}" if name and place else name or place
        size = "" if abs(weight) == 1 else f"{abs(weight):g} \u00d7 "
        sign = "\u2212" if weight < 0 else "+"  # A minus sign.
        parts.append(f"{sign} {size}{both}")
    text = " ".join(sorted(parts)).removeprefix("+ ")
    where = SHORT.get(*rows, *rows) if len(rows) == 1 and len(columns) > 1 else ""
    if len(columns) == 1 and len(shown.columns) > 1:
        where = next(iter(columns))
    return f"{text} ({where})" if where else text
