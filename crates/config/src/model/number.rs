//! Sections of plain numbers: one table says which key is which field, for who reads a section and
//! for who writes it down.

/// A field, to be read or set.
pub(crate) enum Number<'a> {
    /// Bytes, milliseconds and what else is counted in full.
    Full(&'a mut u64),
    /// What memory has room for.
    Size(&'a mut usize),
}

/// A key, and its field.
pub(crate) type Field<T> = (&'static str, fn(&mut T) -> Number<'_>);

impl Number<'_> {
    pub(crate) fn get(&self) -> u64 {
        match self {
            Number::Full(number) => **number,
            Number::Size(number) => **number as u64,
        }
    }

    /// Keys bound what they take, so nothing is cut off.
    pub(crate) fn set(self, value: u64) {
        match self {
            Number::Full(number) => *number = value,
            Number::Size(number) => *number = usize::try_from(value).unwrap_or(usize::MAX),
        }
    }
}
