//! The server's side of calls of NFS under AUTH_SYS and RPCSEC_GSS.

use stag_bench::secured::{SecuredCall, SecuredEnds};
use stag_gss::Enctype;
use std::io;

/// Calls of a short procedure whose time is printed.
const SHORT_CALLS: u64 = 100_000;

/// Makes `calls` calls, 8 at a time.
pub fn count(fabric: &str, call: SecuredCall, enctype: Enctype, calls: u64) -> io::Result<()> {
    match fabric {
        "shm-trusted" => SecuredEnds::connect(enctype)?.run(call, calls),
        _ => return Err(io::Error::other(format!("{fabric:?} is no fabric of these calls"))),
    }
    Ok(())
}

/// Prints the times of short calls under AUTH_SYS and krb5, and the rates of calls of 1 MiB, next
/// to those of their protection alone.
pub fn print_rates(enctype: Enctype, calls: u64) -> io::Result<()> {
    let mut ends = SecuredEnds::connect(enctype)?;
    for procedure in ["null", "getattr"] {
        let mut time = |flavor| -> io::Result<u64> {
            let call = format!("{procedure}/{flavor}").parse().map_err(io::Error::other)?;
            Ok(ends.server_time(call, SHORT_CALLS))
        };
        let (sys, krb5) = (time("sys")?, time("krb5")?);
        println!(
            "{procedure}: {krb5} ns at the server under krb5, {sys} ns under AUTH_SYS, {:.2} times",
            krb5 as f64 / sys.max(1) as f64,
        );
    }
    for name in ["read-1m/krb5i", "read-1m/krb5p", "write-1m/krb5i", "write-1m/krb5p"] {
        let call = name.parse().map_err(io::Error::other)?;
        let (server, floor) = (ends.server_time(call, calls), ends.floor(call, calls));
        let rate = |each: u64| (1_u64 << 20) as f64 * 1e3 / each.max(1) as f64;
        println!(
            "{name}: {:.0} MB/s at the server, {:.0} MB/s of protection alone, {:.2} of it",
            rate(server),
            rate(floor),
            floor as f64 / server.max(1) as f64,
        );
    }
    Ok(())
}
