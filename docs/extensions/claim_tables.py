"""The tables of the page of claims: each claim of a paper beside what was measured.

The claims are in `launch.studies`. The code that writes an experiment's report computes their
figures and verdicts from the results in `measured/`; where these are not kept, from `noted.jsonl`.
"""

import functools
import itertools
import math
import statistics
from collections import Counter

import experiments
from markdown_tables import ROOT, table

from launch.studies.engine.claims import PAPERS, Noted, PaperClaim, Proof, Trial, read_noted

NOT_RUN = "not run"
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


@functools.cache
def _claim_rows(run: str):
    from tff_ssl.reporting import report

    return report.claim_rows(*read(run))


def checks(trial: Trial) -> list[tuple[str, str, str]]:
    """The experiment's statements that make up a claim: table, statement, verdict."""
    rows = _claim_rows(trial.run)
    return [rows[number] for number in trial.decided_by(read(trial.run)[0])]


def verdict(trial: Trial) -> str:
    """The verdict on all statements: they hold if each holds, and do not if one does not."""
    found = {row[2] for row in checks(trial)}
    if found == {"not measured"}:
        return NOT_RUN
    if "does not hold" in found:
        return "does not hold"
    return "holds" if found == {"holds"} else "not shown"


def _verdict_text(trial: Trial) -> str:
    """The verdict, with the number of statements by verdict if they differ."""
    counts = Counter(row[2] for row in checks(trial))
    text = f"**{verdict(trial)}**"
    if len(counts) > 1:
        text += f" ({', '.join(f'{word}: {counts[word]}' for word in sorted(counts))})"
    if (ROOT / "measured" / f"{trial.run}.jsonl").exists():
        text += f", [pictures](generated/{trial.run}.md)"
    return text


def _table_of(trial: Trial):
    """The first table of the trial, which is shown, with its figures."""
    experiment, values = read(trial.run)
    title = checks(trial)[0][0]
    (shown,) = (one for one in experiment.tables if one.title == title)
    return shown, values[title]


def figures(trial: Trial) -> str:
    """A trial's figures with their deviations, by column."""
    shown, values = _table_of(trial)
    by_column: dict[str, list[str]] = {}
    for row, column in trial.figures:
        short = SHORT.get(row, row)
        by_column.setdefault(column, []).append(f"{short} {_format(values[row, column], shown)}")
    texts = [
        f"{column}: {', '.join(parts)}" if len(shown.columns) > 1 else ", ".join(parts)
        for column, parts in by_column.items()
    ]
    return f"{'; '.join(texts)} ({shown.title})"


def _format(value, shown) -> str:
    if not value.seeds:
        return "not measured"
    factor, digits = (100, 1) if shown.percent else (1, 1 if value.mean < 100 else 0)
    mean = f"{factor * value.mean:,.{digits}f}"
    return f"{mean} ± {factor * value.std:.{digits}f}" if value.seeds > 1 else f"{mean} (one seed)"


def margin(trial: Trial) -> str:
    """The gap between the compared ends, in points and in deviations (of the larger one)."""
    if trial.ends is None:
        return "ends not measured"
    shown, values = _table_of(trial)
    upper, lower = (values[key] for key in trial.ends)
    if not (upper.seeds and lower.seeds):
        return "not measured"
    names = [SHORT.get(row, row) for row, _ in trial.ends]
    if names[0] == names[1]:
        names = [column for _, column in trial.ends]
    distance = upper.mean - lower.mean
    points = f"{round(100 * distance, 1) + 0.0:.1f} points" if shown.percent else f"{distance:,.0f}"
    text = f"{names[0]} - {names[1]}: {points}"
    deviation = max(upper.std, lower.std)
    if min(upper.seeds, lower.seeds) > 1 and deviation:
        return f"{text}, {round(distance / deviation, 1) + 0.0:.1f} deviations"
    return f"{text}, one seed"


def minutes(trial: Trial) -> str:
    """Minutes of training: the smallest and the largest median of the figures' cells."""
    if trial.run in noted():
        return "not kept"
    experiment, _ = read(trial.run)
    shown, _ = _table_of(trial)
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


def paper(key: str) -> list[str]:
    """The table of a paper's claims, and the commands of its runs.

    A claim without a run has one row, with the reason.
    """
    grid = [["claim", "our setting", "margin", "our figures, in percent", "verdict", "minutes"]]
    for claim in claims(key):
        head = f"**{claim.name}** {claim.text} ({claim.place})"
        for trial in claim.trials:
            if isinstance(trial, Proof):
                row = [trial.setting, "-", trial.figures, f"**{trial.verdict}**", "-"]
            else:
                setting = f"{trial.setting} {trial.note}".strip()
                shown = (make(trial) for make in (margin, figures, _verdict_text, minutes))
                row = [setting, *shown]
            grid.append([head, *row])
            head = f"**{claim.name}**, the same"
        if not claim.trials:
            grid.append([head, claim.untried, "not seen", "none", f"**{NOT_RUN}**", "-"])
    tried = [trial for claim in claims(key) for trial in claim.trials]
    runs = dict.fromkeys(trial.run for trial in tried if isinstance(trial, Trial))
    lines = table(grid)
    if runs:
        lines += ["The commands of these runs:", ""]
        lines += [f"- {run}: {'; '.join(f'`{c}`' for c in commands(run))}" for run in runs]
    proofs = [trial for trial in tried if isinstance(trial, Proof)]
    lines += [f"- {proof.setting.rstrip('.')}: `{proof.command}`" for proof in proofs]
    return [*lines, ""]


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


def counts_table() -> list[str]:
    """The number of claims by paper and verdict (that on the first trial), and the runs' hours."""
    words = ["holds", "does not hold", "not shown", NOT_RUN]
    grid = [["paper", "claims", *words]]
    totals: Counter = Counter()
    for key, title in PAPERS.items():
        found: Counter = Counter(main_verdict(claim) for claim in claims(key))
        totals += found
        grid.append([title, str(sum(found.values())), *(str(found[word]) for word in words)])
    grid.append(["all", str(sum(totals.values())), *(str(totals[word]) for word in words)])
    return [*table(grid), _hours()]


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
    if not claim.trials:
        return NOT_RUN
    first = claim.trials[0]
    return first.verdict if isinstance(first, Proof) else verdict(first)
