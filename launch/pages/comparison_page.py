"""The page `compare.html`: several runs side by side."""

import pathlib
from collections.abc import Mapping, Sequence

from launch.options.script_configs import VisualizeConfig
from launch.outputs import plots, run_folder
from launch.pages import charts, image_samples, rebuilding, run_files, run_text, seed_groups
from launch.pages.run_files import RunFiles
from launch.pages.run_page import TRAINED, Shown
from tff_ssl import whole_files
from tff_ssl.reporting import over_seeds
from tff_ssl.reporting.page import Grid, Page

_QUERIES = 6  # Images of each run whose neighbours are shown.


def run_names(folders: Sequence[pathlib.Path]) -> list[str]:
    """Short names of runs: the last parts of their folders that tell them apart."""
    parts = [folder.resolve().parts for folder in folders]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(path[-depth:]) for path in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{number}: {folder}" for number, folder in enumerate(folders, 1)]


def compare(
    folders: Sequence[pathlib.Path], config: VisualizeConfig, output: pathlib.Path
) -> pathlib.Path:
    """Writes `compare.html` of runs into a folder, which is created, and returns its path."""
    runs = dict(zip(run_names(folders), map(run_files.read, folders), strict=True))
    shown = {}
    for name, run in runs.items():
        _, shown[name], partition = rebuilding.rebuild(run.folder, config, draw_seed=0)
        runs[name] = run._replace(partition=run.partition or partition)
    run_folder.make(output)
    return write(runs, output, shown)


def write(
    runs: Mapping[str, RunFiles], output: pathlib.Path, shown: Mapping[str, Shown | None]
) -> pathlib.Path:
    """Writes `compare.html`, and returns its path.

    Args:
      shown: Images and encodings of each run; None for a run without an encoder.
    """
    *names, last = runs
    page = Page(" and ".join(filter(None, (", ".join(names), last))))
    page.add_grid(_overview(runs))
    _add_seeds(page, runs)
    probes = charts.compared_probes({name: run.results for name, run in runs.items()})
    if probes:
        page.add_section("Test accuracy")
        results = [r for run in runs.values() for r in over_seeds.first(run.results).values()]
        marks = (
            "Upright marks are the baselines that were evaluated: grey the untrained encoder, "
            "brown raw pixels, purple the pretrained encoder before training, gold an encoder "
            "trained on ImageNet."
        )
        page.add_paragraph(" ".join([*run_text.deviations(results), marks]))
        page.add_pictures(probes)
    logged = {name: run.folder / "metrics.csv" for name, run in runs.items() if run.metrics}
    curves = {name: plots.read_panels(path) for name, path in logged.items()}
    if curves and len({run.folder for run in runs.values()}) > 1:
        page.add_section("Learning curves")
        page.add_paragraph("Losses can be compared only between runs with the same objective.")
        page.add_pictures(charts.compared_curves(curves))
    _add_partitions(page, runs)
    with_encoder = {name: images for name, images in shown.items() if images is not None}
    _add_maps(page, with_encoder)
    _add_neighbours(page, with_encoder)
    _add_flags(page, runs)
    return whole_files.write(output / "compare.html", page.render(), private=True)


def _overview(runs: Mapping[str, RunFiles]) -> Grid:
    columns = [
        {
            "method": run_text.method(run),
            "data set": str(run.flags.get("dataset")),
            "encoder": str(run.flags.get("encoder")),
            "rounds or steps": f"{run.rounds_done:,}",
            "clients": _number(run.first("clients")),
            "training images": _number(run.first("train_images")),
            "seed": str(run.flags.get("seed")),
            "MB to a client in a round": _megabytes(run.first("bytes_down_per_client_and_round")),
            "MB from a client in a round": _megabytes(run.first("bytes_up_per_client_and_round")),
            "effective rank": _number(run.first("effective_rank")),
            "effective rank, untrained": _number(run.first("effective_rank_untrained")),
        }
        for run in runs.values()
    ]
    rows = [[name, *(column[name] for column in columns)] for name in columns[0]]
    return [["", *runs], *(row for row in rows if set(row[1:]) != {"-"})]


def _add_seeds(page: Page, runs: Mapping[str, RunFiles]) -> None:
    """Adds mean and deviation of runs that differ in their seed alone, if there are any."""
    groups = seed_groups.group(runs)
    if len(groups) == len(runs):
        return
    accuracies, differences = seed_groups.accuracy_grid(groups), seed_groups.pair_grid(groups)
    page.add_section("Mean and deviation over seeds")
    page.add_paragraph(
        "Runs that differ in their seed alone are one column: the mean test accuracy in percent "
        "and its standard deviation over the seeds. The gain is the accuracy minus that of the "
        "untrained encoder of the same seed."
    )
    page.add_grid(accuracies)
    page.add_pictures(charts.compared_probes(seed_groups.mean_results(groups)))
    if len(differences) > 1:
        page.add_paragraph(
            "Paired differences in points: the accuracies of two columns with the same seeds are "
            "subtracted seed by seed. What a seed changes in both, such as the drawn labels, "
            "cancels out, so that the deviation is that of the difference."
        )
        page.add_grid(differences)


def _megabytes(size: float | None) -> str:
    return "-" if size is None else f"{size / 1e6:.2f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.4g}" if isinstance(value, float) else f"{value:,}"


def _add_partitions(page: Page, runs: Mapping[str, RunFiles]) -> None:
    pictures = []
    for name, run in runs.items():
        if run.partition:
            caption = f"{name}: {run_text.partition_sentences(run.partition)[0]}"
            pictures.append(charts.partition_chart(run.partition)._replace(caption=caption))
    if pictures:
        page.add_section("Clients and their images")
        page.add_pictures(pictures)


def _add_maps(page: Page, shown: Mapping[str, Shown]) -> None:
    pictures = []
    for name, images in shown.items():
        if images.points:
            points, sample = {name: images.points[TRAINED]}, images.sample
            pictures += charts.map_charts(points, sample.mapped.labels, sample.class_names)
    if pictures:
        page.add_section("2-D map of encodings")
        page.add_paragraph(
            "Encodings of test images, or of training images if there are none, placed by t-SNE "
            "separately for each run. Colours are the classes."
        )
        page.add_pictures(pictures)


def _add_neighbours(page: Page, shown: Mapping[str, Shown]) -> None:
    if not shown:
        return
    page.add_section("Nearest neighbours")
    page.add_paragraph(
        "Images (first in their rows) and the nearest training images by the cosine of their "
        "encodings. A solid frame is the same class, a dashed one another class."
    )
    for name, images in shown.items():
        page.add_heading(name)
        encodings = images.encodings[TRAINED]
        share = image_samples.agreement(images.sample, encodings)
        if share is not None:
            page.add_paragraph(
                f"{100 * share:.0f} % of the {image_samples.NEIGHBOURS} nearest neighbours of "
                f"{len(images.sample.mapped)} {images.sample.split} images have the class of the "
                "image."
            )
        rows = image_samples.neighbour_photos(images.sample, encodings)
        page.add_photos(rows[:_QUERIES], "rows")


def _add_flags(page: Page, runs: Mapping[str, RunFiles]) -> None:
    rows = []
    for name in sorted({name for run in runs.values() for name in run.flags} - {"output_dir"}):
        texts = [run_text.value_text(run.flags.get(name)) for run in runs.values()]
        if len(set(texts)) > 1:
            rows.append([f"--{name}" if name != "script" else "script", *texts])
    page.add_section("Flags that differ")
    if rows:
        page.add_grid([["flag", *runs], *rows], "words")
    else:
        page.add_paragraph("The runs have the same flags.")
