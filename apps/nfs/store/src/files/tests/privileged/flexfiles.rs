//! Tests of a data server of flexible file layouts, loosely coupled (RFC 8435 §2.2): clients use a
//! synthetic user of one file. The metadata server, which alone is root, fences them off by a
//! change of owner.

use super::*;
use crate::Caller;
use stag_engine::PeerAddress;

/// The metadata server's address, and a client's.
const METADATA: &str = "10.1.0.5:900";
const CLIENT: &str = "10.1.0.77:900";
/// The synthetic user and group of a file before it was fenced, and after.
const SYNTHETIC: [u32; 2] = [19_452, 28_418];
const FENCED: [u32; 2] = [19_453, 28_419];

impl Lab {
    fn from<T>(&mut self, address: &str, user: User, calls: impl FnOnce(&mut Self) -> T) -> T {
        let address = PeerAddress::Ip(address.parse().unwrap());
        self.files.act_as_caller(&Caller::trusted(user, address));
        let outcome = calls(self);
        stag_nfs_os::user::leave().unwrap();
        outcome
    }
}

/// Owner and group as set by the metadata server.
fn owned_by([uid, gid]: [u32; 2]) -> NewAttributes {
    NewAttributes { uid: Some(uid), gid: Some(gid), ..NewAttributes::default() }
}

/// READ, unstable WRITE, stable WRITE and COMMIT of the file.
fn all_of_it(lab: &mut Lab, file: &FileHandle) -> [Result<(), Status>; 4] {
    let stable = lab.files.write_slices(file, 0, &mut [IoSlice::new(b"x")], StableHow::FileSync);
    [
        lab.content(file).map(drop),
        lab.write(file, 0, b"x").map(drop),
        stable.map(drop).map_err(|failed| failed.status),
        lab.files.commit(file).map(drop).map_err(|failed| failed.status),
    ]
}

/// A data server whose root is the metadata server's only, with a private directory, and a file in
/// it; none if callers cannot act as themselves.
fn data_server() -> Option<(Lab, FileHandle)> {
    let network = METADATA.split(':').next().unwrap().parse::<std::net::IpAddr>().unwrap().into();
    let mut lab = lab(|config| {
        config.callers.squash = Squash::Root;
        config.callers.networks = vec![NetworkSquash { network, squash: Squash::None }];
    })?;
    fs::create_dir(lab.path("pool")).unwrap();
    lab.own("pool", 0, 0, 0o700);
    let root = member(0, 0, &[]);
    let file = lab.from(METADATA, root, |lab| {
        let pool = lab.find("pool");
        let made = lab.files.create(&pool, b"f", &guarded(0o640)).unwrap().handle;
        lab.files.set_attributes(&made, &owned_by(SYNTHETIC), None).unwrap();
        made
    });
    Some((lab, file))
}

#[test]
fn a_client_has_what_its_synthetic_user_has_until_it_is_fenced() {
    let Some((mut lab, file)) = data_server() else { return };
    let [uid, gid] = SYNTHETIC;
    let (owner, reader) = (member(uid, gid, &[]), member(65_533, gid, &[]));
    let refused = Err(Status::Acces);
    for _ in 0..2 {
        assert_eq!(lab.from(CLIENT, owner, |lab| all_of_it(lab, &file)), [Ok(()); 4]);
        let read_only = lab.from(CLIENT, reader, |lab| all_of_it(lab, &file));
        assert_eq!(read_only, [Ok(()), refused, refused, refused]);
        assert_eq!(lab.from(CLIENT, user(BOB), |lab| all_of_it(lab, &file)), [refused; 4]);
        assert_eq!(lab.from(CLIENT, member(0, 0, &[]), |lab| all_of_it(lab, &file)), [refused; 4]);
        lab = lab.restart();
    }

    // By the metadata server, and by a local program.
    let root = member(0, 0, &[]);
    lab.from(METADATA, root, |lab| lab.files.set_attributes(&file, &owned_by(FENCED), None))
        .unwrap();
    for fenced in [owner, reader] {
        assert_eq!(lab.from(CLIENT, fenced, |lab| all_of_it(lab, &file)), [refused; 4]);
    }
    let renewed = member(FENCED[0], FENCED[1], &[]);
    assert_eq!(lab.from(CLIENT, renewed, |lab| all_of_it(lab, &file)), [Ok(()); 4]);
    lab.own("pool/f", uid, gid, 0o640);
    assert_eq!(lab.from(CLIENT, renewed, |lab| all_of_it(lab, &file)), [refused; 4]);
    assert_eq!(lab.from(CLIENT, owner, |lab| all_of_it(lab, &file)), [Ok(()); 4]);
}

#[test]
fn only_the_metadata_server_makes_finds_and_removes_files() {
    let Some((mut lab, file)) = data_server() else { return };
    let root = member(0, 0, &[]);
    for caller in [root, member(SYNTHETIC[0], SYNTHETIC[1], &[])] {
        lab.from(CLIENT, caller, |lab| {
            let pool = lab.find("pool");
            let made = lab.files.create(&pool, b"g", &guarded(0o600));
            assert_eq!(made.unwrap_err().status, Status::Acces);
            assert_eq!(lab.try_find("pool/f"), Err(Status::Acces));
            assert_eq!(lab.files.remove(&pool, b"f").unwrap_err().status, Status::Acces);
        });
        let chown = lab.from(CLIENT, caller, |lab| {
            lab.files.set_attributes(&file, &owned_by([ALICE, ALICE]), None).unwrap_err().status
        });
        assert_eq!(chown, Status::Perm);
    }
    lab.from(METADATA, root, |lab| {
        let pool = lab.find("pool");
        lab.files.remove(&pool, b"f").unwrap();
    });
}
