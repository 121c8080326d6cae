//! A file of Apache's grammar as a tree of lines and sections, whatever they mean.
//!
//! Lines end at a newline that no backslash hides, a `#` begins a comment only where a line
//! begins, and `<Name …>` opens what `</Name>` closes. Import reads whole configurations with it.

/// The longest file, in bytes.
pub const FILE_BYTES_MAX: usize = 256 * 1024;
/// Lines and sections of a file together.
pub const DIRECTIVES_MAX: usize = 4_096;
/// Sections within each other.
pub const DEPTH_MAX: usize = 32;
/// The longest line, with those that continue it, in bytes.
pub const LINE_BYTES_MAX: usize = 16 * 1024;

/// What a tree may be at most.
#[derive(Debug, Clone, Copy)]
pub struct TreeCaps {
    /// Bytes of the file.
    pub bytes: usize,
    /// Lines and sections.
    pub directives: usize,
    /// Sections within each other.
    pub depth: usize,
}

impl Default for TreeCaps {
    fn default() -> Self {
        Self {
            bytes: FILE_BYTES_MAX,
            directives: DIRECTIVES_MAX,
            depth: DEPTH_MAX,
        }
    }
}

/// A line, or a section with what stands in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directive {
    /// The line it begins on, from 1.
    pub line: u32,
    /// Its name as it is written; of a section without `<`.
    pub name: Vec<u8>,
    /// What follows the name, without blanks around it; of a section without `>`.
    pub arguments: Vec<u8>,
    /// What stands in the section; none of a line.
    pub children: Option<Vec<Directive>>,
}

impl Directive {
    /// Whether it has this name, in whatever case.
    pub fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }
}

/// Why bytes are no tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeError {
    /// The line, from 1.
    pub line: u32,
    /// The stable word for it.
    pub reason: &'static str,
    /// What is wrong there, and what to do.
    pub text: String,
}

/// Reads a file.
///
/// # Errors
/// `htaccess_too_large` beyond a cap, `htaccess_syntax` where sections do not open and close.
pub fn parse(bytes: &[u8], caps: TreeCaps) -> Result<Vec<Directive>, TreeError> {
    let too_large = |line, text| TreeError {
        line,
        reason: "htaccess_too_large",
        text,
    };
    if bytes.len() > caps.bytes {
        let text = format!("the file is longer than {} bytes", caps.bytes);
        return Err(too_large(1, text));
    }
    let mut open: Vec<Directive> = Vec::new();
    let mut top = Vec::new();
    for (count, line) in LogicalLines::new(bytes).enumerate() {
        let (number, text) = line?;
        if count >= caps.directives {
            let text = format!("there are more than {} lines", caps.directives);
            return Err(too_large(number, text));
        }
        if text.starts_with(b"</") {
            let closed = close(&mut open, number, &text)?;
            siblings(&mut open, &mut top).push(closed);
            continue;
        }
        let directive = directive(number, &text)?;
        if directive.children.is_none() {
            siblings(&mut open, &mut top).push(directive);
        } else if open.len() >= caps.depth {
            let text = format!("more than {} sections stand in each other", caps.depth);
            return Err(too_large(number, text));
        } else {
            open.push(directive);
        }
    }
    match open.pop() {
        None => Ok(top),
        Some(section) => {
            let name = String::from_utf8_lossy(&section.name).into_owned();
            Err(syntax(
                section.line,
                format!("<{name}> is not closed: add </{name}>"),
            ))
        }
    }
}

fn syntax(line: u32, text: String) -> TreeError {
    TreeError {
        line,
        reason: "htaccess_syntax",
        text,
    }
}

/// Where the next directive belongs: in the innermost open section, or on top.
fn siblings<'a>(open: &'a mut [Directive], top: &'a mut Vec<Directive>) -> &'a mut Vec<Directive> {
    match open
        .last_mut()
        .and_then(|section| section.children.as_mut())
    {
        Some(children) => children,
        None => top,
    }
}

fn close(open: &mut Vec<Directive>, line: u32, text: &[u8]) -> Result<Directive, TreeError> {
    let name = text.get(2..).unwrap_or_default();
    let name = name.split(|byte| *byte == b'>').next().unwrap_or_default();
    let name = name.trim_ascii();
    let shown = String::from_utf8_lossy(name).into_owned();
    match open.pop() {
        Some(section) if section.name.eq_ignore_ascii_case(name) => Ok(section),
        Some(section) => {
            let open = String::from_utf8_lossy(&section.name).into_owned();
            Err(syntax(
                line,
                format!("</{shown}> stands where </{open}> must"),
            ))
        }
        None => Err(syntax(line, format!("</{shown}> closes nothing"))),
    }
}

fn directive(line: u32, text: &[u8]) -> Result<Directive, TreeError> {
    let end = text.iter().position(u8::is_ascii_whitespace);
    let (name, arguments) = text.split_at(end.unwrap_or(text.len()));
    let arguments = arguments.trim_ascii();
    let Some(section) = name.strip_prefix(b"<") else {
        return Ok(Directive {
            line,
            name: name.to_vec(),
            arguments: arguments.to_vec(),
            children: None,
        });
    };
    let (name, arguments) = match section.strip_suffix(b">") {
        Some(name) if arguments.is_empty() => (name, arguments),
        _ => {
            let Some(end) = arguments.iter().rposition(|byte| *byte == b'>') else {
                let shown = String::from_utf8_lossy(text).into_owned();
                return Err(syntax(line, format!("{shown} lacks its >")));
            };
            (
                section,
                arguments.get(..end).unwrap_or_default().trim_ascii(),
            )
        }
    };
    Ok(Directive {
        line,
        name: name.to_vec(),
        arguments: arguments.to_vec(),
        children: Some(Vec::new()),
    })
}

/// Lines as they are meant: joined where they continue, without comments and blank ones.
struct LogicalLines<'a> {
    rest: &'a [u8],
    number: u32,
}

impl<'a> LogicalLines<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        Self {
            rest: bytes,
            number: 0,
        }
    }

    fn physical(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        self.number = self.number.saturating_add(1);
        let end = self.rest.iter().position(|byte| *byte == b'\n');
        let line = self.rest.get(..end.unwrap_or(self.rest.len()))?;
        self.rest = end
            .and_then(|end| self.rest.get(end + 1..))
            .unwrap_or_default();
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }
}

impl Iterator for LogicalLines<'_> {
    type Item = Result<(u32, Vec<u8>), TreeError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let mut line = self.physical()?;
            let number = self.number;
            let mut text = Vec::new();
            // A backslash at the end goes on with the next line, in comments too.
            while let Some(begun) = line.strip_suffix(b"\\") {
                text.extend_from_slice(begun);
                match self.physical() {
                    Some(next) => line = next,
                    None => line = b"",
                }
                if text.len() > LINE_BYTES_MAX {
                    break;
                }
            }
            text.extend_from_slice(line);
            if text.len() > LINE_BYTES_MAX {
                let text = format!("the line is longer than {LINE_BYTES_MAX} bytes");
                return Some(Err(TreeError {
                    line: number,
                    reason: "htaccess_too_large",
                    text,
                }));
            }
            if text.contains(&0) {
                return Some(Err(syntax(number, "the line has a NUL byte".to_owned())));
            }
            let text = text.trim_ascii();
            if !text.is_empty() && !text.starts_with(b"#") {
                return Some(Ok((number, text.to_vec())));
            }
        }
    }
}
