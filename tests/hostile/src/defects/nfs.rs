//! Procedures of NFS and MOUNT (RFC 1813). Each call goes over both transports.

use crate::{
    judge::Family,
    play::{BrokenRule, Defect, DefectLayer, DefectTable, Play, rule},
    wire::*,
    world::{FILE_LEN, HostileWorld, mode, place},
};

const NAMES: &str = "RFC 1813 §3.2";
const HANDLES: &str = "RFC 1813 §2.6, §4.2";
const XDR: &str = "RFC 5531 §9, RFC 4506";
const NO_HANDLE: &str = "NFS3ERR_BADHANDLE | NFS3ERR_STALE";

pub(super) fn table() -> Vec<Defect> {
    let mut table = DefectTable::new(DefectLayer::Nfs);
    cut_arguments(&mut table);
    handles(&mut table);
    names(&mut table);
    reads(&mut table);
    writes(&mut table);
    attributes(&mut table);
    creation(&mut table);
    removal(&mut table);
    listings(&mut table);
    mounts(&mut table);
    table.into_defects()
}

fn add(
    table: &mut DefectTable,
    name: &str,
    rule: BrokenRule,
    procedure: u32,
    arguments: impl Fn(&HostileWorld) -> Xdr + Send + Sync + 'static,
) {
    let message =
        move |world: &HostileWorld, xid| call(xid, NFS, 3, procedure).raw(&arguments(world).0).0;
    table.add(name, rule.clause, rule.expect, Play::Rpc(Box::new(message), Family::Nfs));
}

/// Procedures in the order of their numbers.
const PROCEDURES: [&str; 22] = [
    "null",
    "getattr",
    "setattr",
    "lookup",
    "access",
    "readlink",
    "read",
    "write",
    "create",
    "mkdir",
    "symlink",
    "mknod",
    "remove",
    "rmdir",
    "rename",
    "link",
    "readdir",
    "readdirplus",
    "fsstat",
    "fsinfo",
    "pathconf",
    "commit",
];

fn cut_arguments(table: &mut DefectTable) {
    for (procedure, name) in (0..).zip(PROCEDURES).skip(1) {
        add(
            table,
            &format!("{name}-without-arguments"),
            rule(XDR, "GARBAGE_ARGS"),
            procedure,
            |_| Xdr::new(),
        );
    }
    for procedure in [2, 3, 4, 6, 7, 8, 14, 16, 21] {
        let name = PROCEDURES.get(procedure as usize).copied().unwrap_or_default();
        add(
            table,
            &format!("{name}-with-a-handle-only"),
            rule(XDR, "GARBAGE_ARGS"),
            procedure,
            |world| Xdr::new().opaque(&world.file),
        );
    }
}

fn handles(table: &mut DefectTable) {
    let getattr = 1;
    for (name, handle) in [
        ("of-nothing", vec![]),
        ("of-4-zeros", vec![0; 4]),
        ("of-64-zeros", vec![0; 64]),
        ("of-64-ones", vec![0xFF; 64]),
    ] {
        add(table, &format!("handle-{name}"), rule(HANDLES, NO_HANDLE), getattr, move |_| {
            Xdr::new().opaque(&handle)
        });
    }
    add(table, "handle-of-65-octets", rule(XDR, "GARBAGE_ARGS"), getattr, |_| {
        Xdr::new().opaque(&[1; 65])
    });
    for len in [0x7FFF_FFFF, u32::MAX - 3, u32::MAX] {
        add(
            table,
            &format!("handle-claims-{len}-octets"),
            rule(XDR, "GARBAGE_ARGS"),
            getattr,
            move |world| Xdr::new().u32(len).raw(&world.root),
        );
    }
    for (name, at) in [("first", 0_usize), ("middle", 9), ("last", usize::MAX)] {
        add(
            table,
            &format!("handle-with-a-bit-flipped-in-its-{name}-octet"),
            rule(HANDLES, NO_HANDLE),
            getattr,
            move |world| {
                Xdr::new().opaque(&flipped(world.file.clone(), at.min(world.file.len() - 1), 0x10))
            },
        );
    }
    add(table, "handle-cut", rule(HANDLES, NO_HANDLE), getattr, |world| {
        Xdr::new().opaque(&cut(world.file.clone(), world.file.len() - 1))
    });
    add(table, "handle-with-an-octet-more", rule(HANDLES, NO_HANDLE), getattr, |world| {
        Xdr::new().opaque(&[&world.file[..], &[0]].concat())
    });
    add(table, "handle-of-a-removed-file", rule(HANDLES, "NFS3ERR_STALE"), getattr, |world| {
        Xdr::new().opaque(&world.gone)
    });
    add(
        table,
        "handle-of-a-file-as-directory",
        rule("RFC 1813 §3.3.3", "NFS3ERR_NOTDIR"),
        3,
        |world| place(&world.file, b"x"),
    );
    add(
        table,
        "handle-of-a-directory-as-link",
        rule("RFC 1813 §3.3.5", "NFS3ERR_INVAL"),
        5,
        |world| Xdr::new().opaque(&world.dir),
    );
    add(table, "handle-of-a-file-as-link", rule("RFC 1813 §3.3.5", "NFS3ERR_INVAL"), 5, |world| {
        Xdr::new().opaque(&world.file)
    });
}

/// Names that LOOKUP, CREATE and others are to refuse.
fn names(table: &mut DefectTable) {
    let bad = "NFS3ERR_ACCES | GARBAGE_ARGS";
    for (name, octets, expect) in [
        ("empty", vec![], "NFS3ERR_ACCES"),
        ("with-a-slash", b"a/b".to_vec(), bad),
        ("that-is-a-slash", b"/".to_vec(), bad),
        ("with-a-zero-octet", b"a\0b".to_vec(), bad),
        ("of-256-octets", vec![b'n'; 256], "NFS3ERR_NAMETOOLONG | GARBAGE_ARGS"),
        ("of-1000-octets", vec![b'n'; 1_000], "NFS3ERR_NAMETOOLONG | GARBAGE_ARGS"),
    ] {
        for (procedure, tail) in [(3, 0), (8, 2), (9, 1), (12, 0)] {
            let of = PROCEDURES.get(procedure as usize).copied().unwrap_or_default();
            let octets = octets.clone();
            add(
                table,
                &format!("{of}-of-a-name-{name}"),
                rule(NAMES, expect),
                procedure,
                move |world| {
                    let named = place(&world.dir, &octets);
                    match tail {
                        2 => mode(named.u32(1), 0o644),
                        1 => mode(named, 0o755),
                        _ => named,
                    }
                },
            );
        }
    }
    add(
        table,
        "lookup-of-a-name-that-is-not-utf-8",
        rule(NAMES, "NFS3ERR_NOENT | NFS3ERR_ACCES"),
        3,
        |world| place(&world.dir, &[0xFF, 0xC0, 0x80]),
    );
    add(table, "lookup-of-255-octets", rule(NAMES, "NFS3ERR_NOENT"), 3, |world| {
        place(&world.dir, &[b'n'; 255])
    });
    add(
        table,
        "lookup-above-the-root",
        rule(NAMES, "OK | NFS3ERR_ACCES | NFS3ERR_NOENT"),
        3,
        |world| place(&world.root, b".."),
    );
    for len in [u32::MAX, 0x7FFF_FFFF, 65_536] {
        add(
            table,
            &format!("lookup-of-a-name-that-claims-{len}-octets"),
            rule(XDR, "GARBAGE_ARGS | NFS3ERR_NAMETOOLONG"),
            3,
            move |world| Xdr::new().opaque(&world.dir).u32(len).raw(b"name"),
        );
    }
}

fn reads(table: &mut DefectTable) {
    let clause = "RFC 1813 §3.3.6";
    let read = |handle: &[u8], offset, count| Xdr::new().opaque(handle).u64(offset).u32(count);
    add(table, "read-of-nothing", rule(clause, "OK"), 6, move |world| read(&world.file, 0, 0));
    add(table, "read-behind-the-end", rule(clause, "OK"), 6, move |world| {
        read(&world.file, u64::from(FILE_LEN), 512)
    });
    for (name, offset) in [("2-to-the-63", 1 << 63), ("max", u64::MAX)] {
        add(
            table,
            &format!("read-at-{name}"),
            rule(clause, "OK | NFS3ERR_INVAL | NFS3ERR_FBIG"),
            6,
            move |world| read(&world.file, offset, 512),
        );
    }
    add(
        table,
        "read-that-wraps",
        rule(clause, "OK | NFS3ERR_INVAL | NFS3ERR_FBIG"),
        6,
        move |world| read(&world.file, u64::MAX - 8, 512),
    );
    add(
        table,
        "read-of-a-directory",
        rule(clause, "NFS3ERR_ISDIR | NFS3ERR_INVAL | NFS3ERR_ACCES"),
        6,
        move |world| read(&world.dir, 0, 512),
    );
    add(table, "read-of-a-link", rule(clause, "NFS3ERR_INVAL"), 6, move |world| {
        read(&world.link, 0, 512)
    });
    // The count is no size of ours: over TCP as much as there is, inline over the fabric what fits
    // nothing.
    let message = move |world: &HostileWorld, xid| {
        record(&call(xid, NFS, 3, 6).raw(&read(&world.file, 0, u32::MAX).0).0)
    };
    table.add("read-of-4-gib", clause, "OK", Play::Octet(Box::new(message), Family::Nfs));
}

fn writes(table: &mut DefectTable) {
    let clause = "RFC 1813 §3.3.7";
    let write = |handle: &[u8], offset, count, stable, data: &[u8]| {
        Xdr::new().opaque(handle).u64(offset).words(&[count, stable]).opaque(data)
    };
    add(table, "write-of-nothing", rule(clause, "OK"), 7, move |world| {
        write(&world.file, 0, 0, 0, b"")
    });
    add(
        table,
        "write-count-above-its-data",
        rule(clause, "GARBAGE_ARGS | NFS3ERR_INVAL"),
        7,
        move |world| write(&world.file, 0, 9, 0, b"12345678"),
    );
    add(
        table,
        "write-count-below-its-data",
        rule(clause, "GARBAGE_ARGS | OK | NFS3ERR_INVAL"),
        7,
        move |world| write(&world.file, 0, 4, 0, b"12345678"),
    );
    add(table, "write-count-max", rule(clause, "GARBAGE_ARGS | NFS3ERR_INVAL"), 7, move |world| {
        write(&world.file, 0, u32::MAX, 0, b"12345678")
    });
    add(table, "write-data-claims-4-gib", rule(XDR, "GARBAGE_ARGS"), 7, move |world| {
        Xdr::new().opaque(&world.file).u64(0).words(&[8, 0, u32::MAX]).raw(b"12345678")
    });
    for stable in [3, u32::MAX] {
        add(table, &format!("write-stable-{stable}"), rule(XDR, "GARBAGE_ARGS"), 7, move |world| {
            write(&world.file, 0, 4, stable, b"1234")
        });
    }
    for (name, offset) in
        [("2-to-the-63", 1 << 63), ("max", u64::MAX), ("one-before-2-to-the-63", (1 << 63) - 1)]
    {
        add(
            table,
            &format!("write-at-{name}"),
            rule(clause, "NFS3ERR_FBIG | NFS3ERR_INVAL"),
            7,
            move |world| write(&world.file, offset, 4, 0, b"1234"),
        );
    }
    add(
        table,
        "write-to-a-directory",
        rule(clause, "NFS3ERR_INVAL | NFS3ERR_ISDIR | NFS3ERR_ACCES"),
        7,
        move |world| write(&world.dir, 0, 4, 0, b"1234"),
    );
    let commit = |handle: &[u8], offset, count| Xdr::new().opaque(handle).u64(offset).u32(count);
    add(
        table,
        "commit-that-wraps",
        rule("RFC 1813 §3.3.21", "OK | NFS3ERR_INVAL | NFS3ERR_FBIG"),
        21,
        move |world| commit(&world.file, u64::MAX, u32::MAX),
    );
    add(
        table,
        "commit-of-a-directory",
        rule("RFC 1813 §3.3.21", "NFS3ERR_INVAL | NFS3ERR_ISDIR | OK"),
        21,
        move |world| commit(&world.dir, 0, 0),
    );
}

fn attributes(table: &mut DefectTable) {
    let clause = "RFC 1813 §3.3.2";
    add(table, "setattr-discriminator-2", rule(XDR, "GARBAGE_ARGS"), 2, |world| {
        Xdr::new().opaque(&world.file).words(&[2, 0o600, 0, 0, 0, 0, 0, 0])
    });
    add(table, "setattr-time-how-3", rule(XDR, "GARBAGE_ARGS"), 2, |world| {
        Xdr::new().opaque(&world.file).words(&[0, 0, 0, 0, 3, 0, 0])
    });
    add(table, "setattr-guard-discriminator-2", rule(XDR, "GARBAGE_ARGS"), 2, |world| {
        Xdr::new().opaque(&world.file).words(&[0, 0, 0, 0, 0, 0, 2])
    });
    add(table, "setattr-guard-of-another-time", rule(clause, "NFS3ERR_NOT_SYNC"), 2, |world| {
        Xdr::new().opaque(&world.file).words(&[1, 0o600, 0, 0, 0, 0, 0, 1, 12, 34])
    });
    for (name, size) in [("2-to-the-63", 1 << 63), ("max", u64::MAX)] {
        add(
            table,
            &format!("setattr-size-{name}"),
            rule(clause, "NFS3ERR_FBIG | NFS3ERR_INVAL"),
            2,
            move |world| {
                Xdr::new().opaque(&world.file).words(&[0, 0, 0, 1]).u64(size).words(&[0, 0, 0])
            },
        );
    }
    add(
        table,
        "setattr-size-of-a-directory",
        rule(clause, "NFS3ERR_INVAL | NFS3ERR_ISDIR | NFS3ERR_ACCES"),
        2,
        |world| Xdr::new().opaque(&world.dir).words(&[0, 0, 0, 1]).u64(0).words(&[0, 0, 0]),
    );
    add(table, "access-of-all-bits", rule("RFC 1813 §3.3.4", "OK"), 4, |world| {
        Xdr::new().opaque(&world.file).u32(u32::MAX)
    });
}

fn creation(table: &mut DefectTable) {
    add(table, "create-how-3", rule(XDR, "GARBAGE_ARGS"), 8, |world| {
        mode(place(&world.dir, b"made").u32(3), 0o644)
    });
    add(
        table,
        "create-guarded-of-what-is-there",
        rule("RFC 1813 §3.3.8", "NFS3ERR_EXIST"),
        8,
        |world| mode(place(&world.dir, b"file").u32(1), 0o644),
    );
    add(
        table,
        "create-exclusive-of-what-is-there",
        rule("RFC 1813 §3.3.8", "NFS3ERR_EXIST"),
        8,
        |world| place(&world.dir, b"file").u32(2).u64(7),
    );
    add(table, "create-in-a-file", rule("RFC 1813 §3.3.8", "NFS3ERR_NOTDIR"), 8, |world| {
        mode(place(&world.file, b"made").u32(0), 0o644)
    });
    for name in [".", ".."] {
        add(
            table,
            &format!("mkdir-{name}"),
            rule("RFC 1813 §3.3.9", "NFS3ERR_EXIST | NFS3ERR_INVAL | NFS3ERR_ACCES"),
            9,
            move |world| mode(place(&world.dir, name.as_bytes()), 0o755),
        );
    }
    let mknod = "RFC 1813 §3.3.11";
    for kind in [1, 2, 5] {
        add(
            table,
            &format!("mknod-type-{kind}"),
            rule(mknod, "NFS3ERR_BADTYPE"),
            11,
            move |world| place(&world.dir, b"made").u32(kind),
        );
    }
    for kind in [0, 8, u32::MAX] {
        add(
            table,
            &format!("mknod-type-{kind}"),
            rule(mknod, "NFS3ERR_BADTYPE | GARBAGE_ARGS"),
            11,
            move |world| place(&world.dir, b"made").u32(kind),
        );
    }
    add(table, "mknod-device-without-its-numbers", rule(XDR, "GARBAGE_ARGS"), 11, |world| {
        place(&world.dir, b"made").words(&[4, 0, 0])
    });
    let symlink = |path: &[u8], world: &HostileWorld| {
        place(&world.dir, b"made-not").words(&[0, 0, 0, 0, 0, 0]).opaque(path)
    };
    add(
        table,
        "symlink-path-with-a-zero-octet",
        rule("RFC 1813 §3.3.10", "NFS3ERR_ACCES | NFS3ERR_INVAL | GARBAGE_ARGS"),
        10,
        move |world| symlink(b"a\0b", world),
    );
    add(
        table,
        "symlink-path-of-nothing",
        rule("RFC 1813 §3.3.10", "NFS3ERR_INVAL | NFS3ERR_NOENT | NFS3ERR_ACCES"),
        10,
        move |world| symlink(b"", world),
    );
    add(table, "symlink-path-claims-4-gib", rule(XDR, "GARBAGE_ARGS"), 10, |world| {
        place(&world.dir, b"made-not").words(&[0, 0, 0, 0, 0, 0, u32::MAX])
    });
    add(
        table,
        "symlink-over-what-is-there",
        rule("RFC 1813 §3.3.10", "NFS3ERR_EXIST"),
        10,
        |world| place(&world.dir, b"file").words(&[0, 0, 0, 0, 0, 0]).opaque(b"there"),
    );
}

fn removal(table: &mut DefectTable) {
    add(
        table,
        "remove-of-what-is-not-there",
        rule("RFC 1813 §3.3.12", "NFS3ERR_NOENT"),
        12,
        |world| place(&world.dir, b"nothing"),
    );
    add(table, "rmdir-.", rule("RFC 1813 §3.3.13", "NFS3ERR_INVAL | NFS3ERR_ACCES"), 13, |world| {
        place(&world.dir, b".")
    });
    add(
        table,
        "rmdir-..",
        rule(
            "RFC 1813 §3.3.13",
            "NFS3ERR_EXIST | NFS3ERR_NOTEMPTY | NFS3ERR_INVAL | NFS3ERR_ACCES",
        ),
        13,
        |world| place(&world.dir, b".."),
    );
    add(
        table,
        "rmdir-of-what-is-not-empty",
        rule("RFC 1813 §3.3.13", "NFS3ERR_NOTEMPTY | NFS3ERR_EXIST"),
        13,
        |world| place(&world.dir, b"large"),
    );
    add(table, "rmdir-of-a-file", rule("RFC 1813 §3.3.13", "NFS3ERR_NOTDIR"), 13, |world| {
        place(&world.dir, b"file")
    });
    add(
        table,
        "remove-of-.",
        rule(
            "RFC 1813 §3.3.12",
            "NFS3ERR_ACCES | NFS3ERR_INVAL | NFS3ERR_ISDIR | NFS3ERR_PERM | NFS3ERR_EXIST",
        ),
        12,
        |world| place(&world.dir, b"."),
    );
    let rename = "RFC 1813 §3.3.14";
    add(
        table,
        "rename-of-.",
        rule(rename, "NFS3ERR_INVAL | NFS3ERR_ACCES | NFS3ERR_EXIST"),
        14,
        |world| place(&world.dir, b".").raw(&place(&world.dir, b"made").0),
    );
    add(
        table,
        "rename-to-..",
        rule(rename, "NFS3ERR_INVAL | NFS3ERR_ACCES | NFS3ERR_EXIST | NFS3ERR_NOTEMPTY"),
        14,
        |world| place(&world.dir, b"file").raw(&place(&world.dir, b"..").0),
    );
    add(table, "rename-into-itself", rule(rename, "NFS3ERR_INVAL"), 14, |world| {
        place(&world.dir, b"large").raw(&place(&world.large, b"inner").0)
    });
    add(
        table,
        "rename-of-a-directory-over-a-file",
        rule(rename, "NFS3ERR_EXIST | NFS3ERR_NOTDIR"),
        14,
        |world| place(&world.dir, b"large").raw(&place(&world.dir, b"file").0),
    );
    let link = "RFC 1813 §3.3.15";
    add(
        table,
        "link-to-a-directory",
        rule(link, "NFS3ERR_PERM | NFS3ERR_INVAL | NFS3ERR_ACCES | NFS3ERR_ISDIR"),
        15,
        |world| Xdr::new().opaque(&world.large).raw(&place(&world.dir, b"made-not").0),
    );
    add(table, "link-over-what-is-there", rule(link, "NFS3ERR_EXIST"), 15, |world| {
        Xdr::new().opaque(&world.file).raw(&place(&world.dir, b"link").0)
    });
    add(table, "link-to-a-removed-file", rule(link, "NFS3ERR_STALE"), 15, |world| {
        Xdr::new().opaque(&world.gone).raw(&place(&world.dir, b"made-not").0)
    });
}

fn listings(table: &mut DefectTable) {
    let readdir = "RFC 1813 §3.3.16";
    let list = |handle: &[u8], cookie, verifier, counts: &[u32]| {
        Xdr::new().opaque(handle).u64(cookie).u64(verifier).words(counts)
    };
    for count in [0, 1, 100] {
        add(
            table,
            &format!("readdir-in-{count}-octets"),
            rule(readdir, "NFS3ERR_TOOSMALL"),
            16,
            move |world| list(&world.large, 0, 0, &[count]),
        );
        add(
            table,
            &format!("readdirplus-in-{count}-octets"),
            rule("RFC 1813 §3.3.17", "NFS3ERR_TOOSMALL"),
            17,
            move |world| list(&world.large, 0, 0, &[count, count]),
        );
    }
    add(table, "readdir-of-a-file", rule(readdir, "NFS3ERR_NOTDIR"), 16, move |world| {
        list(&world.file, 0, 0, &[4_000])
    });
    add(
        table,
        "readdir-with-another-verifier",
        rule(readdir, "NFS3ERR_BAD_COOKIE | OK"),
        16,
        move |world| list(&world.dir, 1, 0xBAD, &[3_000]),
    );
    add(table, "readdir-cookie-max", rule(readdir, "NFS3ERR_BAD_COOKIE | OK"), 16, move |world| {
        list(&world.dir, u64::MAX, 0, &[3_000])
    });
    add(
        table,
        "readdirplus-cookie-max",
        rule("RFC 1813 §3.3.17", "NFS3ERR_BAD_COOKIE | OK"),
        17,
        move |world| list(&world.dir, u64::MAX, 0, &[3_000, 3_000]),
    );
    for (name, counts) in
        [("readdirplus-dircount-0", [0, 3_000]), ("readdirplus-dircount-max", [u32::MAX, 3_000])]
    {
        add(table, name, rule("RFC 1813 §3.3.17", "OK | NFS3ERR_TOOSMALL"), 17, move |world| {
            list(&world.dir, 0, 0, &counts)
        });
    }
    let message = move |world: &HostileWorld, xid| {
        record(&call(xid, NFS, 3, 17).raw(&list(&world.large, 0, 0, &[u32::MAX, u32::MAX]).0).0)
    };
    table.add(
        "readdirplus-of-4-gib",
        "RFC 1813 §3.3.17",
        "OK",
        Play::Octet(Box::new(message), Family::Nfs),
    );
}

/// MOUNT, over the transport that serves it.
fn mounts(table: &mut DefectTable) {
    let clause = "RFC 1813 §5.2.1";
    let missing = "MNT3ERR_NOENT | MNT3ERR_ACCES | MNT3ERR_INVAL | MNT3ERR_NOTDIR";
    for (name, path, expect) in [
        ("nothing", vec![], missing),
        ("what-is-not-exported", b"/not/exported".to_vec(), missing),
        ("a-path-out-of-the-export", b"/../../../etc".to_vec(), missing),
        ("a-relative-path", b"etc".to_vec(), missing),
        ("a-path-with-a-zero-octet", b"/etc\0x".to_vec(), missing),
        (
            "a-path-of-1024-octets",
            vec![b'/'; 1_024],
            "MNT3ERR_NOENT | MNT3ERR_NAMETOOLONG | MNT3ERR_ACCES | MNT3ERR_INVAL | OK",
        ),
        ("a-path-of-1025-octets", vec![b'/'; 1_025], "GARBAGE_ARGS | MNT3ERR_NAMETOOLONG"),
    ] {
        let message = move |_: &HostileWorld, xid| call(xid, MOUNT, 3, 1).opaque(&path).0;
        table
            .add(
                format!("mount-of-{name}"),
                clause,
                expect,
                Play::Rpc(Box::new(message), Family::Mount),
            )
            .not_for_kernels();
    }
    for version in [0, 2, 4] {
        let message = move |_: &HostileWorld, xid| call(xid, MOUNT, version, 0).0;
        table
            .add(
                format!("mount-version-{version}"),
                "RFC 5531 §9",
                "PROG_MISMATCH",
                Play::Rpc(Box::new(message), Family::Rpc),
            )
            .not_for_kernels();
    }
    let message = |_: &HostileWorld, xid| call(xid, MOUNT, 3, 6).0;
    table
        .add(
            "mount-procedure-6",
            "RFC 5531 §9",
            "PROC_UNAVAIL",
            Play::Rpc(Box::new(message), Family::Rpc),
        )
        .not_for_kernels();
    let message = |_: &HostileWorld, xid| call(xid, MOUNT, 3, 1).u32(u32::MAX).raw(b"/etc").0;
    table
        .add(
            "mount-path-claims-4-gib",
            XDR,
            "GARBAGE_ARGS",
            Play::Rpc(Box::new(message), Family::Mount),
        )
        .not_for_kernels();
    let message = |_: &HostileWorld, xid| call(xid, MOUNT, 3, 3).opaque(b"/never/mounted").0;
    table
        .add(
            "umount-of-what-was-never-mounted",
            "RFC 1813 §5.2.3",
            "OK",
            Play::Rpc(Box::new(message), Family::Rpc),
        )
        .not_for_kernels();
}
