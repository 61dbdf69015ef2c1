"""Measures for `benchmark` how the cost of a round grows with cohort and population."""

import contextlib
import pathlib
import statistics
import time
from collections.abc import Generator, Sequence
from typing import Any

from launch.benchmarks import processes, programs

COHORTS = (32, 128, 512, 2048)
POPULATIONS = (1_000, 10_000, 100_000, 1_000_000)
_SAMPLES = 4  # Images of a client in rounds of growing cohorts.
_COHORT = 32  # Clients of a round from growing populations.
_MODEL = programs.ModelSettings("tiny", (64, 64))
_SMALL_IMAGE = (8, 8, 1)  # Of growing populations, with one image a client.
# Curves of a population, by field of its row.
_STEPS = {
    "seconds": "round",
    "opening_seconds": "opening the store",
    "drawing_seconds": "drawing a cohort",
    "checkpoint_seconds": "writing a checkpoint",
}


def compare(
    seed: int,
    repetitions: int,
    scratch: str,
    cohorts: Sequence[int] = COHORTS,
    populations: Sequence[int] = POPULATIONS,
) -> dict[str, list[dict[str, Any]]]:
    """Measures rounds of DCCO with the tiny ResNet: the rows of `scaling` in `benchmark.json`."""
    rows: dict[str, list[dict[str, Any]]] = {"cohorts": [], "populations": []}
    for clients in cohorts:
        work = programs.Work("dcco", "cco", clients, _SAMPLES)
        measured = _measure(repetitions, programs.federated_round, work, {}, _MODEL, seed, scratch)
        rows["cohorts"].append({"clients": clients, **measured})
    for population in populations:
        measured = _measure(repetitions, rounds_of_population, population, seed, scratch)
        rows["populations"].append({"population": population, **measured})
    return rows


def _measure(repetitions: int, program: Any, *arguments: Any) -> dict[str, float]:
    """Seconds of a round, memory in MB, and the figures that the program yields."""
    with contextlib.closing(processes.Child(program, *arguments)) as child:
        seconds = processes.time_in_turn({"round": child}, repetitions)["round"]
        return {
            "seconds": statistics.median(seconds),
            "peak_rss_mb": child.peak_rss_mb(),
            **child.facts,
        }


def rounds_of_population(
    population: int, seed: int, scratch: str
) -> Generator[dict[str, float], None, None]:
    """Rounds of DCCO with `_COHORT` of `population` clients of one image each.

    Yields:
      Seconds to write the images, to open their store, to draw a cohort, and to write a checkpoint;
      and the megabytes of the checkpoint.
    """
    programs.quiet()
    from datasets import client_store
    from tff_ssl.runtime import start
    from tff_ssl.simulation.checkpoints import Checkpoints
    from tff_ssl.simulation.packing import pack

    path = pathlib.Path(scratch) / f"population_{population}.sqlite"
    work = programs.Work("dcco", "cco", population, 1, cohort=_COHORT)
    writing = _seconds(lambda: programs.write_clients(path, work, seed, _SMALL_IMAGE))
    opening = _seconds(lambda: client_store.StoredClientData(path))
    setting = programs.run_setting(work, 1, seed)
    cohorts = setting.participation.cohorts
    drawing = statistics.median(_seconds(lambda r=r: cohorts(r)) for r in range(1, 6))
    built, data = programs.build(path, work, {}, _MODEL, seed, _SMALL_IMAGE)
    run = built.plan_run(setting)
    simulation = run.simulate(data.group_batch_computation, path.with_suffix(".run"))
    with start():
        rounds = programs.states(simulation, seed)
        packed, checkpoints = pack(next(rounds)), Checkpoints(path.with_suffix(".checkpoints"))
        saving = _seconds(lambda: checkpoints.save(packed, 1))
        yield {
            "writing_seconds": writing,
            "opening_seconds": opening,
            "drawing_seconds": drawing,
            "checkpoint_seconds": saving,
            "checkpoint_mb": checkpoints.path(1).stat().st_size / processes.MEGABYTE,
        }
        for _ in rounds:
            yield {}


def _seconds(call: Any) -> float:
    start = time.monotonic()
    call()
    return time.monotonic() - start


def draw(rows: dict[str, list[dict[str, Any]]], path: pathlib.Path) -> None:
    """Draws seconds and memory against the clients of a round, and against the population."""
    from matplotlib.figure import Figure

    from launch.outputs import plots

    figure = Figure(figsize=(9, 6), layout="constrained")
    panels = figure.subplots(2, 2, sharex="col")
    columns = (
        ("cohorts", "clients", "clients a round", {"seconds": "round"}),
        ("populations", "population", "clients in all", _STEPS),
    )
    for column, (name, key, label, steps) in enumerate(columns):
        x = [row[key] for row in rows[name]]
        upper, lower = panels[0][column], panels[1][column]
        for field, step in steps.items():
            upper.plot(x, [row[field] for row in rows[name]], "o-", label=step)
        upper.set(xscale="log", yscale="log", ylabel="seconds")
        # Above the panel, a legend hides no point.
        upper.legend(fontsize="small", loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
        lower.plot(x, [row["peak_rss_mb"] for row in rows[name]], "o-")
        highest = max(row["peak_rss_mb"] for row in rows[name])
        lower.set(xlabel=label, ylabel="memory of all processes, MB", ylim=(0, 1.1 * highest))
        upper.grid(alpha=0.3)
        lower.grid(alpha=0.3)
    plots.save(figure, path)


def describe(rows: dict[str, list[dict[str, Any]]]) -> str:
    """The two tables of `compare`'s results."""
    lines = ["", f"{'clients a round':>16}{'s/round':>10}{'ms/client':>11}{'peak MB':>9}"]
    for row in rows["cohorts"]:
        per_client = 1e3 * row["seconds"] / row["clients"]
        lines.append(
            f"{row['clients']:16,}{row['seconds']:10.2f}{per_client:11.1f}{row['peak_rss_mb']:9.0f}"
        )
    header = ("s/round", "open, s", "draw, s", "save, s", "saved MB", "peak MB")
    lines += ["", f"{'clients in all':>16}" + "".join(f"{title:>10}" for title in header)]
    for row in rows["populations"]:
        lines.append(
            f"{row['population']:16,}{row['seconds']:10.2f}{row['opening_seconds']:10.4f}"
            f"{row['drawing_seconds']:10.4f}{row['checkpoint_seconds']:10.3f}"
            f"{row['checkpoint_mb']:10.2f}{row['peak_rss_mb']:10.0f}"
        )
    return "\n".join(lines)
