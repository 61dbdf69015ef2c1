"""The report on known vulnerabilities of the pins."""

import importlib.machinery
import importlib.util

import pytest


@pytest.fixture
def report(project_root):
    path = str(project_root / ".ci" / "check_vulnerabilities")
    loader = importlib.machinery.SourceFileLoader("check_vulnerabilities", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module._report


SKIPPED = {"name": "absl-py", "skip_reason": "not found"}
SAFE = {"name": "numpy", "version": "1.25.2", "vulns": []}
KNOWN = {
    "name": "keras",
    "version": "2.14.0",
    "vulns": [{"id": "X-1", "fix_versions": ["3.1", "3.2"]}, {"id": "X-2", "fix_versions": []}],
}


@pytest.mark.parametrize("packages", [[], [SKIPPED], [SKIPPED, SKIPPED]])
def test_a_database_out_of_reach_is_not_taken_for_no_findings(report, packages):
    assert report("pins.txt", packages) == [
        "pins.txt: vulnerabilities not checked: pip-audit or its database is out of reach"
    ]


def test_findings_are_counted_and_named(report):
    assert report("pins.txt", [SAFE]) == ["pins.txt: 0 known vulnerabilities in 1 packages"]
    assert report("pins.txt", [SAFE, KNOWN, SKIPPED]) == [
        "pins.txt: 2 known vulnerabilities in 2 packages",
        "  keras 2.14.0: X-1, fixed in 3.1, 3.2",
        "  keras 2.14.0: X-2, fixed in no version",
        "  not checked: absl-py",
    ]


@pytest.mark.parametrize("name", ["requirements.txt", "requirements_extras.txt"])
def test_every_pin_has_a_hash_and_no_address(project_root, name):
    text = (project_root / name).read_text()
    pins = [pin for pin in text.replace("\\\n", " ").splitlines() if not pin.startswith("#")]
    assert len(pins) > 100
    assert all("==" in pin and "--hash=sha256:" in pin for pin in pins)
    assert "://" not in text
