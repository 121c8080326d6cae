//! Lines as memcached and Redis send them: ended by CR LF, and no longer than theirs ever are.

/// Why bytes do not begin with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineFault {
    /// It would be too long.
    Long,
    /// It ends without CR.
    Bare,
}

/// The first line without its end, and the bytes it took with it; `None` while it has no end.
pub(super) fn first(bytes: &[u8], bytes_max: usize) -> Result<Option<(&[u8], usize)>, LineFault> {
    let seen = bytes.get(..bytes_max).unwrap_or(bytes);
    let Some(end) = seen.iter().position(|byte| *byte == b'\n') else {
        return match seen.len() < bytes_max {
            true => Ok(None),
            false => Err(LineFault::Long),
        };
    };
    let line = seen.get(..end).unwrap_or_default();
    let line = line.strip_suffix(b"\r").ok_or(LineFault::Bare)?;
    Ok(Some((line, end + 1)))
}
