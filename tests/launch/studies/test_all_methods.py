"""The comparison of all methods is of all methods, and fair."""

import pytest

from launch.studies import all_methods
from launch.studies.engine.runner import effective_flags
from tff_ssl.algorithms import registry
from tff_ssl.reporting import records, report

RATES = ("hparam.client_learning_rate", "hparam.server_learning_rate")


def compared_at(scale):
    return all_methods.all_methods(scale, None, None)


def flags_of(experiment):
    return {cell.name: effective_flags(cell.flags) for cell in experiment.cells}


@pytest.fixture(autouse=True)
def at_the_root(project_root, monkeypatch):
    """Changes to the project's root, from which cells name presets."""
    monkeypatch.chdir(project_root)


def test_every_algorithm_with_a_server_is_compared():
    compared = {flags["algorithm"] for flags in flags_of(compared_at("cpu")).values()}
    without = {"denav", "gossip", "all_reduce", "dfedavg"}
    assert compared == registry.ALGORITHMS.keys() - without


def test_the_runs_with_a_hundred_clients_have_the_chosen_rates(project_root):
    compared = compared_at("cpu")
    measured = records.read_file(project_root / "measured" / "all_methods-cpu.jsonl")
    chosen = report.choose_cells(measured, compared)
    flags = flags_of(compared)
    of_rank = compared.tables[1]  # Which has no rows but the methods'.
    assert of_rank.rows.keys() == chosen.keys()
    for choice, of_100 in of_rank.rows.values():
        assert rates(flags[chosen[choice]]) == rates(flags[of_100]), choice


def rates(flags):
    return {name: rate for name, rate in flags.items() if name in RATES}


def test_methods_are_tried_with_as_many_rates():
    compared = compared_at("cpu")
    flags = flags_of(compared)
    for cells in compared.choices.values():
        tried = [flags[cell] for cell in cells]
        assert len({tuple(rates(one).values()) for one in tried}) == len(tried) == 4
        rest = [{k: v for k, v in one.items() if k not in RATES} for one in tried]
        assert all(one == rest[0] for one in rest)


@pytest.mark.parametrize("scale", ["cpu", "paper"])
def test_all_methods_see_as_many_images(scale):
    images = {"cpu": 0.0512 * 50_000, "paper": 50_000}[scale]  # Of the five clients together.
    seen = {}
    for flags in flags_of(compared_at(scale)).values():
        clients = int(flags["clients_per_round"])
        own = int(flags.get("samples_per_client", images / 5))
        if "hparam.examples_per_round" in flags:
            own = int(flags["hparam.examples_per_round"])
        epochs = int(flags.get("hparam.local_epochs", 1))
        seen.setdefault(flags["num_clients"], set()).add(
            clients * own * epochs * int(flags["rounds"])
        )
    assert {len(counts) for counts in seen.values()} == {1}
    assert scale == "paper" or seen == {"5": {102_400}, "100": {102_400}}


def test_methods_differ_in_nothing_but_their_own_flags():
    own = {
        "algorithm", "objective", "norm", "projector_output_batch_norm", "encoders", "rad_size",
        "personalized_clients", "rounds", "eval_every", "checkpoint_every",
    }  # fmt: skip
    for clients in ("5", "100"):
        rest = [
            {k: v for k, v in flags.items() if k not in own and not k.startswith("hparam.")}
            for flags in flags_of(compared_at("cpu")).values()
            if flags["num_clients"] == clients
        ]
        assert all(flags == rest[0] for flags in rest)


def test_presets_of_cifar10_have_the_settings_of_the_comparison():
    # How a run is evaluated differs, and so do the architectures of Hetero-SSFL.
    others = {"encoders", "personalized_clients", "norm", "label_draws", "baselines"}
    others |= {"eval_every", "checkpoint_every"}
    compared = flags_of(compared_at("cpu"))
    folder = "--flagfile=launch/presets/cifar10"
    for method in all_methods._METHODS.values():
        if method.name != method.algorithm:
            continue
        preset = f"{folder}/{method.algorithm}.flags"
        pairs = [(f"{method.name}_{method.rate}", [preset])]
        if not method.name.startswith("dcco"):  # There, 100 clients need more flags.
            pairs.append((f"{method.name}_100", [preset, f"{folder}/clients/dirichlet.flags"]))
        for name, presets in pairs:
            flags, given = compared[name], effective_flags(presets)
            assert {*flags.items()} - {*given.items()} <= {(n, flags.get(n)) for n in others}
            assert given.get("norm", "group") == flags["norm"]


def test_each_preset_of_cifar10_is_measured():
    """Here or in the comparison, with each of three divisions of the images."""
    presets = flags_of(all_methods.cifar10_presets("cpu", None, None))
    measured = [(flags["algorithm"], flags["num_clients"]) for flags in presets.values()]
    assert len({*measured}) == len(measured)
    for method in all_methods._METHODS.values():
        if method.name == method.algorithm and method.name != "hetero_ssfl":
            measured.append((method.name, "5"))
            if not method.name.startswith("dcco"):
                measured.append((method.name, "100"))
    assert len({*measured}) == len(measured) == 3 * len(registry.ALGORITHMS)
