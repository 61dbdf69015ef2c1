"""What a claim of a paper consists of, and its trials.

A claim is a comparison that the text of a paper draws from a table, a figure or a proof. Figures of
papers are in percent.
"""

import json
import pathlib
from typing import NamedTuple


class Trial(NamedTuple):
    """A run of an experiment that tries a claim.

    Attributes:
      setting: Data, network, clients and rounds.
      run: Folder in `measured/`, or a key of `NOTED`.
      statements: Texts of the experiment's claims that make up the paper's claim.
      figures: (row, column) of the figures that are shown, of the first table.
      room: The two ends of the comparison, upper and lower, as (row, column) of the same table;
        None where the run has not both ends.
      tables: Parts of titles of the tables that count; all tables if empty.
      note: What the reader has to know of the setting.
    """

    setting: str
    run: str
    statements: tuple[str, ...]
    figures: tuple[tuple[str, str], ...]
    room: tuple[tuple[str, str], tuple[str, str]] | None
    tables: tuple[str, ...] = ()
    note: str = ""


class Proof(NamedTuple):
    """A claim that is computed, and has no deviation over seeds.

    Attributes:
      setting: What is computed.
      figures: The figures, which stand in `measured/noted.jsonl`.
      verdict: The verdict.
      command: Command that computes it.
    """

    setting: str
    figures: str
    verdict: str
    command: str


class PaperClaim(NamedTuple):
    """A claim of a paper.

    Attributes:
      name: Short name, a letter and a number.
      paper: Key of `PAPERS`.
      place: Table, figure or section.
      text: The comparison with the paper's figures.
      trials: Its trials, of which the first decides the verdict.
      proofs: Its proofs.
      untried: Why it has neither a trial nor a proof.
    """

    name: str
    paper: str
    place: str
    text: str
    trials: tuple[Trial, ...] = ()
    proofs: tuple[Proof, ...] = ()
    untried: str = ""


class Noted(NamedTuple):
    """Measured figures whose results are not kept.

    Attributes:
      experiment: Name of the experiment.
      command: Command of the runs.
      seeds: Number of seeds.
      figures: Title of a table -> (row, column) -> figure, such as "0.382 ± 0.007".
    """

    experiment: str
    command: str
    seeds: int
    figures: dict[str, dict[tuple[str, str], str]]


def grid(rows: tuple[str, ...], columns: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """The (row, column) of all figures of some rows and columns of a table, column by column."""
    return tuple((row, column) for column in columns for row in rows)


def read_noted(path: pathlib.Path) -> dict[str, Noted]:
    """The runs whose results are not kept, by name, from the lines that are cells of a table."""
    noted: dict[str, Noted] = {}
    for line in path.read_text().splitlines():
        cell = json.loads(line)
        if "table" in cell:
            run = Noted(cell["experiment"], cell["command"], cell["seeds"], {})
            figures = noted.setdefault(cell["what"], run).figures
            figures.setdefault(cell["table"], {})[cell["row"], cell["column"]] = cell["value"]
    return noted
