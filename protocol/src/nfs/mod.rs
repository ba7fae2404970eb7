//! NFS and the protocols around it: arguments and results, as bytes and their meaning.
//!
//! [`mount`] is MOUNT version 3 (RFC 1813 §5), [`v3`] is NFS version 3 (RFC 1813); [`binding`] says how NFS travels over
//! RDMA (RFC 8267).

pub mod binding;
mod bulk;
mod list;
pub mod mount;
pub mod v3;

pub use bulk::Bulk;
pub use list::{List, ListWriter};

/// Emits a value, and shows that it comes back equal and whole, that every cut of it is an error, and that too little
/// room is one too. Gives the bytes.
#[cfg(test)]
macro_rules! survives {
    ($value:expr, $type:ty) => {{
        use $crate::xdr::{Codec, NoRoom, Reader, Writer};
        let value: $type = $value;
        let mut out = std::vec![0xee; 16_384];
        let mut writer = Writer::new(&mut out);
        value.emit(&mut writer).expect("16 KiB are enough for any test");
        let len = writer.len();
        out.truncate(len);
        let mut reader = Reader::new(&out);
        assert_eq!(<$type>::parse(&mut reader).as_ref(), Ok(&value));
        assert_eq!(reader.finish(), Ok(()));
        for cut in 0..len {
            assert!(<$type>::parse(&mut Reader::new(&out[..cut])).is_err(), "{value:?} cut at {cut}");
            assert_eq!(value.emit(&mut Writer::new(&mut std::vec![0; cut])), Err(NoRoom), "room for {cut}");
        }
        out
    }};
}
#[cfg(test)]
pub(crate) use survives;
