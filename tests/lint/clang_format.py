#!/usr/bin/env python3
"""Fails when clang-format 14 would change a file, and shows what."""

import argparse
import difflib
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import cpp_source

VERSION = "14"


def formatter():
    for name in (f"clang-format-{VERSION}", "clang-format"):
        if shutil.which(name):
            return name
    sys.exit("clang-format is not installed. Run ./dev deps.")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", required=True)
    args = parser.parse_args()
    tool = formatter()
    banner = subprocess.run([tool, "--version"], check=True, capture_output=True, text=True).stdout
    version = re.search(r"version (\d+)", banner).group(1)

    def difference(path):
        full = os.path.join(args.root, path)
        with open(full, encoding="utf-8") as file:
            before = file.read()
        done = subprocess.run([tool, "--style=file", full], capture_output=True, text=True)
        if done.returncode != 0:
            return f"{path}: {done.stderr}"
        lines = difflib.unified_diff(
            before.splitlines(True), done.stdout.splitlines(True), path, path + " (formatted)", n=1
        )
        return "".join(lines)

    paths = list(cpp_source.cpp_files(args.root))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        differences = [text for text in pool.map(difference, paths) if text]
    sys.stdout.write("".join(differences))
    print(f"clang-format: {len(paths)} files, {len(differences)} differ; ./dev fmt formats them")
    if differences and version != VERSION:
        print(f"this is clang-format {version}; the tree is formatted with {VERSION} and others may disagree with it")
    return 1 if differences or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
