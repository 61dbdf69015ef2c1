"""`launch.export --format=client`: packages of runs and of algorithms, and what it refuses."""

import json
import sys

import numpy as np
import pytest

import tff_ssl
from tests import programs
from tests.launch.mistakes import messages
from tff_ssl import client

TINY = (
    "--encoder=tiny",
    "--projector=8",
    "--labels_per_class=1",
    "--label_draws=1",
    "--baselines=",
)


@pytest.mark.slow
def test_what_cannot_be_packaged_is_said_in_a_line(project_root, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    to = f"--output_dir={tmp_path / 'new'}"
    reasons = {
        ("--format=client", to): "--format=client needs --run=RUN, or --algorithm=NAME",
        ("--format=client,tflite", "--algorithm=dcco", to): "without other formats",
        ("--format=client", "--algorithm=denav", to): "exchange models with each other",
        ("--format=client", "--algorithm=featarc", to): "the number of each client",
        ("--format=client", "--algorithm=orchestra", to): "reads the centroids of each client",
        ("--format=client", "--algorithm=hetero_ssfl", to): "have different models",
        ("--format=client", f"--run={tmp_path}", to): "is not the folder of a run",
        ("--format=client", "--algorithm=dcco", f"--output_dir={tmp_path / 'full'}"): "not empty",
        ("--run=x", "--rounds=3"): "--rounds is for --format=client without --run",
        ("--run=x", "--format=client", "--hparam=no=1"): "--hparam is for --format=client without",
    }
    for expected, message in zip(
        reasons.values(), messages(project_root, "export", [list(a) for a in reasons]), strict=True
    ):
        assert expected in message
    assert not (tmp_path / "new").exists()


@pytest.mark.long
@pytest.mark.slow
def test_the_package_of_a_run_starts_with_its_model(project_root, tmp_path):
    """Of a private run in a folder with brackets: its model, in round 0 of the schedules."""
    run, package = tmp_path / "run [1]", tmp_path / "package [2]"
    for arguments in (
        ["pretrain", "--rounds=2", "--checkpoint_every=1", "--eval_every=0", "--fold=0", *TINY,
         "--clients_per_round=4", "--sampling=poisson", "--hparam=client_weighting=uniform",
         "--dp_noise_multiplier=1", "--dp_clip=1", "--dp_statistics_clip=1",
         f"--output_dir={run}"],
        ["export", f"--run={run}", "--format=client-tflite", f"--output_dir={package}"],
    ):  # fmt: skip
        done = programs.run(
            [sys.executable, "-m", f"launch.{arguments[0]}", *arguments[1:]],
            cwd=project_root, capture_output=True, text=True,
        )  # fmt: skip
        # LiteRT itself says that it uses TensorFlow's operations.
        lines = [line for line in done.stderr.splitlines() if line and not line.startswith("INFO:")]
        assert (done.returncode, lines) == (0, [])
    assert "its model is that of round 2" in done.stdout
    assert "select" in done.stdout
    loaded = client.load(package)
    manifest = json.loads((package / "manifest.json").read_text())
    assert manifest["privacy"]["update_noise_multiplier"] == 1
    state = loaded.initial_state()
    assert state["client_work_round_number"] == 0
    with np.load(run / "encoder" / "weights.npz") as stored:
        first = next(stored[name] for name in stored.files if name.startswith("weights/"))
    np.testing.assert_array_equal(state["global_model_weights_trainable_0"], first)
    assert manifest["select_operations"]
    images = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 1), np.uint8)
    encode = tff_ssl.load_encoder(run)
    np.testing.assert_allclose(loaded.encode(state, images), encode(images), rtol=1e-5, atol=1e-6)
