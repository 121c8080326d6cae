//! `Digest`, `Base64`, `SecureRandom`, and seeds for `Random`.

use base64::Engine as _;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use mruby::Answer;

use super::chapter::{Chapter, InRuby, takes};
use super::entries::{function, module};
use crate::checksum;
use crate::state::NativeCall;

/// Random bytes given at once.
const RANDOM_BYTES_MAX: i64 = 1 << 20;

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Digest, Base64, SecureRandom",
    text: "`Digest::MD5`, `SHA1`, `SHA256`, `SHA384` and `SHA512`. `Random` and `rand` are seeded \
           by the kernel in every VM; they are not for secrets.",
    classes: &[module("Digest"), module("Base64"), module("SecureRandom")],
    constants: &[],
    methods: &[
        function(&["Nagaya"], &["__digest"], (takes(2, 3), ""), "", digest),
        function(&["Nagaya"], &["__seed"], (takes(0, 0), ""), "", |_| {
            random(4, |bytes| {
                let seed = bytes
                    .iter()
                    .fold(0, |seed, byte| seed << 8 | i64::from(*byte));
                Answer::Int(seed)
            })
        }),
        function(
            &["Base64"],
            &["strict_encode64", "encode"],
            (takes(1, 1), "string"),
            "Base64 without line breaks.",
            |call| encode(call, &GeneralPurpose::new(&STANDARD, PADDED)),
        ),
        function(
            &["Base64"],
            &["encode64"],
            (takes(1, 1), "string"),
            "Base64 with a line break after each 60 characters.",
            encode_lines,
        ),
        function(
            &["Base64"],
            &["urlsafe_encode64"],
            (takes(1, 1), "string"),
            "Base64 with `-` and `_`, without line breaks.",
            |call| encode(call, &GeneralPurpose::new(&URL_SAFE, PADDED)),
        ),
        function(
            &["Base64"],
            &["decode64", "decode"],
            (takes(1, 1), "string"),
            "Decodes; what is no Base64 is passed over.",
            decode_loosely,
        ),
        function(
            &["Base64"],
            &["strict_decode64"],
            (takes(1, 1), "string"),
            "Decodes; an ArgumentError for what is no Base64.",
            |call| decode(call, &GeneralPurpose::new(&STANDARD, PADDED)),
        ),
        function(
            &["Base64"],
            &["urlsafe_decode64"],
            (takes(1, 1), "string"),
            "Decodes what has `-` and `_`, padded or not.",
            |call| decode(call, &GeneralPurpose::new(&URL_SAFE, LENIENT)),
        ),
        function(
            &["SecureRandom"],
            &["random_bytes", "bytes"],
            (takes(0, 1), "count = 16"),
            "That many bytes of the kernel's.",
            |call| random_of(call, |bytes| bytes.to_vec()),
        ),
        function(
            &["SecureRandom"],
            &["hex"],
            (takes(0, 1), "count = 16"),
            "That many bytes in hexadecimal.",
            |call| random_of(call, hex),
        ),
        function(
            &["SecureRandom"],
            &["uuid"],
            (takes(0, 0), ""),
            "A random UUID (RFC 9562, version 4).",
            |_| random(16, uuid),
        ),
    ],
    in_ruby: &[
        InRuby {
            name: "Digest::SHA256.hexdigest",
            arguments: "string",
            waits: "",
            doc: "The checksum in hexadecimal; `digest` as bytes, `base64digest` in Base64. `new`, \
                  `update` or `<<`, and `hexdigest` do it in pieces.",
        },
        InRuby {
            name: "Digest::HMAC.hexdigest",
            arguments: "string, key, digest",
            waits: "",
            doc: "The keyed checksum (RFC 2104) in hexadecimal; `digest` as bytes. `digest` is a \
                  class as `Digest::SHA256`.",
        },
        InRuby {
            name: "SecureRandom.random_number",
            arguments: "limit",
            waits: "",
            doc: "A whole number from 0 to below `limit`.",
        },
    ],
    prelude: include_str!("ruby/coding.rb"),
};

const PADDED: GeneralPurposeConfig = GeneralPurposeConfig::new();
const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);

fn digest(call: &mut NativeCall<'_>) -> Answer {
    let name = call.bytes(0).unwrap_or_default();
    let Some(data) = call.bytes(1) else {
        return Answer::type_error("a digest is of a String");
    };
    let found = match (call.count() < 3, call.bytes(2)) {
        (true, _) => checksum::plain(name, data),
        (false, Some(key)) => checksum::keyed(name, key, data),
        (false, None) => return Answer::type_error("the key of a digest is a String"),
    };
    match found {
        Some(bytes) => Answer::Bytes(bytes),
        None => Answer::argument_error("no such digest"),
    }
}

fn encode(call: &mut NativeCall<'_>, engine: &GeneralPurpose) -> Answer {
    match call.bytes(0) {
        Some(bytes) => Answer::Bytes(engine.encode(bytes).into_bytes()),
        None => Answer::type_error("Base64 takes a String"),
    }
}

fn encode_lines(call: &mut NativeCall<'_>) -> Answer {
    const LINE: usize = 60;
    let Some(bytes) = call.bytes(0) else {
        return Answer::type_error("Base64 takes a String");
    };
    let text = GeneralPurpose::new(&STANDARD, PADDED).encode(bytes);
    let mut lines = Vec::with_capacity(text.len() + text.len() / LINE + 1);
    for line in text.as_bytes().chunks(LINE) {
        lines.extend_from_slice(line);
        lines.push(b'\n');
    }
    Answer::Bytes(lines)
}

fn decode(call: &mut NativeCall<'_>, engine: &GeneralPurpose) -> Answer {
    let Some(bytes) = call.bytes(0) else {
        return Answer::type_error("Base64 takes a String");
    };
    match engine.decode(bytes) {
        Ok(decoded) => Answer::Bytes(decoded),
        Err(error) => Answer::argument_error(format!("no Base64: {error}")),
    }
}

fn decode_loosely(call: &mut NativeCall<'_>) -> Answer {
    let Some(bytes) = call.bytes(0) else {
        return Answer::type_error("Base64 takes a String");
    };
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/".contains(byte);
    let until_padding = bytes.iter().take_while(|byte| **byte != b'=');
    let mut digits: Vec<u8> = until_padding.copied().filter(is_digit).collect();
    if digits.len() % 4 == 1 {
        // A single digit left over is less than a byte.
        digits.pop();
    }
    let decoded = GeneralPurpose::new(&STANDARD, LENIENT).decode(&digits);
    Answer::Bytes(decoded.unwrap_or_default())
}

fn random_of(call: &mut NativeCall<'_>, shape: impl Fn(&[u8]) -> Vec<u8>) -> Answer {
    let count = match call.count() {
        0 => Some(16),
        _ => call.int(0),
    };
    let count = count.filter(|count| (0..=RANDOM_BYTES_MAX).contains(count));
    match count.and_then(|count| usize::try_from(count).ok()) {
        Some(count) => random(count, |bytes| Answer::Bytes(shape(bytes))),
        None => Answer::argument_error(format!(
            "SecureRandom takes a count from 0 to {RANDOM_BYTES_MAX}"
        )),
    }
}

fn random(count: usize, shape: impl Fn(&[u8]) -> Answer) -> Answer {
    let mut bytes = vec![0; count];
    match os::random::fill(&mut bytes) {
        Ok(()) => shape(&bytes),
        Err(error) => Answer::runtime_error(format!("random bytes of the kernel: {error}")),
    }
}

fn hex(bytes: &[u8]) -> Vec<u8> {
    const DIGITS: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f',
    ];
    let nibbles = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let digits = nibbles.filter_map(|nibble| DIGITS.get(usize::from(nibble)));
    digits.collect::<String>().into_bytes()
}

fn uuid(bytes: &[u8]) -> Answer {
    let mut bytes = bytes.to_vec();
    for (at, keep, set) in [(6, 0x0f, 0x40), (8, 0x3f, 0x80)] {
        if let Some(byte) = bytes.get_mut(at) {
            *byte = *byte & keep | set;
        }
    }
    let digits = hex(&bytes);
    let mut text = Vec::with_capacity(36);
    for (at, digit) in digits.into_iter().enumerate() {
        if matches!(at, 8 | 12 | 16 | 20) {
            text.push(b'-');
        }
        text.push(digit);
    }
    Answer::Bytes(text)
}
