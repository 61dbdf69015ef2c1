"""Claims of the papers, and the trials that decide them.

A claim is a comparison that a paper draws from a table, a figure or a proof. It stands in the
module of the experiment that tries it. Figures of papers are in percent.
"""

import fnmatch
import json
import math
import pathlib
from collections.abc import Iterable
from typing import NamedTuple

from tff_ssl.reporting import verdicts
from tff_ssl.reporting.experiment import Experiment, Figure

PAPERS = {
    "dcco": "DCCO",
    "fedu": "FedU",
    "dec_ssl": "Dec-SSL and FeatARC",
    "hetero_ssfl": "Hetero-SSFL",
    "denav": "DeNAV",
}
_LETTERS = "DUSHN"  # With which the names of their claims start.


class Trial(NamedTuple):
    """A run of an experiment that tries a claim."""

    setting: str  # Data, network, clients and rounds.
    # Name of the run in `measured/`, or of runs whose results are not kept (`read_noted`).
    run: str
    # Ids of the statements that make up the claim, separated by blanks: `a` stands for `a` and all
    # `a.*`, and `*` for any text.
    statements: str
    # Rows and columns that are shown, of the table of the first statement.
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    note: str = ""  # What the reader has to know of the setting.

    def decided_by(self, experiment: Experiment) -> list[int]:
        """The numbers of the experiment's statements that make up the claim.

        Raises:
          ValueError: If the experiment has none of an id.
        """
        ids, found = [f"{statement.id}." for statement in experiment.claims], []
        for name in self.statements.split():
            of_name = [i for i, one in enumerate(ids) if fnmatch.fnmatch(one, f"{name}.*")]
            if not of_name:
                raise ValueError(f"{self.run} has no statement {name}")
            found += of_name
        return sorted(set(found))

    @property
    def figures(self) -> tuple[Figure, ...]:
        """The figures that are shown, column by column."""
        return tuple((row, column) for column in self.columns for row in self.rows)


class Number(NamedTuple):
    """What was calculated, and where a claim asks it to be."""

    low: float  # Both ends of its interval, which are equal if there is none.
    high: float
    least: float = -math.inf
    most: float = math.inf
    # Two-sided, of the hypothesis that it lies at the bound; 0 if it is exact or of so many draws.
    p_value: float = 0.0


class Proof(NamedTuple):
    """A trial whose numbers are noted: a calculation, or runs that no experiment's table shows."""

    setting: str  # What is calculated.
    figures: str
    numbers: tuple[Number, ...]  # Those of the figures that decide.
    command: str  # That calculates it.
    # Whether a number that is not where the claim asks it to be contradicts the claim. It does not
    # if the claim is about a limit that is not reached, or about what holds "mainly".
    contradicts: bool = True
    is_trained: bool = False  # Whether the numbers come from trainings.

    @property
    def verdict(self) -> str:
        """The verdict: all numbers are where the claim asks them to be, or one is not.

        As in `verdicts.decide`, Holm's correction holds over the p-values of all numbers.
        """
        corrected = verdicts.holm([one.p_value for one in self.numbers])
        shown = [p_value < verdicts.LEVEL for p_value in corrected]
        inside = [one.least <= one.low and one.high <= one.most for one in self.numbers]
        if all(inside) and all(shown):
            return verdicts.HOLDS
        is_beyond = any(
            is_shown and (one.high < one.least or one.low > one.most)
            for one, is_shown in zip(self.numbers, shown, strict=True)
        )
        return verdicts.CONTRADICTED if is_beyond and self.contradicts else verdicts.NOT_SHOWN


class PaperClaim(NamedTuple):
    """A claim of a paper."""

    name: str  # The letter of the paper and a number.
    place: str  # Table, figure or section.
    text: str  # The comparison with the paper's figures.
    trials: tuple[Trial | Proof, ...] = ()  # The first decides the verdict.
    untried: str = ""  # Why there are none.

    @property
    def order(self) -> tuple[int, int]:
        """Numbers of the paper and of the claim."""
        return _LETTERS.index(self.name[0]), int(self.name[1:])

    @property
    def paper(self) -> str:
        """Key of `PAPERS`."""
        return list(PAPERS)[self.order[0]]


def claim(
    name: str, place: str, text: str, setting: str, run: str, statements: str, rows: Iterable[str],
    columns: Iterable[str], note: str = "",
    *others: Trial | Proof,
) -> PaperClaim:  # fmt: skip
    """A claim, its trial and other trials (see `PaperClaim` and `Trial`)."""
    first = Trial(setting, run, statements, tuple(rows), tuple(columns), note)
    return PaperClaim(name, place, text, (first, *others))


class Noted(NamedTuple):
    """Figures of runs whose results are not kept."""

    experiment: str
    command: str
    seeds: int
    figures: dict[str, dict[Figure, str]]  # Title of a table -> figures such as "0.382 ± 0.007".


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
