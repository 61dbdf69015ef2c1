"""Checks the theory of linear features at finite dimension: Dec-SSL beside Dec-SLRep.

    python -m launch.studies.linear_theory --dimensions=64,256,1024 --sources=3

Draws the heterogeneous data of "Does Learning from Decentralized Non-IID Unlabeled Data Benefit
from Self Supervision?" (appendix E.1) and solves both problems exactly: Dec-SSL at each source and
on all data (Theorem 3.2), and Dec-SLRep, which learns from labels, at each source (Proposition
4.1). Prints how much the features of source k contain of its own direction e_k, which separates its
two frequent classes, and of the other sources' directions e_j. Writes `linear_theory.json` and
`linear_theory.png`.
"""

import dataclasses
import pathlib
from typing import Any

from launch.options import app, settings
from launch.options.settings import Settings, flag
from launch.outputs import output_folder, run_folder
from tff_ssl.errors import ConfigurationError


@dataclasses.dataclass(frozen=True)
class LinearTheoryConfig(Settings):
    """The data and the features.

    Attributes:
      dimensions: Dimensions d.
      sources: Number K of data sources.
      seeds: Seeds of the data, one for each draw.
      features: Number of rows of Dec-SSL's w, at least 2K. Default: 2K.
      frequent: Number of samples of a frequent class. Default: half of d.
      infrequent: Number of samples of an infrequent class at a source. Default: d^(1/5) / K, at
        least 1.
      output_dir: Folder for the results. Default: a new one in results/.
    """

    dimensions: tuple[int, ...] = flag((64, 128, 256, 512, 1024), 1)
    sources: int = flag(3, 2)
    seeds: tuple[int, ...] = flag((0, 1, 2), 0)
    features: int | None = flag(None, 1)
    frequent: int | None = flag(None, 1)
    infrequent: int | None = flag(None, 1)
    output_dir: str | None = None


_MAX_SIZE = 16384  # Largest side of a source's Gram matrix, which then has 2 GB.
# Quantity -> its field of `Comparison`, and whether it takes each source's own direction (True),
# the others (False) or all (None).
_QUANTITIES = {
    "ssl_local_others": ("ssl_local", False),
    "ssl_local_own": ("ssl_local", True),
    "ssl_global": ("ssl_global", None),
    "slrep_own": ("slrep_local", True),
    "slrep_others": ("slrep_local", False),
    "slrep_representability_own": ("slrep_representability", True),
    "slrep_representability_others": ("slrep_representability", False),
}
_SHORTFALLS = ("ssl_local_others", "ssl_global", "ssl_local_own")  # Of Dec-SSL, from 1.
_OWN, _OTHERS = ("one source, $j = k$", "#c07a1a"), (r"one source, $j \neq k$", "#1f5f99")
_SSL_LINES = {
    "ssl_global": ("all data, every $j$", "#2a7f3f"),
    "ssl_local_others": _OTHERS,
    "ssl_local_own": _OWN,
}
_SLREP_LINES = {"slrep_own": _OWN, "slrep_others": _OTHERS}
_REFERENCE: dict[str, Any] = {"color": "black", "linestyle": "--", "linewidth": 1}
_HEAD = """
          representability, Dec-SSL, lowest     correlations, Dec-SLRep
     d       local      global       local      lowest     highest   samples
            j != k       all j       j = k       j = k      j != k  a source"""


def main(args: LinearTheoryConfig) -> None:
    dimensions, seeds = _numbers("dimensions", args, args.sources), _numbers("seeds", args, 0)
    _check(args, dimensions)
    folder = output_folder.choose(args.output_dir, "linear_theory")
    print(
        f"Solves Dec-SSL and Dec-SLRep, both linear, at {args.sources} sources in d = "
        f"{', '.join(map(str, dimensions))} dimensions, {len(seeds)} draws of the data each,\n"
        f"and writes linear_theory.json and linear_theory.png to {folder}/\n{_HEAD}",
        flush=True,
    )
    rows = []
    for dimension in dimensions:
        rows.append(_measure(dimension, seeds, args))
        _print_row(rows[-1])
    # If w has a row for every dimension, nothing falls short of 1, and no exponent can be fitted.
    fitted = [row for row in rows if row["dimension"] > (args.features or 2 * args.sources)]
    exponents = _exponents(fitted) if len(fitted) > 1 else {}
    report = {"flags": settings.to_json(args), "exponents": exponents, "rows": rows}
    run_folder.make(folder)  # The place was checked before; mistakes leave no folder.
    run_folder.write_json(folder / "linear_theory.json", report)
    _draw(rows, folder / "linear_theory.png")
    print(f"\nwrote {folder / 'linear_theory.json'}\nwrote {folder / 'linear_theory.png'}")


def _numbers(name: str, args: LinearTheoryConfig, lowest: int) -> list[int]:
    """The whole numbers of a list flag, ascending and without repetition."""
    found = sorted(set(getattr(args, name)))
    if not found or found[0] < lowest:
        raise ConfigurationError(
            f"--{name} takes whole numbers from {lowest}, such as {lowest + 1},{lowest + 2}; got "
            f"{','.join(map(str, getattr(args, name)))!r}"
        )
    return found


def _check(args: LinearTheoryConfig, dimensions: list[int]) -> None:
    """Raises `ConfigurationError` if flags do not fit together, or ask for too large matrices."""
    if args.features is not None and args.features < 2 * args.sources:
        raise ConfigurationError(
            f"--features={args.features} is less than twice --sources={args.sources}, which the "
            "theory asks for"
        )
    if dimensions[-1] > _MAX_SIZE:
        raise ConfigurationError(f"--dimensions may go up to {_MAX_SIZE}, found {dimensions[-1]}")
    for dimension in dimensions:
        frequent, infrequent = _counts(dimension, args)
        samples = 2 * frequent + (args.sources - 1) * infrequent
        if samples > 2 * _MAX_SIZE:
            raise ConfigurationError(
                f"--frequent, --infrequent or --sources: {samples} samples a source, more than "
                f"{2 * _MAX_SIZE}"
            )


def _counts(dimension: int, args: LinearTheoryConfig):
    """The `SampleCounts` of a source: those of the flags, otherwise the theory's."""
    from tff_ssl.analysis import linear_theory

    default = linear_theory.default_counts(args.sources, dimension)
    frequent, infrequent = args.frequent or default.frequent, args.infrequent or default.infrequent
    return linear_theory.SampleCounts(frequent, infrequent)


def _measure(dimension: int, seeds: list[int], args: LinearTheoryConfig) -> dict[str, Any]:
    """The row of a dimension: mean, min and max of each quantity, and all draws."""
    import numpy as np

    from tff_ssl.analysis import linear_theory

    counts = _counts(dimension, args)
    results = []
    for seed in seeds:
        rng = np.random.default_rng([seed, dimension])
        sources = linear_theory.draw_sources(args.sources, dimension, counts, rng)
        try:
            results.append(linear_theory.compare(sources, args.features or 2 * args.sources))
        except ValueError as error:
            raise ConfigurationError(
                f"--frequent or --infrequent, {counts.frequent} and {counts.infrequent}, are too "
                f"many samples in {dimension} dimensions: {error}"
            ) from error
    draws = [
        {"seed": seed, **{field: getattr(result, field).tolist() for field in result._fields[:4]}}
        for seed, result in zip(seeds, results, strict=True)
    ]
    return {
        "dimension": dimension,
        **counts._asdict(),
        "samples_per_source": 2 * counts.frequent + (args.sources - 1) * counts.infrequent,
        "kkt_residual": max(result.kkt_residual for result in results),
        **_summary(results),
        "draws": draws,
    }


def _summary(results: list[Any]) -> dict[str, dict[str, float]]:
    """Mean, min and max of each quantity over sources, directions and draws."""
    import numpy as np

    is_own = np.eye(len(results[0].ssl_global), dtype=bool)
    summary = {}
    for name, (field, takes_own) in _QUANTITIES.items():
        values = np.stack([getattr(result, field) for result in results])
        values = values if takes_own is None else values[:, is_own == takes_own]
        summary[name] = {kind: float(getattr(values, kind)()) for kind in ("mean", "min", "max")}
    return summary


def _print_row(row: dict[str, Any]) -> None:
    """Prints the values of all sources and draws that are furthest from the theory's limits."""
    lowest = [row[name]["min"] for name in (*_SHORTFALLS, "slrep_own")]
    numbers = "".join(f"{cell:12.4f}" for cell in (*lowest, row["slrep_others"]["max"]))
    print(f"{row['dimension']:6}{numbers}{row['samples_per_source']:10}", flush=True)


def _exponents(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Prints and returns the exponents of d in the quantities that the theory bounds.

    Each is the least-squares slope of the logarithm of the quantity's mean over log d.
    """
    import numpy as np

    dimensions = np.log([row["dimension"] for row in rows])

    def slope(values: list[float]) -> float:
        return float(np.polyfit(dimensions, np.log(values), 1)[0])

    exponents = {
        f"1 - {name}": slope([1 - row[name]["mean"] for row in rows]) for name in _SHORTFALLS
    }
    exponents["slrep_others"] = slope([row["slrep_others"]["mean"] for row in rows])
    others, all_data, own, slrep = exponents.values()
    print(
        "\nexponents of d, fitted to the means"
        f"\n  Dec-SSL's shortfall from 1: local, j != k {others:.2f} (theory at most -0.80), "
        f"global {all_data:.2f} (-0.80), local, j = k {own:.2f} (not in the theorem)"
        f"\n  Dec-SLRep's correlations, j != k: {slrep:.2f} (theory at most -0.10)"
    )
    return exponents


def _draw(rows: list[dict[str, Any]], path: pathlib.Path) -> None:
    """Draws three panels over d: lines are means over sources and draws, bands are min to max."""
    from matplotlib.figure import Figure

    from launch.outputs import plots

    figure = Figure(figsize=(13, 4), layout="constrained")
    representability, shortfall, correlations = figure.subplots(1, 3)
    dimensions = [row["dimension"] for row in rows]
    powers = [d**-0.8 for d in dimensions]
    for name, style in _SSL_LINES.items():
        _line(representability, rows, name, style)
        _line(shortfall, rows, name, style, is_shortfall=True)
    representability.plot(dimensions, [1 - p for p in powers], **_REFERENCE, label="$1 - d^{-4/5}$")
    shortfall.plot(dimensions, powers, **_REFERENCE, label="$d^{-4/5}$")
    shortfall.set_yscale("log")  # A power of d is a straight line.
    for name, style in _SLREP_LINES.items():
        _line(correlations, rows, name, style)
    correlations.axhline(2**0.5, **_REFERENCE, label=r"limit for $j = k$: $\sqrt{2}$")
    correlations.set_ylim(0, 1.4 * correlations.get_ylim()[1])  # Room for the legend.
    for axes, title, place in (
        (representability, "Dec-SSL: representability $r_j$ of direction $e_j$", "lower right"),
        (shortfall, "Dec-SSL: its shortfall $1 - r_j$", "lower left"),
        (correlations, r"Dec-SLRep: correlations $\sum_i \langle u_i, e_j \rangle^2$",
         "upper left"),
    ):  # fmt: skip
        axes.set_title(title, fontsize=10)
        axes.legend(fontsize=8, loc=place)
        axes.set_xscale("log", base=2)
        axes.set_xticks(dimensions, [str(d) for d in dimensions])
        axes.minorticks_off()
        axes.set_xlabel("dimension $d$")
        axes.grid(alpha=0.3)
    plots.save(figure, path)


def _line(axes, rows, name: str, style: tuple[str, str], is_shortfall: bool = False) -> None:
    """Draws the mean of a quantity, or its shortfall, over d, and the band from min to max."""
    dimensions = [row["dimension"] for row in rows]
    label, colour = style
    mean, low, high = ([row[name][kind] for row in rows] for kind in ("mean", "min", "max"))
    if is_shortfall:
        mean, low, high = ([max(1 - r, 1e-15) for r in values] for values in (mean, low, high))
    axes.plot(dimensions, mean, marker=".", color=colour, label=label)
    axes.fill_between(dimensions, low, high, color=colour, alpha=0.15, linewidth=0)


SCRIPT = app.Script("linear_theory", main, LinearTheoryConfig)

if __name__ == "__main__":
    app.run(SCRIPT)
