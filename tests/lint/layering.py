#!/usr/bin/env python3
"""Checks the dependency direction of docs/rules.md in the includes and in the link graph.

    base -> domain -> (db, rpc, http, obs, providers) -> store -> services/host -> services and tools

A file includes its own layer and those before it. The layers in brackets may use each other as long as no circle of
folders arises. One service never includes another.
"""

import argparse
import json
import os
import sys

import cpp_source

RANKS = {
    "proto": 0,
    "common/base": 1,
    "common/domain": 2,
    "common/db": 3,
    "common/rpc": 3,
    "common/http": 3,
    "common/obs": 3,
    "common/providers": 3,
    "common/store": 4,
    # What the three mains share; a service builds on it, it knows no service.
    "services/host": 5,
    "services": 6,
    "tools": 6,
}
SAME_RANK_MAY_MIX = 3
# What the pure rules may know of the wire: the facts and the subscription they fold into.
DOMAIN_PROTOS = (
    "tenure/subscription/v1/fact.pb.h",
    "tenure/subscription/v1/fold_state.pb.h",
    "tenure/subscription/v1/subscription.pb.h",
)


def layer_of(path):
    """The layer of a path from the root, or None for tests/ and what has no layer."""
    parts = path.split("/")
    if parts[0] == "common" and len(parts) > 1:
        layer = "/".join(parts[:2])
        return layer if layer in RANKS else None
    if parts[0] in ("services", "tools") and len(parts) > 1:
        return "/".join(parts[:2])
    if parts[0] == "proto":
        return "proto"
    return None


def rank_of(layer):
    return RANKS[layer] if layer in RANKS else RANKS[layer.split("/")[0]]


def may_use(user, used):
    """Whether layer `user` may use layer `used`."""
    if user == used:
        return True
    if rank_of(used) == rank_of(user):
        return rank_of(user) == SAME_RANK_MAY_MIX
    return rank_of(used) < rank_of(user)


def circle(edges):
    """A circle in {node: {node}} as a list of nodes, or None."""
    done, path = set(), []

    def visit(node):
        if node in path:
            return path[path.index(node) :] + [node]
        if node in done:
            return None
        path.append(node)
        for following in sorted(edges.get(node, ())):
            found = visit(following)
            if found:
                return found
        path.pop()
        done.add(node)
        return None

    for start in sorted(edges):
        found = visit(start)
        if found:
            return found
    return None


def check_includes(root):
    problems, mixed = [], {}
    for path in cpp_files_with_layer(root):
        layer = layer_of(path)
        test = cpp_source.is_test(path)
        with open(os.path.join(root, path), encoding="utf-8") as file:
            text = file.read()
        for line, included, is_system in cpp_source.includes(text):
            for problem in include_problems(path, layer, test, included):
                problems.append(f"{path}:{line}: {problem}")
            target = layer_of(included)
            if target and not test and target != layer and rank_of(target) == rank_of(layer) == SAME_RANK_MAY_MIX:
                mixed.setdefault(layer, set()).add(target)
    found = circle(mixed)
    if found:
        problems.append("folders include each other in a circle: " + " -> ".join(found))
    return problems


def cpp_files_with_layer(root):
    return (path for path in cpp_source.cpp_files(root) if layer_of(path))


def include_problems(path, layer, test, included):
    if included.startswith("tests/"):
        if not test:
            yield f"product code includes {included}; the test library is for tests only"
        return
    if included.startswith("pqxx/") and layer not in ("common/db", "common/store"):
        yield "<pqxx/...> belongs to common/db and common/store only; use common/db's types"
    if included.startswith("nlohmann/") and path != "common/base/json.cc" and not test:
        yield "nlohmann is used in common/base/json.cc only; use common/base/json.h"
    if included.startswith("boost/") and not (layer == "common/http" and path.endswith(".cc")) and not test:
        yield "Boost is used in the .cc files of common/http only; use common/http's types"
    if layer == "common/domain" and not test:
        if included.endswith(".pb.h") and included not in DOMAIN_PROTOS and not included.startswith("google/protobuf/"):
            yield f"common/domain knows only the protos of facts and subscriptions, not {included}"
        if included.startswith(("grpc", "prometheus/", "openssl/", "libpq")):
            yield f"common/domain is pure and does not include {included}"
    if layer == "common/base" and included.startswith(("grpc/", "grpcpp/")):
        yield f"common/base does not include {included}; gRPC belongs to common/rpc"
    target = layer_of(included)
    if target and not may_use(layer, target):
        yield f"{layer} may not include {target} ({included})"


def check_links(graph):
    """graph: {target: {"dir": path from the root, "links": [names]}} as tests/lint/CMakeLists.txt writes it."""
    problems, mixed = [], {}
    tests = {
        name
        for name, target in graph.items()
        if target["dir"].startswith("tests") or "tenure_test_main" in target["links"]
    }
    for name, target in sorted(graph.items()):
        layer = layer_of(target["dir"] + "/x")
        if layer is None:
            continue
        for linked in target["links"]:
            if linked not in graph:
                if layer == "common/domain" and name not in tests and linked.startswith(("gRPC::", "PkgConfig::", "Boost::")):
                    problems.append(f"{name} ({target['dir']}): common/domain links nothing but base and facts, not {linked}")
                continue
            used = layer_of(graph[linked]["dir"] + "/x")
            if linked in tests:
                if name not in tests:
                    problems.append(f"{name} ({target['dir']}) links {linked}, which is test code")
            elif used and not may_use(layer, used):
                problems.append(f"{name} ({target['dir']}) links upwards: {linked} ({graph[linked]['dir']})")
            elif used and name not in tests and used != layer and rank_of(used) == rank_of(layer) == SAME_RANK_MAY_MIX:
                mixed.setdefault(layer, set()).add(used)
    found = circle(mixed)
    if found:
        problems.append("targets of these folders link each other in a circle: " + " -> ".join(found))
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True)
    parser.add_argument("--link-graph", help="JSON written by CMake; without it only the includes are checked")
    args = parser.parse_args()
    problems = check_includes(args.root)
    count = sum(1 for _ in cpp_files_with_layer(args.root))
    if args.link_graph:
        with open(args.link_graph, encoding="utf-8") as file:
            graph = json.load(file)
        problems += check_links(graph)
        print(f"layering: {count} files, {len(graph)} targets")
    for problem in problems:
        print(problem)
    if count == 0:
        print("layering: no C++ file found; is --root right?")
    return 1 if problems or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
