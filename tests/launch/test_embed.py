"""`launch.embed` on folders of images: its files and page, and what it says about mistakes."""

import csv
import os
import pathlib
import sys

import numpy as np
import pytest
from PIL import Image

from datasets import case_folder, catalog, listing
from launch import embed
from launch.options import command_line
from launch.options.script_configs import EmbedConfig
from launch.runs import embedding
from tests import programs
from tests.launch.mistakes import messages
from tff_ssl.deployment import encoder, saved_model
from tff_ssl.models.dual_encoder import DualEncoder

HUGGING_FACE = pathlib.Path(__file__).parents[1] / "datasets/huggingface/parquet"
NAMES = ("cat/a.png", "cat/deep/b.png", "dog/<b>&c.png", "dog/d.png", "dog/e, f.png")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of an untrained encoder of RGB images."""
    folder = tmp_path_factory.mktemp("run")
    model = DualEncoder("tiny", (16, 16, 3))
    saved_model.save_encoder(folder / "encoder", model, model.init(0), (16, 16, 3), None)
    return folder


@pytest.fixture(scope="module")
def grey_run(tmp_path_factory):
    """The folder of an untrained encoder of grey images, and a checkpoint of a stopped run."""
    folder = tmp_path_factory.mktemp("grey")
    model = DualEncoder("tiny", (8, 8, 1))
    saved_model.save_encoder(folder / "encoder", model, model.init(0), (8, 8, 1), None)
    return folder


def make_images(folder, names, size=(20, 16)):
    """Writes images, the last of which is a copy of the first."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (len(names), size[1], size[0], 3), np.uint8)
    pixels[-1] = pixels[0]
    for name, image in zip(names, pixels, strict=True):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / name)
    return folder


def run_script(*flags):
    embed.main(command_line.parse(EmbedConfig, "embed", ["embed", *map(str, flags)])[0])


def test_a_labelled_folder(run, tmp_path, monkeypatch, capsys):
    images, output = make_images(tmp_path / "images", NAMES), tmp_path / "out"
    sizes = []
    read = listing.read_in_batches
    monkeypatch.setattr(embedding, "_BATCH", 2)  # No more images are in memory at a time.

    def record(*arguments):
        for batch in read(*arguments):
            sizes.append(len(batch))
            yield batch

    monkeypatch.setattr(listing, "read_in_batches", record)
    run_script(f"--run={run}", f"--data_dir={images}", f"--output_dir={output}",
               "--num_clusters=2")  # fmt: skip
    assert max(sizes) == 2
    assert sizes[:3] == [2, 2, 1]
    assert {path.name for path in output.iterdir()} == {
        "embed.html", "embeddings.csv", "embeddings.npz",
    }  # fmt: skip
    with np.load(output / "embeddings.npz") as file:
        arrays = dict(file)
    assert arrays["file_name"].tolist() == list(NAMES)
    assert arrays["label"].tolist() == ["cat", "cat", "dog", "dog", "dog"]
    # The features are those that a run's own loader and `load_encoder` give.
    dataset = case_folder.load(images, 16)
    splits = (dataset.train, dataset.test)
    pixels = np.concatenate([split.images for split in splits])
    ids = np.concatenate([split.example_ids for split in splits])
    expected = encoder.load_encoder(run)(pixels[np.argsort(ids)])
    np.testing.assert_allclose(arrays["features"], expected, atol=1e-5)
    assert [dataset.file_names[k] for k in sorted(ids)] == list(NAMES)
    assert arrays["neighbours"].shape == arrays["similarities"].shape == (5, 4)
    assert arrays["neighbours"][0, 0] == 4
    assert [0, 4] in arrays["duplicates"].tolist()
    assert arrays["map"].shape == (5, 2)
    assert set(arrays["cluster"].tolist()) == {0, 1}
    with open(output / "embeddings.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["file_name"] for row in rows] == list(NAMES)
    assert [row["label"] for row in rows] == arrays["label"].tolist()
    assert [int(row["cluster"]) for row in rows] == arrays["cluster"].tolist()
    points = [[float(row["x"]), float(row["y"])] for row in rows]
    np.testing.assert_allclose(points, arrays["map"], rtol=1e-6)
    features = [[float(row[f"f{k}"]) for k in range(expected.shape[1])] for row in rows]
    np.testing.assert_allclose(features, arrays["features"], rtol=1e-6)
    html = (output / "embed.html").read_text()
    for name in NAMES:
        assert name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") in html
    assert "<b>" not in html
    out = capsys.readouterr().out
    assert "encodes 5 images" in out
    for row in ("images", "classes", "clusters", "pairs of near-duplicates"):
        assert sum(line.startswith(row) for line in out.splitlines()) == 1
    assert f"written to {output}/: embed.html" in out


@pytest.mark.parametrize("dataset", ["parquet", "npz"])
def test_other_files(run, tmp_path, dataset):
    """Features are those of the images that a run's own loader gives."""
    path, output = HUGGING_FACE, tmp_path / "out"
    if dataset == "npz":
        path = tmp_path / "a.npz"
        np.savez(path, x=np.random.default_rng(0).integers(0, 256, (5, 20, 20, 3)))
    run_script(f"--run={run}", f"--dataset={dataset}", f"--data_dir={path}",
               f"--output_dir={output}")  # fmt: skip
    data = catalog.load(dataset, path, 16)
    with np.load(output / "embeddings.npz") as file:
        assert file["file_name"].tolist() == list(data.file_names)
        for split in (data.train, data.test):
            if len(split):
                expected = encoder.load_encoder(run)(split.images)
                found = file["features"][split.example_ids]
                np.testing.assert_allclose(found, expected, atol=1e-5)


def test_an_unlabelled_folder_with_a_name_that_is_not_utf_8(run, tmp_path, capsys):
    name = os.fsdecode(b"caf\xe9.png")
    images = make_images(tmp_path / "images", ["1.png", "clients/0/2.png", "clients/1/3.png"])
    (images / "1.png").rename(images / name)
    output = tmp_path / "out"
    run_script(f"--run={run}/encoder/weights.npz", f"--data_dir={images}",
               f"--output_dir={output}")  # fmt: skip
    with np.load(output / "embeddings.npz") as file:
        assert file["label"].tolist() == [""] * 3
        assert file["file_name"].tolist() == [name, "clients/0/2.png", "clients/1/3.png"]
    assert os.fsencode(name) in (output / "embeddings.csv").read_bytes()
    html = (output / "embed.html").read_text()
    assert "caf\ufffd.png" in html
    assert "another class" not in html
    assert "without labels" in html
    assert "no labels" in capsys.readouterr().out


@pytest.mark.slow
def test_mistakes_are_one_line_and_leave_no_files(project_root, run, grey_run, tmp_path):
    images = make_images(tmp_path / "images", NAMES)
    few = make_images(tmp_path / "few", ["1.png", "2.png"])
    broken = make_images(tmp_path / "broken", ["1.png", "2.png", "3.png", "4.png"])
    content = (broken / "3.png").read_bytes()
    (broken / "3.png").write_bytes(content[: len(content) // 2])
    (tmp_path / "empty").mkdir()
    full = tmp_path / "full"
    full.mkdir()
    (full / "of.txt").write_text("mine")
    stopped = tmp_path / "stopped"
    (stopped / "checkpoints").mkdir(parents=True)
    (stopped / "checkpoints" / "round_1.npz").write_bytes(b"")
    data, output = f"--data_dir={images}", tmp_path / "out"
    mistakes = (
        ("--run is missing", [data]),
        ("--run: /nonexistent holds no encoder", [data, "--run=/nonexistent"]),
        ("its run was stopped: continue it with --resume", [data, f"--run={stopped}"]),
        ("its encoder takes images of 8x8x1", [data, f"--run={grey_run}"]),
        ("--data_dir is missing", [f"--run={run}"]),
        ("data_dir: /nonexistent is not a folder", [f"--run={run}", "--data_dir=/nonexistent"]),
        (f"data_dir: {tmp_path}/empty has no images",
         [f"--run={run}", f"--data_dir={tmp_path}/empty"]),
        (f"--data_dir={few} needs three images or more", [f"--run={run}", f"--data_dir={few}"]),
        (f"{broken}: 3.png: broken image", [f"--run={run}", f"--data_dir={broken}"]),
        ("near_duplicates", [f"--run={run}", data, "--near_duplicates=2"]),
        ("num_clusters", [f"--run={run}", data, "--num_clusters=0"]),
        (f"--output_dir={full} is not empty", [f"--run={run}", data, f"--output_dir={full}"]),
    )  # fmt: skip
    flags = [[f"--output_dir={output}", *more] for _, more in mistakes]
    lines = messages(project_root, "embed", flags)
    for (named, _), line in zip(mistakes, lines, strict=True):
        assert line.startswith("error: ")
        assert named in line
    assert not output.exists()
    assert [path.name for path in full.iterdir()] == ["of.txt"]


@pytest.mark.slow
def test_the_script_prints_no_messages_of_libraries(project_root, run, tmp_path):
    images = make_images(tmp_path / "images", NAMES)
    done = programs.run(
        [sys.executable, "-m", "launch.embed", f"--run={run}", f"--data_dir={images}",
         f"--output_dir={tmp_path / 'out'}"],
        cwd=project_root, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
