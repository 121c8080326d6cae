//! What `Options` says: a set of words, or words added to and taken from what was said before.

/// The words, with what they stand for.
const WORDS: [(&str, u8); 10] = [
    ("none", 0),
    ("indexes", 1),
    ("includes", 2 | 4),
    ("includesnoexec", 2),
    ("followsymlinks", 8),
    ("symlinksifownermatch", 16),
    ("execcgi", 32),
    ("multiviews", 64),
    ("runscripts", 64 | 32),
    ("all", 1 | 2 | 4 | 8 | 16 | 32),
];

/// A set of options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllowedOptions(u8);

impl AllowedOptions {
    /// No option.
    pub const NONE: Self = Self(0);
    /// Every option there is.
    pub const ALL: Self = Self(127);

    /// The options that a word stands for; none for a word that is unknown.
    pub fn of_word(word: &[u8]) -> Option<Self> {
        let found = WORDS
            .iter()
            .find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes()));
        found.map(|(_, bits)| Self(*bits))
    }

    /// These and those.
    #[must_use]
    pub fn with(self, more: Self) -> Self {
        Self(self.0 | more.0)
    }

    /// Whether all of those are among these.
    pub fn has(self, those: Self) -> bool {
        self.0 & those.0 == those.0
    }

    fn without(self, those: Self) -> Self {
        Self(self.0 & !those.0)
    }

    /// Whether a directory may be listed.
    pub fn lists(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether symbolic links are followed, if only to files of their owner.
    pub fn follows(self) -> bool {
        self.0 & (8 | 16) != 0
    }

    /// Whether links are followed only to what belongs to their owner.
    pub fn follows_owner_only(self) -> bool {
        self.0 & (8 | 16) == 16
    }

    /// Whether programs may run.
    pub fn executes(self) -> bool {
        self.0 & 32 != 0
    }
}

/// The lines of one place together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct OptionsEdit {
    /// What replaces all that was said before.
    whole: Option<u8>,
    added: u8,
    taken: u8,
}

impl OptionsEdit {
    /// Takes in another line.
    ///
    /// # Errors
    /// What is wrong with it, and whether it is only not allowed.
    pub(crate) fn line(
        &mut self,
        words: &[Vec<u8>],
        allowed: AllowedOptions,
    ) -> Result<(), (String, bool)> {
        let mut signed = None;
        let begins_whole = words
            .first()
            .and_then(|word| AllowedOptions::of_word(word))
            .is_some_and(|option| matches!(option.0, 0 | 63));
        for (at, word) in words.iter().enumerate() {
            let sign = word.first().copied().filter(|it| matches!(it, b'+' | b'-'));
            let name = if sign.is_some() {
                word.get(1..)
            } else {
                Some(&word[..])
            };
            let name = name.unwrap_or_default();
            let shown = String::from_utf8_lossy(word);
            let Some(option) = AllowedOptions::of_word(name) else {
                return Err((format!("there is no option {shown}"), false));
            };
            let is_whole = matches!(option.0, 0 | 63);
            if is_whole && (sign.is_some() || at > 0) {
                return Err((format!("{shown} stands alone, without a sign"), false));
            }
            if *signed.get_or_insert(sign.is_some()) != sign.is_some() && !begins_whole {
                let text = "either all options have + or -, or none".to_owned();
                return Err((text, false));
            }
            if !allowed.has(option) {
                return Err((format!("option {shown} is not allowed here"), true));
            }
            self.word(sign, option.0, at);
        }
        match words {
            [] => Err(("Options names none".to_owned(), false)),
            _ => Ok(()),
        }
    }

    fn word(&mut self, sign: Option<u8>, bits: u8, at: usize) {
        match sign {
            Some(b'+') => {
                self.added |= bits;
                self.taken &= !bits;
                self.whole = self.whole.map(|whole| whole | bits);
            }
            Some(_) => {
                self.taken |= bits;
                self.added &= !bits;
                self.whole = self.whole.map(|whole| whole & !bits);
            }
            None if at == 0 => {
                *self = Self {
                    whole: Some(bits),
                    ..Self::default()
                }
            }
            None => self.whole = self.whole.map(|whole| whole | bits),
        }
    }

    /// What holds where these lines stand in something.
    pub(crate) fn over(self, outer: AllowedOptions) -> AllowedOptions {
        match self.whole {
            Some(whole) => AllowedOptions(whole),
            None => outer
                .with(AllowedOptions(self.added))
                .without(AllowedOptions(self.taken)),
        }
    }

    /// These lines, and after them those of a place within.
    pub(crate) fn then(self, inner: Self) -> Self {
        match (inner.whole, self.whole) {
            (Some(_), _) => inner,
            (None, Some(whole)) => Self {
                whole: Some(inner.over(AllowedOptions(whole)).0),
                ..Self::default()
            },
            (None, None) => Self {
                whole: None,
                added: (self.added & !inner.taken) | inner.added,
                taken: (self.taken & !inner.added) | inner.taken,
            },
        }
    }
}
