"""`launch.evaluate` on a short run: its protocols and its errors."""

import copy
import json
import subprocess
import sys
import types

import numpy as np
import pytest
from absl import flags

from launch import evaluate, run_folder
from tests.launch.mistakes import messages
from tff_ssl import export
from tff_ssl.errors import ConfigurationError
from tff_ssl.models.dual_encoder import Weights


@pytest.fixture(scope="module")
def run(tmp_path_factory, project_root):
    folder = tmp_path_factory.mktemp("run")
    script(project_root, "pretrain", "--rounds=2", "--eval_every=0", f"--output_dir={folder}")
    return folder


def script(project_root, name, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", f"launch.{name}", *arguments],
        cwd=project_root,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
def test_finetune_and_semi_supervised(project_root, run):
    # Larger images than in pretraining, and a number of steps chosen on other labels.
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


@pytest.mark.slow
def test_mistakes_are_one_line(project_root, run, tmp_path):
    mistakes = (
        ("transfer", ["--protocol=transfer"]),
        ("--finetune_steps", ["--protocol=finetune", "--finetune_steps=3,x"]),
        ("--label_fractions", ["--protocol=semi_supervised", "--label_fractions=2"]),
        ("--per_case", ["--per_case"]),
        ("--encoder", ["--protocol=finetune", "--encoder=tiny"]),
        ("no encoder", [f"--run={tmp_path}"]),
    )
    output = tmp_path / "out"
    flags = [[f"--run={run}", f"--output_dir={output}", *more] for _, more in mistakes]
    for (named, _), message in zip(
        mistakes, messages(project_root, "evaluate", flags), strict=True
    ):
        assert named in message
    assert not output.exists()


def test_transfer_without_another_data_set_is_refused(tmp_path):
    # Unlike the one above, not a run on the data set that is the flag's default.
    run_folder.write_json(tmp_path / "config.json", {"flags": {"dataset": "cifar10"}})
    args = copy.deepcopy(flags.FLAGS)
    args(["evaluate", "--protocol=transfer"])
    with pytest.raises(ConfigurationError, match="--dataset than the run's, cifar10"):
        evaluate._take_settings(tmp_path, args)


@pytest.mark.parametrize("protocol", ["linear", "knn", "finetune"])
def test_an_encoder_that_an_evaluation_changes_is_noticed(monkeypatch, tmp_path, protocol):
    encoder = types.SimpleNamespace(
        image_shape=(8, 8, 1), weights=Weights((np.zeros(3),), (np.zeros(1),))
    )

    def train_it(dataset, given, args):
        given.weights = Weights((np.zeros(3),), (np.full(1, 1e-7),))
        return [{}]

    monkeypatch.setattr(export, "load_encoder", lambda folder: encoder)
    monkeypatch.setattr(evaluate, "_results", train_it)
    args = copy.deepcopy(flags.FLAGS)
    args(["evaluate", f"--protocol={protocol}"])
    with pytest.raises(RuntimeError, match="changed"):
        evaluate._evaluate(tmp_path, "digits", tmp_path / "out", args)
    assert not (tmp_path / "out").exists()


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
    [result] = json.loads((trained / "result_transfer.json").read_text())
    assert (result["protocol"], result["dataset"]) == ("transfer", "cifar10")
    assert result["pretrained_on"] == "case_folder"
