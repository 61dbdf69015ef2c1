"""`launch.export` writes the files and measures them."""

import importlib.util
import json
import sys

import numpy as np
import pytest
import tensorflow as tf

from launch.outputs import run_folder
from tests import programs
from tests.launch.mistakes import messages
from tff_ssl.deployment import saved_model
from tff_ssl.models.dual_encoder import DualEncoder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run on the digits, with an untrained encoder."""
    folder = tmp_path_factory.mktemp("run")
    model = DualEncoder("tiny", (16, 16, 1))
    saved_model.save_encoder(folder / "encoder", model, model.init(0), (8, 8, 1), view_size=16)
    settings = {
        "script": "pretrain", "dataset": "digits", "seed": 0, "labels_per_class": ["5"],
        "label_draws": 2,
    }  # fmt: skip
    run_folder.write_json(folder / "config.json", settings)
    return folder


@pytest.mark.slow
def test_tflite_files_are_written_and_measured(project_root, run):
    result = programs.run(
        [sys.executable, "-m", "launch.export", f"--run={run}", "--format=tflite,keras"],
        cwd=project_root, capture_output=True, text=True,
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "")
    folder = run / "export"
    assert {path.name for path in folder.iterdir()} == {
        "encoder_float32.tflite", "encoder_int8.tflite", "encoder_keras", "export.json",
    }  # fmt: skip
    results = {entry["name"]: entry for entry in json.loads((folder / "export.json").read_text())}
    assert list(results) == ["encoder", "tflite float32", "tflite int8", "keras"]
    for name, entry in results.items():
        assert entry["milliseconds"] > 0
        (probe,) = entry["probe"]
        assert probe["labels_per_class"] == 5
        assert f"{probe['accuracy']:.3f} ± {probe['accuracy_std']:.3f}" in result.stdout
        assert abs(probe["accuracy"] - results["encoder"]["probe"][0]["accuracy"]) < 0.05
        if name != "encoder":
            assert f"{entry['bytes'] / 1e6:.2f} MB" in result.stdout
    int8 = folder / "encoder_int8.tflite"
    assert results["tflite int8"]["bytes"] == int8.stat().st_size
    assert results["tflite float32"]["largest_difference"] < 1e-4
    assert results["tflite int8"]["largest_difference"] > 1e-4
    # A device runs the file with nothing but TFLite.
    interpreter = tf.lite.Interpreter(model_path=str(int8))
    interpreter.allocate_tensors()
    source = interpreter.get_input_details()[0]
    assert (source["dtype"], tuple(source["shape"])) == (np.uint8, (1, 8, 8, 1))


@pytest.mark.long
@pytest.mark.slow
def test_an_export_that_fails_leaves_the_files_of_before(project_root, run, tmp_path):
    program = (
        "from launch import export\n"
        "from launch.options import app\n"
        "def fails(*_): raise RuntimeError('on purpose')\n"
        "export._measure = fails\n"
        "app.run(export.SCRIPT)\n"
    )
    before = tmp_path / "encoder_float32.tflite"
    before.write_bytes(b"before")
    result = programs.run(
        [sys.executable, "-c", program, f"--run={run}", f"--output_dir={tmp_path}"],
        cwd=project_root, capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode != 0
    assert "on purpose" in result.stderr
    assert list(tmp_path.iterdir()) == [before]
    assert before.read_bytes() == b"before"


@pytest.mark.skipif(bool(importlib.util.find_spec("tf2onnx")), reason="the extra is installed")
def test_a_missing_extra_is_found_before_anything_is_written(project_root, run, tmp_path):
    flags = [f"--run={run}", f"--output_dir={tmp_path}", "--format=tflite,onnx"]
    (line,) = messages(project_root, "export", [flags])
    assert "--format=onnx needs the extra `onnx`" in line
    assert not list(tmp_path.iterdir())


def test_bad_input_gives_one_line(project_root, run, tmp_path):
    mistakes = {
        "--run is missing": [],
        "--format takes tflite, keras, onnx; got 'coreml'": [f"--run={run}", "--format=coreml"],
        "weights.npz": [f"--run={tmp_path}"],
        "--image_size": [f"--run={run}", "--image_size=16"],
    }
    lines = messages(project_root, "export", list(mistakes.values()))
    for named, line in zip(mistakes, lines, strict=True):
        assert named in line
    assert not list(tmp_path.iterdir())
