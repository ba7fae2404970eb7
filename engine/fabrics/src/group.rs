//! The addresses of a server, by fabric.

use crate::{Fabric, FabricAddress, FabricInfo, FabricVisitor};
use std::net::SocketAddr;

/// Addresses of one fabric, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricGroup {
    first: FabricAddress,
    others: Vec<FabricAddress>,
}

impl FabricGroup {
    /// One group for each fabric, in the order in which fabrics were named first.
    pub fn all(addresses: impl IntoIterator<Item = FabricAddress>) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for at in addresses {
            match all.iter_mut().find(|group| group.info() == at.info()) {
                Some(group) => group.others.push(at),
                None => all.push(Self { first: at, others: Vec::new() }),
            }
        }
        all
    }

    /// Facts about the fabric.
    pub fn info(&self) -> FabricInfo {
        self.first.info()
    }

    /// The addresses, in the order in which they were given.
    pub fn addresses(&self) -> impl Iterator<Item = &FabricAddress> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// The addresses on an IP network.
    pub fn ips(&self) -> impl Iterator<Item = SocketAddr> {
        self.addresses().filter_map(FabricAddress::ip)
    }

    /// True when peers may map pools of ours, which then have to be shared ones.
    pub fn is_trusting(&self) -> bool {
        self.addresses().any(FabricAddress::is_trusting)
    }

    /// The addresses of shard `index` of a server that listens here.
    ///
    /// # Errors
    /// A sentence when there is no such address.
    pub fn of_shard(&self, index: usize) -> Result<Self, String> {
        let others = self.others.iter().map(|at| at.of_shard(index)).collect::<Result<_, _>>()?;
        Ok(Self { first: self.first.of_shard(index)?, others })
    }

    /// The NUMA node of the device of shard `place`, on a fabric of devices.
    pub fn node(&self, place: usize) -> Option<u32> {
        self.visit(NodeOf { group: self, place })
    }

    /// Runs `visitor` for the fabric, with the first address. [`Fabric::only`](crate::Fabric::only)
    /// makes addresses of that fabric of all.
    pub fn visit<V: FabricVisitor>(&self, visitor: V) -> V::Output {
        self.first.clone().visit(visitor)
    }
}

struct NodeOf<'a> {
    group: &'a FabricGroup,
    place: usize,
}

impl FabricVisitor for NodeOf<'_> {
    type Output = Option<u32>;

    fn visit<P: Fabric>(self, _: P::Address) -> Self::Output {
        P::node(&P::only(self.group.addresses()), self.place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_grouped_in_the_order_of_their_fabrics() {
        let urls = ["shm:///a", "iwarp://127.0.0.1:1", "shm:///b?trust=uid", "iwarp://[::1]:2"];
        let groups = FabricGroup::all(urls.map(|url| FabricAddress::parse(url).unwrap()));
        let shown =
            |group: &FabricGroup| group.addresses().map(ToString::to_string).collect::<Vec<_>>();
        let [shm, iwarp] = groups.as_slice() else { panic!("{groups:?}") };
        assert_eq!(
            (shown(shm), shown(iwarp)),
            (vec![urls[0].into(), urls[2].into()], vec![urls[1].into(), urls[3].into()])
        );
        assert!(shm.is_trusting() && !iwarp.is_trusting());
        assert_eq!((shm.ips().count(), iwarp.ips().count()), (0, 2));
        assert_eq!(shown(&shm.of_shard(1).unwrap()), ["shm:///a.1", "shm:///b.1?trust=uid"]);
        assert_eq!(iwarp.of_shard(1).as_ref(), Ok(iwarp));
    }
}
