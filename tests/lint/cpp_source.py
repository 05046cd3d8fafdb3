"""Reads C++ sources for the lint checks: which files, and what in them is code, comment or string."""

import os
import re

SKIPPED_DIRS = {".git", ".dev", "node_modules", "build", "__pycache__"}


def cpp_files(root):
    """Paths from the root, with forward slashes, of every C++ file of the tree."""
    for directory, subdirs, files in os.walk(root):
        subdirs[:] = sorted(d for d in subdirs if d not in SKIPPED_DIRS)
        for name in sorted(files):
            if name.endswith((".cc", ".h")):
                yield os.path.relpath(os.path.join(directory, name), root).replace(os.sep, "/")


def is_test(path):
    """Whether a file is test code: under tests/, or a *_test.cc that stands beside the code it tests."""
    return path.startswith("tests/") or path.endswith("_test.cc")


TOKEN = re.compile(
    r"""
      (?P<comment>//(?:\\\n|[^\n])*|/\*.*?\*/)
    | (?P<raw>(?:u8|[uUL])?R"(?P<delim>[^()\\\s]{0,16})\((?P<rawbody>.*?)\)(?P=delim)")
    | (?P<string>(?:u8|[uUL])?"(?P<body>(?:\\.|[^"\\\n])*)")
    | (?P<char>(?<![0-9A-Za-z_])(?:u8|[uUL])?'(?:\\.|[^'\\\n])+')
    """,
    re.VERBOSE | re.DOTALL,
)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def includes(text):
    """(line, path, is_system) of every #include."""
    for match in INCLUDE.finditer(_blank(text, strings=False)):
        yield line_of(text, match.start()), match.group(2), match.group(1) == "<"


def code_only(text):
    """The text with comments and the contents of strings blanked; offsets and lines stay."""
    return _blank(text, strings=True)


def strings(text):
    """(line, value) of every string literal, adjacent ones joined as the compiler does."""
    last_end, last = None, None
    for match in TOKEN.finditer(text):
        if match.group("raw") is not None:
            value = match.group("rawbody")
        elif match.group("string") is not None:
            value = match.group("body")
        else:
            continue
        if last is not None and _blank(text[last_end : match.start()], strings=False).strip() == "":
            last[1] += value
        else:
            if last is not None:
                yield tuple(last)
            last = [line_of(text, match.start()), value]
        last_end = match.end()
    if last is not None:
        yield tuple(last)


def _blank(text, strings):
    def blanked(match):
        if match.group("comment") is None and not strings:
            return match.group(0)
        return re.sub(r"[^\n]", " ", match.group(0))

    return TOKEN.sub(blanked, text)
