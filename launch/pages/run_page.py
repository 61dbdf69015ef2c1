"""The page `run.html` of a run: what was trained, how well, and how its encodings look.

A run without labels also has `embed.html`, to which this page refers for its encodings.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from datasets import catalog
from datasets.image_dataset import ImageDataset, Split
from launch.outputs import commands, plots
from launch.pages import charts, embedding_page, image_samples, run_files, run_text
from launch.pages.embedding_page import Overview
from launch.pages.image_samples import Encode, Encodings, Sample, Views
from launch.pages.run_files import RunFiles
from tff_ssl import whole_files
from tff_ssl.reporting.page import Page, Picture
from tff_ssl.views.augmentation import TwoViews

TRAINED, UNTRAINED = "trained encoder", "untrained encoder"


class Shown(NamedTuple):
    """The images and encodings of a page."""

    views: Views  # Augmented views of training images.
    sample: Sample  # Images whose encodings are shown.
    encodings: dict[str, Encodings]  # Encodings by encoder: `TRAINED`, and `UNTRAINED` if known.
    # Places of the mapped images on each encoder's 2-D map, float32 [n, 2].
    points: dict[str, np.ndarray]
    # Training images on the page `embed.html`; None if some have labels.
    overview: Overview | None = None


def compute(
    dataset: ImageDataset,
    clients_train: Split,
    make_views: TwoViews,
    encoders: Mapping[str, Encode],
    seed: int,
) -> Shown:
    """Computes what a page shows of images, with encoders by name, `TRAINED` first."""
    views = image_samples.draw_views(clients_train, make_views, seed)
    sample = image_samples.draw_sample(dataset, seed)
    encodings = {name: image_samples.encode(sample, encoder) for name, encoder in encoders.items()}
    points = image_samples.place(encodings, seed) if len(sample.mapped) >= 3 else {}
    overview = None
    if max(dataset.train.labels) < 0 and len(dataset.train) >= 3:
        overview = embedding_page.of_training_images(dataset, encoders[TRAINED], seed)
    return Shown(views, sample, encodings, points, overview)


def write(
    folder: pathlib.Path,
    output: pathlib.Path,
    shown: Shown | None,
    partition: Mapping[str, Any] | None = None,
    more_pictures: Sequence[Picture] = (),
) -> pathlib.Path:
    """Writes `run.html`, and `embed.html` for a run without labels; returns the first's path.

    Args:
      shown: Result of `compute`; None for a run without an encoder.
      partition: Content of `partition.json` for a run that has no such file.
      more_pictures: Further pictures, of the encoders of the run's clients.
    """
    run = run_files.read(folder)
    run = run._replace(partition=run.partition or partition)
    page = Page(run_text.title(run))
    overview = shown.overview if shown else None
    for note in run_text.notes(run, is_labelled=overview is None):
        page.add_paragraph(note, "note")
    for sentence in run_text.summary(run):
        page.add_paragraph(sentence)
    if overview is not None:
        _write_overview(run, output, overview)
        page.add_link(
            "The training images have no labels, so that no accuracy can be measured. How the "
            "encoder sees them (a map, clusters, nearest neighbours, near-duplicates):",
            embedding_page.FILE_NAME,
        )
    _add_results(page, run)
    _add_curves(page, run)
    if run.partition:
        page.add_section("Clients and their images")
        for sentence in run_text.partition_sentences(run.partition):
            page.add_paragraph(sentence)
        if any(client["counts"] for client in run.partition["shown"]):
            page.add_pictures([charts.partition_chart(run.partition)], "one")
    if shown is not None:
        _add_views(page, run, shown)
    if shown is not None and overview is None:
        _add_map(page, shown)
        _add_neighbours(page, shown)
    if more_pictures:
        page.add_section("Clients' own encoders")
        page.add_pictures(more_pictures, "wide")
    page.add_section("Continue from here")
    for explanation, command in run_text.commands(run):
        page.add_command(explanation, command)
    _add_flags(page, run)
    return whole_files.write(output / "run.html", page.render(), private=True)


def _write_overview(run: RunFiles, output: pathlib.Path, overview: Overview) -> None:
    """Writes `embed.html`."""
    count, folder = len(overview.images.names), run.flags.get("data_dir")
    kind = run.flags.get("dataset", "digits")
    is_own = catalog.is_own(kind)

    def add_command(page: Page) -> None:
        if is_own:
            flags = [] if kind == "case_folder" else [f"--dataset={kind}"]
            flags = [f"--run={run.folder}", *flags, f"--data_dir={folder}"]
            page.add_section("Continue from here")
            page.add_command(
                "Show all images in this way, and write their features to files.",
                commands.module("launch.embed", *flags),
            )

    embedding_page.write(
        output,
        f"{count:,} images as the encoder sees them: {run.folder.resolve().name}",
        f"{count:,} training images of {folder if is_own else kind}, "
        f"without labels, encoded by the run {run.folder}.",
        overview,
        add_command,
    )


def _add_results(page: Page, run: RunFiles) -> None:
    results = [result for result in run.results if "accuracy" in result]
    if not results:
        return
    page.add_section("Test accuracy")
    page.add_paragraph(" ".join(run_text.measurements(results)))
    pictures = charts.probe_charts(results)
    page.add_pictures(pictures, "one" if len(pictures) == 1 else "")


def _add_curves(page: Page, run: RunFiles) -> None:
    if not run.metrics:
        return
    page.add_section("Learning curves")
    page.add_paragraph(
        "Nearest neighbours and the effective rank are measured on training images, during the "
        "training."
    )
    panels = plots.read_panels(run.folder / "metrics.csv")
    page.add_pictures(charts.curve_charts(panels, run.first("effective_rank_untrained")))


def _add_views(page: Page, run: RunFiles, shown: Shown) -> None:
    page.add_section("Augmented views")
    page.add_paragraph(
        "Training images as a client has them, and the two views of each in the first round. "
        + (
            "This objective uses the first view only."
            if run_text.objective(run) in ("mae", "supervised")
            else "The encoder learns to encode both views alike."
        )
    )
    page.add_photos(image_samples.view_photos(shown.views))


def _add_map(page: Page, shown: Shown) -> None:
    if not shown.points:
        return
    page.add_section("2-D map of encodings")
    sample = shown.sample
    page.add_paragraph(
        f"Encodings of {len(sample.mapped)} {sample.split} images, placed by t-SNE after PCA. "
        "Images that are near each other have similar encodings; distances between groups mean "
        "nothing. Colours are the classes, which the training did not use unless it was "
        "supervised."
    )
    page.add_pictures(charts.map_charts(shown.points, sample.mapped.labels, sample.class_names))


def _add_neighbours(page: Page, shown: Shown) -> None:
    page.add_section("Nearest neighbours")
    sample = shown.sample
    page.add_paragraph(
        f"{len(sample.queries)} {sample.split} images (first in their rows) and the nearest of "
        f"{len(sample.bank):,} training images by the cosine of their encodings. A solid frame is "
        "the same class, a dashed one another class."
    )
    shares = {
        name: image_samples.agreement(sample, encodings)
        for name, encodings in shown.encodings.items()
    }
    shares["raw pixels"] = image_samples.agreement(sample, image_samples.raw_pixels(sample))
    own = shares.pop(TRAINED)
    if own is not None:
        others = " and ".join(f"{100 * (share or 0):.0f} % by {n}" for n, share in shares.items())
        page.add_paragraph(
            f"Of {len(sample.mapped)} {sample.split} images, {100 * own:.0f} % of the "
            f"{image_samples.NEIGHBOURS} nearest neighbours have the class of the image, against "
            f"{others.replace(f'by {UNTRAINED}', f'by the {UNTRAINED}')}."
        )
    page.add_photos(image_samples.neighbour_photos(sample, shown.encodings[TRAINED]), "rows")


def _add_flags(page: Page, run: RunFiles) -> None:
    page.add_section("Flags of the run")
    names = sorted(set(run.flags) - {"script"})
    given = [name for name in run.config.get("given", ()) if name in run.flags]
    if given:
        page.add_paragraph("Given on the command line or by a preset:")
        page.add_grid(run_text.flag_rows(run, given), "words")
    script = f"launch.{run.flags.get('script')}"
    page.add_folded(f"All {len(names)} flags of {script}", run_text.flag_rows(run, names))
    versions = ", ".join(f"{name} {text}" for name, text in run.config["versions"].items())
    commit = run.config.get("git_commit")
    page.add_paragraph(f"Versions: {versions}{f'; commit {commit}' if commit else ''}.", "soft")
