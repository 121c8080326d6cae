//! Reads expressions: one pass, no way back, a number on how deep.

use super::function::Function;
use super::{Comparison, Condition, DEPTH_MAX, Likeness, Word};
use crate::access::network;
use crate::pattern::{Case, Pattern};
use crate::variable::Variable;

/// Reads what is true or not.
///
/// # Errors
/// What is wrong, and where.
pub(crate) fn condition(text: &[u8]) -> Result<Condition, String> {
    let mut parser = Parser {
        text,
        at: 0,
        depth: 0,
    };
    let found = parser.any()?;
    parser.blanks();
    if parser.at < text.len() {
        return Err(parser.wrong("nothing may follow"));
    }
    parser.truth(found)
}

/// Whether an expression asks for variables.
pub(crate) fn is_by_env(text: &[u8]) -> bool {
    text.windows(3).any(|it| it.eq_ignore_ascii_case(b"env"))
}

/// Reads a text with `%{…}` in it.
///
/// # Errors
/// What is wrong, and where.
pub(crate) fn words(text: &[u8]) -> Result<Word, String> {
    Parser {
        text,
        at: 0,
        depth: 0,
    }
    .string(None)
}

struct Parser<'t> {
    text: &'t [u8],
    at: usize,
    depth: usize,
}

/// What a bracket may hold.
enum Either {
    Truth(Condition),
    Text(Word),
}

/// Operators, the longer ones first.
const ORDERS: [(&str, Comparison, bool); 19] = [
    ("==", Comparison::Equal, true),
    ("!=", Comparison::NotEqual, true),
    ("<=", Comparison::LessOrEqual, true),
    (">=", Comparison::GreaterOrEqual, true),
    ("=", Comparison::Equal, true),
    ("<", Comparison::Less, true),
    (">", Comparison::Greater, true),
    ("-eq", Comparison::Equal, false),
    ("-ne", Comparison::NotEqual, false),
    ("-lt", Comparison::Less, false),
    ("-le", Comparison::LessOrEqual, false),
    ("-gt", Comparison::Greater, false),
    ("-ge", Comparison::GreaterOrEqual, false),
    ("eq", Comparison::Equal, false),
    ("ne", Comparison::NotEqual, false),
    ("lt", Comparison::Less, false),
    ("le", Comparison::LessOrEqual, false),
    ("gt", Comparison::Greater, false),
    ("ge", Comparison::GreaterOrEqual, false),
];

impl Parser<'_> {
    fn rest(&self) -> &[u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn blanks(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    /// Takes a symbol or a word of the grammar, after blanks.
    fn take(&mut self, token: &str) -> bool {
        self.blanks();
        let Some(after) = self.rest().strip_prefix(token.as_bytes()) else {
            return false;
        };
        let is_word = token.ends_with(|letter: char| letter.is_ascii_alphanumeric());
        let goes_on = after
            .first()
            .is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        if is_word && goes_on {
            return false;
        }
        self.at += token.len();
        true
    }

    fn wrong(&self, what: &str) -> String {
        let near =
            String::from_utf8_lossy(self.rest().get(..16).unwrap_or(self.rest())).into_owned();
        match near.is_empty() {
            true => format!("{what}, at the end of the expression"),
            false => format!("{what}, at `{near}`"),
        }
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        match self.take(token) {
            true => Ok(()),
            false => Err(self.wrong(&format!("{token} is missing"))),
        }
    }

    fn truth(&self, found: Either) -> Result<Condition, String> {
        match found {
            Either::Truth(condition) => Ok(condition),
            Either::Text(_) => Err(self.wrong("a text is neither true nor false: compare it")),
        }
    }

    fn text(&self, found: Either) -> Result<Word, String> {
        match found {
            Either::Text(word) => Ok(word),
            Either::Truth(_) => Err(self.wrong("a text must stand here")),
        }
    }

    /// Parts joined by `or`.
    fn any(&mut self) -> Result<Either, String> {
        self.joined(&["||", "or"], Self::all, Condition::Any)
    }

    /// Parts joined by `and`.
    fn all(&mut self) -> Result<Either, String> {
        self.joined(&["&&", "and"], Self::negated, Condition::All)
    }

    fn joined(
        &mut self,
        joints: &[&str],
        part: fn(&mut Self) -> Result<Either, String>,
        whole: fn(Vec<Condition>) -> Condition,
    ) -> Result<Either, String> {
        let first = part(self)?;
        if !joints.iter().any(|joint| self.take(joint)) {
            return Ok(first);
        }
        let mut parts = vec![self.truth(first)?];
        loop {
            let next = part(self)?;
            parts.push(self.truth(next)?);
            if !joints.iter().any(|joint| self.take(joint)) {
                return Ok(Either::Truth(whole(parts)));
            }
        }
    }

    fn negated(&mut self) -> Result<Either, String> {
        let mut count = 0;
        while self.take("not") || self.take("!") {
            count += 1;
        }
        let found = self.comparison()?;
        if count == 0 {
            return Ok(found);
        }
        let inner = self.truth(found)?;
        Ok(Either::Truth(match count % 2 {
            0 => inner,
            _ => Condition::Not(Box::new(inner)),
        }))
    }

    fn comparison(&mut self) -> Result<Either, String> {
        let left = match self.primary()? {
            Either::Text(word) => self.concatenated(word)?,
            truth => return Ok(truth),
        };
        self.operator(left)
    }

    /// More words joined to one by dots.
    fn concatenated(&mut self, first: Word) -> Result<Word, String> {
        if !self.take(".") {
            return Ok(first);
        }
        let mut words = vec![first];
        loop {
            let next = self.primary()?;
            words.push(self.text(next)?);
            if !self.take(".") {
                return Ok(Word::Joined(words));
            }
        }
    }

    fn word(&mut self) -> Result<Word, String> {
        let found = self.primary()?;
        let word = self.text(found)?;
        self.concatenated(word)
    }

    fn operator(&mut self, left: Word) -> Result<Either, String> {
        if self.take("=~") {
            return Ok(Either::Truth(Condition::Matches(left, self.pattern()?)));
        }
        if self.take("!~") {
            let matches = Condition::Matches(left, self.pattern()?);
            return Ok(Either::Truth(Condition::Not(Box::new(matches))));
        }
        if self.take("-in") || self.take("in") {
            return Ok(Either::Truth(Condition::In(left, self.list()?)));
        }
        for (token, order, of_texts) in ORDERS {
            if self.take(token) {
                let right = self.word()?;
                return Ok(Either::Truth(match of_texts {
                    true => Condition::Texts(left, order, right),
                    false => Condition::Numbers(left, order, right),
                }));
            }
        }
        if self.take("-ipmatch") {
            let Word::Text(text) = self.word()? else {
                return Err(self.wrong("-ipmatch needs a network as it is written"));
            };
            let network = network(&text).ok_or_else(|| self.wrong("-ipmatch needs a network"))?;
            return Ok(Either::Truth(Condition::Network(left, network)));
        }
        for (token, likeness) in [
            ("-strmatch", Likeness::Exact),
            ("-strcmatch", Likeness::Folded),
            ("-fnmatch", Likeness::Path),
        ] {
            if self.take(token) {
                let pattern = self.word()?;
                return Ok(Either::Truth(Condition::Like(left, pattern, likeness)));
            }
        }
        Ok(Either::Text(left))
    }

    fn primary(&mut self) -> Result<Either, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} parts stand in each other"));
        }
        self.blanks();
        let found = self.part();
        self.depth -= 1;
        found
    }

    fn part(&mut self) -> Result<Either, String> {
        match self.peek() {
            None => Err(self.wrong("something must stand here")),
            Some(b'(') => {
                self.at += 1;
                let found = self.any()?;
                self.expect(")")?;
                Ok(found)
            }
            Some(quote @ (b'\'' | b'"')) => {
                self.at += 1;
                Ok(Either::Text(self.string(Some(quote))?))
            }
            Some(b'%') => Ok(Either::Text(self.variable()?)),
            Some(b'$') => match self.text.get(self.at + 1) {
                Some(digit @ b'0'..=b'9') => {
                    self.at += 2;
                    Ok(Either::Text(Word::Group(digit - b'0')))
                }
                _ => Err(self.wrong("$ is followed by a digit")),
            },
            Some(b'-')
                if self
                    .text
                    .get(self.at + 1)
                    .is_some_and(u8::is_ascii_alphabetic) =>
            {
                self.unary()
            }
            Some(b'-' | b'0'..=b'9') => Ok(Either::Text(self.digits()?)),
            Some(byte) if byte.is_ascii_alphabetic() => self.name(),
            Some(_) => Err(self.wrong("this means nothing")),
        }
    }

    fn digits(&mut self) -> Result<Word, String> {
        let from = self.at;
        self.at += usize::from(self.peek() == Some(b'-'));
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        match self.text.get(from..self.at) {
            Some(digits) if digits != b"-" => Ok(Word::Text(digits.to_vec())),
            _ => Err(self.wrong("a number lacks its digits")),
        }
    }

    fn unary(&mut self) -> Result<Either, String> {
        let letter = self.text.get(self.at + 1).copied().unwrap_or_default();
        let goes_on = self
            .text
            .get(self.at + 2)
            .is_some_and(u8::is_ascii_alphanumeric);
        match letter {
            b'U' | b'F' | b'A' if !goes_on => Err(self.wrong("other URLs are not looked up")),
            b'n' | b'z' | b'T' | b'd' | b'e' | b'f' | b's' | b'L' | b'h' | b'x' if !goes_on => {
                self.at += 2;
                Ok(Either::Truth(Condition::Unary(letter, self.word()?)))
            }
            b'R' if !goes_on => {
                self.at += 2;
                let Word::Text(text) = self.word()? else {
                    return Err(self.wrong("-R needs a network as it is written"));
                };
                let network = network(&text).ok_or_else(|| self.wrong("-R needs a network"))?;
                let client = Word::Variable(Variable::of_name(b"REMOTE_ADDR"));
                Ok(Either::Truth(Condition::Network(client, network)))
            }
            _ => Err(self.wrong("there is no such operator")),
        }
    }

    /// `true`, `false`, or a function and its argument.
    fn name(&mut self) -> Result<Either, String> {
        for (word, value) in [("true", true), ("false", false)] {
            if self.take(word) {
                return Ok(Either::Truth(Condition::Always(value)));
            }
        }
        let name = self.identifier();
        let Some(function) = Function::of_name(&name) else {
            let name = String::from_utf8_lossy(&name).into_owned();
            return Err(self.wrong(&format!("{name} is no function here")));
        };
        self.expect("(")?;
        let found = self.any()?;
        let argument = self.text(found)?;
        self.expect(")")?;
        Ok(Either::Text(Word::Call(function, Box::new(argument))))
    }

    fn identifier(&mut self) -> Vec<u8> {
        let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
        let length = self.rest().iter().take_while(is_part).count();
        let name = self.rest().get(..length).unwrap_or_default().to_vec();
        self.at += length;
        name
    }

    /// `%{NAME}` or `%{FUNCTION:text}`.
    fn variable(&mut self) -> Result<Word, String> {
        if !self.rest().starts_with(b"%{") {
            return Err(self.wrong("%{NAME} must stand here"));
        }
        self.at += 2;
        let name = self.identifier();
        match self.peek() {
            Some(b'}') => {
                self.at += 1;
                match Variable::of_name(&name) {
                    Variable::Nothing | Variable::Unsupported => {
                        let name = String::from_utf8_lossy(&name).into_owned();
                        Err(self.wrong(&format!("there is no variable {name}")))
                    }
                    variable => Ok(Word::Variable(variable)),
                }
            }
            Some(b':') => {
                let Some(function) = Function::of_name(&name) else {
                    let name = String::from_utf8_lossy(&name).into_owned();
                    return Err(self.wrong(&format!("{name} is no function here")));
                };
                self.at += 1;
                let argument = self.string(Some(b'}'))?;
                Ok(Word::Call(function, Box::new(argument)))
            }
            _ => Err(self.wrong("%{ lacks its }")),
        }
    }

    /// A text up to what ends it, or to the end of all.
    fn string(&mut self, end: Option<u8>) -> Result<Word, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} parts stand in each other"));
        }
        let (mut words, mut text) = (Vec::new(), Vec::new());
        loop {
            let Some(byte) = self.peek() else {
                if end.is_some() {
                    return Err(self.wrong("a text lacks its end"));
                }
                break;
            };
            if Some(byte) == end {
                self.at += 1;
                break;
            }
            let group = self
                .text
                .get(self.at + 1)
                .filter(|next| next.is_ascii_digit());
            match (byte, group) {
                (b'\\', _) => self.escape(&mut text)?,
                (b'$', Some(digit)) => {
                    words.push(Word::Text(std::mem::take(&mut text)));
                    words.push(Word::Group(digit - b'0'));
                    self.at += 2;
                }
                (b'%', _) if self.rest().starts_with(b"%{") => {
                    words.push(Word::Text(std::mem::take(&mut text)));
                    words.push(self.variable()?);
                }
                _ => {
                    text.push(byte);
                    self.at += 1;
                }
            }
        }
        self.depth -= 1;
        if words.is_empty() {
            return Ok(Word::Text(text));
        }
        words.push(Word::Text(text));
        Ok(Word::Joined(words))
    }

    fn escape(&mut self, text: &mut Vec<u8>) -> Result<(), String> {
        let Some(byte) = self.text.get(self.at + 1).copied() else {
            return Err(self.wrong("it ends with a backslash"));
        };
        self.at += 2;
        text.push(match byte {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'b' => 8,
            b'f' => 12,
            byte => byte,
        });
        Ok(())
    }

    fn list(&mut self) -> Result<Vec<Word>, String> {
        let is_in_brackets = self.take("(");
        self.expect("{")?;
        let mut words = vec![self.word()?];
        while self.take(",") {
            words.push(self.word()?);
        }
        self.expect("}")?;
        if is_in_brackets {
            self.expect(")")?;
        }
        Ok(words)
    }

    /// `/pattern/i` or `m#pattern#i`.
    fn pattern(&mut self) -> Result<Pattern, String> {
        self.blanks();
        let (end, length) = match self.rest() {
            [b'/', ..] => (b'/', 1),
            [b'm', end, ..] if b"/#$%^|?!'\",;:._-".contains(end) => (*end, 2),
            _ => return Err(self.wrong("a pattern such as /x/ must stand here")),
        };
        self.at += length;
        let Some(bytes) = self.rest().iter().position(|byte| *byte == end) else {
            return Err(self.wrong("a pattern lacks its end"));
        };
        let pattern = self.rest().get(..bytes).unwrap_or_default().to_vec();
        self.at += bytes + 1;
        let mut case = Case::Exact;
        while let Some(flag @ (b'i' | b's' | b'm' | b'g')) = self.peek() {
            if flag == b'i' {
                case = Case::Folded;
            }
            self.at += 1;
        }
        Pattern::new(&pattern, case).map_err(|error| self.wrong(&error))
    }
}
