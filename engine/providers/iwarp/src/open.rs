//! Software RNICs made from addresses.

use crate::{Crc, Iwarp, IwarpAddress, IwarpConfig};
use stag_verbs::{Here, Notation, Open, Settings, Sharing};
use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
};

fn config(settings: Settings) -> IwarpConfig {
    let Settings { limits, seed, now, .. } = settings;
    let mut config = IwarpConfig::new(limits, seed, now);
    config.crc = if settings.crc { config.crc } else { Crc::Never };
    config.reuse_port = settings.shared_port;
    config.steering = settings.steering;
    config.passed = settings.passed;
    config.reserved_port = settings.reserved_port;
    config.half_open = settings.half_open.unwrap_or(config.half_open);
    config.spare = settings.spare.unwrap_or(config.spare);
    config
}

impl Open for Iwarp {
    const NOTATION: Notation = Notation::Ip;
    const SHARING: Sharing = Sharing::Port;
    const IS_OVER_TCP: bool = true;

    fn ip(at: &IwarpAddress) -> Option<SocketAddr> {
        Some(at.0)
    }

    fn here(_: &Path) -> Result<Here<IwarpAddress>, String> {
        let at = IwarpAddress((Ipv4Addr::LOCALHOST, 0).into());
        Ok(Here { at, facts: vec![("needs", "TCP".to_owned())] })
    }

    fn for_listening(settings: Settings, _: &[IwarpAddress]) -> io::Result<Self> {
        Self::new(config(settings))
    }

    fn for_connecting(settings: Settings, _: Option<&IwarpAddress>) -> io::Result<Self> {
        Self::new(config(settings))
    }
}
