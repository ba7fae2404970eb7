//! VERIFY and NVERIFY (RFC 8881 §18.31, §18.15).

use stag_protocol::{
    nfs::v4::{
        Ace, Answer, Array, Attribute, AttributeValues, RawAttributes, Status4, attributes_len_max,
        check_comparable, emit_attributes,
    },
    xdr::Writer,
};

use crate::{
    owner_names::{OwnerForm, OwnerKind},
    v4::{
        attributes::{AttributeSource, ObjectFacts, SUPPORTED, acl::AceOf},
        context::{CompoundContext, OpExit, OpResult},
    },
};
use stag_nfs_store::{FileAttributes, Store};

pub(super) fn verify<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    values: &RawAttributes<'_>,
) -> OpResult {
    match are_same(context, values)? {
        true => context.put(&Answer::Verify(Ok(()))),
        false => Err(Status4::NotSame.into()),
    }
}

pub(super) fn nverify<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    values: &RawAttributes<'_>,
) -> OpResult {
    match are_same(context, values)? {
        true => Err(Status4::Same.into()),
        false => context.put(&Answer::NVerify(Ok(()))),
    }
}

/// Compares attributes in their wire form, octet by octet, but owners by the users and groups that
/// they stand for.
fn are_same<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    values: &RawAttributes<'_>,
) -> OpResult<bool> {
    let node = context.current()?;
    check_comparable(&values.mask, &SUPPORTED)?;
    let parsed = values.values().map_err(|fault| fault.status())?;
    let Some(given) = given_owners(context, &parsed)? else { return Ok(false) };
    let object = context.object_facts(&node)?;
    let system = context.file_system(&node, &values.mask)?;
    check_comparable(&values.mask, &system.supported(&values.mask))?;
    let lease = context.nfs4.lease_seconds();
    let ObjectFacts { attributes: FileAttributes { uid, gid, .. }, .. } = object;
    if given.user.is_some_and(|user| user != uid) || given.group.is_some_and(|group| group != gid) {
        return Ok(false);
    }
    if let Some(list) = &parsed.acl {
        let aces = context.aces(&node, &values.mask, &object, &system)?.unwrap_or_default();
        if !has_entries(context, list, &aces)? {
            return Ok(false);
        }
    }
    let owners = OwnerForm::Texts {
        user: parsed.owner.map_or(&[], |owner| owner.0),
        group: parsed.owner_group.map_or(&[], |group| group.0),
    };
    let aces = None;
    let source =
        AttributeSource { node: &node, object: &object, system: &system, owners, aces, lease };
    // The list was compared by its entries.
    let mut mask = values.mask;
    mask.remove(Attribute::Acl as u32);
    debug_assert!(attributes_len_max(&mask) <= LEN_MAX, "supported attributes have room");
    let (mut own, mut given) = ([0; LEN_MAX], [0; LEN_MAX]);
    let mut writer = Writer::new(&mut own);
    emit_attributes(&mask, &mut writer, |attribute, writer| source.emit_one(attribute, writer))
        .map_err(|_| Status4::ServerFault)?;
    let len = writer.len();
    let mut writer = Writer::new(&mut given);
    // Values that are longer than any of ours are others.
    let is_given = parsed.emit(&mask, &mut writer).is_ok();
    let given_len = writer.len();
    Ok(is_given && own.get(..len) == given.get(..given_len))
}

/// Returns true if a list in the arguments has these entries.
fn has_entries<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    list: &Array<'_, Ace<'_>>,
    aces: &[AceOf],
) -> OpResult<bool> {
    match context.received_aces(list.items()) {
        Ok(given) => Ok(given == aces),
        // No object has such a list.
        Err(OpExit::Fail(Status4::AttrNotSupp | Status4::BadOwner | Status4::FBig)) => Ok(false),
        Err(exit) => Err(exit),
    }
}

/// The numbers of owners to compare.
struct GivenOwners {
    user: Option<u32>,
    group: Option<u32>,
}

/// The owners in the arguments; none if one of them is not accepted, and so is no object's.
fn given_owners<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    values: &AttributeValues<'_>,
) -> OpResult<Option<GivenOwners>> {
    let mut given = GivenOwners { user: None, group: None };
    let both = [
        (OwnerKind::User, &values.owner, &mut given.user),
        (OwnerKind::Group, &values.owner_group, &mut given.group),
    ];
    for (kind, text, number) in both {
        if let Some(text) = text {
            // RFC 8881 §15.2: these operations have no NFS4ERR_BADOWNER
            let Some(found) = context.owner_number(kind, text.0)? else { return Ok(None) };
            *number = Some(found);
        }
    }
    Ok(Some(given))
}

/// More than the octets of all supported attributes.
const LEN_MAX: usize = 2_048;
