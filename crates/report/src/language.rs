//! The languages a report is told in: who makes it says each phrase in all of them, side by side.

/// A language.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Language {
    /// English.
    #[default]
    English,
    /// Japanese.
    Japanese,
}

impl Language {
    /// All.
    pub const ALL: [Language; 2] = [Language::English, Language::Japanese];

    /// As pages and clients name it (RFC 5646).
    pub fn tag(self) -> &'static str {
        match self {
            Language::English => "en",
            Language::Japanese => "ja",
        }
    }

    /// As its readers call it.
    pub fn name(self) -> &'static str {
        match self {
            Language::English => "English",
            Language::Japanese => "日本語",
        }
    }
}

/// The same words in each language.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Phrase {
    english: &'static str,
    japanese: &'static str,
}

impl Phrase {
    /// The words.
    pub const fn new(english: &'static str, japanese: &'static str) -> Phrase {
        Phrase { english, japanese }
    }

    /// In a language.
    pub const fn said_in(self, language: Language) -> &'static str {
        match language {
            Language::English => self.english,
            Language::Japanese => self.japanese,
        }
    }
}
