"""scripts/requirements.py on small lists and results."""

import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import requirements  # noqa: E402

LIST = """# Numbers
## Decisions
- D1 One
## S0: expiry
- S0-1 First
- S0-12 Twelfth
## Cases
- C003 Three
- C038 Thirty-eight
"""
JUNIT = """<?xml version="1.0"?>
<testsuite name="x">
 <testcase name="Sweep.C038_S0_12_RenewalWins" status="run"/>
 <testcase name="Sweep.D1_Fails" status="fail"><failure message="no"/></testcase>
 <testcase name="Sweep.S0_1_Skipped" status="notrun"><skipped message="no"/></testcase>
 <testcase name="labelled" status="run"/>
</testsuite>
"""


class Requirements(unittest.TestCase):
    def test_numbers_are_whole_words(self):
        self.assertEqual(requirements.numbers_in("Sweep.C038_S0_12_RenewalWins"), {"C038", "S0-12"})
        self.assertEqual(requirements.numbers_in("A.D1_S4_5_C001_C002"), {"D1", "S4-5", "C001", "C002"})
        self.assertEqual(requirements.numbers_in("S0-9"), {"S0-9"})
        for name in ("AC038", "C0381", "C03", "XS0_1", "S0_1a", "D1x", "ABCD1", "Case038", "s0_1"):
            self.assertEqual(requirements.numbers_in(name), set(), name)

    def test_only_tests_that_ran_and_passed_count(self):
        passed = requirements.passed_tests(JUNIT)
        self.assertEqual(passed, {"Sweep.C038_S0_12_RenewalWins", "labelled"})
        evidence = requirements.shown(passed, {})
        self.assertEqual(set(evidence), {"C038", "S0-12"})

    def test_labels_count_like_names(self):
        listing = {
            "tests": [
                {"name": "labelled", "properties": [{"name": "LABELS", "value": ["postgres", "S0-1"]}]},
                {"name": "Sweep.D1_Fails", "properties": [{"name": "LABELS", "value": ["C003"]}]},
            ]
        }
        evidence = requirements.shown(requirements.passed_tests(JUNIT), requirements.labels_of(listing))
        self.assertEqual(evidence["S0-1"], ["labelled"])
        self.assertNotIn("C003", evidence)

    def test_the_report_names_what_is_missing_and_ends_with_the_sum(self):
        report = requirements.report(LIST, requirements.shown(requirements.passed_tests(JUNIT), {}), False)
        self.assertIn("  D1     One", report)
        self.assertIn("  S0-1   First", report)
        self.assertNotIn("Twelfth", report)
        self.assertEqual(report.splitlines()[-1], "requirements: 1 of 3 shown; cases: 1 of 2 shown")

    def test_a_number_that_is_not_in_the_list_is_told(self):
        self.assertIn("unknown number C999", requirements.report(LIST, {"C999": ["A.C999"]}, False))

    def test_a_number_written_twice_is_refused(self):
        with self.assertRaises(ValueError):
            requirements.read_numbers("- C001 a\n- C001 b\n")

    def test_the_real_list_is_complete(self):
        text = (ROOT / "docs/requirements.md").read_text(encoding="utf-8")
        numbers = requirements.read_numbers(text)
        for source, last in (("S0", 44), ("S1", 34), ("S3", 36), ("S4", 29)):
            self.assertEqual([n for n in numbers if n.startswith(source)], [f"{source}-{i}" for i in range(1, last + 1)])
        self.assertEqual([n for n in numbers if n.startswith("D")], [f"D{i}" for i in range(1, 19)])
        self.assertEqual(sum(n.startswith("C") for n in numbers), 87)
        # Whatever looks like an entry is one: a typo must not drop a number silently.
        self.assertEqual(len(numbers), sum(line.startswith("- ") for line in text.splitlines()))


if __name__ == "__main__":
    unittest.main()
