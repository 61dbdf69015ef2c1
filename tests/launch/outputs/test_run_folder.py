"""The folder of a run: its lock, the check of its settings, and errors if it cannot be written."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from launch.outputs import run_folder
from tff_ssl.errors import ConfigurationError

_LOCK_FOLDER = """
import pathlib, sys
from launch.outputs import run_folder
run_folder.lock(pathlib.Path(sys.argv[1]))
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_folder_is_locked_by_one_process_until_it_ends(project_root, tmp_path):
    command = [sys.executable, "-c", _LOCK_FOLDER, str(tmp_path)]
    with subprocess.Popen(
        command, cwd=project_root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(ConfigurationError, match=f"--output_dir={tmp_path} is in use"):
            run_folder.open_run(tmp_path, {}, [], resume=True)
        other.stdin.close()
        other.wait()
    run_folder.open_run(tmp_path, {"rounds": 3}, [], resume=False)
    run_folder.open_run(tmp_path, {"rounds": 3}, [], resume=True)  # This process holds the lock.


def test_a_run_of_another_script_is_not_resumed(tmp_path):
    run_folder.open_run(tmp_path, {"script": "centralized", "batch_size": 128}, [], resume=False)
    with pytest.raises(ConfigurationError, match=f"{tmp_path} holds a run of launch.centralized:"):
        run_folder.open_run(tmp_path, {"script": "pretrain", "algorithm": "dcco"}, [], resume=True)


def test_the_error_for_a_folder_that_cannot_be_created_names_it(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(ConfigurationError, match=f"--output_dir={folder} cannot be written"):
            run_folder.make(folder)


def test_a_folder_that_was_moved_or_deleted_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(run_folder, "_locked", {})
    kept, moved, replaced = (tmp_path / name for name in ("kept", "moved", "replaced"))
    for folder in (kept, moved, replaced):
        folder.mkdir()
        run_folder.lock(folder)
    assert run_folder.moved() == []
    moved.rename(tmp_path / "elsewhere")
    replaced.rename(tmp_path / "other")
    replaced.mkdir()
    assert run_folder.moved() == [moved, replaced]
    for _, descriptor in run_folder._locked.values():
        os.close(descriptor)


def test_a_place_is_checked_before_its_folder_is_made(tmp_path):
    run_folder.check_place(tmp_path / "new" / "run")
    assert not list(tmp_path.iterdir())
    with pytest.raises(ConfigurationError, match="--output_dir=/proc/run cannot be written"):
        run_folder.check_place(pathlib.Path("/proc/run"))
    with pytest.raises(ConfigurationError, match="is no text in UTF-8"):
        run_folder.check_place(pathlib.Path(os.fsdecode(b"/tmp/K\xe4fer")))


def test_a_run_without_a_global_model_has_no_model_of_that_name(tmp_path):
    assert run_folder.name_of_model(tmp_path) == "global"
    for results, name in (
        ([{"protocol": "linear"}, {"protocol": "linear_personalized"}], "global"),
        ([{"protocol": "linear", "client": 3}], "evaluated"),
    ):
        (tmp_path / "result.json").write_text(json.dumps(results))
        assert run_folder.name_of_model(tmp_path) == name
