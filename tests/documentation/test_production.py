"""The programs on the page on production stacks work as they are printed."""

import re

import pytest

from tests.documentation.pages import blocks
from tests.documentation.test_tff_programs import run
from tff_ssl import client


def of_page(language):
    return [block.text for block in blocks(language) if block.page == "docs/production.md"]


@pytest.mark.long
@pytest.mark.slow
def test_a_package_trains_in_a_loop_of_plain_arrays(tmp_path, project_root):
    command, _ = of_page("bash")
    (program,), (sketch,) = of_page("python"), of_page("kotlin")
    run(command.split()[3:], tmp_path, project_root)
    losses = [
        float(line.split()[1]) for line in run(["-c", program], tmp_path, project_root).splitlines()
    ]
    assert len(set(losses)) == 3
    stage = client.load(tmp_path / "package").manifest["stages"][0]
    names = {value["name"] for value in stage["up"]} | {
        "images",
        "example_ids",
        "seed",
        "statistics",
    }
    of_sketch = set(re.findall(r'"(\w+)"', sketch)) | set(re.findall(r"statistics_\w+", sketch))
    assert of_sketch <= names
