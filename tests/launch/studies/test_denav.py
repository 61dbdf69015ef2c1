"""Table 2 of DeNAV compares methods at the rates that its trials have chosen."""

from launch.studies import denav_table2
from launch.studies.engine.runner import effective_flags
from tff_ssl.reporting import records, report


def rates_of(experiment):
    return {
        cell.name: effective_flags(cell.flags)["hparam.client_learning_rate"]
        for cell in experiment.cells
    }


def test_rates_are_those_that_the_trials_have_chosen(project_root, monkeypatch):
    monkeypatch.chdir(project_root)  # From which cells name presets.
    trials = denav_table2.denav_table2_rates("cpu", None, None)
    measured = records.read_file(project_root / "measured" / "denav_table2_rates-cpu.jsonl")
    chosen = report.choose_cells(measured, trials)
    tried, used = rates_of(trials), rates_of(denav_table2.denav_table2("cpu", None, None))
    assert len(chosen) == len(used) / 2 == 6
    for cell in chosen.values():
        method = cell.partition("_")[0]
        assert used[f"{method}_iid"] == used[f"{method}_noniid"] == tried[cell]
