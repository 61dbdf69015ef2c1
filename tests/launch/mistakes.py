"""A script's message for a mistake, without a process for each: importing TensorFlow takes seconds.

Flags of two scripts cannot be defined in one process, so that not all scripts can run in pytest's.
"""

import contextlib
import importlib
import io
import json
import pathlib
import subprocess
import sys

from absl import flags
from absl.testing import flagsaver

from launch.options import app


def preset(name):
    """Flags in place of the digits' preset."""
    return [f"--flagfile={pathlib.Path(app.__file__).parent.parent / 'presets' / name}.flags"]


def message_of(script, arguments):
    """What a script whose flags this process has writes to stderr for flags that may not work."""
    return _checked(*_run(script.main, arguments, digits_preset=lambda _: "digits_dcco"))


def messages(project_root, script, mistakes):
    """The same of a script in a process of its own, for each list of flags."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.launch.mistakes", script],
        cwd=project_root,
        input=json.dumps(mistakes),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout.splitlines()[-1])
    return [_checked(code, message) for code, message in results]


def _checked(code, message):
    assert code != 0
    assert len(message.strip().splitlines()) == 1, message
    return message


def _run(main, arguments, **options):
    """(exit code, stderr) of the script with these flags."""
    before = sys.argv
    stderr = io.StringIO()
    try:
        sys.argv = [before[0], *arguments]
        with contextlib.redirect_stderr(stderr), flagsaver.flagsaver():
            app.run(main, **options)
    except SystemExit as end:
        if isinstance(end.code, str):
            return 1, end.code
        return end.code, stderr.getvalue()
    finally:
        sys.argv = before
        flags.FLAGS.unparse_flags()
    return 0, stderr.getvalue()


if __name__ == "__main__":
    script = importlib.import_module(f"launch.{sys.argv[1]}")
    print(json.dumps([_run(script.main, arguments) for arguments in json.load(sys.stdin)]))
