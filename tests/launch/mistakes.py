"""Many mistakes in one process of a script, since importing TensorFlow takes seconds.

Flags of two scripts cannot be defined in one process, so that not all scripts can run in pytest's.
"""

import contextlib
import importlib
import io
import json
import subprocess
import sys

from absl.testing import flagsaver

from launch import app


def messages(project_root, script, mistakes):
    """What a script writes to stderr for each list of flags, none of which may work."""
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
    for code, message in results:
        assert code != 0
        assert len(message.strip().splitlines()) == 1, message
    return [message for _, message in results]


def _fail(main, arguments):
    """(exit code, stderr) of the script with these flags."""
    sys.argv = [sys.argv[0], *arguments]
    stderr = io.StringIO()
    with contextlib.redirect_stderr(stderr), flagsaver.flagsaver():
        try:
            app.run(main)
        except SystemExit as end:
            if isinstance(end.code, str):
                return 1, end.code
            return end.code, stderr.getvalue()
    return 0, stderr.getvalue()


if __name__ == "__main__":
    script = importlib.import_module(f"launch.{sys.argv[1]}")
    print(json.dumps([_fail(script.main, arguments) for arguments in json.load(sys.stdin)]))
