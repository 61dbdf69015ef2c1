"""The page of claims: each claim of a paper beside what was measured.

The claims are in `launch.studies`. The code that writes an experiment's report computes their
figures and verdicts from the results in `measured/`; where these are not kept, from `noted.jsonl`.
"""

import functools
import itertools
import math
import statistics
from collections import Counter

import experiments
import interval_pictures
from markdown_tables import ROOT, table

from launch.studies.engine.claims import PAPERS, Noted, PaperClaim, Proof, Trial, read_noted
from tff_ssl.reporting import verdicts

# A claim that does not hold although the order is the paper's: its differences are smaller.
SMALLER, NOT_RUN = "smaller here", "not tried"
# Verdicts -> words of the page, and classes of its cards.
_WORDS = {
    verdicts.HOLDS: "reproduced", SMALLER: SMALLER, verdicts.CONTRADICTED: "contradicted",
    verdicts.NOT_SHOWN: "not shown", NOT_RUN: NOT_RUN,
}  # fmt: skip
BY_RUNS, BY_CALCULATION = "by runs", "by calculation"
# Experiment -> value of --data_dir; DATA for all others.
_DATA_OF = dict.fromkeys(("dcco_table2", "dcco_table2_few_labels"), "FOLDER_OF_HAM10000")


def claims(paper: str = "") -> list[PaperClaim]:
    """The claims of a paper, or all, by paper and number."""
    from launch.studies import catalog

    return [claim for claim in catalog.CLAIMS if paper in ("", claim.paper)]


@functools.cache
def noted() -> dict[str, Noted]:
    """The runs whose results are not kept."""
    return read_noted(ROOT / "measured" / "noted.jsonl")


@functools.cache
def read(run: str):
    """The experiment of a file of `measured/` or of noted figures, with its figures."""
    return _read_noted(noted()[run]) if run in noted() else experiments.read(run)


def _read_noted(of_run: Noted):
    from launch.studies import catalog
    from tff_ssl.reporting.measured import Value

    experiment = catalog.EXPERIMENTS[of_run.experiment][0]("cpu", None, None)
    nothing = Value(math.nan, 0.0, 0, 0)
    values = {
        shown.title: dict.fromkeys(itertools.product(shown.rows, shown.columns), nothing)
        for shown in experiment.tables
    }
    for title, figures in of_run.figures.items():
        for key, text in figures.items():
            assert key in values[title], (title, key)
            mean, _, deviation = text.replace(",", "").partition(" ± ")
            values[title][key] = Value(float(mean), float(deviation), of_run.seeds, 0)
    return experiment, values


def statements(trial: Trial):
    """The statements that make up a claim, each with its table and the table's figures."""
    experiment, values = read(trial.run)
    tables = {shown.title: shown for shown in experiment.tables}
    chosen = [experiment.claims[number] for number in trial.decided_by(experiment)]
    return [(one, tables[one.table], values[one.table]) for one in chosen]


def verdict(trial: Trial | Proof) -> str:
    """The verdict on a claim that says all of the trial's statements."""
    if isinstance(trial, Proof):
        return trial.verdict
    found = verdicts.check_all(statements(trial))
    if found == verdicts.CONTRADICTED and order_verdict(trial) == verdicts.HOLDS:
        return SMALLER
    if found != verdicts.NOT_MEASURED:
        return found
    is_measured = verdicts.deciding(statements(trial)) is not None
    return verdicts.NOT_SHOWN if is_measured else NOT_RUN


def orders(trial: Trial):
    """The trial's statements without sizes (see `verdicts.order`); empty if they have none."""
    checked = statements(trial)
    found = [(verdicts.order(one), *of_table) for one, *of_table in checked]
    return [] if found == checked else found


def order_verdict(trial: Trial) -> str | None:
    """The verdict on the order alone; None if the trial's statements have no sizes."""
    return verdicts.check_all(orders(trial)) if orders(trial) else None


def figures(trial: Trial) -> str:
    """A trial's figures with their deviations, by column, and the number of seeds.

    They are those of the table that decides its verdict, or of the first one that has them.
    """
    checked = statements(trial)
    deciding = verdicts.deciding(checked)
    tables = [*([deciding[0]] if deciding else []), *checked]
    _, shown, values = next(one for one in tables if set(trial.figures) <= one[2].keys())
    by_column: dict[str, list[str]] = {}
    for row, column in trial.figures:
        short = interval_pictures.SHORT.get(row, row)
        by_column.setdefault(column, []).append(f"{short} {_format(values[row, column], shown)}")
    of_pixels = {} if trial.run in noted() else experiments.bounds(trial.run, shown)
    for column in by_column.keys() & of_pixels.keys():
        by_column[column].append(f"raw pixels {_format(of_pixels[column], shown)}")
    texts = [
        f"{column}: {', '.join(parts)}" if len(shown.columns) > 1 else ", ".join(parts)
        for column, parts in by_column.items()
    ]
    counts = sorted({values[figure].seeds for figure in trial.figures} - {0, 1})
    seeds = f"; {' or '.join(map(str, counts))} seeds" if counts else ""
    return f"{'; '.join(texts)} ({shown.title}{seeds})"


def _format(value, shown) -> str:
    if not value.seeds:
        return "not measured"
    factor, digits = (100, 1) if shown.percent else (1, 1 if value.mean < 100 else 0)
    mean = f"{factor * value.mean:,.{digits}f}"
    return f"{mean} ± {factor * value.std:.{digits}f}" if value.seeds > 1 else f"{mean} (one seed)"


def minutes(trial: Trial) -> str:
    """Minutes of training: the smallest and the largest median of the figures' cells."""
    if trial.run in noted():
        return "not kept"
    experiment, _ = read(trial.run)
    _, shown, _ = statements(trial)[0]
    medians = []
    for row, column in trial.figures:
        cells = shown.rows[row]
        cell = str(cells[shown.columns.index(column) if len(cells) > 1 else 0])
        found = [
            run.summary["training_minutes"]
            for name in experiment.choices.get(cell, (cell,))
            for run in experiments.records(trial.run).of_cell(name)
            if run.summary
        ]
        medians += [statistics.median(found)] if found else []
    low, high = f"{min(medians):.0f}", f"{max(medians):.0f}"
    return low if low == high else f"{low} to {high}"


def seen(trial: Trial) -> tuple[str, str]:
    """What was seen in a trial: a sentence with the deciding number, and its picture."""
    return interval_pictures.seen(statements(trial), verdict(trial))


def paper(key: str) -> list[str]:
    """The claims of a paper, a card each."""
    return [line for claim in claims(key) for line in card(claim)]


def card(claim: PaperClaim) -> list[str]:
    """A claim: what the paper says, what was seen, the verdict, and folded details."""
    word = main_verdict(claim)
    classes = f"claim {interval_pictures.html_class(word)}"
    lines = [
        f'<section class="{classes}" id="claim-{claim.name.lower()}">',
        f'<p class="claim-head"><b>{claim.name}</b> {claim.place} '
        f'<span class="verdict">{_WORDS[word]}</span></p>',
        "", f"**The paper:** {claim.text}", "",
    ]  # fmt: skip
    if not claim.trials:
        return [*lines, f"**Not tried:** {claim.untried}", "", "</section>", ""]
    first = claim.trials[0]
    sentence, picture = (_sentence(first), "") if isinstance(first, Proof) else seen(first)
    lines += [f"**We saw:** {sentence}", "", *([picture, ""] if picture else [])]
    lines += _order_lines(claim)
    others = len(claim.trials) - 1
    more = f" and {others} more trial{'s' if others > 1 else ''}" if others else ""
    lines += [f"<details><summary>Setting, figures{more}</summary>", ""]
    for number, trial in enumerate(claim.trials):
        lines += _details(trial, number)
    return [*lines, "</details>", "</section>", ""]


def _order_lines(claim: PaperClaim) -> list[str]:
    """What was seen of the order alone, in trials that do not show a claim's sizes."""
    lines = []
    for number, trial in enumerate(claim.trials):
        found = order_verdict(trial) if isinstance(trial, Trial) else None
        if found and verdict(trial) != verdicts.HOLDS and (not number or found == verdicts.HOLDS):
            place = f", trial {number + 1} ({trial.setting.partition(',')[0]})" if number else ""
            sentence, _ = interval_pictures.seen(orders(trial), found)
            lines += [f"**The order alone{place}:** {_WORDS.get(found, NOT_RUN)}. {sentence}", ""]
    return lines


def _sentence(proof: Proof) -> str:
    return f"{proof.figures[0].upper()}{proof.figures[1:]}."


def _details(trial: Trial | Proof, number: int) -> list[str]:
    """The setting of a trial, its figures, its statements and commands."""
    if isinstance(trial, Proof):
        found = f"**Trial {number + 1}: {_WORDS[trial.verdict]}.** {_sentence(trial)} "
        return [f"{found if number else ''}{trial.setting}. Command: `{trial.command}`", ""]
    lines = []
    if number:
        sentence, picture = seen(trial)
        lines += [f"**Trial {number + 1}: {_WORDS[verdict(trial)]}.** {sentence}", "", picture, ""]
    lines += [f"{trial.setting} {trial.note}".strip(), "", figures(trial), ""]
    checked = statements(trial)
    if len(checked) > 1:
        each = Counter(verdicts.check_each(checked))
        parts = [
            f"{each[word]} {_WORDS.get(word, NOT_RUN)}" for word in verdicts.VERDICTS if each[word]
        ]
        lines += [f"Its {len(checked)} statements one by one: {', '.join(parts)}.", ""]
    texts = [f"`{command}`" for command in commands(trial.run)]
    is_kept = (ROOT / "measured" / f"{trial.run}.jsonl").exists()
    pictures = f" [Pictures](generated/{trial.run}.md)." if is_kept else ""
    return [*lines, f"Minutes of training: {minutes(trial)}.{pictures} {'; '.join(texts)}", ""]


def commands(run: str) -> list[str]:
    """The commands of the runs in a file of `measured/`, one per number of seeds."""
    if run in noted():
        return [noted()[run].command]
    records, (experiment, _) = experiments.records(run), experiments.read(run)
    identity = records.identity
    by_seeds: dict[int, list[str]] = {}
    for cell in experiment.cells:
        by_seeds.setdefault(len(records.of_cell(cell.name)), []).append(cell.name)
    by_seeds.pop(0, None)
    base = f"python -m launch.reproduce --experiment={experiment.name} --scale={identity['scale']}"
    for key in ("dataset", "rounds"):
        base += f" --{key}={identity[key]}" if identity[key] else ""
    base += f" --data_dir={_DATA_OF.get(experiment.name, 'DATA')}"
    lines = []
    for seeds, cells in sorted(by_seeds.items(), reverse=True):
        only = "" if len(cells) == len(experiment.cells) else f" --only={','.join(cells)}"
        lines.append(f"{base}{only}{'' if seeds == 3 else f' --seeds={seeds}'}")
    return lines


def counts(paper: str = "", how: str = "") -> Counter:
    """The number of a paper's claims, or of all, by verdict: that on the first trial.

    `how` is `BY_RUNS` or `BY_CALCULATION`, for claims whose first trial is one of these.
    """
    return Counter(main_verdict(one) for one in claims(paper) if how in ("", _how(one)))


def _how(claim: PaperClaim) -> str:
    if not claim.trials:
        return NOT_RUN
    first = claim.trials[0]
    return BY_CALCULATION if isinstance(first, Proof) and not first.is_trained else BY_RUNS


def count_sentence() -> str:
    """The numbers of claims by verdict in a sentence, for README and the landing page."""
    found, by_runs = counts(), counts(how=BY_RUNS)
    reproduced, contradicted, smaller = verdicts.HOLDS, verdicts.CONTRADICTED, found[SMALLER]
    calculated = {word: found[word] - by_runs[word] for word in found}
    # Of these, differences are too small, and their order is neither shown nor contradicted.
    in_size = sum(
        order_verdict(one.trials[0]) == verdicts.NOT_SHOWN
        for one in claims()
        if main_verdict(one) == contradicted and _how(one) == BY_RUNS
    )
    return (
        f"{found[reproduced]} are reproduced ({by_runs[reproduced]} by runs on two cores, "
        f"{calculated[reproduced]} by calculation), {smaller} {'has' if smaller == 1 else 'have'} "
        f"the paper's order but smaller differences, {found[contradicted]} are contradicted at "
        f"this scale ({by_runs[contradicted]} by runs, {in_size} of them in the size of "
        f"differences alone, and {calculated[contradicted]} by calculation), "
        f"{found[verdicts.NOT_SHOWN]} are not shown at this scale, and {found[NOT_RUN]} were not "
        "tried"
    )


def counts_table() -> list[str]:
    """The number of claims by paper, by kind of trial and by verdict, and the runs' hours."""
    grid = [["paper", "claims", *_WORDS.values()]]
    rows = [(title, counts(key)) for key, title in PAPERS.items()]
    rows += [(how, counts(how=how)) for how in (BY_RUNS, BY_CALCULATION)]
    for title, found in (*rows, ("all", counts())):
        grid.append([title, str(sum(found.values())), *(str(found[word]) for word in _WORDS)])
    return [*table(grid), _hours()]


def bounds_table() -> list[str]:
    """The margins and factors of the claims' trials, with the claims that have them."""
    found: dict[str, dict[str, None]] = {}
    for claim in claims():
        for trial in claim.trials:
            for statement, shown, _ in statements(trial) if isinstance(trial, Trial) else ():
                for contrast in statement.contrasts:
                    if words := _bound(contrast, shown):
                        found.setdefault(words, {})[claim.name] = None
    return table([["bound", "claims"], *([words, ", ".join(of)] for words, of in found.items())])


def _bound(contrast, shown) -> str:
    """A contrast's margin or factor in words; "" if it is about an order alone."""
    weights = contrast.weights.values()
    factors = {abs(weight) for weight in weights} - {1}
    if factors and (sum(weights) or min(factors) < 1):  # Not of a difference of differences.
        factor = max(factors) if min(factors) > 1 else 0.5
        return f"a factor of {factor:g}" if factor > 1 else "half of a gain or of a loss"
    margin = contrast.margin * (100 if shown.percent else 1)
    unit = ("point" if abs(margin) == 1 else "points") if shown.percent else ""
    return f"{'more' if margin > 0 else 'less'} than {abs(margin):g} {unit}" if margin else ""


def rates_table() -> list[str]:
    """The verdicts' rates of error and power, by simulation (see `verdicts.rates`)."""
    effects = (0.0, 1.0, 2.0, 3.0, 5.0)
    columns = {
        "3 seeds": (3, 0), "5 seeds": (5, 0), "3 seeds, and 5 if nothing is shown": (5, 3),
        "10 seeds": (10, 0),
    }  # fmt: skip
    grid = [["contrasts", "true mean (deviations)", *columns]]
    for contrasts in (1, 6):
        found = [
            verdicts.rates(effects, seeds, contrasts, first=first)
            for seeds, first in columns.values()
        ]
        for effect in effects:
            texts = (" / ".join(f"{100 * one:.1f} %" for one in of[effect]) for of in found)
            grid.append([str(contrasts), f"{effect:g}", *texts])
    return table(grid)


def _hours() -> str:
    """The hours of the runs in `measured/`."""
    runs = [run for name in experiments.names() for run in experiments.records(name).all_runs()]
    found = [run.summary for run in runs if run.summary]
    training = sum(summary["training_minutes"] for summary in found) / 60
    all_hours = sum(summary["seconds"] for summary in found) / 3600
    return (
        f"The {len(found):,} runs in `measured/` trained for {training:.0f} hours of one core, "
        f"and took {all_hours:.0f} with their starts and evaluations."
    )


def main_verdict(claim: PaperClaim) -> str:
    """The verdict on a claim's first trial or proof."""
    return verdict(claim.trials[0]) if claim.trials else NOT_RUN
