//! What a site lets its files say: `AllowOverride` and `AllowOverrideList`.

use std::collections::BTreeSet;

use crate::options::AllowedOptions;

/// What a directive belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverrideClass {
    /// Who may have what, by name.
    AuthConfig,
    /// What a file is and where it is.
    FileInfo,
    /// Directories and the age of files.
    Indexes,
    /// Who may have what, by address.
    Limit,
    /// `Options`, and what goes with them.
    Options,
    /// Allowed where any class is.
    Any,
}

/// What becomes of a line that is unknown or not allowed, and not about access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// It is left out and told.
    Log,
    /// It refuses what it covers, as Apache has it.
    Error,
}

/// What files may say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overrides {
    classes: u8,
    list: BTreeSet<String>,
    options: AllowedOptions,
    not_allowed: Unknown,
    unknown: Unknown,
}

impl Overrides {
    /// Everything; what is unknown is left out.
    pub fn all() -> Self {
        Self {
            classes: 31,
            list: BTreeSet::new(),
            options: AllowedOptions::ALL,
            not_allowed: Unknown::Log,
            unknown: Unknown::Log,
        }
    }

    /// Reads words as `AllowOverride` has them: classes, `Options=…` and `Nonfatal=…`; any other
    /// word allows the one directive of that name, as `AllowOverrideList` does.
    ///
    /// # Errors
    /// The word that means nothing, and what would.
    pub fn new<'w>(
        words: impl IntoIterator<Item = &'w str>,
        unknown: Unknown,
    ) -> Result<Self, String> {
        let mut overrides = Self {
            classes: 0,
            options: AllowedOptions::NONE,
            not_allowed: unknown,
            unknown,
            ..Self::all()
        };
        for word in words {
            overrides.word(word)?;
        }
        Ok(overrides)
    }

    fn word(&mut self, word: &str) -> Result<(), String> {
        let lower = word.to_ascii_lowercase();
        if let Some(options) = lower.strip_prefix("options=") {
            self.classes |= bit(OverrideClass::Options);
            for name in options.split(',') {
                let option = AllowedOptions::of_word(name.as_bytes());
                let option = option.ok_or_else(|| format!("{word}: there is no option {name}"))?;
                self.options = self.options.with(option);
            }
            return Ok(());
        }
        if let Some(what) = lower.strip_prefix("nonfatal=") {
            let (of_override, of_unknown) = match what {
                "override" => (true, false),
                "unknown" => (false, true),
                "all" => (true, true),
                _ => return Err(format!("{word}: Override, Unknown or All")),
            };
            if of_override {
                self.not_allowed = Unknown::Log;
            }
            if of_unknown {
                self.unknown = Unknown::Log;
            }
            return Ok(());
        }
        match lower.as_str() {
            "none" => {}
            "all" => {
                self.classes = 31;
                self.options = AllowedOptions::ALL;
            }
            "authconfig" => self.classes |= bit(OverrideClass::AuthConfig),
            "fileinfo" => self.classes |= bit(OverrideClass::FileInfo),
            "indexes" => self.classes |= bit(OverrideClass::Indexes),
            "limit" => self.classes |= bit(OverrideClass::Limit),
            "options" => {
                self.classes |= bit(OverrideClass::Options);
                self.options = AllowedOptions::ALL;
            }
            _ if crate::directives::find(lower.as_bytes()).is_some() => {
                self.list.insert(lower);
            }
            _ => return Err(format!("{word} is neither a class nor a directive")),
        }
        Ok(())
    }

    /// Whether nothing may be said: no file need be read.
    pub fn is_none(&self) -> bool {
        self.classes == 0 && self.list.is_empty()
    }

    /// Whether a directive of this class and name may stand in a file.
    pub(crate) fn allows(&self, class: OverrideClass, name: &str) -> bool {
        let by_class = match class {
            OverrideClass::Any => self.classes != 0,
            class => self.classes & bit(class) != 0,
        };
        by_class || self.list.contains(&name.to_ascii_lowercase())
    }

    /// The options that may be named.
    pub(crate) fn options(&self) -> AllowedOptions {
        match self.list.contains("options") {
            true => AllowedOptions::ALL,
            false => self.options,
        }
    }

    /// What becomes of lines that are not allowed.
    pub(crate) fn not_allowed(&self) -> Unknown {
        self.not_allowed
    }

    /// What becomes of lines that are unknown.
    pub(crate) fn unknown(&self) -> Unknown {
        self.unknown
    }
}

fn bit(class: OverrideClass) -> u8 {
    match class {
        OverrideClass::AuthConfig => 1,
        OverrideClass::FileInfo => 2,
        OverrideClass::Indexes => 4,
        OverrideClass::Limit => 8,
        OverrideClass::Options => 16,
        OverrideClass::Any => 0,
    }
}
