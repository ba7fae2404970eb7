//! RDMA devices opened at addresses.

use crate::{Ibverbs, IbverbsConfig, RdmaAddress, Through, address_here};
use stag_verbs::{Here, Notation, Open, Settings, Sharing};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
};

fn through(settings: &Settings, device: Through) -> io::Result<Ibverbs> {
    let mut config = IbverbsConfig::new(settings.limits, device, settings.now);
    (config.shared_port, config.steering) = (settings.shared_port, settings.steering.clone());
    config.is_apart = settings.changes_user;
    Ibverbs::new(config)
}

impl Open for Ibverbs {
    const NOTATION: Notation = Notation::Ip;
    const SHARING: Sharing = Sharing::Port;

    fn ip(at: &RdmaAddress) -> Option<SocketAddr> {
        Some(at.0)
    }

    fn here(_: &Path) -> Result<Here<RdmaAddress>, String> {
        let (ip, about) = address_here().map_err(|error| error.to_string())?;
        let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
        let facts = vec![
            ("device", about.name),
            ("address", ip.to_string()),
            ("iwarp", yes(about.is_iwarp)),
            ("memory windows", yes(about.has_windows)),
            ("shared receives", yes(about.receives > 0)),
        ];
        Ok(Here { at: RdmaAddress(SocketAddr::new(ip, 0)), facts })
    }

    /// The device that the first address belongs to; the others have to be its own as well.
    fn for_listening(settings: Settings, at: &[RdmaAddress]) -> io::Result<Self> {
        let ip = at.first().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |at| at.0.ip());
        through(&settings, Through::Local(ip))
    }

    /// The device that leads to `to`. Callers lend memory to the server, for which a device needs
    /// windows.
    fn for_connecting(settings: Settings, to: Option<&RdmaAddress>) -> io::Result<Self> {
        let any = Through::Local(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let device = through(&settings, to.map_or(any, |to| Through::Toward(to.0)))?;
        if device.about().has_windows {
            return Ok(device);
        }
        let name = &device.about().name;
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!(
                "{name} has no memory windows, so it can serve but not call: use iwarp:// where it \
                 speaks iWARP, or tcp://"
            ),
        ))
    }
}
