"""The code of docs/your_own_algorithm.md works as it is printed."""

import json
import os
import re
import sys

import numpy as np
import pytest
import tensorflow as tf

from launch.options import presets
from tests import programs
from tff_ssl.algorithms import feddecorr, registry


@pytest.fixture
def blocks(project_root):
    text = (project_root / "docs" / "your_own_algorithm.md").read_text()
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@pytest.fixture
def files(blocks, tmp_path, monkeypatch):
    """Saves the two algorithms of the page in a folder outside the repository."""
    names = ("my_decorr", "mixed")
    for name, text in zip(names, blocks[:2], strict=True):
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in names:
        sys.modules.pop(name, None)


def test_the_examples_are_found_with_the_presets_of_their_kinds(files):
    for name, kind in (("my_decorr", "stateless_clients"), ("mixed", "stateful_clients")):
        assert registry.find(f"{name}:ENTRY", "simsiam").kind.kind == kind
        assert presets.of_algorithm(f"{name}:ENTRY").stem == kind


def test_the_first_example_is_feddecorr(files):
    import my_decorr

    h = tf.constant(np.random.default_rng(0).normal(size=(9, 4)), tf.float32)
    expected = feddecorr.decorrelation(h)
    np.testing.assert_allclose(my_decorr.decorrelation(h), expected, rtol=1e-6)
    assert my_decorr.DecorrHyperparameters().beta == feddecorr.FedDecorrHyperparameters().beta


@pytest.mark.slow
def test_the_tests_of_the_page_pass(files, blocks, worker, small_algorithm):
    namespace = {}
    exec(compile(blocks[2], "test_mixed.py", "exec"), namespace)
    tests = [function for name, function in namespace.items() if name.startswith("test_")]
    assert len(tests) == 2
    for function in tests:
        function(worker, small_algorithm)


@pytest.mark.long
@pytest.mark.slow
def test_the_scripts_run_an_algorithm_from_outside(files, project_root):
    """Trains, resumes, evaluates, shows, exports and lowers the first example."""
    run = files / "run"

    def script(name, *arguments):
        done = programs.run(
            [sys.executable, "-m", f"launch.{name}", *map(str, arguments)],
            cwd=project_root, env={**os.environ, "PYTHONPATH": str(files)}, capture_output=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    small = ("--encoder=tiny", "--projector=8", "--num_clients=2", "--clients_per_round=2",
             "--labels_per_class=1", "--label_draws=1", "--baselines=", "--eval_every=0",
             "--data_fraction=0.1", "--hparam=beta=0.5")  # fmt: skip
    name = "--algorithm=my_decorr:ENTRY"
    trained = script("pretrain", name, *small, "--rounds=1", f"--output_dir={run}")
    assert "my_decorr:ENTRY with nt_xent" in trained
    assert "digits/kinds/stateless_clients.flags" in trained
    # The run's own file does not name code to import.
    script("pretrain", "--resume", name, "--rounds=2", f"--output_dir={run}")
    entry, *_ = json.loads((run / "result.json").read_text())
    assert (entry["algorithm"], entry["rounds"]) == ("my_decorr:ENTRY", 2)
    script("evaluate", f"--run={run}", "--protocol=knn", "--baselines=")
    script("visualize", f"--run={run}")
    script("export", f"--run={run}")
    assert (run / "export" / "encoder_int8.tflite").stat().st_size > 0
    assert "my_decorr:ENTRY" in (run / "run.html").read_text()
    lowered = files / "lowered"
    script("lower", name, *small, f"--output_dir={lowered}")
    description = json.loads((lowered / "lowering.json").read_text())
    assert description["algorithm"] == "my_decorr:ENTRY"
    assert description["rounds"][0]["converts"]["map_reduce"]
