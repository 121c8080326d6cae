//! Apache's `.htaccess` files, without I/O: bytes in, a program out, and answers for a request.
//!
//! [`compile()`] makes a file into a [`Program`], once for all sites that have the same bytes; a
//! [`Chain`] is the programs of the directories above a file, merged; [`decide()`] says what they
//! want for one request, in steps that stop where an answer is needed ("is `/x` a file?") and go
//! on with it, and [`edit_reply`] what becomes of the head of its reply. Sections of a server's own
//! configuration are programs as well ([`compile_section`]). Lines about access never
//! fail open: what is unknown, not allowed or half understood among them refuses what it covers.
//! Nothing here knows a clock, a socket or a file, and every loop and buffer has a number.
#![forbid(unsafe_code)]

mod access;
mod chain;
mod compile;
mod decide;
mod directives;
mod evaluation;
mod expression;
mod glob;
mod options;
pub mod overrides;
mod pattern;
pub mod php;
mod redirect;
mod reply;
mod request;
mod rewrite;
pub mod settings;
pub mod tree;
mod types;
mod variable;
pub mod words;
mod work;

pub use access::network;
pub use chain::{AccessGround, Chain, ChainLevel, LEVELS_MAX};
pub use compile::{PROBLEMS_MAX, Problem, Program, SectionContext, compile, compile_section};
pub use decide::{Decision, Ending, Explain, REDIRECTS_MAX, Traced, decide};
pub use evaluation::{
    FileFacts, FileKind, Paused, Progress, QUESTIONS_MAX, Question, Told, UserTold,
};
pub use glob::is_directory;
pub use options::AllowedOptions;
pub use overrides::Overrides;
pub use reply::{ReplyTables, edit_reply, edit_request};
pub use request::{Civil, ContextPrefix, ENV_BYTES_MAX, RequestFacts, Stop, Variables};
pub use types::is_php;
pub use work::STEPS_MAX;
