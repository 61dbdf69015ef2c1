"""The folder of a run: one process at a time, and a clear word where it cannot be written."""

import subprocess
import sys

import pytest

from launch.outputs import run_folder
from tff_ssl.errors import ConfigurationError

_TAKE = """
import pathlib, sys
from launch import run_folder
run_folder.lock(pathlib.Path(sys.argv[1]))
print("taken", flush=True)
sys.stdin.read()
"""


def test_a_folder_is_kept_by_one_process_until_it_ends(project_root, tmp_path):
    command = [sys.executable, "-c", _TAKE, str(tmp_path)]
    with subprocess.Popen(
        command, cwd=project_root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "taken\n"
        with pytest.raises(ConfigurationError, match=f"--output_dir={tmp_path} is in use"):
            run_folder.open_run(tmp_path, {}, resume=True)
        other.stdin.close()
        other.wait()
    run_folder.open_run(tmp_path, {"rounds": 3}, resume=False)
    run_folder.open_run(tmp_path, {"rounds": 3}, resume=True)  # Its own lock is no hindrance.


def test_a_run_of_another_script_is_not_gone_on_with(tmp_path):
    run_folder.open_run(tmp_path, {"script": "centralized", "batch_size": 128}, resume=False)
    with pytest.raises(ConfigurationError, match=f"{tmp_path} holds a run of launch.centralized:"):
        run_folder.open_run(tmp_path, {"script": "pretrain", "algorithm": "dcco"}, resume=True)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(ConfigurationError, match=f"--output_dir={folder} cannot be written"):
            run_folder.make(folder)
