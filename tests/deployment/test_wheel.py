"""The wheel holds the package alone, and works in a new environment, outside of the clone."""

import os
import shutil
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from tests.documentation.pages import blocks
from tff_ssl.deployment import saved_model
from tff_ssl.models.dual_encoder import DualEncoder

IMAGES = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 1), np.uint8)
ENCODE = """
import pathlib, sys
import numpy as np
import tff_ssl

assert pathlib.Path(tff_ssl.__file__).is_relative_to(sys.prefix), tff_ssl.__file__
features = tff_ssl.load_encoder("run")(np.load("images.npy"))
assert "tensorflow_federated" not in sys.modules
np.save("features.npy", features)
"""

OF_THE_SCRIPTS = """
import tff_ssl

try:
    tff_ssl.train
except ImportError as error:
    assert str(error).startswith("tff_ssl.train needs launch/"), error
else:
    raise AssertionError("the wheel has the scripts")
"""


@pytest.fixture(scope="module")
def wheel(project_root, tmp_path_factory):
    """The built wheel."""
    source = tmp_path_factory.mktemp("wheel") / "source"
    ignored = shutil.ignore_patterns(".*", "results", "build", "*.egg-info")
    shutil.copytree(project_root, source, ignore=ignored)
    build = "import setuptools.build_meta as b; b.build_wheel('wheel')"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)
    (path,) = (source / "wheel").glob("*.whl")
    return path


def test_the_wheel_holds_tff_ssl_only(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"tff_ssl"}
    assert "tff_ssl/runtime/worker_relay.py" in names


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("uv") is None, reason="needs uv, which installs in seconds")
def test_the_wheel_works_beside_the_pins_in_a_new_environment(project_root, wheel, tmp_path):
    """It loads an encoder, and runs rounds of FedAvg in TFF's worker (docs/tff_programs.md)."""
    model = DualEncoder("tiny", (16, 16, 1), projector=(16, 8))
    weights = model.init(3)
    saved_model.save_encoder(tmp_path / "run" / "encoder", model, weights, (8, 8, 1), view_size=16)
    np.save(tmp_path / "images.npy", IMAGES)
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT")
    }
    python = tmp_path / "new" / "bin" / "python"

    def run(*command):
        done = subprocess.run(
            [str(part) for part in command],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    run("uv", "venv", "--python", sys.executable, tmp_path / "new")
    install = ("uv", "pip", "install", "--python", python, "--no-deps")
    run(*install, "--requirement", project_root / "requirements.txt")
    run(*install, wheel)

    run(python, "-W", "ignore", "-c", ENCODE)
    run(python, "-W", "ignore", "-c", OF_THE_SCRIPTS)
    encode = saved_model.encoder_function(model, 16)
    expected = encode(weights, IMAGES).numpy()
    np.testing.assert_allclose(np.load(tmp_path / "features.npy"), expected, rtol=1e-4, atol=1e-5)

    page = [block.text for block in blocks("python") if block.page == "docs/tff_programs.md"]
    (program,) = [text for text in page if "build_supervised()" in text]
    run(python, "-W", "ignore", "-c", program)
    assert len((tmp_path / "metrics.csv").read_text().splitlines()) == 4  # A header, and rounds.
