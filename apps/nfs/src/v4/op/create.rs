//! CREATE (RFC 8881 §18.4): objects other than regular files.

use stag_protocol::nfs::{
    v3::{DeviceNumber, FileKind},
    v4::{Answer, Create4Args, Create4Ok, CreateKind, DeviceNumber4, Status4},
};

use super::lookup::not_a_directory;
use crate::v4::{
    attributes::change_info,
    context::{CompoundContext, OpExit, OpResult, filehandle::Node, status::check_name},
};
use stag_nfs_store::{DeviceNode, Store};

pub(super) fn create<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &Create4Args<'_>,
) -> OpResult {
    let node = context.current()?;
    // RFC 8881 §18.4.3 [8881-302]: a regular file is made by OPEN
    if matches!(args.kind, CreateKind::Other(_)) {
        return Err(Status4::BadType.into());
    }
    check_name(args.name.0)?;
    let set = context.settable(&args.attributes)?;
    if set.attributes.size.is_some() {
        return Err(Status4::Inval.into());
    }
    let directory = node.object(Status4::RoFs)?;
    let is_directory = matches!(args.kind, CreateKind::Directory);
    let acls = context.acls_to_set(&args.attributes, is_directory)?;
    let (name, attributes) = (args.name.0, set.attributes);
    let made = match &args.kind {
        CreateKind::Directory => context.mkdir(&directory, name, &attributes),
        CreateKind::Link(path) => {
            let target = path.octets().unwrap_or_default();
            // RFC 8881 §18.4.3 [8881-303]: a link leads somewhere
            if target.is_empty() {
                return Err(Status4::Inval.into());
            }
            context.symlink(&directory, name, target, &attributes)
        }
        special => {
            let node = special_node(special).ok_or(Status4::BadType)?;
            context.mknod(&directory, name, node, &attributes)
        }
    };
    let made = match made {
        Ok(made) => made,
        Err(OpExit::Fail(Status4::NotDir)) => return Err(not_a_directory(context, &directory)),
        Err(stop) => return Err(stop),
    };
    let acls = acls.as_deref();
    let set = context.set_acls_of_new(&made.handle, acls, is_directory, set.mask)?;
    context.set_current(Node::Object(made.handle));
    let ok = Create4Ok { change: change_info(&made.directory), set };
    context.put(&Answer::Create(Ok(ok)))
}

/// A special file to create; none for other objects.
fn special_node(kind: &CreateKind<'_>) -> Option<DeviceNode> {
    let of = |DeviceNumber4 { major, minor }: &DeviceNumber4| DeviceNumber {
        major: *major,
        minor: *minor,
    };
    let (kind, device) = match kind {
        CreateKind::Block(number) => (FileKind::Block, of(number)),
        CreateKind::Character(number) => (FileKind::Character, of(number)),
        CreateKind::Socket => (FileKind::Socket, DeviceNumber::default()),
        CreateKind::Fifo => (FileKind::Fifo, DeviceNumber::default()),
        CreateKind::Directory | CreateKind::Link(_) | CreateKind::Other(_) => return None,
    };
    Some(DeviceNode { kind, device })
}
