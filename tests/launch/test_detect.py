"""`launch.detect` on drawn shapes: results, resuming after a kill, and mistakes."""

import csv
import importlib.util
import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from launch import detect
from tests import coco_folders
from tests.launch.mistakes import messages
from tff_ssl.deployment import saved_model
from tff_ssl.errors import ConfigurationError
from tff_ssl.models import from_keras
from tff_ssl.models.dual_encoder import DualEncoder
from tff_ssl.models.two_towers import TwoTowers

WITH_EXTRA = importlib.util.find_spec("official") is not None
needs_extra = pytest.mark.skipif(
    not WITH_EXTRA, reason="uv run --extra detection installs what it needs"
)
TINY = (
    "--hparam=image_size=64", "--hparam=batch_size=2", "--hparam=filters=16",
    "--hparam=box_head_width=32", "--hparam=sampled_anchors=64", "--hparam=proposals=64",
    "--hparam=sampled_boxes=16", "--hparam=sampled_masks=8", "--hparam=warmup_steps=4",
)  # fmt: skip
SHORT = (*TINY, "--rounds=24", "--checkpoint_every=8", "--eval_every=12", "--eval_images=4")


def save(folder, model, shape):
    saved_model.save_encoder(folder / "encoder", model, model.init(3), shape, None)
    return folder


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    model = DualEncoder("tiny", (96, 96, 3))
    return save(tmp_path_factory.mktemp("run"), model, model.image_shape)


@pytest.fixture(scope="module")
def coco(tmp_path_factory):
    return coco_folders.write(tmp_path_factory.mktemp("data") / "coco", 6, 5)


def command(*arguments):
    return [sys.executable, "-m", "launch.detect", *map(str, arguments)]


def run(project_root, *arguments):
    return subprocess.run(
        command(*arguments), cwd=project_root, capture_output=True, text=True, check=False
    )


def metrics(folder):
    with open(folder / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


def last_state(folder):
    with np.load(folder / "checkpoints" / "round_24.npz") as archive:
        return {n: archive[n] for n in archive.files if not n.startswith("digest of ")}


@needs_extra
@pytest.mark.slow
def test_a_run_writes_its_results_and_equals_one_that_was_killed(
    project_root, encoder, coco, tmp_path
):
    folder = tmp_path / "whole"
    given = (f"--run={encoder}", f"--supervised_run={encoder}", f"--data_dir={coco}", *SHORT)
    done = run(project_root, f"--output_dir={folder}", *given)
    assert (done.returncode, done.stderr) == (0, "")
    assert "6 training and 5 validation images" in done.stdout
    assert "24 steps of 2 images from each start: pretrained, untrained, supervised" in done.stdout
    (result,) = json.loads((folder / "result.json").read_text())
    assert (result["protocol"], result["dataset"], result["rounds"]) == ("detection", "coco", 24)
    assert (result["train_images"], result["validation_images"]) == (6, 5)
    assert list(result["baselines"]) == ["untrained", "supervised"]
    assert (folder / "curves.png").stat().st_size > 5000
    for name in ("pretrained", "untrained", "supervised"):
        scores = json.loads((folder / name / "result.json").read_text())
        assert (
            scores == (result["baselines"] | {"pretrained": {k: result[k] for k in scores}})[name]
        )
        assert all(0 <= scores[k] <= 1 for k in scores if "_ap" in k)
        assert (folder / name / "detections.png").stat().st_size > 5000
        rows = metrics(folder / name)
        assert [row["round"] for row in rows] == [str(i) for i in range(1, 25)]
        assert [bool(row["train_box_ap"]) for row in rows] == ([False] * 11 + [True]) * 2
        losses = [float(row["loss"]) for row in rows]
        assert scores["first_loss"] == pytest.approx(np.mean(losses[:2]))
        assert scores["last_loss"] == pytest.approx(np.mean(losses[-2:]))
        assert np.mean(losses[-6:]) < np.mean(losses[:6])
        assert f"{name} " in done.stdout
    # The supervised start has the weights of the pretrained one here, and the untrained has others.
    starts = [
        metrics(folder / name)[0]["loss"] for name in ("pretrained", "supervised", "untrained")
    ]
    assert starts[0] == starts[1] != starts[2]

    killed = tmp_path / "killed"
    process = subprocess.Popen(
        command(f"--output_dir={killed}", *given), cwd=project_root,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        path = killed / "untrained"
        while process.poll() is None and not list(path.glob("checkpoints/round_8.npz")):
            time.sleep(0.02)
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not (killed / "result.json").exists()
    refused = run(project_root, f"--output_dir={killed}", *given)
    assert refused.returncode != 0
    assert "--resume" in refused.stderr
    other = run(project_root, f"--output_dir={killed}", "--resume", "--hparam=momentum=0.8")
    assert other.returncode != 0
    assert "--hparam" in other.stderr
    resumed = run(project_root, f"--output_dir={killed}", "--resume")  # It needs no other flag.
    assert (resumed.returncode, resumed.stderr) == (0, "")
    assert "pretrained: finished before" in resumed.stdout
    for name in ("pretrained", "untrained", "supervised"):
        one, same = last_state(folder / name), last_state(killed / name)
        assert one.keys() == same.keys()
        for kind, values in one.items():
            np.testing.assert_array_equal(values, same[kind])
        for row, again in zip(metrics(folder / name), metrics(killed / name), strict=True):
            assert {**row, "seconds": 0} == {**again, "seconds": 0}
    assert (killed / "result.json").read_text() == (folder / "result.json").read_text()


@needs_extra
@pytest.mark.slow
def test_a_small_encoder_keeps_its_stem_and_says_what_that_costs(project_root, coco, tmp_path):
    model = DualEncoder("tiny", (32, 32, 3), norm="batch")
    encoder = save(tmp_path / "run", model, (32, 32, 3))
    folder = tmp_path / "out"
    short = (*TINY, "--rounds=2", "--eval_every=0", "--eval_images=1", "--starts=pretrained")
    done = run(
        project_root, f"--output_dir={folder}", f"--run={encoder}", f"--data_dir={coco}", *short
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "tiny (batch norm, first stage of stride 1)" in done.stdout
    assert "note: the encoder was trained on images of less than 96 pixels" in done.stdout


@pytest.mark.slow
def test_mistakes_are_named_before_anything_is_written(project_root, encoder, coco, tmp_path):
    transformer = save(
        tmp_path / "vit", DualEncoder("vit_one_block_micro", (16, 16, 3)), (16, 16, 3)
    )
    grey = save(tmp_path / "grey", DualEncoder("tiny", (16, 16, 1)), (16, 16, 1))
    other = save(tmp_path / "other", DualEncoder("tiny", (96, 96, 3), norm="batch"), (96, 96, 3))
    towers = save(tmp_path / "towers", TwoTowers(DualEncoder("tiny", (16, 16, 3))), (16, 16, 3))
    (tmp_path / "empty").mkdir()
    output = tmp_path / "output"
    good = [f"--run={encoder}", f"--data_dir={coco}", f"--output_dir={output}"]
    mistakes = {
        "--run is missing": good[1:],
        "--data_dir is missing": [good[0]],
        "--starts takes pretrained, untrained, supervised; got 'nosuch'": [
            *good, "--starts=nosuch"
        ],
        "--starts=supervised needs --supervised_run": [*good, "--starts=supervised"],
        "nosuch=1: give name=value with a name of anchor_size": [*good, "--hparam=nosuch=1"],
        "image_size must be a multiple of 64": [*good, "--hparam=image_size=100"],
        "--eval_every": [*good, "--eval_every=-1"],
    }  # fmt: skip
    of_extra = {
        "does not exist": [*good, f"--run={tmp_path / 'nosuch'}"],
        "weights.npz is missing": [*good, f"--run={tmp_path / 'empty'}"],
        "vit_one_block_micro, and Mask R-CNN needs a ResNet (tiny": [*good, f"--run={transformer}"],
        "images of 1 channels": [*good, f"--run={grey}"],
        "two towers": [*good, f"--run={towers}"],
        "--supervised_run has the encoder tiny (batch norm": [*good, f"--supervised_run={other}"],
        "has no annotations": [*good, f"--data_dir={tmp_path / 'empty'}"],
        "is no folder": [*good, f"--data_dir={tmp_path / 'nosuch'}"],
        "batch_size=7 is more than the 6": [*good, "--hparam=batch_size=7"],
    }
    if WITH_EXTRA:
        mistakes |= of_extra
    else:
        mistakes["launch.detect needs the extra `detection` ("] = good
    lines = messages(project_root, "detect", list(mistakes.values()))
    for named, line in zip(mistakes, lines, strict=True):
        assert named in line, line
    assert not output.exists()


def test_an_encoder_of_ones_own_has_its_name_in_the_message(tmp_path):
    layers = [tf.keras.layers.Conv2D(4, 3, input_shape=(16, 16, 3))]
    model = DualEncoder(from_keras(tf.keras.Sequential(layers, name="mine")), (16, 16, 3))
    folder = save(tmp_path / "run", model, model.image_shape)
    with pytest.raises(
        ConfigurationError, match="encoder keras:mine, and Mask R-CNN needs a ResNet"
    ):
        detect._read_encoder("run", str(folder))


def test_hyperparameters_are_listed_without_the_extra(project_root):
    done = run(project_root, "--list")
    assert (done.returncode, done.stderr) == (0, "")
    assert "hparam image_size=256  Height and width in pixels of the square" in done.stdout
