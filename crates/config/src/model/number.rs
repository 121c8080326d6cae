//! Sections of plain numbers: one table says which key is which field, for who reads a section and
//! for who writes it down.

/// A field, to be read or set.
pub(crate) enum Number<'a> {
    /// Bytes, milliseconds and what else is counted in full.
    Full(&'a mut u64),
    /// What memory has room for.
    Size(&'a mut usize),
    /// What may be left out.
    Maybe(&'a mut Option<u64>),
}

/// A key, and its field.
pub(crate) type Field<T> = (&'static str, fn(&mut T) -> Number<'_>);

impl Number<'_> {
    /// `None` where it is left out.
    pub(crate) fn get(&self) -> Option<u64> {
        match self {
            Number::Full(number) => Some(**number),
            Number::Size(number) => Some(**number as u64),
            Number::Maybe(number) => **number,
        }
    }

    /// Keys bound what they take, so nothing is cut off.
    pub(crate) fn set(self, value: u64) {
        match self {
            Number::Full(number) => *number = value,
            Number::Size(number) => *number = usize::try_from(value).unwrap_or(usize::MAX),
            Number::Maybe(number) => *number = Some(value),
        }
    }
}
