"""`launch.visualize` on tiny encoders: its table, files and errors."""

import json
import shutil
import sys

import numpy as np
import pytest

from tests import programs
from tests.launch.mistakes import messages
from tff_ssl.deployment import saved_model
from tff_ssl.models.dual_encoder import DualEncoder, Weights

BATCH = DualEncoder("tiny", (16, 16, 1), projector=(8,), norm="batch")
IMAGE = (8, 8, 1)  # Shape of the digits.


def script(project_root, *arguments):
    done = programs.run(
        [sys.executable, "-m", "launch.visualize", *arguments],
        cwd=project_root,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def moved(weights):
    """Weights at distance 3 in the first layer, 4 in the second and 0.5 in the first average."""
    first, second, *rest = weights.trainable
    shift = np.zeros(first.shape, np.float32)
    shift.flat[:9] = 1
    shift_second = np.zeros(second.shape, np.float32)
    shift_second.flat[0] = -4
    average, *averages = weights.non_trainable
    shift_average = np.zeros(average.shape, np.float32)
    shift_average.flat[1] = 0.5
    return Weights(
        (first + shift, second + shift_second, *rest), (average + shift_average, *averages)
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run as of `pretrain --personalized_clients=2`; one client has kept its local model."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    weights = BATCH.init(0)
    for part, encoder_weights in (
        (".", weights), ("clients/0", weights), ("clients/0/local", moved(weights)),
        ("clients/1", weights),
    ):  # fmt: skip
        (folder / part).mkdir(parents=True)
        saved_model.save_encoder(
            folder / part / "encoder", BATCH, encoder_weights, IMAGE, view_size=16
        )
    flags = {
        "script": "pretrain", "dataset": "digits", "objective": "cco", "algorithm": "fedbn",
        "encoder": "tiny", "norm": "batch", "projector": ["8"], "alpha": "inf", "rounds": 3,
        "num_clients": 4, "samples_per_client": None, "seed": 5,
    }  # fmt: skip
    config = {**flags, "versions": {"python": "3.11"}, "git_commit": None}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.slow
def test_a_run_and_its_clients(project_root, run, tmp_path):
    flags = [f"--run={run}", "--max_images=45", f"--output_dir={tmp_path}"]
    done = script(project_root, *flags)
    assert done.stderr == ""
    assert "global, client 0 local, client 1 on 45 test images of digits" in done.stdout
    report = json.loads((tmp_path / "visualize.json").read_text())
    assert report["flags"]["max_images"] == 45
    assert list(report["encoders"]) == ["global", "client 0 local", "client 1"]
    pairs = {tuple(pair["encoders"]): pair for pair in report["pairs"]}
    assert len(pairs) == 3
    distant = pairs["global", "client 0 local"]
    names = [spec.name for spec in BATCH.without_heads(BATCH.init(0))[0].trainable_specs]
    layers = distant["weights"]["layers"]
    assert list(layers) == names
    assert list(layers.values()) == pytest.approx([3, 4, *[0] * (len(names) - 2)], abs=1e-6)
    assert distant["weights"]["distance"] == pytest.approx(7)
    assert distant["moving_averages"]["distance"] == pytest.approx(0.5)
    assert distant["mean_cosine"] < 0.999
    equal = pairs["global", "client 1"]
    assert equal["weights"]["distance"] == equal["moving_averages"]["distance"] == 0
    assert equal["linear_cka"] == pytest.approx(1, abs=1e-5)
    assert equal["mean_cosine"] == pytest.approx(1, abs=1e-5)
    row = next(
        line for line in done.stdout.splitlines() if line.startswith("global, client 0 local ")
    )
    assert row.split()[4:6] == ["7.0000", "0.5000"]
    for name in ("features.png", "distances.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
        assert str(tmp_path / name) in done.stdout
    html = (tmp_path / "run.html").read_text()
    assert "Clients&#39; own encoders" in html
    # The partition is made from the flags of the run, which has no partition.json.
    assert "4 clients hold 1,438 training images" in html
    assert "untrained encoder" in html
    assert not (run / "run.html").exists()


@pytest.mark.long
@pytest.mark.slow
def test_a_run_of_one_encoder_and_runs_side_by_side(project_root, run, tmp_path):
    one = tmp_path / "one"
    shutil.copytree(run, one, ignore=shutil.ignore_patterns("clients"))
    done = script(project_root, f"--run={one}")
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == f"wrote {one / 'run.html'}"
    assert {path.name for path in one.iterdir()} == {"config.json", "encoder", "run.html"}
    stopped = tmp_path / "stopped"
    shutil.copytree(one, stopped, ignore=shutil.ignore_patterns("encoder", "run.html"))
    done = script(project_root, f"--compare={one},{stopped},{run}", f"--output_dir={tmp_path}/c")
    assert done.stderr == ""
    html = (tmp_path / "c" / "compare.html").read_text()
    assert "<th>one</th><th>stopped</th><th>run</th>" in html
    # Of the run that was stopped before its first checkpoint, there are no encodings.
    assert html.count("2-D map of 300 encodings") == 2
    assert html.count("4 clients hold 1,438 training images") == 3


@pytest.mark.long
@pytest.mark.slow
def test_clients_with_other_features_are_named_and_the_page_is_written(project_root, run, tmp_path):
    unlike = tmp_path / "unlike"
    shutil.copytree(run, unlike)
    shutil.rmtree(unlike / "clients" / "1" / "encoder")
    small = DualEncoder("small", (16, 16, 1), projector=(8,), norm="batch")
    saved_model.save_encoder(
        unlike / "clients" / "1" / "encoder", small, small.init(0), IMAGE, view_size=16
    )
    done = script(project_root, f"--run={unlike}", "--max_images=20")
    assert "note: encoder client 1 has 128 features and global has 64" in done.stdout
    assert (unlike / "run.html").exists()
    assert len(json.loads((unlike / "visualize.json").read_text())["pairs"]) == 1
    shutil.rmtree(unlike / "clients" / "0")
    done = script(project_root, f"--run={unlike}", "--max_images=20")
    assert "no two encoders have the same number of features" in done.stdout


@pytest.mark.long
@pytest.mark.slow
def test_different_structures_have_features_but_no_distances(project_root, run, tmp_path):
    group = DualEncoder("tiny", (16, 16, 1))
    saved_model.save_encoder(tmp_path / "group", group, group.init(1), IMAGE, view_size=16)
    output = tmp_path / "out"
    encoders = f"--encoders=batch={run}/clients/0/local/encoder,group={tmp_path}/group"
    done = script(
        project_root, encoders, "--images=train", "--max_images=9", f"--output_dir={output}"
    )
    assert "on 9 train images of digits" in done.stdout  # Fewer images than classes.
    assert sum("unlike structures: batch, group" in text for text in done.stdout.split("\n")) == 1
    (pair,) = json.loads((output / "visualize.json").read_text())["pairs"]
    assert pair["weights"] is pair["moving_averages"] is None
    assert 0 < pair["linear_cka"] < 1
    assert {path.name for path in output.iterdir()} == {"features.png", "visualize.json"}


@pytest.mark.slow
def test_mistakes_are_one_line(project_root, run, tmp_path):
    small = DualEncoder("small", (16, 16, 1))
    saved_model.save_encoder(tmp_path / "small", small, small.init(1), IMAGE, view_size=16)
    saved_model.save_encoder(tmp_path / "large", BATCH, BATCH.init(1), (16, 16, 1), None)
    output = tmp_path / "out"
    mistakes = (
        ("give one of --run=RUN", []),
        ("give one of --run=RUN", [f"--run={run}", f"--encoders=a={run}"]),
        ("two runs or more", [f"--compare={run}"]),
        (f"{tmp_path} holds no run", [f"--compare={run},{tmp_path}"]),
        ("two encoders or more", [f"--encoders=a={run}"]),
        (f"got '{run}'", [f"--encoders=a={run},{run}"]),
        ("two encoders called a", [f"--encoders=a={run},a={run}"]),
        ("clients/0 holds no run", [f"--run={run}/clients/0"]),
        ("b: /nonexistent holds no encoder", [f"--encoders=a={run},b=/nonexistent"]),
        ("encoder b has 128 features", [f"--encoders=a={run},b={tmp_path}/small"]),
        ("encoder b takes images of 16x16x1", [f"--encoders=a={run},b={tmp_path}/large"]),
    )
    flags = [[f"--output_dir={output}", *more] for _, more in mistakes]
    for (named, _), message in zip(
        mistakes, messages(project_root, "visualize", flags), strict=True
    ):
        assert named in message
    assert not output.exists()
