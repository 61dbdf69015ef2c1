"""The frame of all scripts: limits of the system, and memory that runs out."""

import os
import resource
import subprocess
import sys

import pytest

from launch.options import app
from tff_ssl.runtime import REQUIRE_PRIVATE_WORKER


@pytest.mark.slow
@pytest.mark.parametrize("script", ["pretrain", "evaluate", "partition_report"])
def test_too_low_a_limit_of_address_space_is_one_line(project_root, script):
    limit = 2**30
    done = subprocess.run(
        [sys.executable, "-m", f"launch.{script}"],
        cwd=project_root,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == (
        "error: ulimit -v is 1048576, and TensorFlow needs 4194304 or more: "
        "set ulimit -v unlimited\n"
    )


@pytest.mark.long
@pytest.mark.slow
def test_an_algorithm_that_does_not_exist_is_one_line(project_root):
    # The choice of its preset imports TFF, whose packages warn.
    done = subprocess.run(
        [sys.executable, "-m", "launch.pretrain", "--algorithm=nosuch"],
        cwd=project_root, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("error: --algorithm must be one of dcco, ")
    assert done.stderr.count("\n") == 1


@pytest.mark.long
@pytest.mark.slow
def test_the_least_address_space_is_enough_for_a_short_run(project_root, tmp_path):
    flags = (
        "--encoder=tiny", "--rounds=1", "--eval_every=0", "--label_draws=1", "--labels_per_class=1",
        "--baselines=",
    )  # fmt: skip
    limit = app._ADDRESS_SPACE
    done = subprocess.run(
        [sys.executable, "-m", "launch.pretrain", *flags, f"--output_dir={tmp_path}/run"],
        cwd=project_root,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def run_code(code, project_root):
    """Runs a program, and captures its output."""
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=project_root, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


EAGER = """
import sys
from launch.options import app, settings
sys.argv = ["a script"]

def main(_):
    import tensorflow as tf

    @tf.function(autograph=False)
    def outside():
        with tf.init_scope():
            return tf.constant(tf.executing_eagerly())

    assert outside(), "tf.init_scope leads to a graph"
    assert hasattr(tf.keras.Input([3]), "node"), "Keras builds no functional models"
    print("eager")

app.run(app.Script("a script", main, settings.Settings))
"""


@pytest.mark.long
@pytest.mark.slow
def test_tensorflow_is_eager_where_a_script_imports_it_first(project_root):
    done = run_code(EAGER, project_root)
    assert (done.returncode, done.stdout) == (0, "eager\n"), done.stderr


MEMORY = """
import sys
from launch.options import app, settings

def main(_):
    raise MemoryError

app.run(app.Script("a script", main, settings.Settings))
"""


def test_memory_that_runs_out_is_one_line(project_root):
    done = run_code(MEMORY, project_root)
    assert done.returncode == 1
    assert done.stderr.startswith("error: out of memory")
    assert done.stderr.count("\n") == 1


INTERRUPTED = """
import atexit
import ctypes
from launch.options import app, settings

system = ctypes.CDLL(None)
system.__cxa_atexit(system.abort, None, None)  # As destructors of libraries do at times.

def main(_):
    atexit.register(print, "files are removed")
    raise KeyboardInterrupt

app.run(app.Script("a script", main, settings.Settings))
"""


def test_an_interrupt_ends_a_program_without_the_destructors_of_libraries(project_root):
    done = run_code(INTERRUPTED, project_root)
    assert (done.returncode, done.stderr) == (app.INTERRUPTED, "")
    assert done.stdout == "files are removed\n"


PRIVATE = """
import os
from launch.options import app, run_config

main = lambda _: print(os.environ.get("NAME"))
app.run(app.Script("a script", main, run_config.ScriptConfig))
"""


@pytest.mark.parametrize(("flags", "value"), [((), "None"), (("--require_private_worker",), "1")])
def test_the_flag_for_private_workers_reaches_all_child_processes(project_root, flags, value):
    environment = {k: v for k, v in os.environ.items() if k != REQUIRE_PRIVATE_WORKER}
    done = subprocess.run(
        [sys.executable, "-c", PRIVATE.replace("NAME", REQUIRE_PRIVATE_WORKER), *flags],
        cwd=project_root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    assert done.stdout == f"{value}\n"


@pytest.mark.parametrize(("of_the_user", "expected"), [(None, "1"), ("0", "0")])
@pytest.mark.parametrize("module", ["tff_ssl", "launch.options.app"])
def test_fast_convolutions_are_asked_for_before_tensorflow_is_imported(
    project_root, module, of_the_user, expected
):
    environment = {k: v for k, v in os.environ.items() if k != "TF_ENABLE_ONEDNN_OPTS"}
    if of_the_user is not None:
        environment["TF_ENABLE_ONEDNN_OPTS"] = of_the_user
    program = (
        "import os, sys\n"
        "import MODULE\n"
        "print('tensorflow' in sys.modules, os.environ['TF_ENABLE_ONEDNN_OPTS'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program.replace("MODULE", module)], cwd=project_root,
        env=environment, capture_output=True, text=True, timeout=600, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["False", expected]
