#!/usr/bin/env python3
"""Holds handles of a mount while its server is killed and forgets them, then asks for each of them at once.

Usage: stale-handles.py DIR FLAG…   DIR is in the mount, which has noac: every question is a call. Waits for the file FLAG before asking.

Prints how long after the reconnection the answers came, and exits with 1 if the last was later than a second (ten where the guest is
emulated: its clock runs on while it does not; added to it: what the same questions take without a kill), if any answer is not ESTALE, or
if something does not answer at all.
"""

import errno
import os
import sys
import threading
import time

HANDLES = 5  # of each kind
GIVE_UP_SECONDS = 60


def answer_seconds():
    """The time for all answers after the reconnection. A call that hangs takes a minute."""
    with open("/proc/cpuinfo") as info:
        return 10.0 if "QEMU TCG" in info.read() else 1.0


def connections(mount):
    """The count of connections that the transport of the mount has made."""
    mine = False
    with open("/proc/self/mountstats") as stats:
        for line in stats:
            words = line.split()
            if words[:1] == ["device"]:
                mine = words[4] == mount
            elif mine and words[:1] == ["xprt:"]:
                return int(words[4])
    return 0


def mount_of(path):
    while not os.path.ismount(path):
        path = os.path.dirname(path)
    return path


def make(top):
    """Yields a name and a question for each handle."""
    for i in range(HANDLES):
        path = f"{top}/file-{i}"
        with open(path, "wb") as file:
            file.write(b"content" * 2000)
        reader = os.open(path, os.O_RDONLY | os.O_DIRECT)
        writer = os.open(path, os.O_WRONLY | os.O_DIRECT)
        os.mkdir(f"{top}/directory-{i}")
        directory = os.open(f"{top}/directory-{i}", os.O_RDONLY | os.O_DIRECTORY)
        yield f"getattr {i}", lambda fd=reader: os.fstat(fd)
        yield f"read {i}", lambda fd=reader: os.pread(fd, 4096, 0)
        yield f"write {i}", lambda fd=writer: os.pwrite(fd, b"new" * 1000, 0)
        yield f"readdir {i}", lambda fd=directory: os.listdir(fd)
        yield f"create {i}", lambda fd=directory: os.mkdir(f"at-{time.monotonic()}", dir_fd=fd)


def ask_all(questions, deadline):
    """Asks everything at once; returns what was said and when, by name. What does not answer by the deadline is missing."""
    answers = {}

    def ask(name, question):
        try:
            question()
            said = "worked"
        except OSError as error:
            said = errno.errorcode[error.errno]
        answers[name] = (said, time.monotonic())

    # A thread that hangs in the kernel must not keep this waiting.
    threads = [threading.Thread(target=ask, args=question, daemon=True) for question in questions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0, deadline - time.monotonic()))
    return dict(answers)


def main():
    top, flag = sys.argv[1:]
    mount = mount_of(os.path.realpath(top))
    questions = list(make(top))
    begun = time.monotonic()
    alive = ask_all(questions, begun + GIVE_UP_SECONDS)
    alive_seconds = time.monotonic() - begun
    allowed = answer_seconds() + alive_seconds
    if [name for name, _ in questions if alive.get(name, ("",))[0] != "worked"]:
        sys.exit(f"the questions do not even work: {alive}")
    before, reconnected = connections(mount), []
    print(f"holds {len(questions)} handles, all asked in {alive_seconds:.3f} s", flush=True)
    while not os.path.exists(flag):
        time.sleep(0.02)
    killed = time.monotonic()

    def watch():
        while not reconnected and time.monotonic() < killed + GIVE_UP_SECONDS:
            if connections(mount) > before:
                reconnected.append(time.monotonic())
            time.sleep(0.01)

    threading.Thread(target=watch, daemon=True).start()
    answers = ask_all(questions, killed + GIVE_UP_SECONDS)
    wrong = [f"{name}: {said}" for name, (said, _) in sorted(answers.items()) if said != "ESTALE"]
    wrong += [f"no answer: {name}" for name, _ in questions if name not in answers]
    if not reconnected:
        wrong.append(f"no reconnection within {GIVE_UP_SECONDS} s")
    elif answers:
        times = sorted(max(0, at - reconnected[0]) for _, at in answers.values())
        print(
            f"reconnected {reconnected[0] - killed:.2f} s after the kill; {len(answers)} answers, after {times[0]:.3f} s the first,"
            f" {times[len(times) // 2]:.3f} s half of them, {times[-1]:.3f} s the last (allowed: {allowed:.3f} s)"
        )
        if times[-1] > allowed:
            wrong.append("the last answer came too late")
    print("; ".join(wrong[:8]))
    sys.stdout.flush()
    os._exit(1 if wrong else 0)


main()
