#!/usr/bin/env python3
"""What callers may do to files and directories of many owners and modes, as one line of text per operation.

Run in a directory of the server's file system and in a mount of it, the outputs are equal if the server judges as the file system does.

Usage: permission-table.py make DIR        makes DIR/CALLER with the objects, for every caller; needs root
       permission-table.py run DIR CALLER  tries all operations on the caller's objects, as that caller (see CALLERS)
       permission-table.py run DIR CALLER as-is  the same as whoever runs this: the caller is what a server takes it for

A line is `object operation: result`; the result is "ok", what was made as uid:gid mode, or the name of the errno.
"""

import errno
import os
import stat
import sys

USER, STRANGER, SHARED, NOBODY = 1234, 4321, 5678, 65534

# Who tries: the user, the group, the supplementary groups; None: the user that runs this.
CALLERS = {
    "user": (USER, USER, []),
    "user_in_group": (USER, USER, [5677, SHARED, 5679]),
    "nobody": (NOBODY, NOBODY, []),  # what a squashed root is
    "root": None,
}

OWNERS = {"owned": (USER, USER), "shared": (STRANGER, SHARED), "foreign": (STRANGER, STRANGER)}

# By owner: all bits of the classes that decide for one of the callers, then nothing in that class and everything in the others.
MODES = {
    "owned": [bits << 6 for bits in range(8)] + [0o077],
    "shared": [bits << 3 for bits in range(8)] + [0o707, 0o770],
    "foreign": list(range(8)) + [0o770],
}
SPECIAL_FILES = {"setuid": (STRANGER, STRANGER, 0o4777), "setgid": (STRANGER, SHARED, 0o2777)}
SPECIAL_DIRECTORIES = {"sticky": (0, 0, 0o1777), "setgid": (0, SHARED, 0o2777), "open": (0, 0, 0o777)}


def write(path, owner, mode):
    with open(path, "w") as file:
        file.write("content\n")
    os.chown(path, *owner)
    os.chmod(path, mode)


def make_directory(path, owner, mode):
    """Whoever owns the directory, what is in it belongs to the stranger and is open to all: the directory alone decides."""
    os.mkdir(path)
    for name in ("file", "victim", "moved", "over"):
        write(f"{path}/{name}", (STRANGER, STRANGER), 0o666)
    os.mkdir(f"{path}/inner")
    os.chmod(f"{path}/inner", 0o777)
    os.chown(path, *owner)
    os.chmod(path, mode)


def make(top):
    os.umask(0)
    for caller in CALLERS:
        base = f"{top}/{caller}"
        os.makedirs(base)
        make_directory(f"{base}/own", (CALLERS[caller] or (0, 0))[:2], 0o777)
        for name, (uid, gid, mode) in SPECIAL_DIRECTORIES.items():
            make_directory(f"{base}/{name}", (uid, gid), mode)
        for name, (uid, gid, mode) in SPECIAL_FILES.items():
            write(f"{base}/file-{name}", (uid, gid), mode)
        for owner_name, owner in OWNERS.items():
            for mode in MODES[owner_name]:
                write(f"{base}/file-{owner_name}-{mode:03o}", owner, mode)
                make_directory(f"{base}/dir-{owner_name}-{mode:03o}", owner, mode)


def made(path):
    found = os.lstat(path)
    return f"{found.st_uid}:{found.st_gid} {stat.S_IMODE(found.st_mode):o}"


def open_and(path, flags, act=lambda fd: None):
    fd = os.open(path, flags, 0o640)
    try:
        act(fd)
    finally:
        os.close(fd)


def create(path):
    open_and(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    return made(path)


def make_inner(path):
    os.mkdir(path, 0o750)
    return made(path)


def make_link(path):
    os.symlink("nowhere", path)
    return made(path).split()[0]


def write_and_flush(fd):
    os.write(fd, b"CONTENT\n")
    os.fsync(fd)


def access(path, mode):
    return "yes" if os.access(path, mode, effective_ids=True) else "no"


def operations_on_file(path, base):
    yield "may_read", lambda: access(path, os.R_OK)
    yield "may_write", lambda: access(path, os.W_OK)
    yield "may_execute", lambda: access(path, os.X_OK)
    yield "stat", lambda: made(path)
    yield "read", lambda: open_and(path, os.O_RDONLY, lambda fd: os.read(fd, 100))
    yield "write", lambda: open_and(path, os.O_WRONLY, write_and_flush)
    yield "read_write", lambda: open_and(path, os.O_RDWR, write_and_flush)
    yield "append", lambda: open_and(path, os.O_WRONLY | os.O_APPEND, write_and_flush)
    yield "truncate", lambda: os.truncate(path, 3)
    yield "open_truncating", lambda: open_and(path, os.O_WRONLY | os.O_TRUNC)
    yield "set_time_to_now", lambda: os.utime(path)
    yield "set_time", lambda: os.utime(path, (1000000000, 1000000000))
    yield "link", lambda: os.link(path, f"{base}/own/link-{os.path.basename(path)}")
    yield "chgrp_to_shared", lambda: os.chown(path, -1, SHARED)
    yield "chown_to_nobody", lambda: os.chown(path, NOBODY, -1)
    yield "chmod", lambda: os.chmod(path, 0o604)
    yield "stat_after", lambda: made(path)
    yield "read_after", lambda: open_and(path, os.O_RDONLY, lambda fd: os.read(fd, 100))
    yield "write_after", lambda: open_and(path, os.O_WRONLY, write_and_flush)


def operations_on_directory(path, base):
    yield "may_read", lambda: access(path, os.R_OK)
    # ACCESS has no bit for writing without searching: servers answer MODIFY, EXTEND and DELETE for what takes both.
    yield "may_change", lambda: access(path, os.W_OK | os.X_OK)
    yield "may_search", lambda: access(path, os.X_OK)
    yield "list", lambda: ",".join(sorted(os.listdir(path)))
    yield "stat_in_it", lambda: made(f"{path}/file")
    yield "stat_of_nothing", lambda: made(f"{path}/nothing")
    yield "read_in_it", lambda: open_and(f"{path}/file", os.O_RDONLY, lambda fd: os.read(fd, 100))
    yield "write_in_it", lambda: open_and(f"{path}/file", os.O_WRONLY, write_and_flush)
    yield "create", lambda: create(f"{path}/created")
    yield "mkdir", lambda: make_inner(f"{path}/made")
    yield "symlink", lambda: make_link(f"{path}/pointer")
    yield "mkfifo", lambda: os.mkfifo(f"{path}/pipe", 0o666)
    yield "remove", lambda: os.unlink(f"{path}/victim")
    yield "rename_in_it", lambda: os.rename(f"{path}/moved", f"{path}/renamed")
    yield "rename_over", lambda: os.rename(f"{base}/own/file", f"{path}/over")
    yield "rename_out", lambda: os.rename(f"{path}/file", f"{base}/own/file")
    yield "rmdir", lambda: os.rmdir(f"{path}/inner")
    yield "set_time_to_now", lambda: os.utime(path)
    yield "chmod", lambda: os.chmod(path, 0o705)
    yield "list_after", lambda: ",".join(sorted(os.listdir(path)))


def run(top, caller, identity):
    base = f"{top}/{caller}"
    os.umask(0)
    # Who the caller is judged to be begins here: the way to this directory may be closed to it.
    os.chdir(base)
    names = sorted(os.listdir("."))
    if identity is not None:
        uid, gid, groups = identity
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    for name in names:
        operations = operations_on_file if name.startswith("file-") else operations_on_directory
        for operation, act in operations(name, "."):
            try:
                result = act() or "ok"
            except OSError as error:
                result = errno.errorcode[error.errno]
            print(f"{name} {operation}: {result}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["make", top]:
            make(top)
        case ["run", top, caller] if caller in CALLERS:
            run(top, caller, CALLERS[caller])
        case ["run", top, caller, "as-is"] if caller in CALLERS:
            run(top, caller, None)
        case _:
            sys.exit(__doc__)
