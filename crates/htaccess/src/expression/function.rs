//! Functions of expressions.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest as _, Md5};
use sha1::Sha1;

use crate::request::Stop;
use crate::variable::Scope;

/// A function of one text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Function {
    Field,
    FieldWithoutVary,
    ReplyField,
    Env,
    Lower,
    Upper,
    Escape,
    Unescape,
    ToBase64,
    FromBase64,
    Md5,
    Sha1,
}

const NAMES: [(&str, Function); 14] = [
    ("http", Function::Field),
    ("req", Function::Field),
    ("req_novary", Function::FieldWithoutVary),
    ("resp", Function::ReplyField),
    ("env", Function::Env),
    ("reqenv", Function::Env),
    ("tolower", Function::Lower),
    ("toupper", Function::Upper),
    ("escape", Function::Escape),
    ("unescape", Function::Unescape),
    ("base64", Function::ToBase64),
    ("unbase64", Function::FromBase64),
    ("md5", Function::Md5),
    ("sha1", Function::Sha1),
];

impl Function {
    pub(super) fn of_name(name: &[u8]) -> Option<Self> {
        let found = NAMES
            .iter()
            .find(|(have, _)| name.eq_ignore_ascii_case(have.as_bytes()));
        found.map(|(_, function)| *function)
    }

    /// Steps of the function for a text of so many bytes, besides those of copying.
    pub(super) fn steps_of(self, bytes: usize) -> usize {
        match self {
            Self::Md5 | Self::Sha1 => 16 + bytes / 4,
            _ => bytes / 16,
        }
    }

    pub(super) fn call(self, text: &[u8], scope: &Scope<'_>) -> Result<Vec<u8>, Stop> {
        Ok(match self {
            Self::Field => scope.field(text)?.unwrap_or_default(),
            Self::FieldWithoutVary => scope.field_apart(text)?.unwrap_or_default(),
            Self::ReplyField => {
                let reply = scope.reply.borrow();
                let fields = reply
                    .as_ref()
                    .map_or(0, |it| it.fields.len() + it.always.len());
                scope.asker.spend(fields / 8)?;
                let value = reply.as_ref().and_then(|reply| reply.field(text));
                value.map(<[u8]>::to_vec).unwrap_or_default()
            }
            Self::Env => scope.variable(text)?.unwrap_or_default(),
            Self::Lower => text.to_ascii_lowercase(),
            Self::Upper => text.to_ascii_uppercase(),
            Self::Escape => crate::rewrite::escape_path(text),
            Self::Unescape => crate::rewrite::unescaped(text).unwrap_or_default(),
            Self::ToBase64 => STANDARD.encode(text).into_bytes(),
            Self::FromBase64 => STANDARD.decode(text).unwrap_or_default(),
            Self::Md5 => hex(&Md5::digest(text)),
            Self::Sha1 => hex(&Sha1::digest(text)),
        })
    }
}

fn hex(bytes: &[u8]) -> Vec<u8> {
    bytes
        .iter()
        .flat_map(|byte| format!("{byte:02x}").into_bytes())
        .collect()
}
