#!/usr/bin/env python3
"""Processes that hold locks and write, and one that unpacks an archive, while their server is killed. Runs in the guest: recover.py ONE TWO
HOST ROUNDS HOLDERS.

ONE and TWO are mounts of the same export by two clients. The host kills the server when HOST/talk/kill-N appears, and renames that to
done-N when it runs again. HOST/models holds afterwards what each file has to hold."""

import errno
import fcntl
import multiprocessing
import os
import random
import struct
import subprocess
import sys
import tempfile
import time

LOCKED = 100  # octets that are locked, at an offset of each process's own
RECORD = 4096
WAIT_SECONDS = 120
FILES = 120  # of the archive, each in one of a few directories


def lock_of(number):
    """The range that a process locks."""
    return number * 1000, LOCKED


def try_lock(file, number):
    """Returns true if somebody else has the lock."""
    offset, length = lock_of(number)
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, length, offset)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return True
        raise
    fcntl.lockf(file, fcntl.LOCK_UN, length, offset)
    return False


def hold(directory, models, number, ready, done, is_over):
    """Holds a lock and writes records, until it is told to end; says how many are stable."""
    try:
        with open(f"{directory}/{number}", "w+b", buffering=0) as file, open(f"{models}/{number}", "wb") as model:
            offset, length = lock_of(number)
            fcntl.lockf(file, fcntl.LOCK_EX, length, offset)
            ready.release()
            count = 0
            while not is_over.is_set():
                record = struct.pack("<QQ", number, count) * (RECORD // 16)
                os.pwrite(file.fileno(), record, count * RECORD)
                model.write(record)
                count += 1
                if count % 4 == 0:
                    os.fsync(file.fileno())
                    done.value = count
                time.sleep(0.01)
            os.fsync(file.fileno())
            fcntl.lockf(file, fcntl.LOCK_UN, length, offset)
    except OSError as error:
        print(f"not ok: process {number}: {error}", flush=True)
        sys.exit(1)


def make_archive(path):
    """An archive of files of many lengths, with symbolic and hard links."""
    chance = random.Random(1)
    with tempfile.TemporaryDirectory() as tree:
        for number in range(FILES):
            directory = f"{tree}/{number % 7}/{number % 3}"
            os.makedirs(directory, exist_ok=True)
            with open(f"{directory}/{number}", "wb") as file:
                file.write(chance.randbytes(chance.choice([0, 1, 4096, 5000, 70000])))
            if number % 10 == 0:
                os.symlink(str(number), f"{directory}/{number}-symbolic")
                os.link(f"{directory}/{number}", f"{directory}/{number}-hard")
        subprocess.run(["tar", "-cf", path, "-C", tree, "."], check=True)


def unpack(directory, archive, unpacked, is_over):
    """Unpacks the archive, compares it with what is there, and removes that, again and again."""
    while not is_over.is_set():
        tree = f"{directory}/tree"
        # A server that is killed between the work and its reply does the work again when the client asks again: what is there is no error
        # of a mkdir, and what is gone is none of a removal. tar sees to the former itself.
        os.makedirs(tree, exist_ok=True)
        for command in [
            ["tar", "-xf", archive, "-C", tree],
            ["tar", "-df", archive, "-C", tree],
            ["rm", "-rf", tree],
        ]:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode != 0:
                print(f"not ok: {' '.join(command)}: {done.stdout[-300:]}", flush=True)
                sys.exit(1)
        unpacked.value += 1


def await_that(what, is_so):
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            print(f"not ok: {what} within {WAIT_SECONDS} s", flush=True)
            sys.exit(1)
        time.sleep(0.05)


def kill_once(host, turn):
    asked, done = f"{host}/talk/kill-{turn}", f"{host}/talk/done-{turn}"
    open(asked, "w").close()
    await_that("the server was not killed and started", lambda: os.path.exists(done))


def lost(directory, holders):
    """Numbers of locks that the second client would get."""
    free = []
    for number in range(holders):
        with open(f"{directory}/{number}", "r+b", buffering=0) as file:
            if not try_lock(file, number):
                free.append(number)
    return free


def main():
    one, two, host, rounds, holders = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
    ready, is_over = multiprocessing.Semaphore(0), multiprocessing.Event()
    done = [multiprocessing.Value("q", 0) for _ in range(holders)]
    processes = [
        multiprocessing.Process(target=hold, args=(one, f"{host}/models", number, ready, done[number], is_over))
        for number in range(holders)
    ]
    for process in processes:
        process.start()
    unpacked = multiprocessing.Value("q", 0)
    archive = f"{tempfile.mkdtemp(dir='/dev/shm')}/archive"
    make_archive(archive)
    unpacker = multiprocessing.Process(target=unpack, args=(one, archive, unpacked, is_over))
    unpacker.start()
    for _ in processes:
        if not ready.acquire(timeout=WAIT_SECONDS):
            print("not ok: a process has not got its lock", flush=True)
            sys.exit(1)
    failures = [f"lock {number} is free before any kill" for number in lost(two, holders)]
    passed = 0
    for turn in range(rounds):
        begun = time.monotonic()
        kill_once(host, turn)
        before = [value.value for value in done]
        await_that("a process did not go on", lambda: all(now.value > then + 4 for now, then in zip(done, before)))
        free = lost(two, holders)
        failures += [f"lock {number} is lost after kill {turn}" for number in free]
        passed += not free
        print(f"kill {turn}: {holders - len(free)} of {holders} locks kept, writes go on after {time.monotonic() - begun:.1f} s", flush=True)
    is_over.set()
    for number, process in enumerate(processes):
        process.join(WAIT_SECONDS)
        if process.exitcode != 0:
            failures.append(f"process {number} ended with {process.exitcode}")
    # As slow as the last turn of everything.
    unpacker.join(2 * WAIT_SECONDS)
    if unpacker.exitcode != 0:
        failures.append(f"the process that unpacks ended with {unpacker.exitcode}")
    print(f"unpacked, compared and removed {unpacked.value} times", flush=True)
    if unpacked.value == 0:
        failures.append("the archive was never unpacked")
    if len(lost(two, holders)) != holders:
        failures.append("a lock is held although its process has ended")
    for number in range(holders):
        with open(f"{two}/{number}", "rb") as file, open(f"{host}/models/{number}", "rb") as model:
            if file.read() != model.read():
                failures.append(f"file {number} holds something else than was written")
    for failure in failures:
        print(f"not ok: {failure}", flush=True)
    print(f"{passed} passed, {len(failures)} failed", flush=True)
    sys.exit(1 if failures else 0)


main()
