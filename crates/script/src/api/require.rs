//! `require`: files below `scripts.lib`, each run once in a VM.

use mruby::Answer;

use super::chapter::{Chapter, takes};
use super::entries::{error, function, in_ruby};
use super::native::answered;
use crate::library::Required;
use crate::state::NativeCall;

/// Longest name.
const NAME_BYTES_MAX: usize = 255;

/// What Ruby has in files of its own, and is here without them.
const HERE_ALREADY: &[&str] = &[
    "base64",
    "cgi",
    "cgi/escape",
    "cgi/util",
    "complex",
    "digest",
    "digest/md5",
    "digest/sha1",
    "digest/sha2",
    "enumerator",
    "fiber",
    "ipaddr",
    "json",
    "jwt",
    "rational",
    "redis",
    "securerandom",
    "set",
    "uri",
];

pub(super) const CHAPTER: Chapter = Chapter {
    title: "require",
    text: "Files of Ruby below the directories of `scripts.lib`, run once in each VM: best in `scripts.init`, since one that \
           is required in the middle of a request takes of that script's CPU time and cannot wait. All are read with the \
           configuration and compiled when a VM opens; a change counts after a reload. What a file defines is there for \
           every script of the VM; its local variables are its own.",
    classes: &[error("LoadError", "ScriptError")],
    constants: &[],
    methods: &[
        function(&["Nagaya"], &["__feature"], (takes(1, 2), ""), "", |call| {
            answered(feature(call))
        }),
        function(&["Nagaya"], &["__ended"], (takes(2, 2), ""), "", |call| {
            let (slot, has_run) = (call.int(0).unwrap_or(-1), call.truth(1));
            call.host.features.ended(slot, has_run);
            Answer::Nil
        }),
    ],
    in_ruby: &[
        in_ruby(
            "require",
            "name",
            "`\"dir/name\"`, with or without `.rb`: `true` if the file was run now, `false` if it had been already, or is \
             part of what is here anyway (`json`, `digest`, `uri` and others). A LoadError says where it was looked for.",
        ),
        in_ruby(
            "require_relative",
            "name",
            "The same by the place of the file that asks, which may be a script; what is named has to lie below \
             `scripts.lib`.",
        ),
    ],
    prelude: "
module Nagaya
  def self.__required(script)
    return false unless script
    has_run = false
    begin
      __run(script)
      has_run = true
    ensure
      __ended(script, has_run)
    end
    true
  end
end
module Kernel
  def require(name) Nagaya.__required(Nagaya.__feature(name)) end
  def require_relative(name) Nagaya.__required(Nagaya.__feature(name, caller(1, 1)[0])) end
end
",
};

fn feature(call: &mut NativeCall<'_>) -> Result<Answer, Answer> {
    let name = call.bytes(0).filter(|name| name.len() <= NAME_BYTES_MAX);
    let name = name.and_then(|name| std::str::from_utf8(name).ok());
    let Some(name) = name.map(str::to_owned) else {
        return Err(Answer::type_error(format!(
            "require takes a String of at most {NAME_BYTES_MAX} bytes"
        )));
    };
    let found = match call.count() {
        1 => call.host.features.require(&name),
        _ => {
            let place = call.bytes(1).unwrap_or_default();
            let place = String::from_utf8_lossy(place).into_owned();
            call.host.features.require_beside(file_of(&place), &name)
        }
    };
    match found {
        Required::Run(slot) => Ok(Answer::Int(slot.number())),
        Required::Nothing => Ok(Answer::Nil),
        Required::Unknown if call.count() == 1 && HERE_ALREADY.contains(&&*name) => Ok(Answer::Nil),
        Required::Unknown => Err(not_found(call, &name)),
    }
}

/// The file of a line of a backtrace: `FILE:LINE:in METHOD`.
fn file_of(place: &str) -> &str {
    let is_line = |at: &usize| {
        let rest = place.get(at + 1..).unwrap_or_default();
        rest.starts_with(|first: char| first.is_ascii_digit())
    };
    let mut colons = place.match_indices(':').map(|(at, _)| at);
    let end = colons.find(is_line);
    end.and_then(|end| place.get(..end)).unwrap_or(place)
}

fn not_found(call: &NativeCall<'_>, name: &str) -> Answer {
    let directories = &call.host.settings.library.directories;
    let wheres = match directories.is_empty() {
        true => "scripts.lib names no directory".to_owned(),
        false => format!("looked for below {}", directories.join(", ")),
    };
    Answer::Raise(
        "LoadError",
        format!("cannot load such file -- {name}: {wheres}, as the configuration was read"),
    )
}
