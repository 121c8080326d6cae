//! A line of a file that names clients: an address or a network.
//!
//! The idea: who looks at such a file beforehand and who reads it while requests come read one line
//! alike. Which lines there are, and what becomes of a wrong one, is theirs to say.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

/// The network that is meant: no client of IPv4 is told as one that is mapped into IPv6.
pub(crate) fn canonical(network: IpNet) -> IpNet {
    let IpNet::V6(mapped) = network else {
        return network;
    };
    let address = mapped.network().to_ipv4_mapped();
    let bits = mapped.prefix_len().checked_sub(96);
    let found = address.zip(bits);
    let found = found.and_then(|(address, bits)| Ipv4Net::new(address, bits).ok());
    found.map_or(network, IpNet::V4)
}

/// The address or network of a line; `None` where there is only space, or a comment behind `#`.
///
/// # Errors
/// Why it is neither.
pub fn client_of_line(line: &[u8]) -> Result<Option<IpNet>, &'static str> {
    let said = line.split(|byte| *byte == b'#').next().unwrap_or_default();
    let said = said.trim_ascii();
    if said.is_empty() {
        return Ok(None);
    }
    let neither = "neither an address nor a network";
    let text = std::str::from_utf8(said).map_err(|_| neither)?;
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(Some(canonical(address.into())));
    }
    let network = text.parse::<IpNet>().map_err(|_| neither)?;
    match network.trunc() == network {
        true => Ok(Some(canonical(network))),
        false => Err("a network with bits beyond its prefix"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_an_address_or_a_network_or_says_nothing() {
        for (line, network) in [
            ("192.0.2.1", Some("192.0.2.1/32")),
            ("\t10.0.0.0/8  # the office\r", Some("10.0.0.0/8")),
            ("2001:db8::/32", Some("2001:db8::/32")),
            ("::ffff:192.0.2.1", Some("192.0.2.1/32")),
            ("::ffff:192.0.2.0/120", Some("192.0.2.0/24")),
            ("::fffe:0:0/95", Some("::fffe:0:0/95")),
            ("", None),
            ("  ", None),
            ("# 192.0.2.1", None),
        ] {
            let network = network.map(|it| it.parse().expect("a network"));
            assert_eq!(client_of_line(line.as_bytes()), Ok(network), "{line}");
        }
        for line in [
            "localhost",
            "192.0.2",
            "192.0.2.1/33",
            "10.0.0.1/8",
            "1.2.3.4 5.6.7.8",
            "\u{ff11}",
        ] {
            assert!(client_of_line(line.as_bytes()).is_err(), "{line}");
        }
        assert!(client_of_line(b"\xff").is_err());
    }
}
