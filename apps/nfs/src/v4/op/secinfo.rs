//! SECINFO and SECINFO_NO_NAME (RFC 8881 §18.29, §18.45).

use stag_protocol::{
    nfs::v4::{Answer, Array, GssMechanism, GssService, SecInfoStyle, SecurityFlavor, Status4},
    rpc::flavor,
};

use super::lookup::{find, parent};
use crate::v4::context::{CompoundContext, OpExit, OpResult, filehandle::Node, status::check_name};
use stag_nfs_store::{Security, Store};

/// Flavors in an answer at most.
const FLAVORS_MAX: usize = Security::ALL.len() + 1;

fn on_the_wire(security: Security) -> SecurityFlavor<'static> {
    // RFC 8881 §18.29.3 [8881-383]: RPCSEC_GSS has an entry for each service
    let gss = |service| SecurityFlavor::Gss(GssMechanism::kerberos(service));
    match security {
        Security::None => SecurityFlavor::Plain(flavor::NONE),
        Security::Sys => SecurityFlavor::Plain(flavor::SYS),
        Security::Krb5 => gss(GssService::None),
        Security::Krb5i => gss(GssService::Integrity),
        Security::Krb5p => gss(GssService::Privacy),
    }
}

/// Flavors that an object accepts from the caller, the preferred one first.
struct FlavorList {
    list: [SecurityFlavor<'static>; FLAVORS_MAX],
    len: usize,
}

impl FlavorList {
    fn of<S: Store>(context: &CompoundContext<'_, '_, S>, node: &Node) -> Self {
        let mut all = Self { list: [SecurityFlavor::Plain(flavor::NONE); FLAVORS_MAX], len: 0 };
        let flavors = context.flavors(node).unwrap_or_default();
        for (room, security) in all.list.iter_mut().zip(flavors.announced()) {
            *room = on_the_wire(security);
            all.len += 1;
        }
        all
    }

    fn array(&self) -> Array<'_, SecurityFlavor<'static>> {
        Array::of(self.list.get(..self.len).unwrap_or_default())
    }
}

pub(super) fn secinfo<S: Store>(context: &mut CompoundContext<'_, '_, S>, name: &[u8]) -> OpResult {
    let node = context.current()?;
    check_name(name)?;
    // A caller with a wrong flavor learns which flavors are right, and not if there is the name.
    let is_refused = matches!(node, Node::Object(_)) && context.refuses(&node);
    let named = if is_refused { node } else { find(context, &node, name)? };
    let flavors = FlavorList::of(context, &named);
    // RFC 8881 §18.29.3 [8881-308]: a success consumes the current filehandle
    context.drop_current();
    context.put(&Answer::SecInfo(Ok(flavors.array())))
}

pub(super) fn secinfo_no_name<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    style: SecInfoStyle,
) -> OpResult {
    let node = context.current()?;
    let of = match style {
        SecInfoStyle::Current => node,
        SecInfoStyle::Parent => match parent(context) {
            // The store refuses to look above it, so its parent is in the same export.
            Err(OpExit::Fail(Status4::Access)) if context.refuses(&node) => node,
            parent => parent?,
        },
    };
    let flavors = FlavorList::of(context, &of);
    context.drop_current();
    context.put(&Answer::SecInfoNoName(Ok(flavors.array())))
}
