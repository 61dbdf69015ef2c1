"""Error messages of scripts for mistakes of the user.

A process for each mistake would be slow, because importing TensorFlow takes seconds.
"""

import contextlib
import importlib
import io
import json
import sys

from launch.options import app, presets
from tests import programs


def preset(name):
    """The flags that name a preset, such as `digits/fedu`, instead of the default one."""
    return [f"--flagfile={presets.FOLDER / name}.flags"]


def message_of(script, arguments):
    """Runs a script in this process, and returns its error message.

    The default preset is that of DCCO.

    Args:
      script: The module.
      arguments: The command line, with a mistake.
    """
    dcco = presets.FOLDER / "digits" / "dcco.flags"
    return _check(*_run(script.SCRIPT._replace(default_preset=lambda *_: dcco), arguments))


def messages(project_root, script, mistakes):
    """Runs a script in another process, and returns its error message for each command line.

    Args:
      project_root: The working directory.
      script: Name of the script.
      mistakes: Lists of arguments, each with a mistake.
    """
    done = programs.run(
        [sys.executable, "-m", "tests.launch.mistakes", script],
        cwd=project_root,
        input=json.dumps(mistakes),
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout.splitlines()[-1])
    return [_check(code, message) for code, message in results]


def _check(code, message):
    """Checks that a script failed with one line, and returns the line."""
    assert code != 0
    assert len(message.strip().splitlines()) == 1, message
    return message


def _run(script, arguments):
    """Runs a script with these flags, and returns its exit code and stderr."""
    before = sys.argv
    stderr = io.StringIO()
    try:
        sys.argv = [before[0], *arguments]
        with contextlib.redirect_stderr(stderr):
            app.run(script)
    except SystemExit as end:
        if isinstance(end.code, str):
            return 1, end.code
        return end.code, stderr.getvalue()
    finally:
        sys.argv = before
    return 0, stderr.getvalue()


if __name__ == "__main__":
    module = importlib.import_module(f"launch.{sys.argv[1]}")
    script = module.SCRIPT._replace(default_preset=None, resumes=False)
    print(json.dumps([_run(script, arguments) for arguments in json.load(sys.stdin)]))
