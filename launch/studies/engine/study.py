"""The words in which experiments are written: studies, cells and tables.

Flags are texts, separated by blanks. An experiment's module has its methods, clients and published
figures as tables, and a function with `@study` that lays them out.
"""

import dataclasses
import inspect
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from tff_ssl.reporting.experiment import Cell, Claim, Experiment, Table
from tff_ssl.reporting.measured import Selector

UNTRAINED, PIXELS = "(untrained encoder)", "(raw pixels)"
SCALES = ("cpu", "gpu", "paper")
_PRESETS = pathlib.Path(__file__).parents[2] / "presets"
_SCALES_OF_NOTE = re.compile(r"((?:cpu|gpu|paper)(?:, (?:gpu|paper))*): ")
_T = TypeVar("_T")
Rows = Mapping[str, str | Sequence[str | None] | None]  # Row -> its cells' names, or its cell's.
Figures = Mapping[str, Any]  # Row -> published figures, or its only one (see `Table`).


@dataclasses.dataclass(frozen=True)
class At:
    """The scale, data set and number of rounds at which an experiment is built."""

    scale: str  # One of `SCALES`.
    data: str  # The user's data set or the experiment's; "" for that of the presets.
    rounds: int | None  # The user's number of rounds; None for the experiment's own.
    name: str = ""  # Of the experiment.
    title: str = ""  # Of its report.
    notes: Sequence[str] = ()  # Paragraphs at the beginning of its report.

    def __call__(self, cpu: _T, paper: _T, gpu: _T | None = None) -> _T:
        """The value of the scale. That of the GPU's scale is the paper's if it is None."""
        if self.scale == "gpu" and gpu is not None:
            return gpu
        return cpu if self.scale == "cpu" else paper

    def preset(self, name: str) -> str:
        """The flag of a preset: `FOLDER/NAME` is `FOLDER/SCALE/NAME.flags`.

        The GPU's scale has the paper's preset if it has none of its own.
        """
        folder, _, file = name.partition("/")
        own = _PRESETS / folder / self.scale / f"{file}.flags"
        scale = self.scale if self.scale != "gpu" or own.exists() else "paper"
        return f"--flagfile=launch/presets/{folder}/{scale}/{file}.flags"

    def length(self, rounds: int | None = None) -> str:
        """The flag of the user's number of rounds, otherwise of `rounds`; "" without either."""
        chosen = self.rounds or rounds
        return f"--rounds={chosen}" if chosen else ""

    def training(self, preset: str, rounds: int | None = None) -> str:
        """Flags of a preset, of the data set and of the number of rounds (see `length`)."""
        data = f"--dataset={self.data}" if self.data else ""
        return f"{self.preset(preset)} {data} {self.length(rounds)}"

    def build(
        self, cells: Iterable[Any], tables: Table | Mapping[str, Table], statements: Iterable[Any],
        partitions: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), notes: Iterable[str] = (),
        **others: Any,
    ) -> Experiment:  # fmt: skip
        """The experiment, from cells and statements, or lists of them.

        A table's key is the start of the ids of its statements. Notes follow those of the study.
        `others` are further fields of `Experiment`.
        """
        by_key = {"": tables} if isinstance(tables, Table) else tables
        keys = {shown.title: f"{key}." if key else "" for key, shown in by_key.items()}
        return Experiment(
            self.name, self.title, tuple(_flat(cells)), tuple(by_key.values()),
            tuple(dataclasses.replace(s, id=keys[s.table] + s.id) for s in _flat(statements)),
            (*self.notes, *notes), dict(partitions), **others,
        )  # fmt: skip


def _flat(items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        if isinstance(item, Cell | Claim):
            yield item
        else:
            yield from _flat(item)


class Study(NamedTuple):
    """An experiment; called with scale, data set (or None) and rounds (or None), it is built."""

    name: str  # Value of `--experiment`.
    title: str  # Of the report, with `{scale}`, `{data}` and `{on_data}`: `on DATA `, if any.
    summary: str  # A line for `reproduce --list`.
    notes: Sequence[str]  # Of the report; `cpu: ` or `gpu, paper: ` starts one of these scales.
    lay: Callable[[At], Experiment]  # Lays out cells, tables and statements.
    data: Mapping[str, str]  # Scale -> data set by default.

    def __call__(self, scale: str, dataset: str | None, rounds: int | None) -> Experiment:
        data = dataset or self.data[scale]
        title = self.title.format(scale=scale, data=data, on_data=f"on {data} " if data else "")
        notes = []
        for note in self.notes:
            scales = _SCALES_OF_NOTE.match(note)
            if scales is None or scale in scales[1].split(", "):
                notes.append(note[scales.end() :] if scales else note)
        return self.lay(At(scale, data, rounds, self.name, title, notes))


def study(title: str, cpu: str = "", paper: str = "") -> Callable[[Callable], Study]:
    """Makes a `Study` of a function of `At`, with its data sets by default at each scale.

    The first line of the function's docstring is its summary, other paragraphs are its notes. At
    the other scales, the data set is the paper's; if there is none, that of the CPU's scale.
    """

    def decorate(lay: Callable[[At], Experiment]) -> Study:
        summary, *notes = (inspect.getdoc(lay) or "").split("\n\n")
        notes = [" ".join(note.split()) for note in notes]
        data = {"cpu": cpu, "gpu": paper or cpu, "paper": paper or cpu}
        return Study(lay.__name__, title, summary.removesuffix("."), notes, lay, data)

    return decorate


def cell(
    name: str, *flags: str, evaluations: Iterable[str] = (), script: str = "pretrain",
    needs: str | None = None,
) -> Cell:  # fmt: skip
    """A training with its evaluations, by texts of flags; empty evaluations are left out.

    Presets come first, so that the other flags override theirs.
    """
    in_order = sorted(" ".join(flags).split(), key=lambda flag: "--flagfile" not in flag)
    runs = tuple(tuple(text.split()) for text in evaluations if text)
    return Cell(name, script, tuple(in_order), runs, needs)


def grid(
    rows: Mapping[str, tuple[str, ...]], columns: Mapping[str, tuple[str, ...]], *flags: str,
    script: str = "pretrain", needs: str | None = None,
) -> tuple[list[Cell], dict[str, tuple[str | None, ...]]]:  # fmt: skip
    """A cell for each row and column, named `ROW_COLUMN`; or for each row, if there is no column.

    Args:
      rows: Row -> start of its cells' names, its flags, and its evaluations, if any.
      columns: Column -> end of its cells' names, its flags, and its evaluations, if any.
      *flags: Flags of all cells.
      script, needs: See `Cell`.

    Returns:
      The cells, row by row; and row -> names of its cells.
    """
    cells: list[Cell] = []
    names: dict[str, tuple[str | None, ...]] = {}
    for row, (start, *of_row) in rows.items():
        of_this = [
            cell(
                f"{start}_{end}".strip("_"), *flags, of_row[0], of_column[0],
                evaluations=(*of_row[1:], *of_column[1:]), script=script, needs=needs,
            )
            for end, *of_column in columns.values() or [("", "")]
        ]  # fmt: skip
        cells += of_this
        names[row] = tuple(one.name for one in of_this)
    return cells, names


def table(
    title: str, selector: Selector, columns: Iterable[str], rows: Rows,
    published: Figures | None = None, *, untrained: Mapping[str, str] | None = None,
    selectors: Mapping[str, Selector] | None = None, percent: bool = True,
    starts: Mapping[str, str] | None = None,
) -> Table:  # fmt: skip
    """A table of an experiment, whose last rows are untrained encoders.

    Args:
      title, selector, columns, rows, published, selectors, percent, starts: See `Table`.
      untrained: Row of an untrained encoder -> row or cell whose runs started with it; and
        `PIXELS` -> row whose runs have a probe of raw pixels.
    """
    of_rows = {row: _listed(names) for row, names in rows.items()}
    own = dict(selectors or {})
    for name, row in (untrained or {}).items():
        baseline = "raw_pixels" if name == PIXELS else "random_encoder"
        own[name] = own.get(name, own.get(row, selector))._replace(baseline=baseline)
        of_rows[name] = of_rows.get(row, (row,))
    figures = {row: _listed(of_row) for row, of_row in (published or {}).items()}
    return Table(title, selector, tuple(columns), of_rows, figures, own, percent, starts or {})


def _listed(one_or_several: Any) -> Sequence[Any]:
    is_one = one_or_several is None or isinstance(one_or_several, str | int | float)
    return (one_or_several,) if is_one else one_or_several
