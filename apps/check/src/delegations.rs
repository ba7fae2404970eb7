//! Delegations (RFC 8881 §10.4): one client holds them, and the server recalls them over
//! the connection of the client's own calls when another client conflicts.

use super::{
    scene::{CheckScene, CheckedValue, StepResult, done, holds, same},
    state::close,
};
use stag_client::{Error, HeldAttributes, NfsClient, OtherClient};
use stag_protocol::{
    nfs::{
        Bulk,
        v3::{FileHandle, StableHow},
        v4::{
            Answer, AnswerSet as _, Array, Attribute, Bitmap, NoDelegation, Open4Args, OpenClaim,
            OpenDelegation, OpenHow, RawAttributes, Request, StateOwner, Stateid, Status4, Text,
            Write4Args, share,
        },
    },
    xdr::Reader,
};
use stag_verbs::Provider;
use std::{fmt, time::Duration};

/// Name of the file that is delegated.
const NAME: &str = "delegated";
/// Size of the file, and the octets that the holder of a write delegation says it has written.
const SIZE: usize = 1_000;
const WRITTEN: &[u8] = b"written by who has the delegation";
/// Times that a read delegation is given, recalled and returned.
const ROUNDS: usize = 4;
/// Time for a server to have a delegation back that was returned: a lease of most servers.
const PATIENCE: Duration = Duration::from_secs(90);
/// Times that a delegation is asked for again where others are in the way of it.
const CONTENDED: usize = 25;
/// Time between two tries of what the server puts off.
const PAUSE: Duration = Duration::from_millis(20);

/// A client.
struct Side {
    name: &'static str,
    client: OtherClient,
    /// Delegations that were recalled from it, all returned.
    returned: Vec<Stateid>,
}

/// An open, and the delegation that came with it.
struct Opened {
    open: Stateid,
    delegation: Given,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Given {
    Read(Stateid),
    Write(Stateid),
    /// None, and why, if the server says it.
    None(Option<NoDelegation>),
}

impl fmt::Display for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(_) => f.write_str("a read delegation"),
            Self::Write(_) => f.write_str("a write delegation"),
            Self::None(None) => f.write_str("none"),
            Self::None(Some(why)) => write!(f, "none ({why:?})"),
        }
    }
}

impl Side {
    fn new<P: Provider>(scene: &mut CheckScene<'_, P>, name: &'static str) -> CheckedValue<Self> {
        let minor = scene.client.minor_version().unwrap_or(1);
        let client = scene.client.other_client_with_callbacks(minor);
        let client = done(format_args!("a session of client {name}, with callbacks"), client)?;
        Ok(Self { name, client, returned: Vec::new() })
    }

    /// Returns what was recalled.
    fn return_recalled<P: Provider>(
        &mut self,
        client: &mut NfsClient<P>,
        file: &FileHandle,
    ) -> Result<(), Error> {
        while let Some(delegation) = client.next_recalled(&self.client) {
            let requests = [Request::PutFh(Text(file.octets())), Request::DelegReturn(delegation)];
            client.compound(&mut self.client, &requests, all_done)?;
            self.returned.push(delegation);
        }
        Ok(())
    }

    /// Runs an operation on the file while `holder` returns what is recalled from it, until the
    /// server does not put it off any more.
    fn run_beside<P: Provider, T>(
        &mut self,
        scene: &mut CheckScene<'_, P>,
        holder: &mut Self,
        file: &FileHandle,
        what: &str,
        request: impl Fn() -> Request<'static>,
        read: impl Fn(Answer<'_>) -> Result<T, Error>,
    ) -> CheckedValue<T> {
        let what = format!("{what} by client {}", self.name);
        let start = scene.client.now();
        loop {
            let requests = [Request::PutFh(Text(file.octets())), request()];
            let came = scene.client.compound_beside_callbacks(
                &mut self.client,
                &requests,
                |reply| last(reply, &read),
                |client| holder.return_recalled(client, file),
            );
            match came {
                Err(Error::Nfs4(Status4::Delay)) => {}
                came => return done(what, came),
            }
            let waited = scene.client.now().since(start);
            let expected = format!(
                "an end of NFS4ERR_DELAY, once client {} has returned what was recalled",
                holder.name
            );
            let told = format!("{} s of it, {} recalls", waited.as_secs(), holder.returned.len());
            holds(&what, waited < PATIENCE, &expected, told)?;
            scene.client.pause(PAUSE);
            let returned = holder.return_recalled(scene.client, file);
            done(format_args!("DELEGRETURN by client {}", holder.name), returned)?;
        }
    }

    /// Opens the file, where nothing is in the way.
    fn open<P: Provider>(
        &mut self,
        scene: &mut CheckScene<'_, P>,
        other: &mut Self,
        file: &FileHandle,
        access: u32,
    ) -> CheckedValue<Opened> {
        let what = if access & share::WRITE == 0 { "OPEN for reading" } else { "OPEN for writing" };
        self.run_beside(scene, other, file, what, || open(access), opened)
    }

    /// The same for a delegation: a server may give none for a moment, because of others.
    fn open_wanting<P: Provider>(
        &mut self,
        scene: &mut CheckScene<'_, P>,
        other: &mut Self,
        file: &FileHandle,
        access: u32,
    ) -> CheckedValue<Opened> {
        let mut opened = self.open(scene, other, file, access)?;
        for _ in 0..CONTENDED {
            if !matches!(opened.delegation, Given::None(Some(NoDelegation::Contention(_)))) {
                break;
            }
            scene.client.pause(PAUSE);
            // Of the same owner: the same open, with a new number.
            opened = self.open(scene, other, file, access)?;
        }
        Ok(opened)
    }

    /// Runs an operation on the file that has to succeed.
    fn run<P: Provider>(
        &mut self,
        scene: &mut CheckScene<'_, P>,
        file: &FileHandle,
        what: &str,
        request: Request<'_>,
    ) -> StepResult {
        let requests = [Request::PutFh(Text(file.octets())), request];
        let came = scene.client.compound(&mut self.client, &requests, all_done);
        done(format_args!("{what} by client {}", self.name), came)
    }
}

/// An OPEN of the current file.
fn open(access: u32) -> Request<'static> {
    Request::Open(Open4Args {
        seqid: 0,
        share_access: access,
        share_deny: 0,
        owner: StateOwner { client_id: 0, owner: Text(b"opener") },
        how: OpenHow::NoCreate,
        claim: OpenClaim::Fh,
    })
}

fn opened(answer: Answer<'_>) -> Result<Opened, Error> {
    let Answer::Open(Ok(ok)) = answer else { return Err(Error::Nonsense("no results of OPEN")) };
    let delegation = match ok.delegation {
        OpenDelegation::Read(given) => Given::Read(given.stateid),
        OpenDelegation::Write(given) => Given::Write(given.stateid),
        OpenDelegation::None => Given::None(None),
        OpenDelegation::NoneExt(why) => Given::None(Some(why)),
    };
    Ok(Opened { open: ok.stateid, delegation })
}

/// Change attribute and size.
fn change_and_size(answer: Answer<'_>) -> Result<(u64, u64), Error> {
    let Answer::GetAttr(Ok(RawAttributes { octets, .. })) = answer else {
        return Err(Error::Nonsense("no results of GETATTR"));
    };
    let mut reader = Reader::new(octets);
    let change = reader.u64().map_err(Error::Garbled)?;
    Ok((change, reader.u64().map_err(Error::Garbled)?))
}

fn ask() -> Request<'static> {
    Request::GetAttr(Bitmap::of([Attribute::Change as u32, Attribute::Size as u32]))
}

/// The last of a compound's answers, if all before it succeeded.
fn last<T>(
    reply: stag_protocol::nfs::v4::CompoundReply<'_>,
    read: &impl Fn(Answer<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut last = None;
    for answer in reply {
        let answer = answer.map_err(Error::Garbled)?;
        match answer.status() {
            Status4::Ok => last = Some(answer),
            status => return Err(Error::Nfs4(status)),
        }
    }
    read(last.ok_or(Error::Nonsense("a compound without answers"))?)
}

fn all_done(reply: stag_protocol::nfs::v4::CompoundReply<'_>) -> Result<(), Error> {
    last(reply, &|_| Ok(()))
}

/// A delegation of one client is called back when the other comes in its way. The note says which
/// ones the server gave.
pub(crate) fn of_two_clients<P: Provider>(scene: &mut CheckScene<'_, P>) -> StepResult {
    let mut sides = Vec::new();
    let ran = run_sides(scene, &mut sides);
    for side in sides {
        if ran.is_ok() {
            let what = format!("the end of client {}, which has nothing left", side.name);
            done(what, scene.client.end_client(side.client))?;
        } else {
            // Why the step failed is worth more than that this failed, too.
            let _ = scene.client.abandon_client(side.client);
        }
    }
    ran
}

/// Runs `run` with a file that is removed afterwards: a server that had to call back may give no
/// delegation of the same file for a while.
fn with_file<P: Provider, T>(
    scene: &mut CheckScene<'_, P>,
    run: impl FnOnce(&mut CheckScene<'_, P>, &FileHandle) -> CheckedValue<T>,
) -> CheckedValue<T> {
    let file = scene.make(scene.work, NAME)?;
    scene.write(file, 0, &[7; SIZE], StableHow::FileSync)?;
    let ran = run(scene, &file)?;
    scene.remove(scene.work, NAME).map(|()| ran)
}

/// Makes two clients in `sides`, and has them at a file.
fn run_sides<P: Provider>(scene: &mut CheckScene<'_, P>, sides: &mut Vec<Side>) -> StepResult {
    for name in ["A", "B"] {
        sides.push(Side::new(scene, name)?);
    }
    let [one, other] = sides.as_mut_slice() else { return Ok(()) };
    if !one.client.is_called() {
        scene.note("none: the server does not call back over the connection of a session");
        return Ok(());
    }
    let mut recalled = 0;
    for round in 0..ROUNDS {
        let given = with_file(scene, |scene, file| match round % 2 {
            0 => reading(scene, file, one, other),
            _ => reading(scene, file, other, one),
        })?;
        if matches!(given, Given::None(_)) {
            let note = match recalled {
                0 => given.to_string(),
                _ => format!("{recalled} read delegations recalled; then {given}"),
            };
            scene.note(note);
            return Ok(());
        }
        recalled += 1;
    }
    let written = with_file(scene, |scene, file| writing(scene, file, one, other))?;
    scene.note(format!("{recalled} read delegations recalled; {written}"));
    Ok(())
}

/// A delegation for reading (§10.4): `opener` writes once it is back.
fn reading<P: Provider>(
    scene: &mut CheckScene<'_, P>,
    file: &FileHandle,
    holder: &mut Side,
    opener: &mut Side,
) -> CheckedValue<Given> {
    let wants = share::READ | share::WANT_READ_DELEGATION;
    let held = holder.open_wanting(scene, opener, file, wants)?;
    let (Given::Read(delegation) | Given::Write(delegation)) = &held.delegation else {
        holder.run(scene, file, "CLOSE", close(held.open))?;
        return Ok(held.delegation);
    };
    let delegation = *delegation;
    let before = holder.returned.len();
    let wants = share::WRITE | share::WANT_NO_DELEGATION;
    let writing = opener.open(scene, holder, file, wants)?;
    let came = holder.returned.get(before..).unwrap_or_default();
    let what = format!("what was recalled from client {} for an OPEN for writing", holder.name);
    same(
        what,
        &[delegation.other].as_slice(),
        &came.iter().map(|it| it.other).collect::<Vec<_>>().as_slice(),
    )?;
    // Gone is gone (§18.48.3).
    let stateids = [delegation];
    let tested = [Request::TestStateid(Array::of(&stateids))];
    let status = scene.client.compound(&mut holder.client, &tested, |reply| {
        last(reply, &|answer| match answer {
            Answer::TestStateid(Ok(all)) => Ok(all.items().next()),
            _ => Err(Error::Nonsense("no results of TEST_STATEID")),
        })
    });
    let status = done("TEST_STATEID of a delegation that was returned", status)?;
    let expected = Some(Status4::BadStateid);
    same("TEST_STATEID of a delegation that was returned", &expected, &status)?;
    let write = Write4Args {
        stateid: writing.open,
        offset: 0,
        stable: StableHow::FileSync,
        data: Bulk::Inline(&[1]),
    };
    opener.run(scene, file, "WRITE", Request::Write(write))?;
    opener.run(scene, file, "CLOSE", close(writing.open))?;
    holder.run(scene, file, "CLOSE", close(held.open))?;
    Ok(held.delegation)
}

/// A delegation for writing (§10.4.3): another client that asks for the file's size is given
/// the holder's unwritten changes, or waits until they are written. Returns the observation.
fn writing<P: Provider>(
    scene: &mut CheckScene<'_, P>,
    file: &FileHandle,
    holder: &mut Side,
    other: &mut Side,
) -> CheckedValue<String> {
    let wants = share::BOTH | share::WANT_WRITE_DELEGATION;
    let held = holder.open_wanting(scene, other, file, wants)?;
    let Given::Write(delegation) = held.delegation else {
        let given = held.delegation;
        if let Given::Read(delegation) = given {
            holder.run(scene, file, "DELEGRETURN", Request::DelegReturn(delegation))?;
        }
        holder.run(scene, file, "CLOSE", close(held.open))?;
        return Ok(format!("for writing {given}"));
    };
    let requests = [Request::PutFh(Text(file.octets())), ask()];
    let before =
        scene.client.compound(&mut holder.client, &requests, |reply| last(reply, &change_and_size));
    let (change, size) = done("GETATTR by who has the delegation", before)?;
    same("the size of the file", &(SIZE as u64), &size)?;
    // As a client that caches its writes: it reports them when the server asks (§20.1.3).
    let grown = size + WRITTEN.len() as u64;
    let told = HeldAttributes { file: *file, change: change.wrapping_add(1), size: grown };
    scene.client.hold(&holder.client, Some(told));
    let recalls = holder.returned.len();
    let (seen_change, seen_size) =
        other.run_beside(scene, holder, file, "GETATTR", ask, change_and_size)?;
    let is_asked = scene.client.attributes_told(&holder.client) > 0;
    let is_recalled = holder.returned.len() > recalls;
    let expected = "CB_GETATTR or CB_RECALL before the reply";
    let what = "GETATTR of a file with a write delegation";
    holds(what, is_asked || is_recalled, expected, (seen_change, seen_size))?;
    if is_asked && !is_recalled {
        same("the size that the holder told", &grown, &seen_size)?;
        let what = "the change attribute of a file that its holder has changed";
        holds(what, seen_change != change, "another one than before", seen_change)?;
        // Makes the reported values true, before another client has the file.
        let write = Write4Args {
            stateid: delegation,
            offset: size,
            stable: StableHow::FileSync,
            data: Bulk::Inline(WRITTEN),
        };
        holder.run(scene, file, "WRITE by a delegation", Request::Write(write))?;
    }
    scene.client.hold(&holder.client, None);
    let wants = share::READ | share::WANT_NO_DELEGATION;
    let reading = other.open(scene, holder, file, wants)?;
    let came: Vec<_> = holder.returned.get(recalls..).unwrap_or_default().to_vec();
    let others: Vec<_> = came.iter().map(|it| it.other).collect();
    same("what was recalled for an OPEN for reading", &vec![delegation.other], &others)?;
    other.run(scene, file, "CLOSE", close(reading.open))?;
    holder.run(scene, file, "CLOSE", close(held.open))?;
    let how = if is_asked { "its holder asked for attributes" } else { "recalled for GETATTR" };
    Ok(format!("a write delegation, {how}"))
}
