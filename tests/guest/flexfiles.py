#!/usr/bin/env python3
"""Reads and writes files of a mount with flexible file layouts, and goes on with them when they are fenced. Runs in the guest.

Usage: flexfiles.py MOUNT HOST   HOST holds the file `octets`, and gets each file as it has to be on the data server in `models`.

Prints `ok NAME` or `not ok NAME: WHY` for each check and `N passed, N failed` at the end; the exit code is 1 if one failed.
"""

import errno
import os
import random
import sys

MIB = 1 << 20
mount, host = sys.argv[1:]
with open(f"{host}/octets", "rb") as given:
    octets = given.read()
failed = passed = 0


def check(function):
    global failed, passed
    name = function.__name__
    try:
        function(f"{mount}/{name}", f"{host}/models/{name}")
    except (AssertionError, OSError) as error:
        failed += 1
        print(f"not ok {name}: {error}", flush=True)
    else:
        passed += 1
        print(f"ok {name}", flush=True)


def write(path, content, flags=os.O_WRONLY | os.O_CREAT, offset=0):
    file = os.open(path, flags, 0o644)
    try:
        put(file, content, offset)
    finally:
        os.close(file)


def put(file, content, offset):
    """Writes and waits until it is stable, or failed."""
    assert os.pwrite(file, content, offset) == len(content)
    os.fsync(file)


def read(path):
    with open("/proc/sys/vm/drop_caches", "w") as caches:
        caches.write("3")
    with open(path, "rb") as file:
        return file.read()


@check
def whole(path, model):
    for place in (path, model):
        write(place, octets)
    assert read(path) == octets, "other octets came back"


@check
def pieces(path, model):
    """Pieces of odd lengths at odd places, over each other and beyond the end, and the file made shorter and longer."""
    dice = random.Random(1)
    for place in (path, model):
        write(place, octets[:MIB])
    for _ in range(40):
        offset, length = dice.randrange(3 * MIB), dice.randrange(1, 70_000)
        for place in (path, model):
            write(place, octets[offset : offset + length], os.O_WRONLY, offset // 2)
    for place in (path, model):
        os.truncate(place, MIB + 17)
        os.truncate(place, 2 * MIB + 1)
        write(place, b"the end", os.O_WRONLY, 2 * MIB)
    with open(model, "rb") as file:
        assert read(path) == file.read(), "other octets came back"


@check
def direct(path, model):
    """Past the client's cache, so each write is one WRITE, and each read one READ."""
    for place in (path, model):
        write(place, octets[:MIB], os.O_WRONLY | os.O_CREAT | (os.O_DIRECT if place == path else 0))
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    assert b"".join(os.pread(file, 65536, at) for at in range(0, MIB, 65536)) == octets[:MIB], "other octets came back"
    os.close(file)


@check
def given_to_another(path, model):
    """A change of the mode gives the data another owner: the old layout is refused, the next one names the new owner."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    put(file, b"by the first owner", 0)
    os.chmod(path, 0o600)
    put(file, b"by the second", 4096)
    os.close(file)
    write(model, b"by the first owner")
    write(model, b"by the second", os.O_WRONLY, 4096)
    assert read(path)[4096:] == b"by the second"


@check
def fenced(path, model):
    """With mode 0 the data goes to an owner of whom no layout tells: who has the file open writes no more."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    put(file, b"before", 0)
    write(model, b"before")
    os.chmod(path, 0)
    try:
        put(file, b"after", 4096)
    except OSError as error:
        assert error.errno == errno.EACCES, error
    else:
        raise AssertionError("a write was taken behind the fence")
    finally:
        os.close(file)


print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
