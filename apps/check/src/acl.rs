//! Access control lists, on servers that have them. Long lists make Long calls and Long replies
//! (RFC 8166 §3.5.3).

use super::scene::{CheckScene, CheckedValue, StepResult, done, holds, refused, same};
use stag_client::{Acl, Error};
use stag_protocol::{
    nfs::{
        acl::{Entry, Parts, Tag},
        v3::{FileHandle, SetAttributes, Status},
    },
    rpc::Accepted,
};
use stag_verbs::Provider;

/// Users that are named in one list. A list of the last, and what is around it, fits a page: Linux'
/// server (6.1) garbles longer ones.
const USERS: [u32; 5] = [1, 3, 30, 85, 300];
/// Users that every file system with lists takes.
const USERS_SAFE: u32 = 30;
/// Users in each of two lists that make a call of more than 4,096 octets together.
const USERS_LONG: u32 = 170;

const NO_PROGRAM: Error = Error::Rejected(Accepted::ProgUnavail);

pub(crate) fn lists<P: Provider>(scene: &mut CheckScene<'_, P>) -> StepResult {
    let file = scene.make(scene.work, "access")?;
    let has_lists = match scene.client.acl_null() {
        Err(NO_PROGRAM) => false,
        came => done("NULL of NFSACL", came).map(|()| true)?,
    };
    if has_lists && scene.client.getacl(file, Parts::ALL) != Err(Error::Nfs(Status::NotSupp)) {
        plain(scene, file)?;
        of_many(scene, file)?;
        inherited(scene)?;
        let wrong = Acl { access: vec![entry(Tag::OWNER, 0, 6)], ..Acl::default() };
        let came = scene.client.setacl(file, &wrong, false);
        refused("SETACL without a group and others", &[Status::Inval], came)?;
    } else if !has_lists {
        // A call of a program that is not there is refused whole, however long it is.
        for users in [1, 2 * USERS_LONG] {
            let came = scene.client.setacl(file, &list(users), false);
            same(format_args!("SETACL of {users} users without NFSACL"), &Err(NO_PROGRAM), &came)?;
        }
    }
    scene.remove(scene.work, "access")
}

/// A file that was given no list has the one that its mode stands for.
fn plain<P: Provider>(scene: &mut CheckScene<'_, P>, file: FileHandle) -> StepResult {
    for mode in [0o640, 0o604] {
        let attributes = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        done("SETATTR of the mode", scene.client.setattr(file, attributes, None))?;
        let mut acl = get(scene, file)?;
        acl.access.retain(|entry| entry.tag != Tag::MASK); // Linux adds one on the wire
        let expected =
            [(Tag::OWNER, mode >> 6), (Tag::OWNING_GROUP, mode >> 3), (Tag::OTHER, mode)];
        let came: Vec<_> = acl.access.iter().map(|entry| (entry.tag, entry.permissions)).collect();
        same(
            "GETACL without a list",
            &expected.map(|(tag, bits)| (tag, bits & 7)).to_vec(),
            &came,
        )?;
        same("the default list of a file", &Vec::new(), &acl.default)?;
    }
    Ok(())
}

/// Lists of more and more users come back as they were set, and show in the mode.
fn of_many<P: Provider>(scene: &mut CheckScene<'_, P>, file: FileHandle) -> StepResult {
    for users in USERS {
        let acl = list(users);
        match scene.client.setacl(file, &acl, false) {
            Err(Error::Nfs(_)) if users > USERS_SAFE => continue, // its file system takes no more
            came => done(format_args!("SETACL of {users} users"), came)?,
        }
        let came = get(scene, file)?;
        holds(format_args!("GETACL of {users} users"), came == acl, "what was set", &came.access)?;
        // The mode shows the mask where the group's bits are.
        same("the mode of a file with a list", &0o650, &scene.attributes("the file", file)?.mode)?;
    }
    Ok(())
}

/// The default list of a directory, and what becomes of it in a new entry.
fn inherited<P: Provider>(scene: &mut CheckScene<'_, P>) -> StepResult {
    let dir = scene.make_dir(scene.work, "inherits")?;
    for users in [3, USERS_LONG] {
        let default = list(users).access.into_iter();
        let default = default
            .map(|entry| Entry { tag: Tag(entry.tag.0 | Tag::DEFAULT.0), ..entry })
            .collect();
        let acl = Acl { access: list(users).access, default };
        match scene.client.setacl(dir, &acl, true) {
            Err(Error::Nfs(_)) if users > USERS_SAFE => break, // its file system takes no more
            came => done(format_args!("SETACL of two lists of {users} users"), came)?,
        }
        let (access, default) = (Parts::ACCESS, Parts::DEFAULT);
        let access = done("GETACL of a directory", scene.client.getacl(dir, access))?.access;
        let default = done("GETACL of a default list", scene.client.getacl(dir, default))?.default;
        let came = named_only(Acl { access, default });
        holds(format_args!("two lists of {users} users"), came == acl, "what was set", &came)?;
        let file = scene.make(dir, "heir")?;
        let is_user = |entry: &Entry| entry.tag == Tag::USER;
        let users: Vec<_> = acl.access.into_iter().filter(is_user).collect();
        let heir: Vec<_> = get(scene, file)?.access.into_iter().filter(is_user).collect();
        same("the users that a new file inherits", &users, &heir)?;
        scene.remove(dir, "heir")?;
    }
    scene.remove_dir(scene.work, "inherits")
}

fn get<P: Provider>(scene: &mut CheckScene<'_, P>, object: FileHandle) -> CheckedValue<Acl> {
    done("GETACL", scene.client.getacl(object, Parts::ALL)).map(named_only)
}

/// The same without the numbers of entries that have no name: Linux has those of the file's owner
/// and group there, and a caller by a ticket need not know its number at the server.
fn named_only(mut acl: Acl) -> Acl {
    for entry in acl.access.iter_mut().chain(&mut acl.default) {
        let tag = Tag(entry.tag.0 & !Tag::DEFAULT.0);
        if tag != Tag::USER && tag != Tag::GROUP {
            entry.id = 0;
        }
    }
    acl
}

const fn entry(tag: Tag, id: u32, permissions: u32) -> Entry {
    Entry { tag, id, permissions }
}

/// A list with `users` named users, in the order of the wire: by tag, then by number.
fn list(users: u32) -> Acl {
    let mut access = vec![entry(Tag::OWNER, 0, 6)];
    access.extend((0..users).map(|user| entry(Tag::USER, 1_000 + user, 4 + user % 2)));
    access.extend([
        entry(Tag::OWNING_GROUP, 0, 4),
        entry(Tag::MASK, 0, 5),
        entry(Tag::OTHER, 0, 0),
    ]);
    Acl { access, default: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_numbers_of_named_users_and_groups_count() {
        let mut written = list(3);
        let set = Acl { default: vec![entry(Tag(Tag::OWNER.0 | Tag::DEFAULT.0), 0, 6)], ..list(3) };
        written.default = vec![entry(Tag(Tag::OWNER.0 | Tag::DEFAULT.0), 1_500, 6)];
        let owners = [Tag::OWNER, Tag::OWNING_GROUP];
        let of_file = written.access.iter_mut().filter(|entry| owners.contains(&entry.tag));
        of_file.for_each(|entry| entry.id = 1_500);
        assert_ne!(written, set);
        assert_eq!(named_only(written.clone()), set);
        written.access[1].id += 1;
        assert_ne!(named_only(written), set);
    }
}
