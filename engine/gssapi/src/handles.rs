//! Owners of the library's objects: names, credentials, contexts, buffers, exported keys. Each
//! releases its object when it is dropped. All calls of the library are here.

use crate::{
    abi::{
        INDEFINITE, LucidKey, LucidV1, MECHANISM, PRINCIPAL_NAME, RawBuffer, RawContext,
        RawCredential, RawName, RawOid, RawOidSet, RawSetting, RawSettings, SERVICE_NAME,
    },
    key::{ContextSecret, SessionKey},
    library::GssLibrary,
};
use stag_gss::Enctype;
use std::{
    ffi::{CStr, CString, c_int, c_void},
    ptr::{null, null_mut},
};

/// The result of a function of the library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GssStatus {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

impl GssStatus {
    /// Errors of the call and of the routine (RFC 2744 §3.9.1); the rest is information.
    pub(crate) fn is_error(self) -> bool {
        self.major & 0xffff_0000 != 0
    }

    fn checked<T>(self, value: T) -> Result<T, Self> {
        if self.is_error() { Err(self) } else { Ok(value) }
    }
}

/// A buffer that the library allocated, or none.
pub(crate) struct GssBuffer {
    library: &'static GssLibrary,
    raw: RawBuffer,
}

impl GssBuffer {
    pub(crate) fn empty(library: &'static GssLibrary) -> Self {
        Self { library, raw: RawBuffer::EMPTY }
    }

    pub(crate) fn octets(&self) -> &[u8] {
        if self.raw.value.is_null() || self.raw.length == 0 {
            return &[];
        }
        // SAFETY: the library gave a buffer of this length, which is ours until it is released.
        unsafe { std::slice::from_raw_parts(self.raw.value.cast(), self.raw.length) }
    }
}

impl Drop for GssBuffer {
    fn drop(&mut self) {
        // SAFETY: the library allocated the buffer, or it is empty, which is allowed.
        unsafe { (self.library.gss_release_buffer)(&mut 0, &mut self.raw) };
    }
}

/// Messages of one status that are read.
const MESSAGES_MAX: usize = 8;
/// Characters of one message that are kept.
const WORDS_MAX: usize = 512;

/// Puts one status into words; `kind` is 1 for the major and 2 for the minor one. The library
/// keeps details of the last error for each thread: ask on the thread that saw it.
pub(crate) fn display(library: &'static GssLibrary, status: u32, kind: c_int) -> String {
    let (mut text, mut more) = (String::new(), 0);
    for _ in 0..MESSAGES_MAX {
        let mut buffer = GssBuffer::empty(library);
        let (mut minor, mut mechanism) = (0, RawOid::of(MECHANISM));
        // SAFETY: all pointers are to values of this frame, and the library keeps none.
        let major = unsafe {
            (library.gss_display_status)(
                &mut minor,
                status,
                kind,
                &mut mechanism,
                &mut more,
                &mut buffer.raw,
            )
        };
        if (GssStatus { major, minor }).is_error() {
            break;
        }
        if !text.is_empty() {
            text.push_str(", ");
        }
        add_plainly(&mut text, buffer.octets());
        if more == 0 {
            break;
        }
    }
    text
}

/// Adds words of the library to a text. They may have names from a ticket before it is checked:
/// control characters are escaped, so that no line of a log can be forged, and the length is
/// limited.
fn add_plainly(text: &mut String, words: &[u8]) {
    for c in String::from_utf8_lossy(words).trim().chars().take(WORDS_MAX) {
        match c {
            c if c.is_control() => text.extend(c.escape_default()),
            c => text.push(c),
        }
    }
}

/// Forms of a name in text.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NameForm {
    /// `service@host`, or `service` for any host.
    Service,
    /// A principal.
    Principal,
}

/// A name.
pub(crate) struct GssName {
    library: &'static GssLibrary,
    raw: RawName,
}

// SAFETY: a name that was imported never changes, and MIT locks the parts that it computes later.
unsafe impl Send for GssName {}
// SAFETY: as above.
unsafe impl Sync for GssName {}

impl GssName {
    pub(crate) fn import(
        library: &'static GssLibrary,
        text: &str,
        form: NameForm,
    ) -> Result<Self, GssStatus> {
        let (mut status, mut name) = (GssStatus::default(), Self { library, raw: null_mut() });
        let mut text = RawBuffer::of(text.as_bytes());
        let mut form = RawOid::of(match form {
            NameForm::Service => SERVICE_NAME,
            NameForm::Principal => PRINCIPAL_NAME,
        });
        // SAFETY: all pointers are to values of this frame; the library copies text and form.
        status.major = unsafe {
            (library.gss_import_name)(&mut status.minor, &mut text, &mut form, &mut name.raw)
        };
        status.checked(name)
    }

    /// The principal in text.
    pub(crate) fn display(&self) -> Result<GssBuffer, GssStatus> {
        let (mut status, mut text) = (GssStatus::default(), GssBuffer::empty(self.library));
        // SAFETY: the name is ours, the buffer a value of this frame; no type is asked for.
        status.major = unsafe {
            (self.library.gss_display_name)(&mut status.minor, self.raw, &mut text.raw, null_mut())
        };
        status.checked(text)
    }

    /// The local user to which krb5.conf maps the principal (`auth_to_local`).
    pub(crate) fn local(&self) -> Result<GssBuffer, GssStatus> {
        let (mut status, mut text) = (GssStatus::default(), GssBuffer::empty(self.library));
        let mut mechanism = RawOid::of(MECHANISM);
        // SAFETY: the name is ours, the other pointers are to values of this frame.
        status.major = unsafe {
            (self.library.gss_localname)(&mut status.minor, self.raw, &mut mechanism, &mut text.raw)
        };
        status.checked(text)
    }
}

impl Drop for GssName {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: the library made the name, and it is released once.
            unsafe { (self.library.gss_release_name)(&mut 0, &mut self.raw) };
        }
    }
}

/// A setting of a credential, as in `gss_acquire_cred_from`: `keytab`, `rcache`, `ccache`,
/// `client_keytab`.
pub(crate) type CredentialSetting = (&'static CStr, CString);

/// A credential.
pub(crate) struct GssCredential {
    library: &'static GssLibrary,
    raw: RawCredential,
}

// SAFETY: MIT holds the credential's mutex as long as a call uses it.
unsafe impl Send for GssCredential {}
// SAFETY: as above.
unsafe impl Sync for GssCredential {}

impl GssCredential {
    /// Acquires a credential of the Kerberos mechanism. Settings that are not given come from
    /// the environment and krb5.conf.
    pub(crate) fn acquire(
        library: &'static GssLibrary,
        name: Option<&GssName>,
        usage: c_int,
        settings: &[CredentialSetting],
    ) -> Result<Self, GssStatus> {
        let mut elements: Vec<RawSetting> = settings
            .iter()
            .map(|(key, value)| RawSetting { key: key.as_ptr(), value: value.as_ptr() })
            .collect();
        let count = u32::try_from(elements.len()).expect("there are four settings");
        let store = RawSettings { count, elements: elements.as_mut_ptr() };
        let store = if settings.is_empty() { null() } else { &raw const store };
        let mut mechanism = RawOid::of(MECHANISM);
        let mut mechanisms = RawOidSet { count: 1, elements: &mut mechanism };
        let mut status = GssStatus::default();
        let mut credential = Self { library, raw: null_mut() };
        // SAFETY: name and settings live during the call, the library copies them, and all other
        // pointers are null, which is allowed, or to values of this frame.
        status.major = unsafe {
            (library.gss_acquire_cred_from)(
                &mut status.minor,
                name.map_or(null_mut(), |name| name.raw),
                INDEFINITE,
                &mut mechanisms,
                usage,
                store,
                &mut credential.raw,
                null_mut(),
                null_mut(),
            )
        };
        status.checked(credential)
    }

    /// Restricts the encryption types of contexts. Not to be called while another thread uses the
    /// credential, thus `&mut`.
    pub(crate) fn restrict(&mut self, enctypes: &[Enctype]) -> Result<(), GssStatus> {
        let mut numbers: Vec<i32> =
            enctypes.iter().map(|enctype| enctype.number().cast_signed()).collect();
        let count = u32::try_from(numbers.len()).expect("there are four types");
        let mut status = GssStatus::default();
        // SAFETY: the credential is ours, and the library copies `count` numbers.
        status.major = unsafe {
            (self.library.gss_krb5_set_allowable_enctypes)(
                &mut status.minor,
                self.raw,
                count,
                numbers.as_mut_ptr(),
            )
        };
        status.checked(())
    }
}

impl Drop for GssCredential {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: the library made the credential, and it is released once.
            unsafe { (self.library.gss_release_cred)(&mut 0, &mut self.raw) };
        }
    }
}

/// A context, or none as long as no step has made one.
pub(crate) struct GssContext {
    library: &'static GssLibrary,
    raw: RawContext,
}

// SAFETY: a context is bound to no thread. It is not `Sync`: calls that change it must not overlap.
unsafe impl Send for GssContext {}

/// The outcome of a step; its token may be there in success and in failure.
pub(crate) struct ContextStep {
    pub(crate) status: GssStatus,
    pub(crate) token: GssBuffer,
    /// `GSS_C_*_FLAG`.
    pub(crate) flags: u32,
}

impl GssContext {
    pub(crate) fn none(library: &'static GssLibrary) -> Self {
        Self { library, raw: null_mut() }
    }

    /// Takes an initiator's token, as the acceptor. The name is the initiator's, in success.
    pub(crate) fn accept(
        &mut self,
        credential: &GssCredential,
        token: &[u8],
    ) -> (ContextStep, GssName) {
        let library = self.library;
        let mut source = GssName { library, raw: null_mut() };
        let mut step = ContextStep::new(library);
        let mut input = RawBuffer::of(token);
        // SAFETY: the credential lives during the call, the library only reads the token, null is
        // allowed for all that is not asked for, and the rest are values of this frame.
        step.status.major = unsafe {
            (library.gss_accept_sec_context)(
                &mut step.status.minor,
                &mut self.raw,
                credential.raw,
                &mut input,
                null_mut(),
                &mut source.raw,
                null_mut(),
                &mut step.token.raw,
                &mut step.flags,
                null_mut(),
                null_mut(),
            )
        };
        (step, source)
    }

    /// Makes the next token for `target`, as the initiator; `token` is the acceptor's, empty in
    /// the first step.
    pub(crate) fn initiate(
        &mut self,
        credential: &GssCredential,
        target: &GssName,
        flags: u32,
        token: &[u8],
    ) -> ContextStep {
        let mut step = ContextStep::new(self.library);
        let mut mechanism = RawOid::of(MECHANISM);
        let mut input = RawBuffer::of(token);
        let input = if token.is_empty() { null_mut() } else { &raw mut input };
        // SAFETY: credential and target live during the call, the library only reads the token,
        // null is allowed for all that is not asked for, and the rest are values of this frame.
        step.status.major = unsafe {
            (self.library.gss_init_sec_context)(
                &mut step.status.minor,
                credential.raw,
                &mut self.raw,
                target.raw,
                &mut mechanism,
                flags,
                INDEFINITE,
                null_mut(),
                input,
                null_mut(),
                &mut step.token.raw,
                &mut step.flags,
                null_mut(),
            )
        };
        step
    }

    /// Exports the keys of a complete context, which ends.
    pub(crate) fn export(mut self) -> Result<LucidContext, GssStatus> {
        let mut status = GssStatus::default();
        let mut lucid = LucidContext { library: self.library, raw: null_mut() };
        // SAFETY: the context is ours; the library ends it and clears the pointer, or leaves both.
        status.major = unsafe {
            (self.library.gss_krb5_export_lucid_sec_context)(
                &mut status.minor,
                &mut self.raw,
                1,
                &mut lucid.raw,
            )
        };
        status.checked(lucid)
    }
}

impl ContextStep {
    fn new(library: &'static GssLibrary) -> Self {
        Self { status: GssStatus::default(), token: GssBuffer::empty(library), flags: 0 }
    }
}

impl Drop for GssContext {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: the library made the context, and it ends once; no token is asked for.
            unsafe { (self.library.gss_delete_sec_context)(&mut 0, &mut self.raw, null_mut()) };
        }
    }
}

/// Exported keys of a context. MIT overwrites its copies when they are freed.
pub(crate) struct LucidContext {
    library: &'static GssLibrary,
    raw: *mut c_void,
}

/// Why exported keys are of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoKeys {
    /// The structure is of another version, or of RFC 1964.
    Structure,
    /// The key has this encryption type, which is not accepted, or another length than its type.
    Enctype(u32),
}

impl LucidContext {
    /// The key in use, copied.
    pub(crate) fn keys(&self) -> Result<ContextSecret, NoKeys> {
        // SAFETY: the library gave a structure of version 1, as it was asked for, which is ours
        // until it is freed; null becomes None.
        let lucid = unsafe { self.raw.cast::<LucidV1>().as_ref() }.ok_or(NoKeys::Structure)?;
        if lucid.version != 1 || lucid.protocol != 1 {
            return Err(NoKeys::Structure);
        }
        let is_acceptor_subkey = lucid.has_acceptor_subkey != 0;
        // RFC 4121 §2 [4121-14]: the acceptor's subkey if there is one
        let key = if is_acceptor_subkey { &lucid.acceptor_subkey } else { &lucid.context_key };
        let key = copy(key).ok_or(NoKeys::Enctype(key.enctype))?;
        Ok(ContextSecret { key, is_acceptor_subkey, end_time: lucid.end_time.into() })
    }
}

/// A copy of a key, if it is one of the accepted types.
fn copy(key: &LucidKey) -> Option<SessionKey> {
    let len = Enctype::new(key.enctype)?.key_len();
    if key.data.is_null() || usize::try_from(key.length) != Ok(len) {
        return None;
    }
    // SAFETY: the library says that there are this many bytes, which live as long as `key`.
    let octets = unsafe { std::slice::from_raw_parts(key.data.cast::<u8>(), len) };
    SessionKey::new(key.enctype, octets)
}

impl Drop for LucidContext {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: the library made it, and it is freed once.
            unsafe { (self.library.gss_krb5_free_lucid_sec_context)(&mut 0, self.raw) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_library_cannot_forge_a_line_and_have_a_limit() {
        let mut text = String::new();
        add_plainly(&mut text, b" server nfs/a\nroot\x1b[2J not found\xff\n");
        assert_eq!(text, "server nfs/a\\nroot\\u{1b}[2J not found\u{fffd}");
        text.clear();
        add_plainly(&mut text, &[b'a'; 100_000]);
        assert_eq!(text.len(), WORDS_MAX);
    }
}
