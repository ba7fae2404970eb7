"""Checks of a server of NFS 4.1 and 4.2, which the kernel has mounted by both: the two mounts are two clients, which hold locks, delegations
and caches against each other. Usage: nfs4.py tcp|rdma DIRECTORY, with mounts directory-4.1, directory-4.2, and as many of
watched and memory in it, and root and deep. Over RDMA it checks locks, delegations and what else the server calls back for.
Every check prints `ok NAME` or `not ok NAME: WHY`; the last line is `N passed, N failed`.
`nfs4.py --default-list DIRECTORY` makes a directory with a default access control list.
`nfs4.py --program EXPORT WATCHED` is the program of the server's host, with the exported directories: in the one its locks and a client's
meet, in the other it writes what clients have delegations of."""

import errno
import fcntl
import hashlib
import os
import random
import shutil
import struct
import subprocess
import sys
import tarfile
import time
import traceback

OVER, MOUNTS = sys.argv[1], sys.argv[-1]
FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE = 1, 2
FICLONE = 0x40049409
PATIENCE = 60  # seconds for something that is to happen at last
BOOT_PATIENCE = 240  # seconds until the other end has come so far that it has booted


class Pair:
    """One directory by two mounts."""

    def __init__(self, kind):
        self.kind = kind
        self.one, self.two = (f"{MOUNTS}/{kind}-{version}" for version in ("4.1", "4.2"))

    def paths(self, name):
        return f"{self.one}/{name}", f"{self.two}/{name}"


def octets(count, seed=1):
    return random.Random(seed).randbytes(count)


def write(path, content):
    with open(path, "wb") as file:
        file.write(content)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def refused(number, act):
    """The act fails by this error."""
    try:
        act()
    except OSError as error:
        assert error.errno == number, f"{errno.errorcode[error.errno]}, not {errno.errorcode[number]}"
        return
    raise AssertionError(f"no {errno.errorcode[number]}")


def await_that(what, holds, patience=PATIENCE):
    """Waits for something that happens in a while."""
    end = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < end, f"{what} never came"
        time.sleep(0.02)


def lock(file, kind, start=0, length=0, wait=False):
    """A lock of a process on a range (fcntl)."""
    command = fcntl.F_SETLKW if wait else fcntl.F_SETLK
    fcntl.fcntl(file, command, struct.pack("hhqqi", kind, os.SEEK_SET, start, length, 0))


def holder(file, kind, start=0, length=0):
    """The lock that is in the way: its kind, start and length."""
    answer = fcntl.fcntl(file, fcntl.F_GETLK, struct.pack("hhqqi", kind, os.SEEK_SET, start, length, 0))
    return struct.unpack("hhqqi", answer)[0], *struct.unpack("hhqqi", answer)[2:4]


def in_child(act):
    """Runs in a process of its own, whose locks are its own."""
    child = os.fork()
    if child == 0:
        try:
            act()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return child


def ended_well(child):
    _, status = os.waitpid(child, 0)
    assert status == 0, "the other process failed"


def operations(mounted):
    """How often each operation was called for a mount."""
    counts, is_here = {}, False
    for line in open("/proc/self/mountstats", encoding="utf-8"):
        words = line.split()
        if line.startswith("device"):
            is_here = words[4] == mounted
        elif is_here and len(words) > 8 and words[0].endswith(":") and words[0][:-1].isupper():
            counts[words[0][:-1]] = int(words[1])
    # An OPEN of a file that the client knows has a name of its own there.
    counts["OPEN"] += counts["OPEN_NOATTR"]
    return counts


def await_delegation(mounted, use):
    """Calls `use`, which opens a file, until the client opens it by itself: with several cores the first OPEN may get
    no delegation. Then it does so five times more."""
    def opens():
        before = operations(mounted)["OPEN"]
        use()
        return operations(mounted)["OPEN"] - before

    await_that("a delegation", lambda: opens() == 0)
    assert not any(opens() for _ in range(5)), "a client with a delegation opens by itself"


# ---- The checks.


def check_mounted_versions(_pair):
    mounts = {line.split()[1]: line.split()[3] for line in open("/proc/mounts", encoding="utf-8")}
    for kind in ("directory", "memory"):
        for version in ("4.1", "4.2"):
            options = mounts[f"{MOUNTS}/{kind}-{version}"]
            assert f"vers={version}," in options and f"proto={OVER}" in options, options


def check_root_lists_exports(_pair):
    root = f"{MOUNTS}/root"
    assert sorted(os.listdir(root)) == ["deep", "export", "watched"], os.listdir(root)
    os.listdir(f"{root}/export")  # which goes over into it, as `stat` does not
    above, export = os.stat(root), os.stat(f"{root}/export")
    assert above.st_dev != export.st_dev, "an export is a file system of its own"
    refused(errno.EROFS, lambda: os.mkdir(f"{root}/new"))
    refused(errno.ENOENT, lambda: os.stat(f"{root}/other"))
    # The name of another export has two components: a directory of nothing else leads to it.
    assert os.listdir(f"{root}/deep") == ["down"], os.listdir(f"{root}/deep")
    assert os.listdir(f"{root}/deep/down") == ["below"], os.listdir(f"{root}/deep/down")
    assert read(f"{root}/deep/down/below") == b"content"
    write(f"{root}/deep/down/written", b"written")
    assert read(f"{MOUNTS}/deep/written") == b"written", "the export by itself"
    refused(errno.EROFS, lambda: os.mkdir(f"{root}/deep/new"))
    refused(errno.ENOENT, lambda: os.stat(f"{root}/deep/other"))


def check_close_to_open(pair):
    one, two = pair.paths("close-to-open")
    for length in (0, 1, 4096, 70_001, 3_000_001):
        content = octets(length, length)
        write(one, content)
        assert read(two) == content, length
        write(two, content[::-1])
        assert read(one) == content[::-1], length


def check_names(pair):
    one, two = pair.paths("names")
    os.mkdir(one)
    for number in range(200):
        write(f"{one}/{number}", b"%d" % number)
    assert sorted(map(int, os.listdir(two))) == list(range(200))
    os.rename(f"{two}/7", f"{two}/8")
    os.link(f"{two}/9", f"{two}/linked")
    os.symlink("9", f"{two}/symbolic")
    assert read(f"{one}/8") == b"7" and read(f"{one}/symbolic") == b"9"
    assert os.stat(f"{one}/linked").st_nlink == 2
    refused(errno.EEXIST, lambda: os.open(f"{one}/8", os.O_CREAT | os.O_EXCL | os.O_RDWR))
    refused(errno.ENOENT, lambda: os.stat(f"{one}/7"))
    refused(errno.ENOTEMPTY, lambda: os.rmdir(two))
    shutil.rmtree(one)
    refused(errno.ENOENT, lambda: os.stat(two))


def check_removed_while_open(pair):
    one, _ = pair.paths("removed")
    with open(one, "w+b") as file:
        file.write(b"still here")
        file.flush()
        os.unlink(one)
        file.seek(0)
        assert file.read() == b"still here"
    assert not [name for name in os.listdir(pair.one) if name.startswith(".nfs")]


def check_created_without_right_to_write(pair):
    one, two = pair.paths("creator")
    file = os.open(one, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o400)
    os.write(file, b"written")
    os.close(file)
    assert read(two) == b"written" and os.stat(two).st_mode & 0o777 == 0o400


def give_default_list(directory):
    """Makes a directory that hands its group down, and in which the group may write what is made, whatever the umask."""
    os.mkdir(directory)
    os.chmod(directory, 0o2777)
    entries = [(0x01, 7), (0x04, 7), (0x20, 5)]  # the owner, the group, others
    octets_of = b"".join(struct.pack("<HHI", tag, rights, 0xFFFFFFFF) for tag, rights in entries)
    os.setxattr(directory, "system.posix_acl_default", struct.pack("<I", 2) + octets_of)
    return 0


def check_default_list_wins_over_umask(pair):
    _, listed = pair.paths("listed")  # by 4.2, which has mode_umask
    _, plain = pair.paths("unlisted")
    os.mkdir(plain)

    def make():
        os.umask(0o022)
        for directory in listed, plain:
            os.mkdir(f"{directory}/directory")
            os.close(os.open(f"{directory}/file", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))

    ended_well(in_child(make))
    modes = [oct(os.stat(f"{directory}/{name}").st_mode & 0o7777)
             for directory in (listed, plain) for name in ("directory", "file")]
    assert modes == ["0o2775", "0o664", "0o755", "0o644"], modes


ACL = "system.nfs4_acl"  # as nfs4_getfacl and nfs4_setfacl use it


def aces_of(path):
    """Kind, flags, mask and subject of each entry of a list."""
    value = os.getxattr(path, ACL)
    (count,), at, aces = struct.unpack_from(">I", value), 4, []
    for _ in range(count):
        kind, flags, mask, length = struct.unpack_from(">IIII", value, at)
        aces.append((kind, flags, mask, value[at + 16:at + 16 + length].decode()))
        at += 16 + (length + 3) // 4 * 4
    return aces


def set_aces(path, aces):
    def one(kind, flags, mask, who):
        padded = who.encode() + bytes(-len(who) % 4)
        return struct.pack(">IIII", kind, flags, mask, len(who)) + padded

    os.setxattr(path, ACL, struct.pack(">I", len(aces)) + b"".join(one(*ace) for ace in aces))


def check_access_control_lists(pair):
    user, read_data, inherit = "4711", 0x1, 0x1 | 0x2 | 0x8
    one, two = pair.paths("listed-file")
    write(one, b"for some")
    os.chmod(one, 0o600)

    def by_user(act):
        def as_user():
            os.setgroups([])
            os.setgid(int(user))
            os.setuid(int(user))
            act()
        ended_well(in_child(as_user))

    by_user(lambda: refused(errno.EACCES, lambda: read(one)))
    plain = aces_of(one)
    assert [who for _, _, _, who in plain] == ["OWNER@", "GROUP@", "EVERYONE@"], plain
    set_aces(one, [*plain, (0, 0, read_data, user)])
    assert any(ace[0] == 0 and ace[3] == user and ace[2] & read_data for ace in aces_of(two)), aces_of(two)
    assert os.stat(one).st_mode & 0o777 == 0o640  # the rights of the mask
    by_user(lambda: read(one))
    by_user(lambda: refused(errno.EACCES, lambda: write(one, b"")))
    set_aces(one, plain)
    # A client keeps a list as long as attributes.
    await_that("the list by another client", lambda: aces_of(two) == plain)
    by_user(lambda: refused(errno.EACCES, lambda: read(two)))

    # What a directory passes on; and the list of one file with many entries, which is a long reply.
    there, _ = pair.paths("listed-directory")
    os.mkdir(there)
    set_aces(there, [*aces_of(there), (0, inherit, read_data, user)])
    write(f"{there}/new", b"")
    assert any(ace[3] == user for ace in aces_of(f"{there}/new"))
    set_aces(one, [*plain, *((0, 0, read_data, str(number)) for number in range(5000, 5200))])
    await_that("the long list", lambda: sum(ace[3].isdecimal() and ace[0] == 0 for ace in aces_of(two)) == 200)
    refused(errno.EIO, lambda: set_aces(one, [(2, 0, read_data, "OWNER@")]))  # audit: NFS4ERR_ATTRNOTSUPP, of which Linux knows nothing


def check_locks_of_ranges(pair):
    one, two = pair.paths("ranges")
    write(one, bytes(1000))
    with open(one, "r+b") as here, open(two, "r+b") as there:
        lock(here, fcntl.F_WRLCK, 0, 100)
        lock(here, fcntl.F_UNLCK, 40, 20)

        def other():
            refused(errno.EAGAIN, lambda: lock(there, fcntl.F_RDLCK, 39, 1))
            refused(errno.EAGAIN, lambda: lock(there, fcntl.F_WRLCK, 60, 1))
            assert holder(there, fcntl.F_WRLCK, 0, 1000) == (fcntl.F_WRLCK, 0, 40), holder(there, fcntl.F_WRLCK, 0, 1000)
            lock(there, fcntl.F_WRLCK, 40, 20)
            lock(there, fcntl.F_WRLCK, 100, 0)

        ended_well(in_child(other))
        # Locks end with their process.
        lock(here, fcntl.F_WRLCK, 0, 0)
        lock(here, fcntl.F_RDLCK, 0, 0)
        ended_well(in_child(lambda: lock(there, fcntl.F_RDLCK, 0, 10)))


def check_lock_that_waits(pair):
    one, two = pair.paths("waits")
    write(one, b"")
    with open(one, "r+b") as here, open(two, "r+b") as there:
        lock(here, fcntl.F_WRLCK)

        def other():
            lock(there, fcntl.F_WRLCK, wait=True)
            there.write(b"mine")
            there.flush()
            lock(there, fcntl.F_UNLCK)

        child = in_child(other)
        time.sleep(1)
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "it got a lock that another has"
        lock(here, fcntl.F_UNLCK)
        ended_well(child)
        lock(here, fcntl.F_RDLCK)
        assert here.read() == b"mine", "a lock brings what was written under the one before"


def check_locks_beside_a_program(pair):
    """A client's locks and those of `program` are in each other's way."""
    one, told, unlocked = (f"{pair.one}/{name}" for name in ("beside", "client-has-locked", "program-has-unlocked"))
    await_that("the program's lock", lambda: "program-has-locked" in os.listdir(pair.one))
    with open(one, "r+b") as here:
        refused(errno.EAGAIN, lambda: lock(here, fcntl.F_WRLCK, 150, 1))
        assert holder(here, fcntl.F_RDLCK) == (fcntl.F_WRLCK, 100, 100), holder(here, fcntl.F_RDLCK)
        lock(here, fcntl.F_WRLCK, 0, 50)
        write(told, b"")
        await_that("the program's unlock", lambda: os.path.basename(unlocked) in os.listdir(pair.one))
        lock(here, fcntl.F_WRLCK, 150, 1)


def check_delegations_beside_a_program(pair):
    """A client's delegations and what `program_that_writes` does with their files."""
    for name, content in (("written", b"by the program"), ("replaced", b"by another file")):
        one, two = pair.paths(name)
        write(two, b"first")
        assert read(one) == b"first"
        await_delegation(pair.one, lambda: read(one))
        before = operations(pair.one)
        write(f"{pair.one}/client-has-{name}", b"")
        await_that(f"the program ({name})", lambda: f"program-has-{name}" in os.listdir(pair.one))
        assert operations(pair.one)["DELEGRETURN"] > before["DELEGRETURN"], f"{name}: before the program went on"
        assert read(one) == content


def program_that_writes(watched):
    """The other end of `check_delegations_beside_a_program`, on the server's host."""
    await_that("the client's first delegation", lambda: os.path.exists(f"{watched}/client-has-written"), BOOT_PATIENCE)
    # It waits in the system until the client has returned the delegation.
    write(f"{watched}/written", b"by the program")
    write(f"{watched}/program-has-written", b"")
    await_that("the client's second delegation", lambda: os.path.exists(f"{watched}/client-has-replaced"))
    write(f"{watched}/other", b"by another file")
    os.replace(f"{watched}/other", f"{watched}/replaced")
    # No caller waits for that; the client is notified soon.
    time.sleep(1)
    write(f"{watched}/program-has-replaced", b"")


def program(export, watched):
    program_that_locks(export)
    program_that_writes(watched)


def program_that_locks(export):
    """The other end of `check_locks_beside_a_program`, on the server's host."""
    with open(f"{export}/beside", "w+b") as file:
        os.chmod(file.fileno(), 0o666)
        lock(file, fcntl.F_WRLCK, 100, 100)
        write(f"{export}/program-has-locked", b"")
        await_that("the client's lock", lambda: os.path.exists(f"{export}/client-has-locked"), BOOT_PATIENCE)
        assert holder(file, fcntl.F_RDLCK, 0, 100) == (fcntl.F_WRLCK, 0, 50), holder(file, fcntl.F_RDLCK, 0, 100)
        refused(errno.EAGAIN, lambda: lock(file, fcntl.F_RDLCK, 49, 1))
        lock(file, fcntl.F_UNLCK, 100, 100)
        write(f"{export}/program-has-unlocked", b"")
        await_that("the end of the client's locks", lambda: holder(file, fcntl.F_WRLCK)[0] == fcntl.F_UNLCK)


def check_flock(pair):
    one, two = pair.paths("flock")
    write(one, b"")
    with open(one, "r+b") as here, open(two, "r+b") as there:
        fcntl.flock(here, fcntl.LOCK_EX)
        refused(errno.EAGAIN, lambda: fcntl.flock(there, fcntl.LOCK_SH | fcntl.LOCK_NB))
        fcntl.flock(here, fcntl.LOCK_UN)
        fcntl.flock(here, fcntl.LOCK_SH)
        fcntl.flock(there, fcntl.LOCK_SH | fcntl.LOCK_NB)
        refused(errno.EAGAIN, lambda: fcntl.flock(there, fcntl.LOCK_EX | fcntl.LOCK_NB))


def check_sqlite(pair):
    import sqlite3  # a small Python has none

    one, two = pair.paths("counter.db")
    rounds = 25
    with sqlite3.connect(one, timeout=PATIENCE) as database:
        database.execute("create table counter (value integer)")
        database.execute("insert into counter values (0)")
    database.close()

    def count(path):
        database = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)
        for _ in range(rounds):
            database.execute("begin immediate")
            (value,) = database.execute("select value from counter").fetchone()
            database.execute("update counter set value = ?", (value + 1,))
            database.execute("commit")
        database.close()

    children = [in_child(lambda path=path: count(path)) for path in (one, two)]
    for child in children:
        ended_well(child)
    database = sqlite3.connect(two)
    assert database.execute("select value from counter").fetchone() == (2 * rounds,)
    assert database.execute("pragma integrity_check").fetchone() == ("ok",)
    database.close()


def tree(path):
    """Every file below, with the digest of its content."""
    found = {}
    for directory, _, names in os.walk(path):
        for name in names:
            place = os.path.join(directory, name)
            is_link = os.path.islink(place)
            content = os.readlink(place).encode() if is_link else read(place)
            found[os.path.relpath(place, path)] = hashlib.sha256(content).hexdigest()
    return found


def make_tree(path, files):
    draw = random.Random(files)
    for number in range(files):
        directory = f"{path}/{number % 7}/{number % 11}"
        os.makedirs(directory, exist_ok=True)
        write(f"{directory}/file-{number}", draw.randbytes(draw.choice((0, 10, 1000, 4096, 20_000))))
    os.symlink("0/0/file-0", f"{path}/link")


def check_git(pair):
    source = "/tmp/source"
    make_tree(source, 150)

    def git(*words):
        base = ["git", "-c", "user.name=n", "-c", "user.email=e", "-c", "safe.directory=*", "-c", "gc.auto=0"]
        done = subprocess.run([*base, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"git {words}: {done.stderr[-300:]}"

    git("init", "-q", source)
    git("-C", source, "add", "-A")
    git("-C", source, "commit", "-q", "-m", "all")
    one, two = pair.paths("clone")
    git("clone", "-q", "--no-local", source, one)
    git("-C", two, "fsck", "--full", "--strict")
    git("-C", two, "status")
    shutil.rmtree(f"{source}/.git")
    assert {name: of for name, of in tree(two).items() if not name.startswith(".git/")} == tree(source)
    shutil.rmtree(source)


def check_untar(pair):
    shutil.rmtree("/tmp/tree", ignore_errors=True)
    make_tree("/tmp/tree", 200)
    with tarfile.open("/tmp/tree.tar", "w") as archive:
        archive.add("/tmp/tree", "tree")
    one, two = pair.paths("tree")
    subprocess.run(["tar", "-xf", "/tmp/tree.tar", "-C", pair.one], check=True)
    assert tree(two) == tree("/tmp/tree") == tree(one)
    shutil.rmtree(one)


def make_sources(path, parts):
    """A program in C: each part has its own file and header, all have one, and its output is the sum of what they return."""
    os.makedirs(f"{path}/include")
    write(f"{path}/include/all.h", b"#define BASE 1000\n")
    calls = ""
    for number in range(parts):
        write(f"{path}/include/part{number}.h", f"#define NUMBER {number}\nint part{number}(void);\n".encode())
        source = f'#include "all.h"\n#include "part{number}.h"\nint part{number}(void) {{ return BASE + NUMBER; }}\n'
        write(f"{path}/part{number}.c", source.encode())
        calls += f" + part{number}()"
    headers = "".join(f'#include "part{number}.h"\n#undef NUMBER\n' for number in range(parts))
    write(f"{path}/main.c", f'#include <stdio.h>\n{headers}int main(void) {{ return !printf("%d", 0{calls}); }}\n'.encode())
    write(
        f"{path}/Makefile",
        b"PARTS := $(patsubst %.c,%.o,$(wildcard part*.c))\n"
        b"program: main.o libparts.a\n\t$(CC) -o $@ $^\n"
        b"libparts.a: $(PARTS)\n\trm -f $@\n\t$(AR) rcs $@ $^\n"
        b"%.o: %.c\n\t$(CC) -Iinclude -MMD -c -o $@ $<\n"
        b"-include $(wildcard *.d)\n",
    )


def check_make(pair):
    parts = 16
    shutil.rmtree("/tmp/sources", ignore_errors=True)
    make_sources("/tmp/sources/made", parts)
    subprocess.run(["tar", "-cf", "/tmp/sources.tar", "-C", "/tmp/sources", "made"], check=True)
    one, two = pair.paths("made")
    subprocess.run(["tar", "-xf", "/tmp/sources.tar", "-C", pair.one], check=True)

    def compiled():
        """Builds on the one mount what the other unpacked; says how many files it compiled."""
        done = subprocess.run(["make", "-j4", "-C", two, "CC=cc", "AR=ar"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"make: {done.stderr[-400:]}"
        return done.stdout.count("-MMD")

    def runs():
        return int(subprocess.run([f"{one}/program"], capture_output=True, check=True).stdout)

    total = sum(range(parts))
    assert compiled() == parts + 1 and runs() == 1000 * parts + total
    assert compiled() == 0, "everything is up to date"
    write(f"{two}/include/part3.h", b"#define NUMBER 5003\nint part3(void);\n")
    assert compiled() == 2 and runs() == 1000 * parts + total + 5000
    write(f"{two}/include/all.h", b"#define BASE 2000\n")
    assert compiled() == parts and runs() == 2000 * parts + total + 5000
    shutil.rmtree(one)


def user_names(path):
    """Without `system.nfs4_acl`, which files with access control lists have."""
    return [name for name in os.listxattr(path) if name.startswith("user.")]


def check_xattrs(pair):
    _, path = pair.paths("xattrs")
    write(path, b"")
    refused(errno.ENODATA, lambda: os.getxattr(path, "user.none"))
    values = {f"user.{number}": octets(length, number) for number, length in enumerate((0, 1, 255, 2000))}
    for name, value in values.items():
        os.setxattr(path, name, value, os.XATTR_CREATE)
        refused(errno.EEXIST, lambda name=name: os.setxattr(path, name, b"", os.XATTR_CREATE))
    assert {name: os.getxattr(path, name) for name in user_names(path)} == values
    os.setxattr(path, "user.1", b"other", os.XATTR_REPLACE)
    assert os.getxattr(path, "user.1") == b"other"
    for name in values:
        os.removexattr(path, name)
    assert user_names(path) == []


def allocate(file, mode, start, length):
    import ctypes  # a small Python has none

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.fallocate(file.fileno(), mode, ctypes.c_long(start), ctypes.c_long(length)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


def check_ranges(pair):
    one, path = pair.paths("sparse")
    with open(path, "w+b") as file:
        file.write(octets(4096))
        file.seek(1 << 20)
        file.write(octets(4096))
        file.flush()
        os.fsync(file)
        hole = os.lseek(file.fileno(), 0, os.SEEK_HOLE)
        assert 4096 <= hole < 1 << 20, hole
        assert os.lseek(file.fileno(), hole, os.SEEK_DATA) == 1 << 20
        allocate(file, 0, 0, 3 << 20)
        assert os.fstat(file.fileno()).st_size == 3 << 20
        allocate(file, FALLOC_KEEP_SIZE | FALLOC_PUNCH_HOLE, 0, 1 << 21)
        assert os.fstat(file.fileno()).st_size == 3 << 20
        refused(errno.ENXIO, lambda: os.lseek(file.fileno(), 3 << 20, os.SEEK_DATA))
    assert read(one) == bytes(3 << 20)


def check_copies(pair):
    one, path = pair.paths("original")
    content = octets(5_000_001)
    write(path, content)
    before = operations(pair.two).get("COPY", 0)
    with open(path, "rb") as source, open(f"{path}-copy", "w+b") as target:
        done = 0
        while done < len(content):
            step = os.copy_file_range(source.fileno(), target.fileno(), len(content) - done)
            assert step > 0, f"nothing was copied behind {done}"
            done += step
    assert operations(pair.two)["COPY"] > before, "the client read and wrote instead"
    assert read(f"{one}-copy") == content
    with open(path, "rb") as source, open(f"{path}-clone", "w+b") as target:
        try:
            fcntl.ioctl(target, FICLONE, source.fileno())
        except OSError as error:
            assert error.errno in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY), error
            return
    assert read(f"{one}-clone") == content


def check_delegation_for_reading(pair):
    one, two = pair.paths("read-delegation")
    write(two, b"first")
    assert read(one) == b"first"
    await_delegation(pair.one, lambda: read(one))
    returned = operations(pair.one)["DELEGRETURN"]
    write(two, b"second")
    await_that("the return of the delegation", lambda: operations(pair.one)["DELEGRETURN"] > returned)
    assert read(one) == b"second"


def check_delegation_for_writing(pair):
    one, two = pair.paths("write-delegation")
    file = os.open(one, os.O_CREAT | os.O_RDWR)
    os.write(file, b"written under it")
    os.close(file)

    def use():
        file = os.open(one, os.O_RDWR)
        assert os.read(file, 100) == b"written under it"
        os.close(file)

    await_delegation(pair.one, use)
    before = operations(pair.one)
    # Until it is closed nothing goes to the server by itself, for half a minute.
    with open(one, "ab", buffering=0) as file:
        file.write(b" and not sent")
        sizes = {entry.name: entry.stat().st_size for entry in os.scandir(os.path.dirname(two))}
        assert sizes["write-delegation"] == 29, f"who lists the directory sees what was written: {sizes}"
        assert os.stat(two).st_size == 29, "whoever asks sees it"
    assert read(two) == b"written under it and not sent"
    await_that("the return of the delegation", lambda: operations(pair.one)["DELEGRETURN"] > before["DELEGRETURN"])


def check_ping_pong(pair):
    one, two = pair.paths("ping-pong")
    for number in range(20):
        write((one, two)[number % 2], b"%d" % number)
        assert read((two, one)[number % 2]) == b"%d" % number


def check_locks_under_delegation(pair):
    one, two = pair.paths("lock-delegation")
    write(one, b"octets")
    with open(one, "r+b") as here:
        lock(here, fcntl.F_WRLCK)

        def other():
            # The delegation of the one is recalled, its lock with it sent to the server.
            with open(two, "r+b") as there:
                refused(errno.EAGAIN, lambda: lock(there, fcntl.F_WRLCK))

        ended_well(in_child(other))


BOTH = [
    check_close_to_open, check_names, check_removed_while_open, check_created_without_right_to_write, check_locks_of_ranges,
    check_lock_that_waits, check_flock, check_sqlite, check_untar, check_make, check_ranges, check_copies, check_xattrs, check_ping_pong,
]
ONCE = [
    check_mounted_versions, check_root_lists_exports, check_default_list_wins_over_umask, check_access_control_lists,
    check_locks_beside_a_program, check_git,
]
ONCE_OVER_RDMA = [check_mounted_versions, check_access_control_lists, check_locks_beside_a_program]
BOTH_OVER_RDMA = [check_close_to_open, check_locks_of_ranges, check_lock_that_waits, check_flock, check_ping_pong]
OF_WATCHED = [check_delegations_beside_a_program, check_delegation_for_reading]
OF_MEMORY = [check_delegation_for_reading, check_delegation_for_writing, check_locks_under_delegation]


def main():
    passed = failed = 0
    directory, watched, memory = Pair("directory"), Pair("watched"), Pair("memory")
    once, both = (ONCE, BOTH) if OVER == "tcp" else (ONCE_OVER_RDMA, BOTH_OVER_RDMA)
    todo = [(directory, check) for check in once + both] + [(watched, check) for check in OF_WATCHED]
    todo += [(memory, check) for check in both + OF_MEMORY]
    for pair, check in todo:
        name, begun = f"{pair.kind}/{check.__name__.removeprefix('check_')}", time.monotonic()
        try:
            check(pair)
        except Exception as error:  # whatever it is, it is this check's failure
            where = traceback.extract_tb(error.__traceback__)[-1].lineno
            print(f"not ok {name}: {type(error).__name__} {error} (line {where})", flush=True)
            failed += 1
            continue
        print(f"ok {name}  {time.monotonic() - begun:.2f}", flush=True)
        passed += 1
    print(f"{passed} passed, {failed} failed", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    ROLES = {"--program": program, "--default-list": give_default_list}
    sys.exit(ROLES[sys.argv[1]](*sys.argv[2:]) if sys.argv[1] in ROLES else main())
