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


def test_a_run_that_is_trained_further_has_no_encoder_or_results_until_its_new_end(
    tmp_path, capsys
):
    def open_run(rounds):
        run_folder.open_run(tmp_path, {"rounds": rounds}, [], resume=True)

    of_end = (
        "encoder/weights.npz", "clients/0/encoder/weights.npz", "result.json", "result_knn.json",
        "run.html", "export/encoder_keras/config.json", "seed_0/result_knn.json", "summary.csv",
        "compare.html", "visualize.json", "features.png", "distances.png",
    )  # fmt: skip

    def write_end(text):
        for name in (*of_end, "checkpoints/round_3.npz"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)

    open_run(3)
    write_end("first")
    open_run(3)  # No other rounds: nothing moves.
    assert not run_folder.is_stopped(tmp_path)
    for text in ("first", "second"):
        write_end(text)
        # As after a call for more rounds that was killed before it wrote `config.json`.
        config = (tmp_path / "config.json").read_bytes()
        open_run(8)
        assert run_folder.is_stopped(tmp_path)
        left = {path.name for path in tmp_path.iterdir()}
        assert left == {"config.json", "checkpoints", "rounds_3"}
        kept = {str(path.relative_to(tmp_path / "rounds_3")): path.read_text()
                for path in tmp_path.glob("rounds_3/**/*") if path.is_file()}  # fmt: skip
        assert kept == dict.fromkeys(of_end, text)
        (tmp_path / "config.json").write_bytes(config)
    assert f"results up to now are in {tmp_path}/rounds_3/" in capsys.readouterr().out
    open_run(8)
    capsys.readouterr()
    open_run(9)  # Stopped before its end, the run has written nothing to keep.
    assert not (tmp_path / "rounds_8").exists()
    assert "rounds_8" not in capsys.readouterr().out


def test_a_run_in_a_folder_of_seeds_leaves_the_runs_of_the_seeds(tmp_path):
    for folder in (tmp_path / "seed_0", tmp_path):
        run_folder.open_run(folder, {"rounds": 3}, [], resume=False)
    run_folder.open_run(tmp_path, {"rounds": 8}, [], resume=True)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "seed_0"}


@pytest.mark.parametrize("name", ["run", "encoder", "local", "clients/one"])
@pytest.mark.parametrize("part", ["", "encoder", "clients/0", "clients/0/local/encoder"])
def test_the_run_of_a_folder_is_found_whatever_its_name(tmp_path, name, part):
    run = tmp_path / name
    (run / part).mkdir(parents=True)
    (run / "config.json").touch()
    assert run_folder.run_of(run / part) == run


def test_only_a_run_that_this_process_trains_is_to_be_continued(tmp_path):
    """`export` and `evaluate` lock the folder of a run, too."""
    trained, exported = tmp_path / "trained", tmp_path / "exported"
    run_folder.open_run(trained, {"script": "pretrain"}, [], resume=False)
    exported.mkdir()
    run_folder.write_json(exported / "config.json", {"script": "pretrain"})
    run_folder.lock(exported, "--run")
    found = run_folder.commands_to_resume()
    assert run_folder.resume_command(trained) in found
    assert run_folder.resume_command(exported) not in found


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
