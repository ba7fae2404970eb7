//! TLS on TCP (RFC 9289), as requested on the command line.

use crate::Error;
use clap::{Args, ValueEnum};
use stag_engine::tls::{
    ClientFiles, ClientTls, KernelTls, ServerFiles, ServerTls, TlsIdentity, TlsProbe,
};
use stag_fabrics::Endpoint;
use stag_nfs::serve::LinuxTls;
use stag_protocol::nfs::v3;
use std::{path::PathBuf, sync::Arc};

/// Options of a server.
#[derive(Debug, Args)]
pub struct ServeTlsOptions {
    /// Use of TLS for calls over TCP (see TLS) [default: offered with --tls-cert, else off]
    #[arg(long, value_name = "required|offered|off")]
    pub tls: Option<TlsUse>,
    /// This server's certificate, followed by the intermediate ones (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Its private key (PEM), which no other user can read
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Authorities (PEM), one of which must have signed the certificate that each client presents;
    /// without this option clients present none
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_client_ca: Option<PathBuf>,
    /// An address of --listen, as given there, where other hosts may call without TLS even if TLS
    /// is required; may be given several times
    #[arg(long, value_name = "URL")]
    pub unprotected: Vec<String>,
    /// Encryption of established sessions: process, by this program, or kernel, by Linux (see TLS)
    #[arg(long, value_name = "process|kernel", default_value = "process")]
    pub tls_records: TlsRecords,
}

/// Encryption of the records of established sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TlsRecords {
    /// By this process.
    #[default]
    Process,
    /// By the kernel.
    Kernel,
}

/// Use of TLS by a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TlsUse {
    /// Calls without TLS are denied.
    Required,
    /// Clients that request TLS get it.
    Offered,
    /// No TLS.
    Off,
}

impl ServeTlsOptions {
    /// The TLS of a server; none when it is off.
    ///
    /// # Errors
    /// It cannot be had: what is missing, or which file is bad.
    pub fn open(&self, has_tcp: bool) -> Result<Option<Arc<ServerTls>>, Error> {
        let is_required = match (self.tls, &self.tls_cert) {
            (Some(TlsUse::Off), _) | (None, None) => {
                return match self.tls_records {
                    TlsRecords::Process => Ok(None),
                    TlsRecords::Kernel => Err(Error::usage(
                        "--tls-records kernel without TLS means nothing: give --tls-cert FILE and \
                         --tls-key FILE, or leave it out",
                    )),
                };
            }
            (wanted, Some(_)) => wanted == Some(TlsUse::Required),
            (Some(_), None) => {
                return Err(Error::usage(
                    "--tls needs a certificate: give --tls-cert FILE and --tls-key FILE",
                ));
            }
        };
        if !has_tcp {
            return Err(Error::usage(
                "TLS is for calls over TCP, and --tcp is none: leave one out",
            ));
        }
        let Some(identity) = identity(self.tls_cert.as_ref(), self.tls_key.as_ref()) else {
            return Ok(None);
        };
        let files = ServerFiles { identity, client_authorities: self.tls_client_ca.clone() };
        let tls = ServerTls::open_with(files, is_required, self.kernel()?);
        tls.map(|tls| Some(Arc::new(tls))).map_err(|error| {
            let sentence = error.to_string();
            let flag = self.flag_of(&sentence);
            Error::usage(sentence).of_flag(flag)
        })
    }

    /// The flag of the file that `sentence` names.
    fn flag_of(&self, sentence: &str) -> &'static str {
        let files = [
            ("tls-cert", &self.tls_cert),
            ("tls-key", &self.tls_key),
            ("tls-client-ca", &self.tls_client_ca),
        ];
        let named = files.into_iter().filter_map(|(flag, file)| {
            let path = file.as_ref()?.display().to_string();
            sentence.contains(&path).then_some((path.len(), flag))
        });
        // One path can be a part of another one; of two that are named, the first counts.
        named.rev().max_by_key(|(len, _)| *len).map_or("tls-cert", |(_, flag)| flag)
    }

    /// The kernel's TLS, if it is asked for.
    fn kernel(&self) -> Result<Option<&'static dyn KernelTls>, Error> {
        if self.tls_records == TlsRecords::Process {
            return Ok(None);
        }
        let kernel = LinuxTls::open().map_err(|error| {
            Error::usage(format!(
                "--tls-records kernel: this kernel has no TLS ({error}): load it (modprobe tls), \
                 or leave it to this process (--tls-records process)"
            ))
        })?;
        Ok(Some(kernel))
    }
}

/// A sentence about a server's TLS.
pub fn sentence(tls: &ServerTls) -> String {
    let calls = match tls.is_required() {
        true => "calls over TCP without TLS are denied, MOUNT's too",
        false => "calls over TCP may have TLS, and come without where a client does not ask for it",
    };
    let clients = match tls.asks_for_certificates() {
        true => "clients show a certificate",
        false => "clients show no certificate",
    };
    let more = if tls.kernel().is_some() { "; the kernel encrypts" } else { "" };
    format!("{calls}; {clients}{more}")
}

/// Options of a caller.
#[derive(Clone, Debug, Args)]
pub struct CallTlsOptions {
    /// Call over tcp:// only inside TLS, and only a server whose certificate one of these
    /// authorities (PEM) signed
    #[arg(long, global = true, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// The name in that certificate [default: the host in the URL]
    #[arg(long, global = true, value_name = "NAME", requires = "tls_ca")]
    pub tls_name: Option<String>,
    /// A certificate to show to a server that asks for one (PEM)
    #[arg(long, global = true, value_name = "FILE", requires_all = ["tls_ca", "tls_key"])]
    pub tls_cert: Option<PathBuf>,
    /// Its private key (PEM)
    #[arg(long, global = true, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
}

impl CallTlsOptions {
    /// The TLS of a caller of `server`, whose URL has the name `host`; none if it is not asked for.
    ///
    /// # Errors
    /// It cannot be had: which file is bad, or that the server is none of TCP.
    pub fn open(
        &self,
        server: &Endpoint,
        host: Option<&str>,
    ) -> Result<Option<Arc<ClientTls>>, Error> {
        let Some(authorities) = self.tls_ca.clone() else { return Ok(None) };
        if server.fabric().is_some() {
            return Err(Error::usage(format!(
                "--tls-ca is for tcp://, and {server} is called by RDMA: leave it out"
            )));
        }
        let server_name = self.tls_name.clone().or_else(|| host.map(str::to_owned));
        let identity = identity(self.tls_cert.as_ref(), self.tls_key.as_ref());
        let files = ClientFiles { authorities, identity, server_name };
        let probe = TlsProbe { program: v3::PROGRAM, version: v3::VERSION };
        let tls = ClientTls::open(&files, probe);
        tls.map(|tls| Some(Arc::new(tls))).map_err(|error| Error::usage(error.to_string()))
    }
}

fn identity(certificate: Option<&PathBuf>, key: Option<&PathBuf>) -> Option<TlsIdentity> {
    Some(TlsIdentity { certificate: certificate?.clone(), key: key?.clone() })
}

/// A failure with the reason why there was no TLS, if that is why.
pub fn explained<T>(tls: Option<&Arc<ClientTls>>, result: Result<T, Error>) -> Result<T, Error> {
    result.map_err(|error| match (error, tls.and_then(|tls| tls.take_fault())) {
        (Error::Failure(text), Some(why)) => Error::failure(format!("{text}; TLS: {why}")),
        (error, _) => error,
    })
}
