"""The comparison of all methods is of all methods, and fair."""

import pytest

from launch.studies import all_methods
from launch.studies.engine.runner import effective_flags
from tff_ssl.algorithms import registry
from tff_ssl.reporting import records, report


def flags_of(experiment):
    return {cell.name: effective_flags(cell.flags) for cell in experiment.cells}


@pytest.fixture(autouse=True)
def at_the_root(project_root, monkeypatch):
    """Changes to the project's root, from which cells name presets."""
    monkeypatch.chdir(project_root)


def test_every_algorithm_with_a_server_is_compared():
    compared = {flags["algorithm"] for flags in flags_of(
        all_methods.all_methods("cpu", None, None)).values()}  # fmt: skip
    without = {"denav", "gossip", "all_reduce", "dfedavg"}
    assert compared == registry.ALGORITHMS.keys() - without


def test_rates_are_those_that_the_trials_have_chosen(project_root):
    trials = all_methods.all_methods_rates("cpu", None, None)
    measured = records.read_file(project_root / "measured" / "all_methods_rates-cpu.jsonl")
    chosen = report.choose_cells(measured, trials)
    cells = flags_of(trials)
    compared = flags_of(all_methods.all_methods("cpu", None, None))
    assert len(chosen) == len(compared) / 2
    for cell in chosen.values():
        trial = cells[cell]
        # On five clients, the run of the comparison is the trial itself.
        assert compared[f"{trial['algorithm']}_5"] == trial


@pytest.mark.parametrize("scale", ["cpu", "paper"])
def test_all_methods_see_as_many_images(scale):
    images = {"cpu": 0.0512 * 50_000, "paper": 50_000}[scale]  # Of the five clients together.
    seen = {}
    for name, flags in flags_of(all_methods.all_methods(scale, None, None)).items():
        clients = int(flags["clients_per_round"])
        own = int(flags.get("samples_per_client", images / 5))
        if "hparam.examples_per_round" in flags:
            own = int(flags["hparam.examples_per_round"])
        epochs = int(flags.get("hparam.local_epochs", 1))
        seen.setdefault(name.rpartition("_")[2], set()).add(
            clients * own * epochs * int(flags["rounds"])
        )
    assert {len(counts) for counts in seen.values()} == {1}
    assert scale == "paper" or seen == {"5": {51_200}, "100": {51_200}}


def test_methods_differ_in_nothing_but_their_own_flags():
    own = {
        "algorithm", "objective", "norm", "projector_output_batch_norm", "encoders", "rad_size",
        "personalized_clients", "rounds", "eval_every", "checkpoint_every",
    }  # fmt: skip
    for clients in ("5", "100"):
        rest = [
            {k: v for k, v in flags.items() if k not in own and not k.startswith("hparam.")}
            for name, flags in flags_of(all_methods.all_methods("cpu", None, None)).items()
            if name.endswith(f"_{clients}")
        ]
        assert all(flags == rest[0] for flags in rest)


def test_presets_of_cifar10_have_the_settings_of_the_comparison():
    presets = flags_of(all_methods.cifar10_presets("cpu", None, None))
    assert len(presets) == 3 * len(registry.ALGORITHMS)
    # The architectures of Hetero-SSFL differ, and how the run is evaluated.
    others = {"encoders", "personalized_clients", "norm", "label_draws", "baselines"}
    others |= {"eval_every", "checkpoint_every"}
    for name, flags in flags_of(all_methods.all_methods("cpu", None, None)).items():
        if name.endswith("_5"):
            preset = presets[f"{flags['algorithm']}_two_classes"]
            assert {*flags.items()} - {*preset.items()} <= {(n, flags.get(n)) for n in others}
            assert preset.get("norm", "group") == flags["norm"]
