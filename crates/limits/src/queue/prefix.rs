//! Networks of clients, as fair sharing sees them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The network a client is in: /24 for IPv4, /56 for IPv6, which is what one subscriber commonly has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Prefix(u64);

const FOUR: u64 = 4 << 56;
const SIX: u64 = 6 << 56;

impl Prefix {
    /// The network of an address. An IPv4 address in IPv6 clothes is taken as IPv4.
    #[must_use]
    pub(crate) fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::of_four(address),
            IpAddr::V6(address) => match address.to_ipv4_mapped() {
                Some(inner) => Self::of_four(inner),
                None => Self::of_six(address),
            },
        }
    }

    /// The bits that tell networks apart; the highest byte is 4 or 6.
    pub(super) fn bits(self) -> u64 {
        self.0
    }

    fn of_four(address: Ipv4Addr) -> Self {
        Self(FOUR | u64::from(u32::from(address) >> 8))
    }

    fn of_six(address: Ipv6Addr) -> Self {
        Self(SIX | (address.to_bits() >> 72) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::Prefix;

    fn of(text: &str) -> Prefix {
        Prefix::of(text.parse().unwrap())
    }

    #[test]
    fn neighbours_share_a_prefix_and_strangers_do_not() {
        assert_eq!(of("192.0.2.1"), of("192.0.2.200"));
        assert_ne!(of("192.0.2.1"), of("192.0.3.1"));
        assert_eq!(of("2001:db8:0:1200::1"), of("2001:db8:0:12ff:1::9"));
        assert_ne!(of("2001:db8:0:1200::1"), of("2001:db8:0:1300::1"));
    }

    #[test]
    fn an_ipv4_address_is_the_same_in_ipv6_clothes() {
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.9"));
        assert_ne!(of("::192.0.2.1"), of("192.0.2.1"));
    }
}
