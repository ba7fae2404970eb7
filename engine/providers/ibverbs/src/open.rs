//! RDMA devices opened at addresses.

use crate::{
    Ibverbs, IbverbsConfig, RdmaAddress, Through, address_here,
    library::Library,
    rails::{Rail, rails},
};
use stag_verbs::{Here, Notation, Open, Settings, Sharing};
use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
};

/// The settings for a device.
fn config(settings: &Settings, device: Through) -> IbverbsConfig {
    let mut config = IbverbsConfig::new(settings.limits, device, settings.now);
    (config.shared_port, config.steering) = (settings.shared_port, settings.steering.clone());
    config.is_apart = settings.changes_user;
    (config.outage, config.link) = (settings.outage.clone(), settings.link);
    config
}

impl Open for Ibverbs {
    const NOTATION: Notation = Notation::Ip;
    const SHARING: Sharing = Sharing::Port;

    fn ip(at: &RdmaAddress) -> Option<SocketAddr> {
        Some(at.0)
    }

    fn node(at: &[RdmaAddress], place: usize) -> Option<u32> {
        let addresses: Vec<_> = at.iter().map(|at| at.0.ip()).collect();
        let found = rails(Library::get().ok()?, &addresses).ok()?;
        let device = &found.get(place % found.len().max(1))?.device;
        let text = fs::read_to_string(format!("/sys/class/infiniband/{device}/device/numa_node"));
        // -1 where the host has one node.
        text.ok()?.trim().parse().ok()
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

    /// Shards take turns at the devices that the addresses belong to. An unspecified address stands
    /// for all devices that have one.
    fn for_listening(settings: Settings, at: &[RdmaAddress]) -> io::Result<Self> {
        let library = if settings.changes_user { Library::apart() } else { Library::get() };
        let library = library.map_err(|why| io::Error::new(io::ErrorKind::NotFound, why))?;
        let addresses: Vec<_> = at.iter().map(|at| at.0.ip()).collect();
        let found = rails(library, &addresses)?;
        if found.len() > settings.places {
            let names: Vec<_> = found.iter().map(|rail| rail.device.as_str()).collect();
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "each of these devices needs a core of its own: {}; fix: --cores {}, or listen \
                     at the addresses of {}",
                    names.join(", "),
                    names.len(),
                    if settings.places == 1 { "one of them" } else { "fewer" }
                ),
            ));
        }
        let Some(own) = found.get(settings.place % found.len().max(1)) else {
            // The error says what is missing.
            let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
            return Ibverbs::new(config(&settings, Through::Local(any)));
        };
        let others = found.iter().filter(|rail| rail.device != own.device);
        let mut config = config(&settings, Through::Local(own.address()));
        config.elsewhere = others.flat_map(|rail: &Rail| rail.addresses.iter().copied()).collect();
        Ibverbs::new(config)
    }

    /// The device that leads to `to`. Callers lend memory to the server: by windows, or, on a
    /// device without them, by regions, and then they call one host at a time.
    fn for_connecting(settings: Settings, to: Option<&RdmaAddress>) -> io::Result<Self> {
        let any = Through::Local(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let toward = to.map_or(any, |to| Through::Toward(to.0));
        Ibverbs::new(IbverbsConfig { opens_regions: true, ..config(&settings, toward) })
    }
}
