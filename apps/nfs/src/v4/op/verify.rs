//! VERIFY and NVERIFY (RFC 8881 §18.31, §18.15).

use stag_protocol::{
    nfs::v4::{Answer, RawAttributes, Status4, attributes_len_max, check_comparable},
    xdr::Writer,
};

use crate::v4::{
    attributes::{AttributeSource, SUPPORTED},
    context::{CompoundContext, OpResult},
};
use stag_nfs_store::Store;

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

/// Compares attributes in their wire form, octet by octet.
fn are_same<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    values: &RawAttributes<'_>,
) -> OpResult<bool> {
    let node = context.current()?;
    check_comparable(&values.mask, &SUPPORTED)?;
    values.values().map_err(|fault| fault.status())?;
    let object = context.object_facts(&node)?;
    let system = context.file_system(&node, &values.mask)?;
    let lease = context.nfs4.lease_seconds();
    let source = AttributeSource { node: &node, object: &object, system: &system, lease };
    let mut octets = [0; LEN_MAX];
    debug_assert!(attributes_len_max(&values.mask) <= LEN_MAX, "supported attributes have room");
    let mut writer = Writer::new(&mut octets);
    let emitted =
        stag_protocol::nfs::v4::emit_attributes(&values.mask, &mut writer, |attribute, writer| {
            source.emit_one(attribute, writer)
        });
    emitted.map_err(|_| Status4::ServerFault)?;
    let len = writer.len();
    let behind = values.mask.wire_len() + 4;
    Ok(octets.get(behind..len).is_some_and(|octets| octets == values.octets))
}

/// More than the octets of all supported attributes.
const LEN_MAX: usize = 2_048;
