#!/usr/bin/env python3
"""Prints which numbered requirements and cases the last test run has shown.

A number of docs/requirements.md counts only where a test that carries it in its name or ctest label ran and passed in
the last `./dev test`. Numbers are whole words: C03 is not C038, S0_1 is not S0_12.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ENTRY = re.compile(r"^- (S\d-\d+|D\d+|C\d{3}) (.+)$", re.MULTILINE)
HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
NUMBER = re.compile(r"(?<![0-9A-Za-z])(?:(S\d)[-_](\d+)|(D\d+|C\d{3}))(?![0-9A-Za-z])")


def read_numbers(text):
    """{number: title} in the order of the document; a number written twice is an error."""
    numbers = {}
    for number, title in ENTRY.findall(text):
        if number in numbers:
            raise ValueError(f"{number} stands twice in the list")
        numbers[number] = title
    return numbers


def read_groups(text):
    """[(heading, [numbers])] of the document."""
    parts = HEADING.split(text)[1:]
    return [(title, [n for n, _ in ENTRY.findall(body)]) for title, body in zip(parts[::2], parts[1::2])]


def numbers_in(name):
    # What GoogleTest appends of a parameter is data, not a claim.
    name = name.partition("# GetParam()")[0]
    return {(f"{s}-{n}" if s else other) for s, n, other in NUMBER.findall(name)}


def passed_tests(junit):
    """Names of the tests that ran and passed."""
    passed = set()
    for case in ElementTree.fromstring(junit).iter("testcase"):
        if case.get("status") == "run" and not any(case.find(tag) is not None for tag in ("failure", "error", "skipped")):
            passed.add(case.get("name"))
    return passed


def labels_of(listing):
    """{test name: [labels]} from `ctest --show-only=json-v1`."""
    labels = {}
    for test in listing["tests"]:
        for prop in test.get("properties", []):
            if prop["name"] == "LABELS":
                labels.setdefault(test["name"], []).extend(prop["value"])
    return labels


def shown(passed, labels):
    """{number: [tests that show it]}."""
    result = {}
    for test in sorted(passed):
        for number in set().union(numbers_in(test), *(numbers_in(label) for label in labels.get(test, []))):
            result.setdefault(number, []).append(test)
    return result


def report(text, evidence, tests):
    numbers = read_numbers(text)
    lines = []
    for heading, group in read_groups(text):
        missing = [n for n in group if n not in evidence]
        if group and missing:
            lines.append(f"{heading}: {len(missing)} of {len(group)} without a passed test")
            lines += [f"  {n:<6} {numbers[n]}" for n in missing]
            lines.append("")
    for number in sorted(set(evidence) - set(numbers)):
        lines.append(f"unknown number {number} in {', '.join(evidence[number])}: not in docs/requirements.md")
    if tests:
        for number in (n for n in numbers if n in evidence):
            lines.append(f"  {number:<6} shown by {', '.join(evidence[number])}")
    cases = [n for n in numbers if n.startswith("C")]
    others = [n for n in numbers if not n.startswith("C")]
    lines.append(
        f"requirements: {sum(n in evidence for n in others)} of {len(others)} shown; "
        f"cases: {sum(n in evidence for n in cases)} of {len(cases)} shown"
    )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", action="store_true", help="also list which tests show each number")
    parser.add_argument("--list", default=os.path.join(ROOT, "docs/requirements.md"))
    parser.add_argument("--build", default=os.path.join(ROOT, ".dev/build/dev"))
    args = parser.parse_args()
    result = os.path.join(args.build, "ctest.xml")
    if not os.path.exists(result):
        sys.exit("dev: no test run to read. Run ./dev test first.")
    with open(result, encoding="utf-8") as file:
        passed = passed_tests(file.read())
    listing = subprocess.run(
        ["ctest", "--test-dir", args.build, "--show-only=json-v1"], check=True, capture_output=True, text=True
    ).stdout
    with open(args.list, encoding="utf-8") as file:
        text = file.read()
    print(report(text, shown(passed, labels_of(json.loads(listing))), args.tests))


if __name__ == "__main__":
    main()
