"""Runs that differ in their seed alone, with mean and deviation over the seeds."""

import itertools
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from launch.pages.run_files import RunFiles
from launch.probes.result_text import BASELINES
from tff_ssl.reporting import over_seeds
from tff_ssl.reporting.over_seeds import Figures, Measured
from tff_ssl.reporting.page import Grid

# Flags that may differ in a group: the seed, and what does not change the results.
_IGNORED = {
    "seed", "output_dir", "resume", "list", "checkpoint_every", "max_concurrent_calls", "data_dir",
}  # fmt: skip
Groups = Mapping[str, Mapping[int, RunFiles]]  # Name of a group -> its runs by seed.


def group(runs: Mapping[str, RunFiles]) -> dict[str, dict[int, RunFiles]]:
    """Groups runs that differ in their seed alone; two runs with one seed are in two groups.

    Args:
      runs: The runs by their names on the page.
    """
    groups: list[tuple[Any, dict[int, str]]] = []  # Flags of a group, and its runs' names by seed.
    for name, run in runs.items():
        flags = {key: value for key, value in run.flags.items() if key not in _IGNORED}
        seed = int(run.flags.get("seed", 0))
        names = next((names for own, names in groups if own == flags and seed not in names), None)
        if names is None:
            groups.append((flags, names := {}))
        names[seed] = name
    members = [dict(sorted(names.items())) for _, names in groups]
    titles = [_title(names, runs) for names in members]
    return {
        # Two groups may be of one folder, which then tells them apart no more.
        title if titles.count(title) == 1 else ", ".join(names.values()): {
            seed: runs[name] for seed, name in names.items()
        }
        for title, names in zip(titles, members, strict=True)
    }


def _title(names: Mapping[int, str], runs: Mapping[str, RunFiles]) -> str:
    """The common start of the names of runs with `--seeds`, or their folder; otherwise all."""
    _, *others = names.values()
    folders = {pathlib.PurePath(name).parent for name in names.values()}
    parents = {runs[name].folder.resolve().parent for name in names.values()}
    is_of_seeds = len(parents) == 1 and all(
        re.fullmatch(rf"seed_?{seed}", runs[name].folder.resolve().name)
        for seed, name in names.items()
    )
    if not others or not is_of_seeds:
        return ", ".join(names.values())
    return str(folders.pop()) if folders != {pathlib.PurePath()} else parents.pop().name


def figures_of(groups: Groups) -> dict[str, dict[Measured, Figures]]:
    """The accuracies of each group."""
    return {
        name: over_seeds.collect({seed: run.results for seed, run in of_seed.items()})
        for name, of_seed in groups.items()
    }


def accuracy_grid(groups: Groups) -> Grid:
    """Mean and deviation of each group's accuracies, of the baselines', and of the gain."""
    figures = figures_of(groups)
    grid = [
        ["", *figures],
        ["seeds", *(", ".join(map(str, of_seed)) for of_seed in groups.values())],
    ]
    for one in dict.fromkeys(one for of_group in figures.values() for one in of_group):
        title = f"{one.name()}, {one.labels_text()}"
        found = [of_group.get(one, Figures({}, {})) for of_group in figures.values()]
        grid.append([title, *(_percent(over_seeds.spread(f.accuracy.values())) for f in found)])
        for key, name in BASELINES.items():
            baselines = [over_seeds.spread(f.baselines.get(key, {}).values()) for f in found]
            if any(one.seeds for one in baselines):
                grid.append([f"{title}: {name}", *map(_percent, baselines)])
        gains = [f.gain() for f in found]
        if any(gains):
            grid.append([f"{title}: gain", *(_percent(gain, "+") for gain in gains)])
    return grid


def mean_results(groups: Groups) -> dict[str, list[dict[str, Any]]]:
    """Entries like those of `result.json`, with mean and deviation over each group's seeds."""
    return {
        name: [
            {
                "protocol": one.protocol,
                "dataset": one.dataset,
                "labels": one.labels,
                **({"labels_per_class": one.labels} if one.is_per_class else {}),
                **({"pretrained_on": ""} if one.dataset else {}),
                "method": one.method,
                **_scores(figures.accuracy),
                "baselines": {key: _scores(scores) for key, scores in figures.baselines.items()},
            }
            for one, figures in of_group.items()
        ]
        for name, of_group in figures_of(groups).items()
    }


def _scores(accuracies: Mapping[int, float]) -> dict[str, float]:
    mean, deviation, _ = over_seeds.spread(accuracies.values())
    return {"accuracy": mean, "accuracy_std": deviation or 0.0}


def pair_grid(groups: Groups) -> Grid:
    """The paired differences of each two groups with the same seeds; only a header without any."""
    figures = figures_of(groups)
    pairs = [
        (first, second)
        for first, second in itertools.combinations(figures, 2)
        if groups[first].keys() == groups[second].keys()
    ]
    grid = [["", *(f"{second} minus {first}" for first, second in pairs)]]
    if not pairs:
        return grid
    for one in dict.fromkeys(one for of_group in figures.values() for one in of_group):
        cells = []
        for first, second in pairs:
            accuracies = [
                figures[name].get(one, Figures({}, {})).accuracy for name in (second, first)
            ]
            cells.append(_percent(over_seeds.paired(*accuracies), "+"))
        if set(cells) != {"-"}:
            grid.append([f"{one.name()}, {one.labels_text()}", *cells])
    return grid


def _percent(spread: over_seeds.Spread | None, sign: str = "") -> str:
    return spread.text(100, 1, sign) if spread and spread.seeds else "-"
