//! The numbers this crate holds a peer to.
//!
//! Callers pass them in; the defaults here are those of the configuration reference.

/// Most fields a head can have, whatever its caps say: the parser's table lives on the stack.
pub const FIELDS_MAX: usize = 256;

/// Caps on one head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadCaps {
    /// The whole head, start line and final blank line included; more is 431.
    pub head_bytes: usize,
    /// The request target; more is 414.
    pub target_bytes: usize,
    /// Fields, at most [`FIELDS_MAX`]; more is 431.
    pub fields: usize,
}

impl Default for HeadCaps {
    fn default() -> HeadCaps {
        HeadCaps {
            head_bytes: 16 * 1024,
            target_bytes: 8 * 1024,
            fields: 100,
        }
    }
}

/// Caps on one body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyCaps {
    /// Content without framing; more is 413.
    pub body_bytes: u64,
    /// Chunk extensions of the whole body.
    pub chunk_extension_bytes: usize,
    /// Trailer fields of the whole body.
    pub trailer_bytes: usize,
}

impl Default for BodyCaps {
    fn default() -> BodyCaps {
        BodyCaps {
            body_bytes: 1024 * 1024 * 1024,
            chunk_extension_bytes: 4 * 1024,
            trailer_bytes: 8 * 1024,
        }
    }
}
