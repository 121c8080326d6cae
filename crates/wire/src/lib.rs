//! Strict HTTP/1.1 rules without I/O: framing, targets, authorities, fields, ranges.
//!
//! Bytes come in as slices and leave as decisions. Any doubt about where a message ends, whom it
//! is for or which path it names is refused, because the next reader might decide otherwise.
//! No sockets, no clock, no tasks: callers read, wait and write.
#![forbid(unsafe_code)]

pub mod accept;
pub mod client_hello;
pub mod conditional;
pub mod date;
pub mod location;
pub mod multipart;
pub mod proxy_protocol;
pub mod range;
pub mod set_cookie;

mod authority;
mod body;
mod caps;
mod connection;
mod field_id;
mod fields;
mod framing;
mod head;
mod http2;
mod method;
mod octets;
mod refusal;
mod reply;
mod request;
mod rewrite;
mod scan;
mod target;

pub use authority::Authority;
pub use body::{BodyDecoder, CHUNK_END, Decoded, LAST_CHUNK, encode_chunk_head};
pub use caps::{BodyCaps, FIELDS_MAX, HeadCaps};
pub use connection::strip_hop_by_hop;
pub use field_id::FieldId;
pub use fields::{Field, Fields, encode_field};
pub use framing::{Framing, Version};
pub use http2::PseudoFields;
pub use method::Method;
pub use octets::{field_name_ok, field_value_ok};
pub use refusal::Refusal;
pub use reply::{REPLY_BYTES_MAX, ReplyFraming, ReplyHead};
pub use request::{OddNames, RequestHead};
pub use rewrite::{canonical_path, escaped_query, judge_target};
pub use target::{EncodedSlash, PathRules, Slashes};
