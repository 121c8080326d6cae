//! Sets of characters: `[a-z&&[^x]]`, `\w`, `[[:alpha:]]`, `\p{Hiragana}`.

/// A set of characters. Bytes that are no UTF-8 are characters beyond Unicode's last.
#[derive(Debug, Clone, Default)]
pub(super) struct Class {
    /// In order and apart from each other, once the set is finished.
    pub(super) ranges: Vec<(u32, u32)>,
    /// Properties, and whether it is those without that are meant.
    pub(super) properties: Vec<(Property, bool)>,
    pub(super) within: Vec<Class>,
    /// What must be in this set too.
    pub(super) and: Option<Box<Class>>,
    pub(super) negated: bool,
    /// ASCII characters in the set: as they are, and without regard to case.
    ascii: [u128; 2],
}

/// What a character may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Property {
    AsciiDigit,
    AsciiSpace,
    AsciiWord,
    AsciiHex,
    Alnum,
    Alpha,
    Blank,
    Cntrl,
    Digit,
    Graph,
    Lower,
    Print,
    Punct,
    Space,
    Upper,
    Word,
    Any,
    Ascii,
    Hiragana,
    Katakana,
    Han,
    Hangul,
    Latin,
    Greek,
    Cyrillic,
}

/// Names within `[[: :]]` and `\p{ }`, in lower case.
const NAMES: [(&str, Property); 38] = [
    ("alnum", Property::Alnum),
    ("alpha", Property::Alpha),
    ("blank", Property::Blank),
    ("cntrl", Property::Cntrl),
    ("digit", Property::Digit),
    ("graph", Property::Graph),
    ("lower", Property::Lower),
    ("print", Property::Print),
    ("punct", Property::Punct),
    ("space", Property::Space),
    ("upper", Property::Upper),
    ("xdigit", Property::AsciiHex),
    ("word", Property::Word),
    ("ascii", Property::Ascii),
    ("any", Property::Any),
    ("l", Property::Alpha),
    ("letter", Property::Alpha),
    ("lu", Property::Upper),
    ("uppercase", Property::Upper),
    ("ll", Property::Lower),
    ("lowercase", Property::Lower),
    ("n", Property::Digit),
    ("number", Property::Digit),
    ("nd", Property::Digit),
    ("p", Property::Punct),
    ("punctuation", Property::Punct),
    ("z", Property::Space),
    ("zs", Property::Space),
    ("whitespace", Property::Space),
    ("cc", Property::Cntrl),
    ("hiragana", Property::Hiragana),
    ("katakana", Property::Katakana),
    ("han", Property::Han),
    ("hangul", Property::Hangul),
    ("latin", Property::Latin),
    ("greek", Property::Greek),
    ("cyrillic", Property::Cyrillic),
    ("alphabetic", Property::Alpha),
];

impl Property {
    pub(super) fn of_name(name: &str) -> Option<Self> {
        let name = name.to_lowercase();
        let found = NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, property)| *property)
    }

    pub(super) fn holds(self, code: u32) -> bool {
        let is_in = |ranges: &[(u32, u32)]| {
            let mut ranges = ranges.iter();
            ranges.any(|(from, to)| (*from..=*to).contains(&code))
        };
        let Some(c) = char::from_u32(code) else {
            return self == Self::Any;
        };
        match self {
            Self::AsciiDigit => c.is_ascii_digit(),
            Self::AsciiSpace => matches!(c, ' ' | '\t'..='\r'),
            Self::AsciiWord => c.is_ascii_alphanumeric() || c == '_',
            Self::AsciiHex => c.is_ascii_hexdigit(),
            Self::Alnum => c.is_alphanumeric(),
            Self::Alpha => c.is_alphabetic(),
            Self::Blank => matches!(
                c,
                ' ' | '\t' | '\u{a0}' | '\u{3000}' | '\u{2000}'..='\u{200a}'
            ),
            Self::Cntrl => c.is_control(),
            Self::Digit => c.is_numeric(),
            Self::Graph => !c.is_whitespace() && !c.is_control(),
            Self::Lower => c.is_lowercase(),
            Self::Print => !c.is_control(),
            Self::Punct => c.is_ascii_punctuation() || is_in(&PUNCTUATION),
            Self::Space => c.is_whitespace(),
            Self::Upper => c.is_uppercase(),
            Self::Word => {
                c.is_alphanumeric() || c == '_' || is_in(&[(0x300, 0x36f), (0x203f, 0x2040)])
            }
            Self::Any => true,
            Self::Ascii => c.is_ascii(),
            Self::Hiragana => is_in(&[(0x3041, 0x3096), (0x309d, 0x309f)]),
            Self::Katakana => is_in(&[
                (0x30a1, 0x30fa),
                (0x30fd, 0x30ff),
                (0x31f0, 0x31ff),
                (0xff66, 0xff6f),
                (0xff71, 0xff9d),
            ]),
            Self::Han => is_in(&HAN),
            Self::Hangul => is_in(&[(0x1100, 0x11ff), (0x3131, 0x318e), (0xac00, 0xd7a3)]),
            Self::Latin => {
                c.is_alphabetic() && is_in(&[(0x41, 0x24f), (0x1e00, 0x1eff), (0xff21, 0xff5a)])
            }
            Self::Greek => is_in(&[(0x370, 0x3ff), (0x1f00, 0x1fff)]),
            Self::Cyrillic => is_in(&[(0x400, 0x52f), (0x1c80, 0x1c8f)]),
        }
    }
}

/// The blocks that people write with, not every character of the category.
const PUNCTUATION: [(u32, u32); 9] = [
    (0xa1, 0xa1),
    (0xa7, 0xa7),
    (0xab, 0xab),
    (0xb6, 0xb7),
    (0xbb, 0xbf),
    (0x2010, 0x2027),
    (0x2030, 0x205e),
    (0x3001, 0x301f),
    (0xff01, 0xff0f),
];
const HAN: [(u32, u32); 7] = [
    (0x2e80, 0x2fd5),
    (0x3005, 0x3007),
    (0x3021, 0x3029),
    (0x3400, 0x4dbf),
    (0x4e00, 0x9fff),
    (0xf900, 0xfaff),
    (0x20000, 0x3134f),
];

impl Class {
    pub(super) fn of(property: Property, is_without: bool) -> Self {
        let mut class = Self::default();
        class.properties.push((property, is_without));
        class.finish();
        class
    }

    /// Is done: nothing comes to it any more, and it knows its ASCII characters.
    pub(super) fn finish(&mut self) {
        self.ranges.sort_unstable();
        self.ranges.dedup_by(|next, kept| {
            let meets = next.0 <= kept.1.saturating_add(1);
            kept.1 = if meets { kept.1.max(next.1) } else { kept.1 };
            meets
        });
        self.ascii = self.ascii_bits();
        debug_assert!((0..128).all(|code| {
            let is_same = |folds| self.has(code, folds) == self.slow(code, folds);
            is_same(false) && is_same(true)
        }));
    }

    /// Its ASCII characters, from those of the sets in it: to ask for each would take long.
    fn ascii_bits(&self) -> [u128; 2] {
        let below = |code: u32| 1u128.checked_shl(code).map_or(u128::MAX, |bit| bit - 1);
        let ranges = self.ranges.iter();
        let ranges = ranges.map(|(from, to)| below(to.saturating_add(1)) & !below(*from));
        let properties = self.properties.iter().map(|(property, without)| {
            let holds = (0..128).filter(|code| property.holds(*code) != *without);
            holds.fold(0, |bits, code| bits | 1 << code)
        });
        let plain = ranges.chain(properties).fold(0, |all, bits| all | bits);
        let upper = below(u32::from(b'Z') + 1) & !below(b'A'.into());
        let folded = plain | (plain & upper) << 32 | (plain >> 32 & upper);
        [(plain, 0), (folded, 1)].map(|(own, folds)| {
            let within = self
                .within
                .iter()
                .fold(own, |all, it| all | it.ascii[folds]);
            let and = self.and.as_ref().map_or(u128::MAX, |it| it.ascii[folds]);
            let bits = within & and;
            if self.negated { !bits } else { bits }
        })
    }

    pub(super) fn has(&self, code: u32, folds: bool) -> bool {
        match code {
            0..128 => self.ascii[usize::from(folds)] >> code & 1 == 1,
            _ => self.slow(code, folds),
        }
    }

    /// Takes in what another set has; gives it back where it has to be asked by itself.
    pub(super) fn unite(&mut self, other: Self) -> Option<Self> {
        if other.negated || other.and.is_some() {
            return Some(other);
        }
        self.ranges.extend(other.ranges);
        self.within.extend(other.within);
        for property in other.properties {
            self.add_property(property);
        }
        None
    }

    pub(super) fn add_property(&mut self, property: (Property, bool)) {
        if !self.properties.contains(&property) {
            self.properties.push(property);
        }
    }

    fn is_in_range(&self, code: u32) -> bool {
        let after = self.ranges.partition_point(|(from, _)| *from <= code);
        let before = after.checked_sub(1).and_then(|at| self.ranges.get(at));
        before.is_some_and(|(_, to)| code <= *to)
    }

    fn slow(&self, code: u32, folds: bool) -> bool {
        let hit = |code: u32| {
            self.is_in_range(code)
                || self
                    .properties
                    .iter()
                    .any(|(property, without)| property.holds(code) != *without)
                || self.within.iter().any(|class| class.slow(code, folds))
        };
        let mut found = hit(code);
        if folds && !found {
            found = hit(lower(code)) || hit(upper(code));
        }
        if let Some(and) = &self.and {
            found &= and.slow(code, folds);
        }
        found != self.negated
    }
}

/// The character in lower case, where that is one character.
pub(super) fn lower(code: u32) -> u32 {
    if code < 128 {
        return u32::from((code as u8).to_ascii_lowercase());
    }
    let Some(c) = char::from_u32(code) else {
        return code;
    };
    let mut all = c.to_lowercase();
    match (all.next(), all.next()) {
        (Some(one), None) => one.into(),
        _ => code,
    }
}

fn upper(code: u32) -> u32 {
    let Some(c) = char::from_u32(code) else {
        return code;
    };
    let mut all = c.to_uppercase();
    match (all.next(), all.next()) {
        (Some(one), None) => one.into(),
        _ => code,
    }
}
