#!/usr/bin/env python3
"""Fails when a .cc file belongs to no target: source lists are explicit, and a forgotten test never fails."""

import argparse
import json
import sys

import cpp_source

# Built by the preset fuzz alone.
OTHER_PRESETS = ("tests/fuzz/",)


def unbuilt(paths, graph):
    built = {source for target in graph.values() for source in target.get("sources", [])}
    return [path for path in paths if path.endswith(".cc") and not path.startswith(OTHER_PRESETS) and path not in built]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", required=True)
    parser.add_argument("--link-graph", required=True, help="JSON written by CMake")
    args = parser.parse_args()
    with open(args.link_graph, encoding="utf-8") as file:
        graph = json.load(file)
    paths = list(cpp_source.cpp_files(args.root))
    missing = unbuilt(paths, graph)
    for path in missing:
        print(f"{path}: in no target; add it to the SOURCES of its folder's CMakeLists.txt")
    print(f"unbuilt: {len(paths)} files, {len(missing)} in no target")
    return 1 if missing or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
