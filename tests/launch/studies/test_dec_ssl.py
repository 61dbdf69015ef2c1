"""The sweeps of the Dec-SSL paper: their runs see as many images; what counts as stable."""

import json

import numpy as np
import pytest
from scipy import stats

from launch.studies import catalog, dec_ssl
from launch.studies.engine.runner import effective_flags
from launch.studies.engine.study import At
from tff_ssl.reporting.measured import Selector, Value, select
from tff_ssl.reporting.records import read_file
from tff_ssl.reporting.verdicts import check

_IMAGES = 50_000  # Training images of the CIFARs.


@pytest.fixture(autouse=True)
def at_the_root(project_root, monkeypatch):
    """Changes to the project's root, from which cells name presets."""
    monkeypatch.chdir(project_root)


def _passes(flags):
    """Images that all clients see in all rounds, on average over the clients of a round."""
    clients = int(flags["num_clients"])
    images = int(flags.get("samples_per_client", _IMAGES / clients))
    taking_part = int(flags.get("clients_per_round", clients))  # All without a server.
    epochs = int(flags["hparam.local_epochs"])
    fraction = float(flags.get("data_fraction", 1))
    return int(flags["rounds"]) * taking_part * epochs * images * fraction


def _all_passes(name, scale):
    cells = catalog.EXPERIMENTS[name][0](scale, None, None).cells
    return {cell.name: _passes(effective_flags(cell.flags)) for cell in cells}


@pytest.mark.parametrize(("scale", "expected"), [("cpu", 50_000), ("paper", 25_000_000)])
@pytest.mark.parametrize("name", ["dec_ssl_clients", "dec_ssl_transfer", "dec_ssl_figure12"])
def test_all_runs_of_a_sweep_see_as_many_images(name, scale, expected):
    for cell, passes in _all_passes(name, scale).items():
        # The 100 clients have 6400 images in place of 5000 at CPU scale, and whole rounds.
        bound = 0.3 if scale == "cpu" and "_100_" in cell else 1e-6
        assert passes == pytest.approx(expected, rel=bound), cell


@pytest.mark.parametrize(("scale", "expected"), [("cpu", 50_000), ("paper", 25_000_000)])
def test_budgets_and_shares_of_the_images_are_those_of_their_names(scale, expected):
    for cell, passes in _all_passes("dec_ssl_figure6", scale).items():
        assert passes == expected * (2 if cell.endswith("_of20") else 1), cell
    for cell, passes in _all_passes("dec_ssl_robustness", scale).items():
        share = cell.removeprefix("nt_xent_")
        factor = float(share) if share.startswith("0.") else 1
        assert passes == pytest.approx(expected * factor), cell


@pytest.mark.parametrize(
    ("best", "worst", "expected"),
    [
        (0.40, 0.36, "holds"),
        (0.40, 0.34, "does not hold"),
        (0.40, 0.352, "not shown"),
        (0.26, 0.28, "does not hold"),  # It has learned nothing.
    ],
)
def test_a_stable_method_keeps_more_than_half_of_its_gain(best, worst, expected):
    at = At("cpu", "cifar10", None)
    table = dec_ssl.accuracies(at, "t", ("best", "worst"), {"method": ("a", "b")})
    (claim,) = dec_ssl.keeps(table, "method")
    figures = {
        ("method", "best"): best, ("method", "worst"): worst,
        ("(untrained encoder)", "best"): 0.30, ("(untrained encoder)", "worst"): 0.30,
    }  # fmt: skip
    values = {key: Value(figure, 0.002, 3, 0) for key, figure in figures.items()}
    assert check(claim, table, values) == expected


def test_contrastive_learning_is_above_the_masked_autoencoder_as_noted(project_root):
    folder = project_root / "measured"

    def by_seed(name, cell):
        runs = read_file(folder / f"{name}-cpu.jsonl").runs[cell]
        found = select(runs, Selector("linear", 5000)).by_seed
        return 100 * np.array([found[seed] for seed in range(5)])

    lines = map(json.loads, (folder / "noted.jsonl").read_text().splitlines())
    (noted,) = (line["rows"] for line in lines if "masked autoencoder (dec_ssl" in line["what"])
    (claim,) = (one for one in catalog.CLAIMS if one.name == "S27")
    deciding = [number.p_value for number in claim.trials[0].numbers]
    cells = (("epochs1_of20", 2), ("epochs10_of20", 20), ("epochs2", 2))
    p_values = []
    for (ours, epochs), (mean, interval) in zip(cells, noted.values(), strict=True):
        other = by_seed("dec_ssl_figure7", f"mae_alpha0.02_epochs{epochs}")
        differences = by_seed("dec_ssl_figure6", f"nt_xent_{ours}") - other
        low, high = stats.t.interval(0.95, 4, np.mean(differences), stats.sem(differences))
        assert f"{np.mean(differences):.1f}" == mean
        assert f"{low:.1f} to {high:.1f}" == interval
        p_values.append(stats.ttest_1samp(differences, 0).pvalue)
    assert p_values[:2] == pytest.approx(deciding, abs=5e-5)
