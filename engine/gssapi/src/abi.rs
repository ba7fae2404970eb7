//! The structures of RFC 2744 and of MIT's `gssapi_krb5.h` and `gssapi_ext.h` that cross the
//! boundary, for 64-bit Linux, with u32 for `OM_uint32`: the same from MIT 1.11 to 1.22.

use std::{
    ffi::{c_char, c_int, c_void},
    ptr::null_mut,
};

/// Opaque objects of the library.
pub(crate) type RawName = *mut c_void;
pub(crate) type RawCredential = *mut c_void;
pub(crate) type RawContext = *mut c_void;

/// `gss_buffer_desc`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct RawBuffer {
    pub(crate) length: usize,
    pub(crate) value: *mut c_void,
}

impl RawBuffer {
    pub(crate) const EMPTY: Self = Self { length: 0, value: null_mut() };

    /// Bytes that the library only reads.
    pub(crate) fn of(octets: &[u8]) -> Self {
        Self { length: octets.len(), value: octets.as_ptr().cast_mut().cast() }
    }
}

/// `gss_OID_desc`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct RawOid {
    pub(crate) length: u32,
    pub(crate) elements: *mut c_void,
}

/// The Kerberos 5 mechanism, 1.2.840.113554.1.2.2 (RFC 1964 §1).
pub(crate) const MECHANISM: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02];
/// A principal in text, 1.2.840.113554.1.2.2.1 (RFC 1964 §2.1.1).
pub(crate) const PRINCIPAL_NAME: &[u8] =
    &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02, 0x01];
/// `service@host`, 1.2.840.113554.1.2.1.4 (RFC 2744 §4.1).
pub(crate) const SERVICE_NAME: &[u8] =
    &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x01, 0x04];

impl RawOid {
    /// An identifier that the library only reads, and compares by content.
    pub(crate) fn of(octets: &'static [u8]) -> Self {
        let length = u32::try_from(octets.len()).expect("an identifier has few octets");
        Self { length, elements: octets.as_ptr().cast_mut().cast() }
    }
}

/// `gss_OID_set_desc`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct RawOidSet {
    pub(crate) count: usize,
    pub(crate) elements: *mut RawOid,
}

/// `gss_key_value_element_desc`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct RawSetting {
    pub(crate) key: *const c_char,
    pub(crate) value: *const c_char,
}

/// `gss_key_value_set_desc`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct RawSettings {
    pub(crate) count: u32,
    pub(crate) elements: *mut RawSetting,
}

/// `gss_cred_usage_t`.
pub(crate) const INITIATE: c_int = 1;
pub(crate) const ACCEPT: c_int = 2;

/// `GSS_C_INDEFINITE`.
pub(crate) const INDEFINITE: u32 = u32::MAX;
/// `GSS_C_MUTUAL_FLAG`.
pub(crate) const MUTUAL: u32 = 2;

/// `gss_krb5_lucid_key_t`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct LucidKey {
    pub(crate) enctype: u32,
    pub(crate) length: u32,
    pub(crate) data: *mut c_void,
}

/// `gss_krb5_rfc1964_keydata_t`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct LucidRfc1964 {
    pub(crate) algorithms: [u32; 2],
    pub(crate) key: LucidKey,
}

/// `gss_krb5_lucid_context_v1_t`; from `has_acceptor_subkey` on, it is `gss_krb5_cfx_keydata_t`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct LucidV1 {
    pub(crate) version: u32,
    pub(crate) initiate: u32,
    pub(crate) end_time: u32,
    pub(crate) send_sequence: u64,
    pub(crate) receive_sequence: u64,
    /// 0: RFC 1964, 1: RFC 4121.
    pub(crate) protocol: u32,
    pub(crate) rfc1964: LucidRfc1964,
    pub(crate) has_acceptor_subkey: u32,
    pub(crate) context_key: LucidKey,
    pub(crate) acceptor_subkey: LucidKey,
}

const _: () = assert!(size_of::<RawBuffer>() == 16);
const _: () = assert!(size_of::<RawOid>() == 16);
const _: () = assert!(size_of::<RawOidSet>() == 16);
const _: () = assert!(size_of::<RawSettings>() == 16);
const _: () = assert!(size_of::<LucidV1>() == 104);
const _: () = assert!(std::mem::offset_of!(LucidV1, send_sequence) == 16);
const _: () = assert!(std::mem::offset_of!(LucidV1, protocol) == 32);
const _: () = assert!(std::mem::offset_of!(LucidV1, rfc1964) == 40);
const _: () = assert!(std::mem::offset_of!(LucidV1, has_acceptor_subkey) == 64);
const _: () = assert!(std::mem::offset_of!(LucidV1, context_key) == 72);
const _: () = assert!(std::mem::offset_of!(LucidV1, acceptor_subkey) == 88);
