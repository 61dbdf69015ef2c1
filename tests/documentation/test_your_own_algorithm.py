"""The code of docs/your_own_algorithm.md works as it is printed."""

import json
import re
import sys
import types

import pytest

import tff_ssl.algorithms
from launch.options import choices, presets
from tests.launch import configs
from tff_ssl.algorithms import registry


@pytest.fixture
def blocks(project_root):
    text = (project_root / "docs" / "your_own_algorithm.md").read_text()
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@pytest.fixture
def mixed(blocks, monkeypatch):
    """The algorithm of the page as a module, with its entry in the registry."""
    name = "tff_ssl.algorithms.mixed"
    module = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(tff_ssl.algorithms, "mixed", module, raising=False)
    exec(compile(blocks[0], "mixed.py", "exec"), module.__dict__)
    entry = eval("{" + blocks[1] + "}", {**vars(registry), "mixed": module})
    for key, value in entry.items():
        monkeypatch.setitem(registry.ALGORITHMS, key, value)
    return module


@pytest.mark.slow
def test_the_tests_of_the_page_pass(mixed, blocks, worker, small_algorithm):
    namespace = {}
    exec(compile(blocks[2], "test_mixed.py", "exec"), namespace)
    tests = [function for name, function in namespace.items() if name.startswith("test_")]
    assert len(tests) == 2
    for function in tests:
        function(worker, small_algorithm)


@pytest.mark.slow
def test_the_scripts_offer_it(mixed, project_root, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(project_root)
    from launch import lower
    from launch.runs import federated

    assert presets.of_algorithm("mixed").name == "stateful_clients.flags"
    small = ("--encoder=tiny", "--projector=8", "--rounds=1", "--num_clients=2",
             "--clients_per_round=2", "--personalized_clients=1", "--labels_per_class=1",
             "--label_draws=1", "--baselines=", "--eval_every=0")  # fmt: skip
    flags = (f"--flagfile={presets.of_algorithm('mixed')}", "--algorithm=mixed", *small)
    federated.pretrain(configs.run(*flags, f"--output_dir={tmp_path / 'run'}"))
    entry, *_ = json.loads((tmp_path / "run" / "result.json").read_text())
    assert entry["algorithm"] == "mixed"
    assert entry["clients"] == 2
    lower.main(configs.run(*flags, f"--output_dir={tmp_path / 'lowered'}", script="lower"))
    choices.print_all()
    assert (tmp_path / "lowered" / "round_with_stored_states" / "map_reduce").is_dir()
    assert "algorithm mixed  clients that start from a mixture" in capsys.readouterr().out
