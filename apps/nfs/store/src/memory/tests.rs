//! Tests of the behaviour that only this store has. The behaviour of every store is tested in
//! [`crate::tests`].

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
};

use stag_engine::Extents;
use stag_pools::Extent;
use stag_protocol::{
    nfs::v3::{DeviceNumber, FileKind, StableHow},
    rpc::Gids,
};

use super::{
    space::{BLOCK, RESERVE, SMALL},
    tree::PlacedInode,
    *,
};
use crate::{
    CreateMode, DeviceNode, ListingStart, NameIn, NewAttributes, Procedures as _, TRANSFER_MAX,
    WritePayload,
};

fn export(name: &str) -> MemoryExport {
    MemoryExport { name: name.to_owned(), copy_of: None, read_only: false }
}

fn memory(capacity: usize) -> (Memory, FileHandle) {
    let mut memory =
        Memory::new(&MemoryConfig::new(vec![export("data")], capacity), &mut |_| ()).unwrap();
    let root = memory.mount(b"/data").unwrap();
    (memory, root)
}

fn create(memory: &mut Memory, dir: &FileHandle, name: &str) -> Result<FileHandle, Status> {
    let how = CreateMode::Guarded(NewAttributes::default());
    memory
        .create(dir, name.as_bytes(), &how)
        .map(|made| made.handle)
        .map_err(|failed| failed.status)
}

fn write(
    memory: &mut Memory,
    file: &FileHandle,
    offset: usize,
    data: &[u8],
) -> Result<u32, Status> {
    let done = memory.write(file, offset as u64, data.into(), StableHow::Unstable);
    done.map(|done| done.count).map_err(|failed| failed.status)
}

fn read(memory: &mut Memory, file: &FileHandle, offset: usize, count: usize) -> Extents {
    memory.read(&|_| panic!("nothing is borrowed"), file, offset as u64, count as u32).unwrap().data
}

fn octets(extents: &Extents) -> Vec<u8> {
    extents.iter().flat_map(|part| part.to_vec()).collect()
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}

/// Bytes as if they had been pulled to a buffer of the store.
fn pulled(memory: &Memory, data: &[u8]) -> Option<Extent> {
    let mut sink = memory.sink(data.len())?;
    sink.append(data).unwrap();
    Some(sink.freeze())
}

fn write_pulled(memory: &mut Memory, file: &FileHandle, offset: u64, shared: &Extent) -> u32 {
    let payload = WritePayload { octets: shared, shared: Some(shared.clone()) };
    memory.write(file, offset, payload, StableHow::Unstable).unwrap().count
}

#[test]
fn two_reads_of_the_same_octets_are_the_same_memory() {
    let (mut memory, root) = memory(8 << 20);
    let file = create(&mut memory, &root, "f").unwrap();
    write(&mut memory, &file, 0, &pattern(1 << 20)).unwrap();
    let taken = memory.space.taken();
    let (first, second) =
        (read(&mut memory, &file, 0, 1 << 20), read(&mut memory, &file, 0, 1 << 20));
    assert_eq!((first.len(), first.iter().count()), (1 << 20, 16));
    for (first, second) in first.iter().zip(&second) {
        assert_eq!(first.as_ptr(), second.as_ptr(), "no octet is copied");
    }
    let part = read(&mut memory, &file, 70_000, 10);
    let block = first.iter().nth(1).unwrap();
    assert_eq!(part.iter().next().unwrap().as_ptr(), block[70_000 - BLOCK..].as_ptr());
    assert_eq!(memory.space.taken(), taken, "a READ takes no memory");
    assert_eq!(octets(&first), pattern(1 << 20));
}

#[test]
fn a_read_from_anywhere_fits_its_list_and_holes_do_too() {
    let (mut memory, root) = memory(8 << 20);
    let file = create(&mut memory, &root, "f").unwrap();
    let whole = pattern(3 << 20);
    for (at, part) in whole.chunks(1 << 20).enumerate() {
        write(&mut memory, &file, at << 20, part).unwrap();
    }
    for offset in [0, 1, 4095, 65_535, 65_536, 65_537, 1_000_000] {
        let got = read(&mut memory, &file, offset, 1 << 20);
        assert!(
            got.iter().count() <= Extents::MAX && octets(&got) == whole[offset..offset + (1 << 20)]
        );
    }
    // One byte in each block: bytes that do not fit the list are left for the next READ.
    let sparse = create(&mut memory, &root, "s").unwrap();
    for block in 0..16 {
        write(&mut memory, &sparse, block * BLOCK + 5, b"x").unwrap();
    }
    let mut got = Vec::new();
    while got.len() < 15 * BLOCK + 6 {
        let more = octets(&read(&mut memory, &sparse, got.len(), 1 << 20));
        assert!(more.len() > BLOCK / 2);
        got.extend(more);
    }
    assert_eq!(got.iter().filter(|octet| **octet == b'x').count(), 16);
    assert!((0..16).all(|block| got[block * BLOCK + 5] == b'x'));
    assert_eq!(memory.getattr(&sparse).unwrap().used, 16 * SMALL as u64);
}

#[test]
fn a_write_that_was_pulled_to_the_store_becomes_the_file() {
    let (mut memory, root) = memory(8 << 20);
    let file = create(&mut memory, &root, "f").unwrap();
    for (offset, len) in
        [(0, BLOCK), (BLOCK, 10_000), (0, BLOCK), (2 * BLOCK, 100), (2 * BLOCK, 100)]
    {
        let shared = pulled(&memory, &pattern(len)).unwrap();
        assert_eq!(write_pulled(&mut memory, &file, offset as u64, &shared), len as u32);
        let got = read(&mut memory, &file, offset, len);
        assert_eq!(
            got.iter().next().unwrap().as_ptr(),
            shared.as_ptr(),
            "{len} octets at {offset}"
        );
    }
    assert_eq!(memory.space.taken(), 3);
    assert_eq!(memory.getattr(&file).unwrap().used, (2 * BLOCK + SMALL) as u64);
    // Data that does not begin its block, or leaves some of it, is copied; the buffer is freed.
    for (offset, len) in [(1, 100), (BLOCK - 50, 100), (0, 100)] {
        let shared = pulled(&memory, &vec![7; len]).unwrap();
        write_pulled(&mut memory, &file, offset as u64, &shared);
        assert_eq!(octets(&read(&mut memory, &file, offset, len)), vec![7; len]);
        drop(shared);
        assert_eq!(memory.space.taken(), 3);
    }
    assert!(memory.sink(0).is_none() && memory.sink(BLOCK + 1).is_none());
}

#[test]
fn a_long_write_that_was_pulled_to_the_store_becomes_its_blocks() {
    let (mut memory, root) = memory(32 << 20);
    let file = create(&mut memory, &root, "f").unwrap();
    let whole = 16 * BLOCK;
    // Nothing is there, then all of it is overwritten, then a part, with a rest of one block.
    for (offset, len) in [(0, whole), (0, whole), (4 * BLOCK, 9 * BLOCK + 5_000)] {
        let shared = pulled(&memory, &pattern(len)).unwrap();
        assert_eq!(write_pulled(&mut memory, &file, offset as u64, &shared), len as u32);
        let got = read(&mut memory, &file, offset, len);
        let kept = got.iter().zip(shared.chunks(BLOCK));
        assert!(kept.clone().all(|(block, sent)| block[..] == sent[..block.len()]));
        let whole = kept.filter(|(block, sent)| block.as_ptr() == sent.as_ptr()).count();
        assert_eq!(whole, len / BLOCK, "each whole block is the memory that was pulled to");
        drop((got, shared));
        let used = memory.getattr(&file).unwrap().used;
        assert_eq!((memory.space.taken(), used), (16, 16 * BLOCK as u64));
    }
    // Blocks that began as one buffer are freed, cut and changed alone.
    let cut = NewAttributes { size: Some(2 * BLOCK as u64 + 10), ..NewAttributes::default() };
    memory.setattr(&file, &cut, None).unwrap();
    assert_eq!(memory.space.taken(), 3);
    write(&mut memory, &file, BLOCK + 7, &[9; 10]).unwrap();
    let mut expected = pattern(whole)[..2 * BLOCK + 10].to_vec();
    expected[BLOCK + 7..BLOCK + 17].fill(9);
    assert_eq!(octets(&read(&mut memory, &file, 0, whole)), expected);
    assert_eq!(memory.space.taken(), 3);
    // Data that does not begin a block is copied, and its buffer is freed.
    for offset in [1, BLOCK / 2, BLOCK + 4_096] {
        let shared = pulled(&memory, &vec![offset as u8; whole]).unwrap();
        assert_eq!(write_pulled(&mut memory, &file, offset as u64, &shared), whole as u32);
        assert_eq!(octets(&read(&mut memory, &file, offset, whole)), vec![offset as u8; whole]);
        drop(shared);
        let blocks = (offset + whole).div_ceil(BLOCK).max(17);
        let used = memory.getattr(&file).unwrap().used;
        assert!(used <= (blocks * BLOCK) as u64, "{used} octets of {blocks} blocks");
        assert_eq!(memory.space.taken(), blocks, "at {offset}");
    }
    memory.remove(&root, b"f").unwrap();
    assert_eq!(memory.space.taken(), 0);
}

#[test]
fn long_data_is_received_in_place_only_while_there_is_space_for_other_data() {
    let (memory, _) = memory(32 << 20);
    assert!(memory.sink(8 * BLOCK).is_none(), "a run this short would break a group for little");
    assert!(memory.sink(16 * BLOCK + 1).is_none());
    let runs: Vec<_> = std::iter::from_fn(|| memory.sink(16 * BLOCK)).collect();
    assert_eq!((runs.len(), memory.space.taken()), (13, 208), "of 480 blocks half are kept free");
    assert!(memory.sink(BLOCK).is_some());
    let (small, _) = self::memory(4 << 20);
    assert!(small.sink(16 * BLOCK).is_none(), "a copy could not be stored beside it");
}

#[test]
fn memory_of_somebody_else_is_never_kept() {
    let (mut memory, root) = memory(1 << 20);
    let (other, _) = self::memory(1 << 20);
    let file = create(&mut memory, &root, "f").unwrap();
    let shared = pulled(&other, &pattern(5_000)).unwrap();
    write_pulled(&mut memory, &file, 0, &shared);
    drop(shared);
    assert_eq!((other.space.taken(), memory.space.taken()), (0, 1));
}

#[test]
fn what_is_being_sent_never_changes_and_what_is_not_is_changed_in_place() {
    let (mut memory, root) = memory(1 << 20);
    let file = create(&mut memory, &root, "f").unwrap();
    write(&mut memory, &file, 0, &vec![1; BLOCK]).unwrap();
    let address = |got: &Extents| got.iter().next().unwrap().as_ptr();
    let at = address(&read(&mut memory, &file, 0, BLOCK));
    write(&mut memory, &file, 100, &[2; 50]).unwrap();
    let sent = read(&mut memory, &file, 0, BLOCK);
    assert_eq!(address(&sent), at, "nobody looked: no copy");
    let before = octets(&sent);
    write(&mut memory, &file, 0, &[3; 120]).unwrap();
    memory.remove(&root, b"f").unwrap();
    let other = create(&mut memory, &root, "g").unwrap();
    let mut filled = 0;
    while let Ok(count) = write(&mut memory, &other, filled, &[9; BLOCK]) {
        filled += count as usize;
    }
    assert!(filled > 900_000);
    assert!(octets(&sent) == before, "neither by a WRITE nor by another file");
    assert_eq!(before[100..150], [2; 50]);
}

#[test]
fn a_full_store_says_so_keeps_everything_and_goes_on_when_there_is_room() {
    let (mut memory, root) = memory(1 << 20);
    let (total, _) = memory.capacity();
    assert!(total <= 1 << 20 && total > (1 << 20) - BLOCK as u64);
    let file = create(&mut memory, &root, "f").unwrap();
    let data = pattern(2 << 20);
    let mut stored = 0;
    let refusal = loop {
        match write(&mut memory, &file, stored, &data[stored..stored + 100_000]) {
            Ok(count) => stored += count as usize,
            Err(status) => break status,
        }
    };
    assert_eq!(refusal, Status::NoSpc);
    assert!(stored > 900_000, "{stored}");
    assert!(read_all(&mut memory, &file) == data[..stored]);
    assert_eq!(memory.getattr(&file).unwrap().size, stored as u64);
    // Small files still have their slots, and stored data can be changed, even while it is being
    // sent.
    let small = create(&mut memory, &root, "small").unwrap();
    write(&mut memory, &small, 0, b"small").unwrap();
    let sent: Vec<_> =
        (0..RESERVE).map(|block| read(&mut memory, &file, block * BLOCK, BLOCK)).collect();
    for block in 0..stored / BLOCK {
        write(&mut memory, &file, block * BLOCK, &[5; 10]).unwrap();
    }
    assert!(sent.iter().enumerate().all(|(block, sent)| {
        octets(sent) == data[block * BLOCK..stored.min((block + 1) * BLOCK)]
    }));
    drop(sent);
    let (fsstat, _) = memory.fsstat(&root).unwrap();
    assert_eq!(fsstat.available_octets, 0);
    memory.remove(&root, b"f").unwrap();
    assert_eq!(memory.getattr(&file), Err(Status::Stale));
    assert_eq!(memory.capacity().1, total - SMALL as u64);
    let again = create(&mut memory, &root, "again").unwrap();
    assert_eq!(write(&mut memory, &again, 0, &data[..900_000]), Ok(900_000));
}

fn read_all(memory: &mut Memory, file: &FileHandle) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let more = octets(&read(memory, file, all.len(), TRANSFER_MAX as usize));
        if more.is_empty() {
            return all;
        }
        all.extend(more);
    }
}

#[test]
fn changing_what_is_being_sent_is_put_off_when_even_the_reserve_is_used_up() {
    let (mut memory, root) = memory(1 << 20);
    let file = create(&mut memory, &root, "f").unwrap();
    let blocks = memory.fsstat(&root).unwrap().0.available_octets as usize / BLOCK;
    for block in 0..blocks {
        write(&mut memory, &file, block * BLOCK, &vec![1; BLOCK]).unwrap();
    }
    let (mut sent, mut changed) = (Vec::new(), 0);
    let refusal = loop {
        sent.push(read(&mut memory, &file, 0, BLOCK));
        match write(&mut memory, &file, 0, b"x") {
            Ok(_) => changed += 1,
            Err(status) => break status,
        }
    };
    assert_eq!((refusal, changed), (Status::Jukebox, RESERVE));
    sent.clear();
    write(&mut memory, &file, 0, b"y").unwrap();
    assert_eq!(octets(&read(&mut memory, &file, 0, 2)), [b'y', 1]);
}

#[test]
fn huge_holes_cost_nothing() {
    let (mut memory, root) = memory(1 << 20);
    let file = create(&mut memory, &root, "f").unwrap();
    write(&mut memory, &file, i64::MAX as usize - 1, b"x").unwrap();
    let found = memory.getattr(&file).unwrap();
    assert_eq!(
        (found.size, found.used),
        (i64::MAX as u64, BLOCK as u64),
        "it is the last octet of its block"
    );
    assert_eq!(octets(&read(&mut memory, &file, 1 << 40, 100)), [0; 100]);
    let set = NewAttributes { size: Some(1), ..NewAttributes::default() };
    memory.setattr(&file, &set, None).unwrap();
    assert_eq!((memory.getattr(&file).unwrap().used, memory.space.taken()), (0, 0));
}

#[test]
fn every_handle_of_another_life_is_stale_and_the_verifier_is_another() {
    let ((mut before, root), (mut after, _)) = (memory(1 << 20), memory(1 << 20));
    let file = create(&mut before, &root, "f").unwrap();
    let gone = create(&mut before, &root, "g").unwrap();
    before.remove(&root, b"g").unwrap();
    assert_eq!(before.getattr(&gone), Err(Status::Stale));
    let successor = create(&mut before, &root, "g").unwrap();
    assert_ne!(successor, gone, "a place that is used again has another handle");
    for handle in [root, file, gone] {
        assert_eq!(after.getattr(&handle), Err(Status::Stale));
        assert_eq!(write(&mut after, &handle, 0, b"x"), Err(Status::Stale));
    }
    assert_ne!(before.verifier(), after.verifier());
}

#[test]
fn objects_and_names_have_limits_that_are_told() {
    let config = MemoryConfig { inodes: 10, ..MemoryConfig::new(vec![export("data")], 1 << 20) };
    let mut memory = Memory::new(&config, &mut |_| ()).unwrap();
    let root = memory.mount(b"/data").unwrap();
    let files: Vec<_> =
        (0..9).map(|i| create(&mut memory, &root, &format!("f{i}")).unwrap()).collect();
    assert_eq!(create(&mut memory, &root, "x"), Err(Status::NoSpc));
    let (fsstat, _) = memory.fsstat(&root).unwrap();
    assert_eq!((fsstat.total_files, fsstat.free_files), (10, 0));
    for name in 0..11 {
        memory.link(&files[0], &root, format!("l{name}").as_bytes()).unwrap();
    }
    assert_eq!(memory.link(&files[0], &root, b"l").unwrap_err().status, Status::NoSpc);
    memory.remove(&root, b"f5").unwrap();
    create(&mut memory, &root, "x").unwrap();
}

#[test]
fn two_exports_are_two_file_systems() {
    let config = MemoryConfig::new(vec![export("a"), export("b")], 1 << 20);
    let mut memory = Memory::new(&config, &mut |_| ()).unwrap();
    let (a, b) = (memory.mount(b"/a").unwrap(), memory.mount(b"/b").unwrap());
    assert_ne!(memory.getattr(&a).unwrap().fsid, memory.getattr(&b).unwrap().fsid);
    let file = create(&mut memory, &a, "f").unwrap();
    assert_eq!(
        memory.rename(NameIn::new(&a, b"f"), NameIn::new(&b, b"f")).unwrap_err().status,
        Status::XDev
    );
    assert_eq!(memory.link(&file, &b, b"f").unwrap_err().status, Status::XDev);
    for names in [&["a", "a"][..], &[""], &["a/b"]] {
        let exports = names.iter().map(|name| export(name)).collect();
        assert!(Memory::new(&MemoryConfig::new(exports, 1 << 20), &mut |_| ()).is_err());
    }
    assert!(Memory::new(&MemoryConfig::new(vec![], CAPACITY_MIN - 1), &mut |_| ()).is_err());
    assert!((CAPACITY_MIN..=CAPACITY_DEFAULT_MAX).contains(&MemoryConfig::default_capacity()));
    assert!(MemoryConfig::host_memory() >= MemoryConfig::default_capacity());
}

#[test]
fn new_objects_are_the_callers() {
    let (mut memory, root) = memory(1 << 20);
    let gids = stag_protocol::rpc::Gids::default();
    let address = stag_engine::PeerAddress::Simulated;
    let user = User::Unix { uid: 12, gid: 34, gids };
    memory.act_as(&crate::Caller::trusted(user, address));
    let file = create(&mut memory, &root, "f").unwrap();
    let found = memory.getattr(&file).unwrap();
    assert_eq!((found.uid, found.gid), (12, 34));
    memory.act_as(&crate::Caller::trusted(User::Anyone, address));
    let set = NewAttributes { uid: Some(5), gid: Some(6), ..NewAttributes::default() };
    let after = memory.setattr(&file, &set, None).unwrap().object.after.unwrap();
    assert_eq!((after.uid, after.gid), (5, 6));
    let file = create(&mut memory, &root, "g").unwrap();
    assert_eq!(memory.getattr(&file).unwrap().uid, NOBODY);
}

#[test]
fn a_directory_is_copied_with_its_links_modes_and_times() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    fs::create_dir_all(at("d/e")).unwrap();
    let data = pattern(200_000);
    fs::write(at("d/file"), &data).unwrap();
    fs::set_permissions(at("d/file"), fs::Permissions::from_mode(0o751)).unwrap();
    fs::set_permissions(at("d"), fs::Permissions::from_mode(0o710)).unwrap();
    fs::hard_link(at("d/file"), at("d/e/same")).unwrap();
    std::os::unix::fs::symlink("../away", at("link")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), rustix::fs::Mode::RUSR).unwrap();
    let mut hole = vec![0; 5 * BLOCK];
    hole[3 * BLOCK] = 1;
    fs::write(at("hole"), &hole).unwrap();
    for name in ["d", "d/file"] {
        let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000, 77);
        fs::File::open(at(name)).unwrap().set_modified(time).unwrap();
    }
    let export = MemoryExport { copy_of: Some(home.path().to_owned()), ..export("data") };
    let mut seen = (0, 0);
    let config = MemoryConfig::new(vec![export.clone()], 2 << 20);
    let mut memory = Memory::new(&config, &mut |progress| {
        assert!(progress.path.starts_with(home.path()));
        assert!(progress.objects > seen.0 && progress.octets >= seen.1 && progress.left_out == 0);
        seen = (progress.objects, progress.octets);
    })
    .unwrap();
    assert_eq!(seen, (7, 200_000 + 5 * BLOCK as u64));
    let dir = memory.mount(b"/data/d").unwrap();
    let inner = memory.mount(b"/data/d/e").unwrap();
    let root = memory.mount(b"/data").unwrap();
    let found = memory.lookup(&dir, b"file").unwrap();
    assert_eq!(memory.lookup(&inner, b"same").unwrap().handle, found.handle);
    assert!(read_all(&mut memory, &found.handle) == data);
    let meta = fs::metadata(at("d/file")).unwrap();
    let attributes = found.attributes;
    assert_eq!((attributes.mode, attributes.nlink), (0o751, 2));
    assert_eq!(
        (attributes.uid, attributes.gid, attributes.size),
        (meta.uid(), meta.gid(), 200_000)
    );
    let time = FileTime { seconds: 1_000_000, nanos: 77 };
    let above = memory.getattr(&dir).unwrap();
    assert_eq!((attributes.mtime, above.mtime, above.mode, above.nlink), (time, time, 0o710, 3));
    let link = memory.lookup(&root, b"link").unwrap().handle;
    assert_eq!(&memory.readlink(&|_| None, &link).unwrap().target[..], b"../away");
    let sparse = memory.lookup(&root, b"hole").unwrap();
    assert_eq!((sparse.attributes.size, sparse.attributes.used), (5 * BLOCK as u64, BLOCK as u64));
    assert!(read_all(&mut memory, &sparse.handle) == hole);
    let mut names = Vec::new();
    memory
        .readdir(&root, ListingStart::default(), &mut |entry| {
            names.push(entry.name.to_vec());
            true
        })
        .unwrap();
    names.sort();
    assert_eq!(names, [&b"."[..], b"..", b"d", b"fifo", b"hole", b"link"]);

    fs::write(at("large"), pattern(2 << 20)).unwrap();
    let error = Memory::new(&config, &mut |_| ()).unwrap_err();
    assert!(error.to_string().contains("large does not fit"), "{error}");
    let missing = MemoryExport { copy_of: Some(at("missing")), ..export };
    let error = Memory::new(&MemoryConfig::new(vec![missing], 1 << 20), &mut |_| ()).unwrap_err();
    assert!(error.to_string().starts_with("cannot look at"), "{error}");
}

/// Heap used at the limit on objects, without their names: 1 GiB has 262,144 of them.
#[test]
fn an_object_takes_at_most_320_octets_of_the_table() {
    assert!(size_of::<Option<PlacedInode>>() <= 320, "{}", size_of::<Option<PlacedInode>>());
}

#[test]
fn devices_are_made_and_keep_their_numbers() {
    let (mut memory, root) = memory(CAPACITY_MIN);
    let set = NewAttributes { mode: Some(0o640), ..NewAttributes::default() };
    for (name, kind, major, minor) in
        [(b"b", FileKind::Block, 8, 17), (b"c", FileKind::Character, 4_095, 1_048_575)]
    {
        let device = DeviceNumber { major, minor };
        let made = memory.mknod(&root, name, DeviceNode { kind, device }, &set).unwrap();
        let found = memory.lookup(&root, name).unwrap();
        assert_eq!((found.handle, found.attributes), (made.handle, made.attributes));
        assert_eq!(
            (made.attributes.kind, made.attributes.device, made.attributes.mode),
            (kind, device, 0o640)
        );
        assert_eq!((made.attributes.size, made.attributes.nlink), (0, 1));
        assert_eq!(write(&mut memory, &made.handle, 0, b"x"), Err(Status::Inval));
        let again = memory.mknod(&root, name, DeviceNode { kind, device }, &set).unwrap_err();
        assert_eq!(again.status, Status::Exist);
        memory.remove(&root, name).unwrap();
        assert_eq!(memory.getattr(&made.handle), Err(Status::Stale));
    }
}

#[test]
fn whoever_changes_a_file_does_not_hand_on_the_right_to_act_as_its_owner() {
    let (mut memory, root) = memory(CAPACITY_MIN);
    let gids = Gids::new(&[70]).unwrap();
    let user = |uid| User::Unix { uid, gid: uid, gids };
    let mode = |mode| NewAttributes { mode: Some(mode), ..NewAttributes::default() };
    let give = NewAttributes { uid: Some(5), gid: Some(6), ..NewAttributes::default() };
    let cut = NewAttributes { size: Some(0), ..NewAttributes::default() };
    memory.set_caller(&user(0));
    let file = create(&mut memory, &root, "f").unwrap();
    let dir = memory.mkdir(&root, b"d", &mode(0o6775)).unwrap();
    assert_eq!(dir.attributes.mode, 0o6775);
    let of = |memory: &mut Memory, file: &FileHandle| memory.getattr(file).unwrap().mode;
    for (before, after) in [(0o6777, 0o777), (0o2666, 0o2666), (0o4600, 0o600), (0o1755, 0o1755)] {
        for change in 0..3 {
            memory.set_caller(&user(0));
            memory.setattr(&file, &mode(before), None).unwrap();
            if change < 2 {
                assert_eq!(write(&mut memory, &file, 0, b"root's"), Ok(6));
                assert_eq!(of(&mut memory, &file), before, "root may");
            }
            memory.set_caller(&user(1_000));
            match change {
                0 => assert_eq!(write(&mut memory, &file, 0, b"x"), Ok(1)),
                1 => drop(memory.setattr(&file, &cut, None).unwrap()),
                _ => drop(memory.setattr(&file, &give, None).unwrap()),
            }
            assert_eq!(of(&mut memory, &file), after, "{before:o}, change {change}");
        }
    }
    memory.setattr(&dir.handle, &give, None).unwrap();
    assert_eq!(of(&mut memory, &dir.handle), 0o6775, "a directory's bits mean something else");
    // Set-gid is for members, and for root.
    for (gid, expected) in [(6, 0o0755), (70, 0o2755), (1_000, 0o2755)] {
        let set = NewAttributes { gid: Some(gid), ..mode(0o2755) };
        memory.setattr(&file, &set, None).unwrap();
        assert_eq!(of(&mut memory, &file), expected, "group {gid}");
    }
}
