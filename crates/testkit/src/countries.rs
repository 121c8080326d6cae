//! Files that say which country an address is in (MMDB), as small as they can be.
//!
//! The idea: networks of IPv4 lie in a binary tree, a node a bit, whose leaves lead to what is known
//! of them; facts about the whole stand behind a mark at the end.

/// Bytes before what is known, and before the facts.
const GAP: [u8; 16] = [0; 16];
const MARK: &[u8] = b"\xab\xcd\xefMaxMind.com";

#[derive(Clone, Copy)]
enum Branch {
    Nothing,
    Node(usize),
    Known(usize),
}

/// A file in which each of these networks (address, bits of its prefix) is in a country.
#[must_use]
pub fn country_file(networks: &[([u8; 4], u32, &str)]) -> Vec<u8> {
    let mut nodes = vec![[Branch::Nothing; 2]];
    let mut known = Vec::new();
    for (address, bits, country) in networks {
        let address = u32::from_be_bytes(*address);
        let mut node = 0;
        for depth in 1..*bits {
            let side = side(address, depth - 1);
            node = match nodes[node][side] {
                Branch::Node(next) => next,
                _ => {
                    nodes.push([Branch::Nothing; 2]);
                    nodes[node][side] = Branch::Node(nodes.len() - 1);
                    nodes.len() - 1
                }
            };
        }
        nodes[node][side(address, bits - 1)] = Branch::Known(known.len());
        known.extend(
            [
                map(1),
                text("country"),
                map(1),
                text("iso_code"),
                text(country),
            ]
            .concat(),
        );
    }
    let mut file = Vec::new();
    for branch in nodes.iter().flatten() {
        let value = match branch {
            Branch::Nothing => nodes.len(),
            Branch::Node(node) => *node,
            Branch::Known(at) => nodes.len() + GAP.len() + at,
        };
        let value = u32::try_from(value).expect("few networks");
        file.extend_from_slice(&value.to_be_bytes()[1..]);
    }
    [&file, &GAP[..], &known, MARK, &facts(nodes.len())].concat()
}

fn side(address: u32, depth: u32) -> usize {
    usize::from(address << depth >> 31 == 1)
}

fn facts(nodes: usize) -> Vec<u8> {
    let node_count = u32::try_from(nodes).expect("few networks");
    let mut facts = map(9);
    for (name, value) in [
        ("binary_format_major_version", vec![0xa1, 2]),
        ("binary_format_minor_version", vec![0xa1, 0]),
        ("build_epoch", vec![1, 2, 1]),
        ("database_type", text("Countries")),
        ("description", map(0)),
        ("ip_version", vec![0xa1, 4]),
        ("languages", vec![0, 4]),
        (
            "node_count",
            [&[0xc4], &node_count.to_be_bytes()[..]].concat(),
        ),
        ("record_size", vec![0xa1, 24]),
    ] {
        facts.extend(text(name));
        facts.extend(value);
    }
    facts
}

fn map(entries: u8) -> Vec<u8> {
    vec![0xe0 | entries]
}

fn text(text: &str) -> Vec<u8> {
    let length = u8::try_from(text.len()).expect("a short text");
    assert!(length < 29, "{text}");
    [&[0x40 | length], text.as_bytes()].concat()
}
