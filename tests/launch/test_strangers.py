"""The folder of a run that a stranger made: it runs no code, and nothing is written outside."""

import json
import os
import pathlib
import shutil
import sys

import pytest

from launch.outputs import run_folder
from tests import programs
from tff_ssl.errors import ConfigurationError

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("finished run")]


def script(cwd, project_root, name, *arguments):
    return programs.run(
        [sys.executable, "-m", f"launch.{name}", *arguments],
        cwd=cwd, env=os.environ | {"PYTHONPATH": f"{cwd}:{project_root}"}, capture_output=True,
        text=True, timeout=1200, check=False,
    )  # fmt: skip


def change(run, **flags):
    """Sets flags in a run's `config.json`, and leaves out its digest, as a stranger would."""
    path = run / "config.json"
    content = json.loads(path.read_text())
    del content["digest"]
    content["folder"] = str(run)

    def walk(section):
        for name, value in section.items():
            if isinstance(value, dict):
                walk(value)
            elif name in flags:
                section[name] = flags[name]

    walk(content)
    path.write_text(json.dumps(content))


@pytest.fixture
def stranger(finished_run, tmp_path):
    """A working directory with a run of a stranger and, beside it, a module that leaves a mark."""
    run = shutil.copytree(finished_run[0], tmp_path / "cwd" / "results" / "run")
    mark = tmp_path / "it_ran"
    (run / "payload.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    return run, mark


@pytest.mark.parametrize(
    ("name", "flags"),
    [("evaluate", ["--protocol=knn", "--baselines="]), ("visualize", []),
     ("export", ["--format=tflite"])],
)  # fmt: skip
def test_a_data_set_of_a_stranger_runs_nothing(stranger, project_root, name, flags):
    run, mark = stranger
    folder = run / "d" / "mnist" / "1.0.0"
    folder.mkdir(parents=True)
    features = {"pythonClassName": "results.run.payload.X", "featuresDict": {}}
    (folder / "features.json").write_text(json.dumps(features))
    (folder / "dataset_info.json").write_text('{"name":"mnist","version":"1.0.0","splits":[]}')
    change(run, dataset="mnist", data_dir="results/run/d")
    done = script(run.parents[1], project_root, name, f"--run={run}", *flags)
    assert done.returncode == 1
    assert "names the class results.run.payload.X" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert not mark.exists()


@pytest.mark.parametrize("flag", ["algorithm", "encoder"])
@pytest.mark.parametrize("is_stopped", [False, True])
def test_code_that_a_stranger_names_does_not_run(stranger, project_root, flag, is_stopped):
    run, mark = stranger
    change(run, **{flag: "results.run.payload:X"})
    if is_stopped:
        shutil.rmtree(run / "encoder")
    few = ["--protocol=knn", "--baselines="]
    for name, flags in (("evaluate", few), ("visualize", []), ("export", ["--format=tflite"])):
        done = script(run.parents[1], project_root, name, f"--run={run}", *flags)
        assert "Traceback" not in done.stderr
    done = script(
        run.parents[1], project_root, "pretrain", "--resume", f"--output_dir={run}", "--rounds=7"
    )
    assert f"add --{flag}=results.run.payload:X if you trust it" in done.stderr
    assert done.returncode
    assert not mark.exists()


def test_no_link_of_a_run_folder_is_written_through(finished_run, tmp_path):
    run = shutil.copytree(finished_run[0], tmp_path / "run")
    victim, outside = tmp_path / "victim", tmp_path / "outside"
    victim.write_text("precious")
    outside.mkdir()
    config = json.loads((run / "config.json").read_text())
    files = sorted(path.relative_to(run) for path in run.rglob("*"))
    assert len(files) > 20
    for path in files:
        if path.name == "config.json":
            continue
        names = (path.name, f"{path.name}.new", f".{path.name}.abcd1234.new", f"{path.name}_temp1")
        for target in (victim, tmp_path / "nowhere", outside):
            for name in names:
                link = run / path.parent / name
                aside = link.rename(tmp_path / "aside") if link.exists() else None
                link.symlink_to(target)
                with pytest.raises(ConfigurationError, match=f"{name} is a link to {target}"):
                    run_folder.open_run(run, config, [], resume=True)
                with pytest.raises(ConfigurationError, match=f"{name} is a link to {target}"):
                    run_folder.make(run / "export")  # Of an evaluation of the run.
                link.unlink()
                if aside:
                    aside.rename(link)
    assert victim.read_text() == "precious"
    assert not list(outside.iterdir())
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.long
def test_files_with_other_names_elsewhere_are_replaced_and_not_written_to(
    finished_run, project_root, tmp_path
):
    """Hard links cannot be told from files, so that nothing may be written into a file."""
    other = shutil.copytree(finished_run[0], tmp_path / "other")
    run = shutil.copytree(other, tmp_path / "run", copy_function=os.link)
    before = {path: path.read_bytes() for path in other.rglob("*") if path.is_file()}
    few = ["--protocol=knn", "--baselines="]
    for name, flags in (
        ("pretrain", ["--resume", f"--output_dir={run}", "--rounds=8"]),
        ("evaluate", [f"--run={run}", *few]), ("visualize", [f"--run={run}"]),
        ("export", [f"--run={run}", "--format=tflite"]), ("export", [f"--run={run}"]),
    ):  # fmt: skip
        done = script(project_root, project_root, name, *flags)
        assert done.returncode == 0, done.stderr
    assert {path: path.read_bytes() for path in before} == before
    with open(run / "metrics.csv") as file:
        assert len(file.readlines()) == 9


def test_images_of_a_run_and_its_states_are_private(finished_run):
    folder, _ = finished_run
    private = [
        path
        for pattern in ("run.html", "checkpoints/*", "tensorboard/projector/*")
        for path in folder.glob(pattern)
    ]
    assert len(private) > 5
    for path in private:
        assert path.stat().st_mode & 0o777 == 0o600, path
    events = list(pathlib.Path(folder, "tensorboard").glob("events*"))
    assert sorted(p.stat().st_mode & 0o077 for p in events)[0] == 0  # That with images.
    for name in ("result.json", "config.json", "metrics.csv", "curves.png"):
        assert (folder / name).stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask():
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
