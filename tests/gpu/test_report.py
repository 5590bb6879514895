"""The report of the GPU tests counts what ran, and never calls the rest passed."""

from pathlib import Path

from scripts import gpu_report

JUNIT = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest">
<testcase classname="tests.gpu.a" name="one"/>
<testcase classname="tests.gpu.a" name="two"><properties>
  <property name="host-agreement" value="llama3 bfloat16: 0 of 8 elements differ"/>
</properties></testcase>
<testcase classname="tests.gpu.b" name="three"><failure message="q differs"/></testcase>
<testcase classname="tests.gpu.b" name="four"><error message="at teardown"/></testcase>
<testcase classname="tests.gpu.c" name="five"><skipped message="not run: refused"/></testcase>
<testcase classname="tests.gpu.c" name="six"><skipped message="not run: refused"/></testcase>
</testsuite></testsuites>
"""


def test_report_counts_each_test_once(tmp_path: Path) -> None:
    junit = tmp_path / "junit.xml"
    junit.write_text(JUNIT)
    results = gpu_report.read_junit(junit)
    assert results["passed"] == 2
    assert results["failed"] == ["tests.gpu.b::three", "tests.gpu.b::four"]
    assert results["not_run"] == {"not run: refused": 2}
    text = gpu_report.as_markdown(
        {
            "device": "A GPU",
            "architecture": "sm_90",
            "date": "2026-01-02 03:04 UTC",
            "seconds": 61.4,
            "versions": {"torch": "2.11.0"},
            **results,
        }
    )
    assert "2026-01-02 03:04 UTC, `make test-gpu`, 61 s: 2 passed, 2 failed, 2 not run." in text
    assert "- 2: not run: refused" in text
    assert "## Host-agreement\n\n- llama3 bfloat16: 0 of 8 elements differ" in text


def test_versions_are_those_of_this_interpreter() -> None:
    found = gpu_report.versions()
    assert found["torch"][0].isdigit()
    assert found["python"].count(".") == 2
