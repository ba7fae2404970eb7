#!/usr/bin/env python3
"""Random operations on one file, each compared with a model in memory; runs in the guest, where FILE lies on an NFS mount.

Reads, writes (also through a mapping), truncates both ways, syncs, reopens and drops caches, in an order that the seed decides.
Lengths and offsets gather around the places where servers err: 0, 4, pages, 64 KiB. At the end the file is compared whole, also
with the server's own copy. The first difference prints the operations before it and exits with 1.
"""
import argparse
import mmap
import os
import random
import sys

LENGTH_MAX = 300_000
EDGES = [0, 1, 3, 4, 1000, 1024, 4096, 8192, 65536, 131072, 262144]


def near_an_edge(chance, limit):
    """A number from 0 to limit: half of the time a few octets from an edge, else anywhere."""
    if chance.random() < 0.5:
        number = chance.choice(EDGES) + chance.randint(-5, 5)
    else:
        number = chance.randint(0, limit)
    return max(0, min(number, limit))


class File:
    """The file under test and its model."""

    def __init__(self, path, direct):
        self.path, self.direct = path, direct
        self.model = bytearray()
        self.descriptor = -1
        self.open(os.O_CREAT | os.O_TRUNC)

    def open(self, more=0):
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = os.open(self.path, os.O_RDWR | more | (os.O_DIRECT if self.direct else 0), 0o644)

    def write(self, offset, data):
        written = 0
        while written < len(data):
            written += os.pwrite(self.descriptor, data[written:], offset + written)
        self.place(offset, data)

    def write_mapped(self, offset, data):
        if offset + len(data) > len(self.model) or not data:
            return
        with mmap.mmap(self.descriptor, len(self.model)) as mapping:
            mapping[offset : offset + len(data)] = data
            mapping.flush()
        self.place(offset, data)

    def place(self, offset, data):
        if not data:
            return
        if len(self.model) < offset:
            self.model.extend(bytes(offset - len(self.model)))
        self.model[offset : offset + len(data)] = data

    def truncate(self, length):
        os.ftruncate(self.descriptor, length)
        del self.model[length:]
        self.model.extend(bytes(length - len(self.model)))

    def read(self, offset, length):
        got = bytearray()
        while len(got) < length:
            piece = os.pread(self.descriptor, length - len(got), offset + len(got))
            if not piece:
                break
            got += piece
        compare(f"read of {length} at {offset}", got, self.model[offset : offset + length], offset)


def compare(what, got, expected, offset=0):
    if got == expected:
        return
    if len(got) != len(expected):
        raise AssertionError(f"{what}: got {len(got)} octets, expected {len(expected)}")
    at = next(i for i, (a, b) in enumerate(zip(got, expected)) if a != b)
    raise AssertionError(f"{what}: differs at {offset + at}: got {got[at:at+8].hex()}, expected {expected[at:at+8].hex()}")


def step(file, chance):
    """One operation; returns what it was."""
    kind = chance.choices(["write", "read", "truncate", "map", "sync", "reopen", "drop"], [35, 40, 8, 6, 4, 4, 2])[0]
    offset = near_an_edge(chance, LENGTH_MAX)
    length = min(near_an_edge(chance, 70_000), LENGTH_MAX - offset)
    if kind == "map" and file.direct:
        kind = "write"
    if kind == "write":
        file.write(offset, chance.randbytes(length))
    elif kind == "map":
        file.write_mapped(offset, chance.randbytes(length))
    elif kind == "read":
        file.read(offset, length)
    elif kind == "truncate":
        file.truncate(offset)
    elif kind == "sync":
        os.fsync(file.descriptor)
    elif kind == "reopen":
        file.open()
    else:
        os.fsync(file.descriptor)
        with open("/proc/sys/vm/drop_caches", "w") as drop:
            drop.write("3")
    return f"{kind} {offset} {length}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--operations", type=int, default=400)
    parser.add_argument("--direct", action="store_true", help="O_DIRECT: every operation is a call to the server")
    parser.add_argument("--backing", help="the server's own copy of the file")
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    file = File(arguments.file, arguments.direct)
    history = []
    try:
        for _ in range(arguments.operations):
            history.append(step(file, chance))
        file.read(0, LENGTH_MAX + 1)
        os.fsync(file.descriptor)
        if arguments.backing:
            with open(arguments.backing, "rb") as backing:
                compare("the server's copy", backing.read(), bytes(file.model))
    except (AssertionError, OSError) as fault:
        print(f"after {'; '.join(history[-5:])}")
        print(f"seed {arguments.seed}, operation {len(history)}: {fault}")
        return 1
    return 0


sys.exit(main())
