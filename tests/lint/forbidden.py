#!/usr/bin/env python3
"""Rejects calls and texts that break a rule of the tree: bare clocks and sleeps, SQL in C++, tests that test nothing."""

import argparse
import os
import re
import sys

import cpp_source

CLOCK_FILES = ("common/base/clock.cc", "common/base/periodic.cc")

# (pattern over code without comments and strings, exempt files, what to do instead)
CALLS = [
    (r"\babsl\s*::\s*Now\s*\(", CLOCK_FILES, "absl::Now: take a tenure::Clock"),
    (r"\bstd\s*::\s*chrono\s*::[\w\s:]*::\s*now\s*\(", CLOCK_FILES, "std::chrono clock: take a tenure::Clock"),
    (r"\b(?:system|steady|high_resolution)_clock\s*::\s*now\s*\(", CLOCK_FILES, "std::chrono clock: take a tenure::Clock"),
    (r"\b(?:std\s*::\s*)?this_thread\s*::\s*sleep_(?:for|until)\s*\(|\bsleep_(?:for|until)\s*\(", CLOCK_FILES, "sleep: wait on a condition, or use common/base/periodic.h"),
    (r"\babsl\s*::\s*SleepFor\s*\(", CLOCK_FILES, "sleep: wait on a condition, or use common/base/periodic.h"),
    (r"(?<![\w.>])(?:::\s*)?u?sleep\s*\(|\bnanosleep\s*\(|\bclock_nanosleep\s*\(", CLOCK_FILES, "sleep: wait on a condition, or use common/base/periodic.h"),
    (r"(?<![\w.>])(?:std\s*::\s*|::\s*)?(?:time|gettimeofday|clock_gettime)\s*\(\s*(?:NULL|nullptr|0|&|CLOCK_)", CLOCK_FILES, "C clock: take a tenure::Clock"),
]
# tenure::SleepFor paces product code; a test that sleeps is slow or flaky, mostly both.
TEST_SLEEP = re.compile(r"\bSleepFor\s*\(")
MAY_SLEEP = ("tests/support/", "tests/bench/", "common/base/periodic")
TEST_CALLS = [
    (r"\bGTEST_SKIP\s*\(", "GTEST_SKIP: a test that cannot run fails"),
    (r"\b(?:EXPECT|ASSERT)_TRUE\s*\(\s*true\s*\)|\b(?:EXPECT|ASSERT)_FALSE\s*\(\s*false\s*\)|\bSUCCEED\s*\(", "an expectation that cannot fail"),
    (r"\bDISABLED_\w+", "DISABLED_: repair the test or remove it"),
]
# Capitals mean SQL anywhere in a string; small letters only where a statement starts the string, since help texts
# use the words too.
SQL = re.compile(
    r"\bSELECT\s+[\w*($:'\"]|\bINSERT\s+INTO\b|\bUPDATE\s+[\w.\"]+\s+(?:AS\s+\w+\s+)?SET\b|\bDELETE\s+FROM\b|\bMERGE\s+INTO\b"
    r"|^\s*(?i:select\s+[\w*(].*\bfrom\b|insert\s+into\s|update\s+\w+\s+set\s|delete\s+from\s)",
    re.DOTALL,
)


def check_file(path, text):
    test = cpp_source.is_test(path)
    code = cpp_source.code_only(text)
    for pattern, exempt, message in CALLS:
        if path in exempt:
            continue
        for match in re.finditer(pattern, code):
            yield cpp_source.line_of(text, match.start()), message
    for pattern, message in TEST_CALLS:
        for match in re.finditer(pattern, code):
            yield cpp_source.line_of(text, match.start()), message
    if test and not path.startswith(MAY_SLEEP):
        for match in TEST_SLEEP.finditer(code):
            yield cpp_source.line_of(text, match.start()), "sleep in a test: wait on a TestSignal"
    if not test:
        for line, value in cpp_source.strings(text):
            if SQL.search(re.sub(r"\\[nt]", " ", value)):
                yield line, "SQL text: put the statement into a .sql file and embed it with tenure_sql()"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", required=True)
    args = parser.parse_args()
    count, found = 0, False
    for path in cpp_source.cpp_files(args.root):
        count += 1
        with open(os.path.join(args.root, path), encoding="utf-8") as file:
            text = file.read()
        for line, message in sorted(set(check_file(path, text))):
            found = True
            print(f"{path}:{line}: {message}")
    if count == 0:
        print("forbidden: no C++ file found; is --root right?")
    else:
        print(f"forbidden: {count} files")
    return 1 if found or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
