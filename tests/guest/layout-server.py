#!/usr/bin/env python3
"""A metadata server of flexible file layouts (RFC 8435), as small as a Linux client of NFS 4.1 takes it: one directory of plain files.

Usage: layout-server.py ADDRESS:PORT SOURCE DATA-SERVER:PORT EXPORT NETID:ADDRESS:PORT
  SOURCE               the address from which it calls the data server, where it has to be root
  NETID:ADDRESS:PORT   where clients reach the data server, as in tcp:10.0.0.1:2049 or rdma:10.0.0.1:20049

A file's octets lie on the data server, which speaks version 3: made by root in EXPORT, and owned by a user that was made up for layouts.
READ and WRITE are refused here, so whatever a client reads or writes goes to the data server. A change of a file's mode fences it
(RFC 8435 section 2.2): the file gets another owner, and with mode 0 it is the one that no layout names, and there are no layouts.
Each event is a line on standard output that begins with the file's name. There are no locks, delegations, callbacks, directories,
REMOVE, nor a cache of replies.
"""

import itertools
import os
import random
import socket
import socketserver
import stat
import struct
import sys
import threading
from types import SimpleNamespace

NFS, MOUNT = 100003, 100005
FLEX_FILES, DEVICE = 4, b"the data server!"
IO_SIZE, WHOLE_FILE = 1 << 20, (1 << 64) - 1
FENCED_USER, FIRST_USER, GROUP = 19000, 19001, 28000
READ_ONLY, READ_WRITE, ANY = 1, 2, 3  # what a layout is for

OK, NOENT, ACCESS, EXIST, STALE = 0, 2, 13, 17, 70
NOTSUPP, MINOR_VERS_MISMATCH, BADSESSION, LAYOUTUNAVAILABLE, UNKNOWN_LAYOUTTYPE = 10004, 10021, 10052, 10059, 10062
OPERATIONS = {
    3: "ACCESS", 4: "CLOSE", 9: "GETATTR", 10: "GETFH", 15: "LOOKUP", 18: "OPEN", 22: "PUTFH", 24: "PUTROOTFH", 25: "READ", 34: "SETATTR",
    38: "WRITE", 42: "EXCHANGE_ID", 43: "CREATE_SESSION", 44: "DESTROY_SESSION", 45: "FREE_STATEID", 47: "GETDEVICEINFO",
    49: "LAYOUTCOMMIT", 50: "LAYOUTGET", 51: "LAYOUTRETURN", 53: "SEQUENCE", 57: "DESTROY_CLIENTID", 58: "RECLAIM_COMPLETE",
}  # fmt: skip


def log(file, *words):
    print(file.name.decode() if file else "-", *words, flush=True)


# XDR (RFC 4506)


def u32(*values):
    return struct.pack(f">{len(values)}I", *values)


def u64(*values):
    return struct.pack(f">{len(values)}Q", *values)


def opaque(octets):
    return u32(len(octets)) + octets + b"\0" * (-len(octets) % 4)


def bitmap(numbers):
    words = [0] * (max(numbers, default=-1) // 32 + 1)
    for number in numbers:
        words[number // 32] |= 1 << number % 32
    return u32(len(words), *words)


class Reader:
    """Octets that are taken from the front; struct.error where there are too few."""

    def __init__(self, octets):
        self.octets, self.at = octets, 0

    def fixed(self, length):
        piece = self.octets[self.at : self.at + length]
        if len(piece) < length:
            raise struct.error("cut off")
        self.at += length + -length % 4
        return piece

    def u32(self):
        return struct.unpack(">I", self.fixed(4))[0]

    def u64(self):
        return struct.unpack(">Q", self.fixed(8))[0]

    def opaque(self):
        return self.fixed(self.u32())

    def list(self, item):
        return [item() for _ in range(self.u32())]

    def bitmap(self):
        words = self.list(self.u32)
        return [32 * at + bit for at, word in enumerate(words) for bit in range(32) if word >> bit & 1]


def receive(stream):
    """One message over TCP (RFC 5531 section 11); nothing at the end."""
    message, last = b"", False
    while not last:
        head = stream.read(4)
        if len(head) < 4:
            return None
        mark = struct.unpack(">I", head)[0]
        last = mark >> 31
        message += stream.read(mark & 0x7FFFFFFF)
    return message


def record(message):
    return u32(1 << 31 | len(message)) + message


class DataServer:
    """A client of version 3, as root from a port below 1024."""

    def __init__(self, source, address, export):
        self.xids = itertools.count(random.getrandbits(31))
        for port in range(1023, 600, -1):
            try:
                self.socket = socket.create_connection(address, 10, (source, port))
                break
            except OSError as error:
                if port == 601:
                    raise SystemExit(f"no way to the data server: {error}") from error
        self.stream = self.socket.makefile("rb")
        self.root = self.call(MOUNT, 1, opaque(export.encode())).opaque()

    def call(self, program, procedure, arguments):
        """The results behind the status, which has to be OK."""
        xid = next(self.xids)
        credential = u32(0) + opaque(b"layout-server") + u32(0, 0, 0)
        header = u32(xid, 0, 2, program, 3, procedure, 1) + opaque(credential) + u32(0, 0)
        self.socket.sendall(record(header + arguments))
        reply = Reader(receive(self.stream) or b"")
        if [reply.u32() for _ in range(6)] != [xid, 1, 0, 0, 0, 0]:
            raise RuntimeError(f"the data server did not take procedure {procedure} of program {program}")
        status = reply.u32()
        if status != OK:
            raise RuntimeError(f"the data server answered procedure {procedure} of program {program} by {status}")
        return reply

    def set_owner(self, handle, user, group):
        self.call(NFS, 2, opaque(handle) + u32(0) + u32(1, user) + u32(1, group) + u32(0, 0, 0) + u32(0))

    def set_size(self, handle, size):
        self.call(NFS, 2, opaque(handle) + u32(0, 0, 0) + u32(1) + u64(size) + u32(0, 0) + u32(0))

    def create(self, name):
        arguments = opaque(self.root) + opaque(name) + u32(0) + u32(1, 0o640, 0, 0, 0, 0, 0)
        reply = self.call(NFS, 8, arguments)
        if not reply.u32():
            raise RuntimeError("the data server made a file and told no handle")
        return reply.opaque()

    def attributes(self, handle):
        reply = self.call(NFS, 1, opaque(handle))
        _, _, links, _, _ = (reply.u32() for _ in range(5))
        size, used = reply.u64(), reply.u64()
        reply.fixed(8 + 8 + 8 + 8)  # device, fsid, fileid, atime
        mtime, ctime = (reply.u32(), reply.u32()), (reply.u32(), reply.u32())
        return SimpleNamespace(links=links, size=size, used=used, mtime=mtime, ctime=ctime)


class File:
    """A file: the octets are the data server's, name and mode are ours."""

    def __init__(self, number, name, mode):
        self.number, self.name, self.mode = number, name, mode
        self.data, self.user, self.changes = None, FENCED_USER, 1
        self.layouts, self.layout_sequence = set(), 0

    @property
    def handle(self):
        return b"file" + u64(self.number)

    @property
    def is_directory(self):
        return self.data is None

    def stateid(self, kind, sequence):
        return u32(sequence) + kind + u64(self.number)

    def next_layout_stateid(self):
        self.layout_sequence += 1
        return self.stateid(b"layo", self.layout_sequence)


class MetadataServer:
    """What all connections share. `lock` is held while a message is answered."""

    def __init__(self, data_server, told):
        self.lock, self.data_server = threading.Lock(), data_server
        netid, host, port = told.split(":")
        self.address = netid.encode(), f"{host}.{int(port) >> 8}.{int(port) & 255}".encode()
        self.users, self.sessions = itertools.count(FIRST_USER), set()
        self.files = [File(1, b"/", stat.S_IFDIR | 0o755)]

    def create(self, name, mode):
        file = File(len(self.files) + 1, name, mode)
        file.data = self.data_server.create(name)
        self.files.append(file)
        self.files[0].changes += 1
        self.fence(file)
        return file

    def fence(self, file):
        """Gives the octets to a user that no layout has named yet; with mode 0 to one that none ever names."""
        before = file.user
        file.user = next(self.users) if file.mode & 0o777 else FENCED_USER
        self.data_server.set_owner(file.data, file.user, GROUP)
        log(file, "owner", before, file.user)

    def set(self, file, values):
        if 4 in values:
            self.data_server.set_size(file.data, values[4])
        if 33 in values and values[33] != stat.S_IMODE(file.mode):
            file.mode = stat.S_IFMT(file.mode) | values[33]
            self.fence(file)
        file.changes += 1

    def attributes(self, file):
        """Every attribute that is known of it (RFC 8881 section 5), by number."""
        if file.is_directory:
            seen = SimpleNamespace(links=2, size=4096, used=4096, mtime=(1, 0), ctime=(1, 0))
        else:
            seen = self.data_server.attributes(file.data)
        mtime, ctime = ((u64(seconds) + u32(nanos)) for seconds, nanos in (seen.mtime, seen.ctime))
        change = (seen.ctime[0] << 30 | seen.ctime[1]) + file.changes
        known = {
            1: u32(2 if file.is_directory else 1), 2: u32(0), 3: u64(change), 4: u64(seen.size), 5: u32(0), 6: u32(0), 7: u32(0),
            8: u64(19, 84), 9: u32(1), 10: u32(90), 11: u32(0), 19: opaque(file.handle), 20: u64(file.number), 27: u64(1 << 62),
            29: u32(255), 30: u64(IO_SIZE), 31: u64(IO_SIZE), 33: u32(stat.S_IMODE(file.mode)), 35: u32(seen.links), 36: opaque(b"0"),
            37: opaque(b"0"), 45: u64(seen.used), 47: mtime, 52: ctime, 53: mtime, 55: u64(file.number), 62: u32(1, FLEX_FILES),
            65: u32(IO_SIZE),
        }  # fmt: skip
        return known | {0: bitmap([0, *known, 75]), 75: bitmap([4, 33])}

    def layout(self, file):
        """ff_layout4: one mirror, one data server (RFC 8435 section 5.1)."""
        owner = opaque(str(file.user).encode()) + opaque(str(GROUP).encode())
        server = DEVICE + u32(1) + b"\0" * 16 + u32(1) + opaque(file.data) + owner
        return u64(0) + u32(1) + u32(1) + server + u32(0, 0)

    def device(self):
        """ff_device_addr4: where the data server is, and that it speaks version 3, loosely coupled (RFC 8435 section 4.1)."""
        netid, address = self.address
        return u32(1) + opaque(netid) + opaque(address) + u32(1) + u32(3, 0, IO_SIZE, IO_SIZE, 0)


class Compound:
    """The operations of one message (RFC 8881 section 16.2). Each takes its arguments and returns a status and results."""

    def __init__(self, server, reader):
        self.server, self.reader, self.file = server, reader, None

    def run(self):
        tag, minor, count = self.reader.opaque(), self.reader.u32(), self.reader.u32()
        status, results = (OK if minor == 1 else MINOR_VERS_MISMATCH), []
        while status == OK and len(results) < count:
            number = self.reader.u32()
            name = OPERATIONS.get(number)
            status, result = getattr(self, name.lower())() if name else (NOTSUPP, b"")
            if status != OK:
                log(self.file, "refused", name or number, status)
            results.append(u32(number, status) + result)
        return u32(status) + opaque(tag) + u32(len(results)) + b"".join(results)

    # Sessions

    def exchange_id(self):
        client = u64(int.from_bytes(os.urandom(8), "big"))
        owner = u64(0) + opaque(b"layout server")
        return OK, client + u32(1, 0x20000, 0) + owner + opaque(b"layout server") + u32(0)  # 0x20000: USE_PNFS_MDS

    def create_session(self):
        take = self.reader
        take.fixed(8)
        sequence, _ = take.u32(), take.u32()
        channels, session = b"", os.urandom(16)
        for _ in range(2):
            channels += take.fixed(24) + u32(0)
            take.list(take.u32)
        self.server.sessions.add(session)
        return OK, session + u32(sequence, 0) + channels

    def sequence(self):
        take = self.reader
        session, sequence, slot, highest = take.fixed(16), take.u32(), take.u32(), take.u32()
        take.u32()
        if session not in self.server.sessions:
            return BADSESSION, b""
        return OK, session + u32(sequence, slot, highest, highest, 0)

    def destroy_session(self):
        self.server.sessions.discard(self.reader.fixed(16))
        return OK, b""

    def destroy_clientid(self):
        self.reader.fixed(8)
        return OK, b""

    def reclaim_complete(self):
        self.reader.u32()
        return OK, b""

    def free_stateid(self):
        self.reader.fixed(16)
        return OK, b""

    # Names and attributes

    def putrootfh(self):
        self.file = self.server.files[0]
        return OK, b""

    def putfh(self):
        handle = self.reader.opaque()
        self.file = next((file for file in self.server.files if file.handle == handle), None)
        return (OK, b"") if self.file else (STALE, b"")

    def getfh(self):
        return OK, opaque(self.file.handle)

    def find(self, name):
        return next((file for file in self.server.files[1:] if file.name == name), None)

    def lookup(self):
        self.file = self.find(self.reader.opaque())
        return (OK, b"") if self.file else (NOENT, b"")

    def getattr(self):
        wanted, known = self.reader.bitmap(), self.server.attributes(self.file)
        told = [number for number in wanted if number in known]
        return OK, bitmap(told) + opaque(b"".join(known[number] for number in told))

    def access(self):
        asked = self.reader.u32()
        return OK, u32(asked, asked)

    def new_values(self):
        """What a client sets, by number: sizes and modes. Owners and times are taken and forgotten."""
        given, values = self.reader.bitmap(), {}
        take = Reader(self.reader.opaque())
        for number in given:
            if number in (36, 37):
                values[number] = take.opaque()
            elif number in (48, 54):
                values[number] = take.u32() and take.fixed(12)
            else:
                values[number] = take.u64() if number == 4 else take.u32()
        return values

    def setattr(self):
        self.reader.fixed(16)
        values = self.new_values()
        self.server.set(self.file, values)
        return OK, bitmap(list(values))

    def open(self):
        take = self.reader
        take.u32(), take.u32(), take.u32(), take.u64(), take.opaque()
        create, values = take.u32(), {}
        if create:
            how = take.u32()
            if how in (2, 3):
                take.fixed(8)
            values = self.new_values() if how != 2 else {}
        claim, before = take.u32(), self.server.files[0].changes
        if claim == 0:
            name = take.opaque()
            self.file = self.find(name)
            if self.file and create and how != 0:
                return EXIST, b""
            if self.file is None and not create:
                return NOENT, b""
            if self.file is None:
                self.file = self.server.create(name, stat.S_IFREG | values.get(33, 0o644))
            elif 4 in values:
                self.server.set(self.file, {4: values[4]})
        elif claim != 4:  # FH: the file is the one in hand
            return NOTSUPP, b""
        change = u32(1) + u64(before, self.server.files[0].changes)
        return OK, self.file.stateid(b"open", 1) + change + u32(0) + bitmap(list(values)) + u32(0)

    def close(self):
        self.reader.fixed(4 + 16)
        return OK, self.file.stateid(b"open", 2)

    # Layouts

    def layoutget(self):
        take = self.reader
        _, kind, mode = take.u32(), take.u32(), take.u32()
        take.u64(), take.u64(), take.u64(), take.fixed(16), take.u32()
        if kind != FLEX_FILES:
            return UNKNOWN_LAYOUTTYPE, b""
        if self.file.user == FENCED_USER:
            return LAYOUTUNAVAILABLE, b""
        self.file.layouts.add(mode)
        log(self.file, "layout", mode, self.file.user)
        layout = u64(0, WHOLE_FILE) + u32(mode, FLEX_FILES) + opaque(self.server.layout(self.file))
        return OK, u32(0) + self.file.next_layout_stateid() + u32(1) + layout

    def getdeviceinfo(self):
        device, kind = self.reader.fixed(16), self.reader.u32()
        self.reader.u32(), self.reader.bitmap()
        if (device, kind) != (DEVICE, FLEX_FILES):
            return NOENT, b""
        return OK, u32(FLEX_FILES) + opaque(self.server.device()) + u32(0)

    def layoutcommit(self):
        take = self.reader
        take.u64(), take.u64(), take.u32(), take.fixed(16)
        if take.u32():
            take.u64()
        if take.u32():
            take.fixed(12)
        take.u32(), take.opaque()
        self.file.changes += 1
        return OK, u32(1) + u64(self.server.data_server.attributes(self.file.data).size)

    def layoutreturn(self):
        take = self.reader
        _, _, mode, what = take.u32(), take.u32(), take.u32(), take.u32()
        if what != 1:
            return OK, u32(0)
        take.u64(), take.u64(), take.fixed(16)
        self.report(Reader(take.opaque()))
        self.file.layouts -= {READ_ONLY, READ_WRITE} if mode == ANY else {mode}
        log(self.file, "returned", mode)
        return OK, (u32(1) + self.file.next_layout_stateid()) if self.file.layouts else u32(0)

    def report(self, take):
        """The errors of the data server that a client returns with a layout (RFC 8435 section 9.1.1)."""
        if not take.octets:
            return
        for _ in range(take.u32()):
            take.u64(), take.u64(), take.fixed(16)
            for _ in range(take.u32()):
                _, status, operation = take.fixed(16), take.u32(), take.u32()
                log(self.file, "error", OPERATIONS.get(operation, operation), status)

    def read(self):
        return ACCESS, b""

    def write(self):
        return ACCESS, b""


class Connection(socketserver.StreamRequestHandler):
    def handle(self):
        while message := receive(self.rfile):
            take = Reader(message)
            xid, _, _, program, version, procedure = (take.u32() for _ in range(6))
            for _ in range(2):
                take.u32(), take.opaque()
            accepted = u32(xid, 1, 0, 0, 0, 0)
            if (program, version, procedure) == (NFS, 4, 1):
                with self.server.metadata.lock:
                    accepted += Compound(self.server.metadata, take).run()
            self.wfile.write(record(accepted))


class Listener(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True


def address_of(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


def main():
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    listen, source, data, export, told = sys.argv[1:]
    with Listener(address_of(listen), Connection) as listener:
        listener.metadata = MetadataServer(DataServer(source, address_of(data), export), told)
        listener.serve_forever()


if __name__ == "__main__":
    main()
