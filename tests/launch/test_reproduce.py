"""`launch.reproduce`: its experiments, and a tiny reproduction that is stopped and goes on."""

import json
import pathlib
import subprocess
import sys

import pytest

from launch.experiments import dcco


def reproduce(project_root, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "launch.reproduce", *map(str, arguments)],
        cwd=project_root,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.parametrize("scale", ["cpu", "paper"])
@pytest.mark.parametrize("name", list(dcco.EXPERIMENTS))
def test_every_cell_of_every_table_exists_and_has_its_preset(project_root, name, scale):
    experiment = dcco.EXPERIMENTS[name][0](scale, None, None)
    names = [cell.name for cell in experiment.cells]
    assert len(set(names)) == len(names)
    for table in experiment.tables:
        for row, cells in table.rows.items():
            assert len(cells) in (1, len(table.columns))
            assert set(cells) <= {*names, None}
            assert row not in table.published or len(table.published[row]) in (
                1, len(table.columns),
            )  # fmt: skip
    assert {claim.table for claim in experiment.claims} <= {t.title for t in experiment.tables}
    used = {flag for cell in experiment.cells for flag in cell.flags if "flagfile" in flag}
    for flag in used:
        assert (project_root / flag.partition("=")[2]).exists()


def test_the_papers_own_setting_is_in_the_presets(project_root):
    text = (project_root / "launch/presets/dcco_table1_paper_dcco.flags").read_text()
    for flag in (
        "--dataset=cifar100", "--encoder=resnet14", "--projector=1024,1024,1024",
        "--views=byol_no_blur", "--rounds=100000", "--hparam=lambda=20",
        "--hparam=server_learning_rate=0.005",
    ):  # fmt: skip
        assert flag in text.splitlines()
    cells = {cell.name: cell for cell in dcco.table1("paper", None, None).cells}
    assert "--clients_per_round=512" in cells["dcco_noniid_1"].flags
    assert "--clients_per_round=32" in cells["contrastive_fedavg_iid_16"].flags
    assert "contrastive_fedavg_noniid_1" not in cells
    derm = {cell.name: cell for cell in dcco.table2("paper", None, None).cells}
    assert "--hparam=server_learning_rate=1.8" in derm["dcco_256"].flags
    assert "--hparam=server_learning_rate=0.6" in derm["contrastive_fedavg_256"].flags


def test_list_and_bad_input(project_root, tmp_path):
    listed = reproduce(project_root, "--list")
    assert listed.returncode == 0
    assert "experiment dcco_table1" in listed.stdout
    for arguments, named in (
        (["--experiment=nosuch"], "--experiment"),
        (["--experiment=dcco_table1", "--only=nosuch"], "--only"),
    ):
        output = tmp_path / "run"
        bad = reproduce(project_root, *arguments, f"--output_dir={output}")
        assert bad.returncode != 0
        assert named in bad.stderr
        assert len(bad.stderr.strip().splitlines()) == 1
        assert not output.exists()


@pytest.mark.slow
def test_a_tiny_reproduction_goes_on_where_it_was(project_root, tmp_path):
    data = project_root.parent / "shared" / "data" / "ham10000"
    if not data.exists():
        pytest.skip("../shared/data/ham10000 is not there")
    arguments = [
        "--experiment=dcco_table2", "--seeds=1", "--rounds=2", f"--data_dir={data}",
        f"--output_dir={tmp_path}",
    ]  # fmt: skip
    first = reproduce(project_root, *arguments, "--only=dcco_64")
    assert first.returncode == 0, first.stderr
    run = tmp_path / "dcco_64" / "seed0"
    assert {e["labels"] for e in json.loads((run / "result_finetune.json").read_text())} == {
        1524, 3057, 4592,
    }  # fmt: skip
    before = (run / "result.json").stat().st_mtime_ns
    again = reproduce(project_root, *arguments, "--only=dcco_64")
    assert "0 runs to do, 1 done" in again.stdout
    assert (run / "result.json").stat().st_mtime_ns == before
    report = (tmp_path / "report.md").read_text()
    assert "not measured" in report
    assert "published" in report
    assert (tmp_path / "report.html").stat().st_size < 1_000_000
    other = reproduce(project_root, *arguments[:2], "--rounds=3", *arguments[3:])
    assert other.returncode != 0
    assert "another reproduction" in other.stderr
    assert pathlib.Path(tmp_path / "partitions").exists()
