"""`launch.export` writes the files and measures them."""

import importlib.util
import json
import shutil
import sys
import types

import numpy as np
import pytest
import tensorflow as tf

import tff_ssl
from datasets import catalog
from launch import export
from launch.outputs import run_folder
from launch.runs import centralized, final_evaluation, stopped, training
from tests import programs
from tests.launch import configs
from tests.launch.mistakes import messages
from tff_ssl.deployment import encoder_weights, saved_model
from tff_ssl.errors import TrainingError
from tff_ssl.models.dual_encoder import DualEncoder
from tff_ssl.simulation.training_loop import TrainingLoop


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run on the digits, with an untrained encoder."""
    folder = tmp_path_factory.mktemp("lr=[0.1] *")
    model = DualEncoder("tiny", (16, 16, 1))
    saved_model.save_encoder(folder / "encoder", model, model.init(0), (8, 8, 1), view_size=16)
    settings = {
        "script": "pretrain", "dataset": "digits", "seed": 0, "labels_per_class": ["5"],
        "label_draws": 2, "algorithm": "dcco", "encoder": "tiny", "versions": {"numpy": "1"},
        "git_commit": "abc", "hparam": ["lambda=4"],
    }  # fmt: skip
    run_folder.write_json(folder / "config.json", settings)
    scores = {"accuracy": 0.5, "accuracy_std": 0.1, "balanced_accuracy": 0.5}
    baselines = {"raw_pixels": scores, "random_encoder": scores | {"accuracy": 0.4}}
    result = {
        "protocol": "linear",
        "labels": 50,
        "labels_per_class": 5,
        "baselines": baselines,
        **scores,
    }
    run_folder.write_json(folder / "result.json", [result])
    return folder


@pytest.mark.slow
def test_tflite_files_are_written_and_measured(project_root, run):
    result = programs.run(
        [sys.executable, "-m", "launch.export", f"--run={run}", "--format=tflite,keras,release",
         "--licence=cc-by-4.0", "--intended_use=Tests."],
        cwd=project_root, capture_output=True, text=True,
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "")
    folder = run / "export"
    assert {path.name for path in folder.iterdir()} == {
        "encoder_float32.tflite", "encoder_int8.tflite", "encoder_keras", "export.json", "release",
    }  # fmt: skip
    results = {entry["name"]: entry for entry in json.loads((folder / "export.json").read_text())}
    assert list(results) == ["encoder", "tflite float32", "tflite int8", "keras", "release"]
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
    assert results["release"]["largest_difference"] < 1e-5
    card = (folder / "release" / "MODEL_CARD.md").read_text()
    assert card.startswith("---\nlicense: cc-by-4.0\n")
    parts = (
        "digits",
        "dcco",
        "lambda=4",
        "Tests.",
        "| linear, 5 per class | 0.500 ± 0.100 | 0.400",
    )
    assert all(part in card for part in (*parts, "commit abc", "not differentially private"))
    assert tff_ssl.load_encoder(folder / "release").image_shape == (8, 8, 1)
    # A device runs the file with nothing but TFLite.
    interpreter = tf.lite.Interpreter(model_path=str(int8))
    interpreter.allocate_tensors()
    source = interpreter.get_input_details()[0]
    assert (source["dtype"], tuple(source["shape"])) == (np.uint8, (1, 8, 8, 1))


def card_of(run, folder, target, done=None):
    model = DualEncoder("small", (16, 16, 1))
    stored = encoder_weights.StoredEncoder(model, model.init(0), (8, 8, 1), 16)
    probe = {"protocol": "linear", "labels": 50, "labels_per_class": 5, "accuracy": 0.777,
             "accuracy_std": 0.1, "balanced_accuracy": 0.777, "baselines": {}}  # fmt: skip
    config = types.SimpleNamespace(licence="MIT", intended_use="Tests.")
    export._write_card(target, folder, stored, done, [probe], config)
    return (target / "MODEL_CARD.md").read_text()


def test_the_card_of_a_clients_model_has_its_own_figures(run, tmp_path):
    assert "0.500 ± 0.100" in card_of(run, run, tmp_path)
    (run / "clients" / "0" / "encoder").mkdir(parents=True)
    card = card_of(run, run / "clients" / "0", tmp_path)
    assert "0.777 ± 0.100" in card
    assert "0.500" not in card
    assert "# small encoder" in card
    assert "model: clients/0" in card


def test_the_card_of_a_stopped_run_has_the_rounds_of_its_checkpoint(run, tmp_path):
    content = json.loads((run / "config.json").read_text())
    run_folder.write_json(tmp_path / "config.json", {**content, "rounds": 60})
    rows = [f"{i + 1},0.5" for i in range(53)]
    (tmp_path / "metrics.csv").write_text("\n".join(["round,loss", *rows]))
    card = card_of(tmp_path, tmp_path, tmp_path, done=40)
    assert "rounds: 40 of 60, where the run was stopped" in card


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
        "release, client, client-tflite; got 'coreml'": [
            f"--run={run}",
            "--format=coreml",
        ],
        "--licence": [f"--run={run}", "--format=release"],
        "weights.npz": [f"--run={tmp_path}"],
        "--image_size": [f"--run={run}", "--image_size=16"],
    }
    lines = messages(project_root, "export", list(mistakes.values()))
    for named, line in zip(mistakes, lines, strict=True):
        assert named in line
    assert not list(tmp_path.iterdir())


def arrays_of(folder):
    with np.load(folder / "encoder" / "weights.npz") as file:
        return dict(file)


def check_equal_weights(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)


def stop(run, folder):
    """Copies a run without what it writes at its end."""
    written_last = ("encoder", "result.json", "run.html")
    shutil.copytree(run, folder, ignore=shutil.ignore_patterns(*written_last))
    return folder


@pytest.mark.slow
def test_a_stopped_baseline_has_the_encoder_of_its_last_readable_checkpoint(
    tmp_path, capsys, monkeypatch
):
    def train_only(simulation, model, dataset, folder, config, fields):
        state = TrainingLoop(folder, config.rounds, checkpoint_every=1).run(simulation, config.seed)
        weights = simulation.encoder_weights(state)
        final_evaluation.export(folder, dataset, model, weights, config.model.view_size)

    monkeypatch.setattr(training, "train_and_probe", train_only)
    whole = tmp_path / "whole"
    flags = [
        "--rounds=2", "--encoder=tiny", "--projector=8", "--batch_size=8", "--view_size=16",
        f"--output_dir={whole}",
    ]  # fmt: skip
    centralized.train(configs.run(*flags, script="centralized"))
    run = stop(whole, tmp_path / "run")
    assert run_folder.is_stopped(run)
    assert not run_folder.is_stopped(whole)
    dataset = catalog.load("digits")
    capsys.readouterr()
    stored, _ = stopped.restore_encoder(run, dataset)
    assert "its last readable checkpoint, of step 2 of 2" in capsys.readouterr().out
    assert stored.image_shape == (8, 8, 1)
    saved_model.save_encoder(tmp_path / "again" / "encoder", *stored)
    check_equal_weights(arrays_of(tmp_path / "again"), arrays_of(whole))
    damaged = run / "checkpoints" / "round_2.npz"
    damaged.write_bytes(b"damaged")
    before, _ = stopped.restore_encoder(run, dataset)
    assert "of step 1 of 2" in capsys.readouterr().out
    first, last = (np.concatenate([np.ravel(w) for w in s.weights.trainable])
                   for s in (before, stored))  # fmt: skip
    assert np.abs(first - last).max() > 0
    assert damaged.read_bytes() == b"damaged"
    (run / "checkpoints" / "round_1.npz").write_bytes(b"damaged")
    with pytest.raises(TrainingError, match=f"none of the checkpoints in {run}"):
        stopped.restore_encoder(run, dataset)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.xdist_group("finished run")
def test_a_stopped_federated_run_is_exported(project_root, finished_run, tmp_path):
    whole, _ = finished_run
    run = stop(whole, tmp_path / "run")
    before = {path.name for path in run.iterdir()}
    done = programs.run(
        [sys.executable, "-m", "launch.export", f"--run={run}", "--format=keras,release",
         "--licence=MIT"],
        cwd=project_root, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "its last readable checkpoint, of round 6 of 6" in done.stdout
    assert {path.name for path in run.iterdir()} == {*before, "export"}
    assert {path.name for path in (run / "export").iterdir()} == {
        "encoder", "encoder_keras", "export.json", "release",
    }  # fmt: skip
    # The run has no figures of its own, so that the card has those of the export.
    card = (run / "export" / "release" / "MODEL_CARD.md").read_text()
    of_encoder, *_ = json.loads((run / "export" / "export.json").read_text())
    assert f"| {of_encoder['probe'][0]['accuracy']:.3f} ±" in card
    check_equal_weights(arrays_of(run / "export"), arrays_of(whole))
