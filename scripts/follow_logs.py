#!/usr/bin/env python3
"""Prints log files merged, each line behind the file's name, until it is stopped."""

import argparse
import os
import sys
import time


class LogFile:
    def __init__(self, path, lines):
        self.name = os.path.basename(path).removesuffix(".log")
        self.path = path
        self.stream = open(path, "rb")
        self.rest = b""
        whole = self.stream.read()
        if not lines:
            self.pending = []
        else:
            self.pending = whole.splitlines()[-lines:]

    def new_lines(self):
        lines, self.pending = self.pending, []
        # A log that was cut short is read from its start.
        if os.fstat(self.stream.fileno()).st_size < self.stream.tell():
            self.stream.seek(0)
            self.rest = b""
        *whole, self.rest = (self.rest + self.stream.read()).split(b"\n")
        return lines + whole


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=0, help="earlier lines to show of each file")
    parser.add_argument("files", nargs="+")
    args = parser.parse_args()
    logs = [LogFile(path, args.lines) for path in args.files]
    width = max(len(log.name) for log in logs)
    out = sys.stdout.buffer
    while True:
        for log in logs:
            for line in log.new_lines():
                out.write(f"{log.name:<{width}} | ".encode() + line + b"\n")
        out.flush()
        time.sleep(0.2)


if __name__ == "__main__":
    try:
        main()
    except (KeyboardInterrupt, BrokenPipeError):
        os._exit(0)
