"""`launch.evaluate` on a short run: its protocols and its errors."""

import json
import os
import shutil
import sys

import pytest

from tests import programs
from tests.launch.mistakes import messages

pytestmark = pytest.mark.xdist_group("finished run")


@pytest.fixture(scope="module")
def run(finished_run, tmp_path_factory):
    folder, _ = finished_run
    return shutil.copytree(folder, tmp_path_factory.mktemp("evaluated") / "run")


def script(project_root, name, *arguments):
    done = programs.run(
        [sys.executable, "-m", f"launch.{name}", *arguments],
        cwd=project_root,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.long
@pytest.mark.slow
def test_finetune_and_semi_supervised(project_root, run):
    # The images are larger than in pretraining, and the number of steps is chosen on other labels.
    few = ["--label_draws=2", "--image_size=12", "--finetune_steps=1,3", "--labels_per_class=1"]
    out = script(project_root, "evaluate", f"--run={run}", "--protocol=finetune", *few).stdout
    assert "untrained" in out
    results = json.loads((run / "result_finetune.json").read_text())
    assert [r["labels"] for r in results] == [10]
    for r in results:
        assert set(r["baselines"]) == {"random_encoder", "raw_pixels"}
        assert 0 <= r["accuracy"] <= 1
        assert r["accuracy_std"] >= 0
        chosen = [(one["start"], one["draw"]) for one in r["chosen"]]
        assert chosen == [(start, i) for start in ("encoder", "random_encoder") for i in (0, 1)]
        assert {one["steps"] for one in r["chosen"]} <= {1, 3}
    few = ["--label_draws=1", "--finetune_steps=3", "--baselines="]
    script(project_root, "evaluate", f"--run={run}", "--protocol=semi_supervised", *few)
    results = json.loads((run / "result_semi_supervised.json").read_text())
    assert [r["labels"] for r in results] == [14, 144]  # 1 % and 10 % of 1438.


@pytest.mark.long
@pytest.mark.slow
def test_settings_are_chosen_on_held_out_training_images(project_root, run):
    script(project_root, "evaluate", f"--run={run}", "--protocol=held_out", "--labels=40")
    (result,) = json.loads((run / "result_held_out.json").read_text())
    assert (result["protocol"], result["labels"]) == ("held_out", 40)
    # A fifth of each class of the 1438 training images, rounded; the test split has 359.
    assert result["test_examples"] == 287


@pytest.mark.long
@pytest.mark.slow
def test_the_encoder_in_a_run_is_compared_with_the_runs_untrained_network(project_root, run):
    # The run's seed, which a folder without its configuration does not tell.
    few = ["--labels_per_class=1", "--label_draws=1", "--seed=3"]
    results = []
    graph_only = run.parent / "graph_only"
    shutil.copytree(run, graph_only)
    (graph_only / "encoder" / "weights.npz").unlink()
    graph = ["--run_saved_model_graph"]
    alone = run.parent / "alone"  # Its network is that of `weights.npz`.
    shutil.copytree(run / "encoder", alone)
    for folder, flags in ((run, []), (run / "encoder", []), (graph_only, graph), (alone, [])):
        output = run.parent / f"output_{folder.name}"
        flags = [*flags, *few, f"--output_dir={output}"]
        script(project_root, "evaluate", f"--run={folder}", *flags)
        results.append(json.loads((output / "result_linear.json").read_text()))
    assert results[0] == results[1] == results[2] == results[3]


@pytest.mark.slow
def test_mistakes_are_one_line(project_root, run, tmp_path):
    damaged = tmp_path / "damaged"
    shutil.copytree(run / "encoder", damaged)
    with open(damaged / "weights.npz", "r+b") as file:
        file.truncate(5000)
    graph_only = tmp_path / "graph_only"
    shutil.copytree(run / "encoder", graph_only)
    (graph_only / "weights.npz").unlink()
    # A run on another data set than the flag's default, which the run above is on.
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "config.json").write_text(json.dumps({"flags": {"dataset": "cifar10"}}))
    mistakes = (
        ("transfer", ["--protocol=transfer"]),
        ("--finetune_steps", ["--protocol=finetune", "--finetune_steps=3,x"]),
        ("--label_fractions", ["--protocol=semi_supervised", "--label_fractions=2"]),
        ("--per_case", ["--per_case"]),
        ("--encoder", ["--protocol=finetune", "--encoder=tiny"]),
        ("no encoder", [f"--run={tmp_path}"]),
        ("than the run's, cifar10", [f"--run={elsewhere}", "--protocol=transfer"]),
        ("weights.npz is damaged", [f"--run={damaged}"]),
        ("--run_saved_model_graph", [f"--run={graph_only}"]),
        ("--label_fractions=0.001", ["--protocol=semi_supervised", "--label_fractions=0.001"]),
        ("--labels_per_class is empty", ["--protocol=finetune", "--labels_per_class="]),
        ("--label_fractions is empty", ["--protocol=semi_supervised", "--label_fractions="]),
        ("--baselines=raw_pixels", ["--encoder=tiny"]),
        ("--norm=batch is not the one", ["--norm=batch"]),
        ("--labels is for", ["--protocol=knn", "--labels=50"]),
        ("--finetune_steps is for", ["--finetune_steps=3"]),
        # Partitions and shifts belong to training.
        ("Unknown command line flag 'data_fraction'", ["--data_fraction=0.5"]),
        ("--output_dir", [f"--output_dir={run}/config.json"]),
    )
    output = tmp_path / "out"
    flags = [[f"--run={run}", f"--output_dir={output}", *more] for _, more in mistakes]
    for (named, _), message in zip(
        mistakes, messages(project_root, "evaluate", flags), strict=True
    ):
        assert named in message
    assert not output.exists()


_CHANGING = """
from launch import evaluate
from launch.options import app
from launch.probes import probing

linear_probes = probing.linear_probes

def changing(dataset, kinds, *others):
    (encoder,) = kinds["encoder"].args
    weights = encoder._module.trainable_weights[0]
    weights.assign_add(1e-6 * weights)
    return linear_probes(dataset, kinds, *others)

probing.linear_probes = changing
app.run(evaluate.SCRIPT)
"""


@pytest.mark.long
@pytest.mark.slow
def test_an_evaluation_that_changes_the_encoder_gives_no_result(project_root, run, tmp_path):
    few = ["--labels_per_class=1", "--label_draws=1", "--baselines="]
    done = programs.run(
        [sys.executable, "-c", _CHANGING, f"--run={run}", f"--output_dir={tmp_path}", *few],
        cwd=project_root,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode != 0
    assert "the encoder changed while it was evaluated" in done.stderr
    assert not list(tmp_path.glob("result*"))


@pytest.mark.long
@pytest.mark.slow
def test_transfer_and_cases(project_root, run, tmp_path):
    cifar = project_root.parent / "shared/data/tfds"
    ham = project_root.parent / "shared/data/ham10000"
    if not (cifar.exists() and ham.exists()):
        pytest.skip("../shared/data is not there")
    trained = tmp_path / "run"
    script(
        project_root, "pretrain", "--dataset=case_folder", f"--data_dir={ham}", "--rounds=1",
        "--image_size=16", "--encoder=tiny", "--projector=64,16", "--labels_per_class=2",
        "--label_draws=1", "--eval_every=0", f"--output_dir={trained}",
    )  # fmt: skip
    [result] = json.loads((trained / "result.json").read_text())
    assert result["labels"] == 14  # Cases, not images.
    assert result["balanced_accuracy"] != result["accuracy"]
    script(project_root, "evaluate", f"--run={trained}", "--protocol=knn", "--baselines=")
    [result] = json.loads((trained / "result_knn.json").read_text())
    assert result["labels"] == 5976  # The training cases, of 8008 images.
    script(
        project_root, "evaluate", f"--run={trained}", "--protocol=transfer", "--dataset=cifar10",
        f"--data_dir={cifar}", "--labels=50", "--label_draws=1",
    )  # fmt: skip
    [result] = json.loads((trained / "result_transfer_cifar10.json").read_text())
    assert (result["protocol"], result["dataset"]) == ("transfer", "cifar10")
    assert result["pretrained_on"] == "case_folder"


@pytest.mark.slow
def test_an_own_model_is_evaluated_by_the_graph_in_its_file(project_root, tmp_path):
    code = [
        "import tensorflow as tf",
        "def build():",
        "    first = tf.keras.layers.Conv2D(16, 3, input_shape=(8, 8, 1))",
        "    return tf.keras.Sequential([first, tf.keras.layers.GlobalAveragePooling2D()])",
    ]
    (tmp_path / "my_model.py").write_text("\n".join(code))
    run = tmp_path / "run"
    few = ["--labels_per_class=1", "--label_draws=1"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    for arguments in (
        ["launch.pretrain", "--encoder=my_model:build", "--rounds=1", f"--output_dir={run}"],
        ["launch.evaluate", f"--run={run}"],
    ):
        done = programs.run(
            [sys.executable, "-m", *arguments, *few],
            cwd=project_root, env=environment, capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "baseline random_encoder is left out" in done.stdout
        (tmp_path / "my_model.py").unlink(missing_ok=True)
    names = ["result", "result_linear"]
    (first,), (again,) = (json.loads((run / f"{name}.json").read_text()) for name in names)
    assert set(first["baselines"]) == {"pretrained_encoder", "raw_pixels"}
    assert set(again["baselines"]) == {"raw_pixels"}
    assert again["accuracy"] == pytest.approx(first["accuracy"], abs=0.01)
