"""Settings that are fitted to a folder of images, and what the run prints about them."""

import numpy as np
import pytest

from datasets.image_dataset import ImageDataset, Split
from launch.options import adapting, defaults, presets
from tests.launch import configs


def parse(*flags):
    """The configuration of a command line, for a folder of images."""
    return configs.run("--dataset=case_folder", *flags)


def split_of(labels, case_ids=None):
    labels = np.array(labels, np.int32)
    cases = None if case_ids is None else np.array(case_ids, object)
    return Split(np.zeros((len(labels), 8, 8, 3), np.uint8), labels, np.arange(len(labels)), cases)


def dataset(labels, case_ids=None, name="case_folder"):
    return ImageDataset(name, split_of(labels, case_ids), split_of([0]), ("cat", "dog"))


@pytest.mark.parametrize(
    ("sizes", "clients", "images"),
    [
        ([1] * 500, 128, 128),  # Cases of one image.
        ([2, 4] * 100, 43, 129),  # Three on average: 42.7 clients.
        ([4] * 10, 10, 40),  # All clients have too few images.
        ([1000] * 50, 4, 4000),  # Large clients: some are needed for several classes.
        ([1000] * 2, 2, 2000),
    ],
)
def test_a_cohort_has_about_128_images(capsys, sizes, clients, images):
    config = adapting.fit_cohort(sizes, parse())
    assert config.participation.clients_per_round == clients
    assert capsys.readouterr().out == (
        f"note: --clients_per_round={clients}: about {images:,} of {sum(sizes):,} training images "
        "in a round\n"
    )
    # As when the run is resumed.
    assert adapting.fit_cohort(sizes, config) == config


def test_flags_that_are_given_are_kept(capsys):
    config = parse("--clients_per_round=7", "--labels_per_class=9", "--per_case")
    assert adapting.fit_cohort([1] * 500, config) == config
    assert adapting.fit_evaluation(dataset([0, 1], ["a", "b"]), config) == config
    assert capsys.readouterr().out == ""


def test_other_data_sets_are_left_alone(capsys):
    config = parse("--dataset=digits")
    assert adapting.fit_cohort([1] * 500, config) == config
    assert adapting.fit_evaluation(dataset([0, 1], name="digits"), config) == config
    assert adapting.fit_batch(7, config) == config
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("labels", "counts", "note"),
    [
        ([0] * 9 + [1] * 6, (1, 5), ""),
        ([0] * 9 + [1] * 3, (1, 3), "--labels_per_class=1,3, because dog has 3 labelled"),
        ([0] + [1] * 9, (1,), "--labels_per_class=1, because cat has 1 labelled"),
        ([-1] * 9, (1, 5), ""),
    ],
)
def test_numbers_of_labels_fit_the_smallest_class(capsys, labels, counts, note):
    config = adapting.fit_evaluation(dataset(labels), parse())
    assert config.evaluation.labels_per_class == counts
    assert config.evaluation.per_case is False
    printed = capsys.readouterr().out
    assert printed == (f"note: {note} images for training\n" if note else "")


def test_labels_are_counted_by_case(capsys):
    """Six labelled dogs of two cases are two labels; the unlabelled image of one counts not."""
    labels, cases = [0] * 9 + [1] * 6 + [-1], [*"abcdefghi", *"xxxyyy", "y"]
    config = adapting.fit_evaluation(dataset(labels, cases), parse())
    assert config.evaluation.per_case
    assert config.evaluation.labels_per_class == (1, 2)
    assert capsys.readouterr().out == (
        "note: of partly labelled cases, only the labelled images are scored\n"
        "note: --labels_per_class=1,2, because dog has 2 labelled cases for training\n"
    )


def test_cases_with_several_classes_are_scored_by_image(capsys):
    several = dataset([0, 1, 1], ["a", "a", "b"])
    assert adapting.fit_evaluation(several, parse()).evaluation.per_case is False
    assert "each image is scored by itself" in capsys.readouterr().out.splitlines()[0]
    assert adapting.fit_evaluation(several, parse("--per_case")).evaluation.per_case


@pytest.mark.parametrize(
    ("files", "partition", "per_case"),
    [
        (["metadata.csv", "cat/a.png"], "per_case", "true"),
        (["cat/a.png", "dog/a.png"], "dirichlet", "false"),
        (["photos/a.png", "photos/b.png"], "iid", "false"),
        (["a.png"], "iid", "false"),
    ],
)
def test_the_default_partition_is_that_of_the_layout(tmp_path, files, partition, per_case):
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    config = parse(f"--data_dir={tmp_path}")
    assert defaults.resolve(config, "cco").clients.partition == partition
    assert defaults.shown(config)["per_case"] == per_case
    given = parse(f"--data_dir={tmp_path}", "--partition=skew")
    assert defaults.resolve(given, "cco").clients.partition == "skew"


def test_other_own_images_have_the_defaults_of_a_folder(tmp_path):
    path = tmp_path / "a.npz"
    for arrays, partition in (
        ({"clients": [0]}, "per_case"),
        ({"labels": [0]}, "dirichlet"),
        ({}, "iid"),
    ):
        np.savez(path, images=np.zeros((1, 8, 8)), **arrays)
        config = configs.run("--dataset=npz", f"--data_dir={path}")
        assert defaults.resolve(config, "cco").clients.partition == partition
    for dataset in ("npz", "parquet", "hf_disk", "leaf"):
        preset = presets.of_algorithm("dcco", dataset)
        assert preset == presets.of_algorithm("dcco", "case_folder")


def test_default_presets_of_a_folder_of_images():
    folder = presets.FOLDER / "case_folder"
    assert presets.of_algorithm("dcco", "case_folder") == folder / "dcco.flags"
    assert presets.of_algorithm("dcco", "case_folder", True) == folder / "pretrained_dcco.flags"
    assert presets.of_algorithm("fedu", "case_folder") is None
    assert presets.of_algorithm("fedu", "case_folder", True) is None
    assert presets.of_algorithm("dcco", "cifar100") is None
    assert presets.of_objective("cco", "case_folder") == folder / "centralized.flags"
    adapting_cco = presets.of_objective("cco", "case_folder", True)
    assert adapting_cco == folder / "pretrained_centralized.flags"
    assert presets.of_objective("nt_xent", "case_folder") is None
    for path in folder.glob("*.flags"):
        # These would keep the run from fitting them to the folder.
        names = set(presets.set_by([f"--flagfile={path}"]))
        assert not names & {"clients_per_round", "labels_per_class", "labels", "per_case"}
        assert not names & {"image_size", "partition", "batch_size"}
