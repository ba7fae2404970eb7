//! Items at their position in a payload stream.

use stag_pools::Buf;
use stag_protocol::xdr::pad;

/// Inserts an item and its padding at its position in the payload stream.
///
/// # Panics
/// If the message has no room for it: its sender compared the lengths with the inline threshold.
pub(crate) fn insert_item(message: &mut Buf, position: usize, item: &[u8]) {
    insert_parts(message, position, std::iter::once(item));
}

/// [`insert_item`] of an item in several parts.
pub(crate) fn insert_parts<'a>(
    message: &mut Buf,
    position: usize,
    parts: impl Iterator<Item = &'a [u8]> + Clone,
) {
    let len = parts.clone().map(<[u8]>::len).sum::<usize>();
    let (old, padding) = (message.len(), pad(len));
    debug_assert!(position <= old, "an item is in its message");
    message.extend(len + padding);
    message.copy_within(position..old, position + len + padding);
    let mut rest = message.get_mut(position..).expect("the item lies in its message");
    for part in parts {
        let (octets, behind) = rest.split_at_mut_checked(part.len()).expect("it was extended");
        octets.copy_from_slice(part);
        rest = behind;
    }
    // RFC 8166 §3.5.3 [8166-29]: a chunk of a whole payload includes the padding
    rest.get_mut(..padding).unwrap_or_default().fill(0);
}

/// Removes an item that [`insert_item`] or [`insert_parts`] inserted, with its padding.
pub(crate) fn remove_item(message: &mut Buf, position: usize, inserted: usize) {
    let len = message.len();
    debug_assert!(inserted == 0 || position + inserted <= len, "the item is in its message");
    if inserted > 0 && position + inserted <= len {
        message.copy_within(position + inserted..len, position);
        message.truncate(len - inserted);
    }
}
