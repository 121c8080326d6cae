//! Addresses as text, without the formatting machinery: one or two stand in every forwarded head
//! and every access record.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Appends an address; an IPv4 one that came over an IPv6 socket in its own form.
pub(crate) fn push(address: IpAddr, out: &mut Vec<u8>) {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            for (at, octet) in v4.octets().into_iter().enumerate() {
                if at > 0 {
                    out.push(b'.');
                }
                out.extend_from_slice(itoa::Buffer::new().format(octet).as_bytes());
            }
        }
        IpAddr::V6(v6) => {
            // Writing to memory does not fail.
            let _ = write!(out, "{v6}");
        }
    }
}

/// The network a client is in, as fair turns see it: /24 for IPv4, /56 for IPv6.
pub(crate) fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() >> 8 << 8).into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 72 << 72).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_look_as_the_library_shows_them() {
        for text in [
            "0.0.0.0",
            "127.0.0.1",
            "255.255.255.255",
            "2001:db8::1",
            "::1",
        ] {
            let mut out = Vec::new();
            push(text.parse().expect(text), &mut out);
            assert_eq!(out, text.as_bytes());
        }
        let mut out = Vec::new();
        push("::ffff:192.0.2.1".parse().expect("address"), &mut out);
        assert_eq!(out, b"192.0.2.1");
    }
}
