//! `IPAddr`: addresses and networks, with the methods of Ruby's library.

use std::any::Any;
use std::net::IpAddr;
use std::rc::Rc;

use ipnet::{IpNet, Ipv4Net};
use mruby::Answer;

use super::chapter::{Chapter, takes};
use super::entries::{Classes, error, holder, in_ruby, method, reader};
use super::native::answered;
use crate::state::NativeCall;

const ADDRESSES: Classes = &["IPAddr"];

/// Longest text that is looked at.
const TEXT_BYTES_MAX: usize = 100;

/// Bits of `::ffff:0:0/96`, within which IPv6 spells addresses of IPv4.
const MAPPED_BITS: u8 = 96;

/// What an object of `IPAddr` holds: a network without bits beyond its prefix.
struct Held(IpNet);

pub(super) const CHAPTER: Chapter = Chapter {
    title: "IPAddr",
    text: "An address or a network, of IPv4 or IPv6: `IPAddr.new(\"10.0.0.0/8\")`. An IPv4 address that IPv6 spells \
           (`::ffff:10.0.0.1`) is within the networks of IPv4. What is neither raises `IPAddr::InvalidAddressError`, \
           and where a text is taken in place of an `IPAddr`, it is judged in the same way.",
    classes: &[
        holder("IPAddr"),
        error("IPAddr::Error", "ArgumentError"),
        error("IPAddr::InvalidAddressError", "IPAddr::Error"),
        error("IPAddr::InvalidPrefixError", "IPAddr::InvalidAddressError"),
        error("IPAddr::AddressFamilyError", "IPAddr::Error"),
    ],
    constants: &[],
    methods: &[
        method(ADDRESSES, &["initialize"], (takes(1, 1), ""), "", |call| {
            answered(argument(call).map(attached))
        }),
        method(
            ADDRESSES,
            &["include?", "===", "member?"],
            (takes(1, 1), "other"),
            "Whether the other, an `IPAddr` or a text, lies within; so an `IPAddr` stands behind `when`.",
            includes,
        ),
        method(
            ADDRESSES,
            &["==", "eql?"],
            (takes(1, 1), "other"),
            "Whether both are the same network; the other may be a text.",
            |call| with(call, |net| Answer::Bool(argument(call).ok() == Some(net))),
        ),
        method(
            ADDRESSES,
            &["<=>"],
            (takes(1, 1), "other"),
            "-1, 0 or 1 by the address; `nil` for what is none.",
            compare,
        ),
        method(
            ADDRESSES,
            &["mask"],
            (takes(1, 1), "prefix"),
            "The network of that prefix: `24`, `\"24\"` or `\"255.255.255.0\"`.",
            mask,
        ),
        reader(
            ADDRESSES,
            &["to_s"],
            "The address, as RFC 5952 writes it: `10.0.0.0`.",
            |call| with(call, |net| text(net.addr())),
        ),
        reader(
            ADDRESSES,
            &["to_string"],
            "The same, of IPv6 with all its digits.",
            |call| with(call, |net| text(whole(net.addr()))),
        ),
        reader(
            ADDRESSES,
            &["cidr"],
            "With its prefix: `10.0.0.0/8`.",
            |call| with(call, text),
        ),
        reader(ADDRESSES, &["netmask"], "`255.0.0.0`.", |call| {
            with(call, |net| text(net.netmask()))
        }),
        reader(
            ADDRESSES,
            &["prefix"],
            "How many bits the prefix has.",
            |call| with(call, |net| Answer::Int(net.prefix_len().into())),
        ),
        reader(ADDRESSES, &["ipv4?"], "Whether it is of IPv4.", |call| {
            with(call, |net| Answer::Bool(net.addr().is_ipv4()))
        }),
        reader(ADDRESSES, &["ipv6?"], "Whether it is of IPv6.", |call| {
            with(call, |net| Answer::Bool(net.addr().is_ipv6()))
        }),
        reader(
            ADDRESSES,
            &["loopback?"],
            "Whether it lies in `127.0.0.0/8`, or is `::1`.",
            |call| with(call, |net| Answer::Bool(plain(net).addr().is_loopback())),
        ),
        reader(
            ADDRESSES,
            &["private?"],
            "Whether it lies in a network that is routed nowhere (RFC 1918, RFC 4193).",
            |call| {
                with(call, |net| {
                    Answer::Bool(match plain(net).addr() {
                        IpAddr::V4(address) => address.is_private(),
                        IpAddr::V6(address) => address.is_unique_local(),
                    })
                })
            },
        ),
        reader(
            ADDRESSES,
            &["link_local?"],
            "Whether it lies in `169.254.0.0/16` or `fe80::/10`.",
            |call| {
                with(call, |net| {
                    Answer::Bool(match plain(net).addr() {
                        IpAddr::V4(address) => address.is_link_local(),
                        IpAddr::V6(address) => address.is_unicast_link_local(),
                    })
                })
            },
        ),
        reader(
            ADDRESSES,
            &["to_i"],
            "The address of IPv4 as an Integer; a RangeError for one of IPv6, which has 128 bits.",
            |call| {
                with(call, |net| match net.addr() {
                    IpAddr::V4(address) => Answer::Int(u32::from(address).into()),
                    IpAddr::V6(_) => {
                        Answer::Raise("RangeError", "an address of IPv6 has 128 bits".to_owned())
                    }
                })
            },
        ),
        reader(ADDRESSES, &["__last"], "", |call| {
            with(call, |net| object(net.broadcast().into()))
        }),
        reader(ADDRESSES, &["__first"], "", |call| {
            with(call, |net| object(net.addr().into()))
        }),
    ],
    in_ruby: &[
        in_ruby(
            "IPAddr.new",
            "text",
            "`\"192.0.2.1\"`, `\"192.0.2.0/24\"`, `\"192.0.2.0/255.255.255.0\"`, `\"2001:db8::/32\"`.",
        ),
        in_ruby(
            "IPAddr#to_range",
            "",
            "A Range of its first and last address.",
        ),
    ],
    prelude: "
class IPAddr
  include Comparable
  def hash; cidr.hash end
  def to_range; __first..__last end
  def inspect; \"#<IPAddr: #{ipv4? ? 'IPv4' : 'IPv6'}:#{to_string}/#{netmask}>\" end
end
",
};

fn with(call: &NativeCall<'_>, tell: impl FnOnce(IpNet) -> Answer) -> Answer {
    match call.attached::<Held>() {
        Some(held) => tell(held.0),
        None => Answer::type_error("this IPAddr was made without IPAddr.new"),
    }
}

fn attached(net: IpNet) -> Answer {
    Answer::Attach(Rc::new(Held(net)) as Rc<dyn Any>)
}

fn object(net: IpNet) -> Answer {
    Answer::Object("IPAddr", Rc::new(Held(net)))
}

fn text(shown: impl ToString) -> Answer {
    Answer::Bytes(shown.to_string().into_bytes())
}

/// The first argument: an `IPAddr`, or a text of one.
fn argument(call: &NativeCall<'_>) -> Result<IpNet, Answer> {
    if let Some(held) = call.argument_attached::<Held>(0) {
        return Ok(held.0);
    }
    let Some(given) = call.bytes(0) else {
        return Err(Answer::type_error("an IPAddr is made of a String"));
    };
    let wrong = |class, what| {
        let shown = given.escape_ascii().to_string();
        let shown = shown.get(..TEXT_BYTES_MAX).unwrap_or(&shown);
        Answer::Raise(class, format!("{what}: {shown}"))
    };
    let invalid = || wrong("IPAddr::InvalidAddressError", "invalid address");
    let short = Some(given).filter(|given| given.len() <= TEXT_BYTES_MAX);
    let given = short.and_then(|given| std::str::from_utf8(given).ok());
    let given = given.ok_or_else(invalid)?;
    let (address, prefix) = match given.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (given, None),
    };
    let bare = address
        .strip_prefix('[')
        .and_then(|it| it.strip_suffix(']'));
    let address: IpAddr = bare.unwrap_or(address).parse().map_err(|_| invalid())?;
    match prefix {
        None => Ok(address.into()),
        Some(prefix) => masked(address, prefix)
            .ok_or_else(|| wrong("IPAddr::InvalidPrefixError", "invalid prefix")),
    }
}

/// The network of an address, by the count of its bits or by a mask.
fn masked(address: IpAddr, prefix: &str) -> Option<IpNet> {
    let is_count = prefix.len() <= 3 && prefix.bytes().all(|byte| byte.is_ascii_digit());
    let net = match is_count {
        true => IpNet::new(address, prefix.parse().ok()?),
        false => IpNet::with_netmask(address, prefix.parse().ok()?),
    };
    net.ok().map(|net| net.trunc())
}

/// The network of IPv4 where IPv6 spells one.
fn plain(net: IpNet) -> IpNet {
    if let IpNet::V6(of_six) = net
        && let Some(address) = of_six.addr().to_ipv4_mapped()
        && let Some(bits) = of_six.prefix_len().checked_sub(MAPPED_BITS)
        && let Ok(of_four) = Ipv4Net::new(address, bits)
    {
        return of_four.into();
    }
    net
}

/// All digits of an address of IPv6.
fn whole(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => address
            .segments()
            .map(|part| format!("{part:04x}"))
            .join(":"),
    }
}

fn includes(call: &mut NativeCall<'_>) -> Answer {
    answered(
        argument(call)
            .map(|other| with(call, |net| Answer::Bool(plain(net).contains(&plain(other))))),
    )
}

fn compare(call: &mut NativeCall<'_>) -> Answer {
    match argument(call) {
        Ok(other) => with(call, |net| Answer::Int(net.cmp(&other) as i64)),
        Err(_) => Answer::Nil,
    }
}

fn mask(call: &mut NativeCall<'_>) -> Answer {
    let prefix = match call.int(0) {
        Some(bits) => Some(bits.to_string()),
        None => call
            .bytes(0)
            .map(|text| String::from_utf8_lossy(text).into_owned()),
    };
    with(call, |net| {
        match prefix.and_then(|prefix| masked(net.addr(), &prefix)) {
            Some(masked) => object(masked),
            None => Answer::Raise("IPAddr::InvalidPrefixError", "invalid prefix".to_owned()),
        }
    })
}
