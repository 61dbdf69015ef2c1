"""Which results of `launch.evaluate` count as those of the images that the run was trained on."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from datasets import catalog
from launch.options import command_line, resuming, settings
from launch.options.script_configs import EvaluateConfig, VisualizeConfig
from launch.outputs import partition_record, run_folder
from launch.pages import rebuilding
from launch.runs import evaluation
from tests.launch import configs
from tff_ssl.deployment import saved_model
from tff_ssl.errors import ConfigurationError
from tff_ssl.models.dual_encoder import DualEncoder

SHAPE = (16, 16, 3)


def make_images(folder, seed):
    """A folder with ten images of each of two classes."""
    images = np.random.default_rng(seed).integers(0, 256, (20, *SHAPE), np.uint8)
    for number, image in enumerate(images):
        path = folder / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    return folder


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoder")
    model = DualEncoder("tiny", SHAPE)
    saved_model.save_encoder(folder / "encoder", model, model.init(0), SHAPE, None)
    return folder / "encoder"


@pytest.fixture
def run(encoder, tmp_path):
    """The folder of a run on the images in A, with an untrained encoder."""
    images, folder = make_images(tmp_path / "A", 0), tmp_path / "run"
    config = configs.run("--dataset=case_folder", f"--data_dir={images}", "--encoder=tiny")
    clients = [np.arange(8), np.arange(8, 16)]
    digests = partition_record.data_digests(catalog.load("case_folder", images), clients)
    run_folder.open_run(folder, settings.to_json(config), config.given, False, digests)
    shutil.copytree(encoder, folder / "encoder")
    return folder


def evaluate(run, *flags):
    """Evaluates the run, and returns the entries of the files that are new, by their names."""
    before = set(run.glob("result*"))
    line = ["evaluate", f"--run={run}", "--baselines=", "--labels_per_class=1", *map(str, flags)]
    evaluation.evaluate(command_line.parse(EvaluateConfig, "evaluate", line)[0])
    new = set(run.glob("result*")) - before
    return {path.name: json.loads(path.read_text())[0] for path in new}


@pytest.mark.slow
def test_another_folder_is_another_data_set(run, tmp_path):
    (own,) = evaluate(run).items()
    assert own[0] == "result_linear.json"
    assert "pretrained_on" not in own[1]
    for name, seed in (("B", 1), ("C", 2)):
        folder = make_images(tmp_path / name, seed)
        (other,) = evaluate(run, f"--data_dir={folder}").items()
        assert other[0] == f"result_linear_case_folder_{name}.json"
        assert other[1]["pretrained_on"] == other[1]["dataset"] == "case_folder"
        assert other[1]["data_dir"] == str(folder)
    transfer = evaluate(run, "--protocol=transfer", f"--data_dir={folder}")
    assert list(transfer) == ["result_transfer_case_folder_C.json"]
    (digits,) = evaluate(run, "--dataset=npz", f"--data_dir={_arrays(tmp_path)}").items()
    assert digits[0] == "result_linear_npz_arrays.npz.json"
    assert json.loads((run / "result_linear.json").read_text())[0] == own[1]


def _arrays(folder):
    rng = np.random.default_rng(3)
    path, labels = folder / "arrays.npz", np.arange(20) % 2
    np.savez(path, images=rng.integers(0, 256, (20, *SHAPE), np.uint8), labels=labels)
    return path


@pytest.mark.slow
def test_the_images_of_the_training_may_have_moved(run, tmp_path):
    moved = (tmp_path / "A").rename(tmp_path / "moved")
    (entry,) = evaluate(run, f"--data_dir={moved}").items()
    assert entry[0] == "result_linear.json"
    assert "pretrained_on" not in entry[1]
    with pytest.raises(ConfigurationError, match=r"case_folder or another --data_dir$"):
        evaluate(run, "--protocol=transfer", f"--data_dir={moved}")
    (tmp_path / "A").symlink_to(moved)
    (moved / "a" / "new.png").write_bytes((moved / "a" / "0.png").read_bytes())
    # The folder of the training is the run's, whatever has been added to it.
    assert not evaluate(run, f"--data_dir={moved}")
    with pytest.raises(ConfigurationError, match=r"case_folder or another --data_dir$"):
        evaluate(run, "--protocol=transfer")
    (tmp_path / "A").unlink()
    assert list(evaluate(run, f"--data_dir={moved}")) == ["result_linear_case_folder_moved.json"]


def test_views_have_the_recorded_size_where_no_flag_has_given_it(run):
    """`--init_from` sets the size of views, which the flags of `config.json` have then."""
    content = json.loads((run / "config.json").read_text())
    content["model"]["view_size"] = 24
    content["algorithm"]["objective"] = "cco"
    (run / "config.json").write_text(json.dumps(content))
    assert "view_size" not in content["given"]
    assert resuming.read_run(run).model.view_size == 24
    for more in ((), ("--dataset=digits",)):
        config, *_ = evaluation._take_settings(
            run, command_line.parse(EvaluateConfig, "evaluate", ["x", f"--run={run}", *more])[0]
        )
        assert config.model.view_size == 24
        line = ["visualize", f"--run={run}", f"--output_dir={run}", *more]
        own = command_line.parse(VisualizeConfig, "visualize", line)[0]
        assert rebuilding.config_of(run, own)[1].model.view_size == 24
