//! `File`: what a script may read, without the worker waiting for a disk.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use mruby::{Answer, Datum, MethodOf};

use super::chapter::{Chapter, InRuby, Method, takes};
use super::entries::class;
use super::native::{answered, wait_for};
use crate::state::NativeCall;
use crate::wait::Woken;

pub(super) const CHAPTER: Chapter = Chapter {
    title: "File",
    text: "Paths are absolute: a server has no directory of its own. They are not confined to the \
           site: take care with those made of what a client sent. What a script writes goes to a \
           store; `File.open` and `File.write` raise a NotImplementedError.",
    classes: &[class("File")],
    constants: &[],
    methods: &[
        Method {
            classes: &["File"],
            names: &["read"],
            of: MethodOf::Class,
            takes: takes(1, 1),
            arguments: "path",
            waits: "the file",
            doc: "What a file holds, at most `scripts.read_bytes` bytes.",
            native: read,
        },
        Method {
            classes: &["File"],
            names: &["exist?", "exists?"],
            of: MethodOf::Class,
            takes: takes(1, 1),
            arguments: "path",
            waits: "the file",
            doc: "Whether there is something of that name.",
            native: exist,
        },
        Method {
            classes: &["File"],
            names: &["mtime"],
            of: MethodOf::Class,
            takes: takes(1, 1),
            arguments: "path",
            waits: "the file",
            doc: "The Time of its last change.",
            native: mtime,
        },
    ],
    in_ruby: &[
        InRuby {
            name: "File.basename",
            arguments: "path, suffix = nil",
            waits: "",
            doc: "The last name of a path, without `suffix` (`\".*\"`: without any).",
        },
        InRuby {
            name: "File.dirname",
            arguments: "path",
            waits: "",
            doc: "A path without its last name.",
        },
        InRuby {
            name: "File.extname",
            arguments: "path",
            waits: "",
            doc: "The last name's suffix with its dot, or `\"\"`.",
        },
        InRuby {
            name: "File.join",
            arguments: "*names",
            waits: "",
            doc: "The names with one `/` between each.",
        },
    ],
    prelude: include_str!("ruby/files.rb"),
};

/// The absolute path an argument names.
fn path(call: &NativeCall<'_>, what: &str) -> Result<PathBuf, Answer> {
    let Some(bytes) = call.bytes(0) else {
        return Err(Answer::type_error(format!("{what} takes a path: a String")));
    };
    if bytes.contains(&0) {
        return Err(Answer::argument_error(format!(
            "{what}: the path contains a NUL byte"
        )));
    }
    let path = Path::new(OsStr::from_bytes(bytes));
    if !path.is_absolute() {
        return Err(Answer::argument_error(format!(
            "{what} {}: only absolute paths, a server has no directory of its own",
            path.display()
        )));
    }
    Ok(path.to_owned())
}

fn read(call: &mut NativeCall<'_>) -> Answer {
    answered(path(call, "File.read").map(|path| {
        let bytes_max = call.host.settings.budgets.read_bytes;
        let reader = Rc::clone(&call.host.settings.reader);
        wait_for(call, named(&path), async move {
            match reader.read(&path, bytes_max).await {
                Ok(read) => Woken::Value(read.bytes.into()),
                Err(error) if error.kind() == ErrorKind::FileTooLarge => Woken::error(format!(
                    "File.read {}: longer than {bytes_max} bytes: see scripts.read_bytes",
                    path.display()
                )),
                Err(error) => failed("File.read", &path, &error),
            }
        })
    }))
}

fn exist(call: &mut NativeCall<'_>) -> Answer {
    answered(path(call, "File.exist?").map(|path| {
        let reader = Rc::clone(&call.host.settings.reader);
        wait_for(call, named(&path), async move {
            Woken::Value(Datum::Bool(reader.changed(&path).await.is_ok()))
        })
    }))
}

fn mtime(call: &mut NativeCall<'_>) -> Answer {
    answered(path(call, "File.mtime").map(|path| {
        let reader = Rc::clone(&call.host.settings.reader);
        wait_for(call, named(&path), async move {
            match reader.changed(&path).await {
                Ok(changed) => {
                    let since = changed.duration_since(std::time::UNIX_EPOCH);
                    let since = since.unwrap_or_default();
                    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
                    Woken::Value(Datum::Time(seconds, i64::from(since.subsec_micros())))
                }
                Err(error) => failed("File.mtime", &path, &error),
            }
        })
    }))
}

/// What messages call it.
fn named(path: &Path) -> Rc<str> {
    path.to_string_lossy().into()
}

fn failed(what: &str, path: &Path, error: &std::io::Error) -> Woken {
    let path = path.display();
    let reason = match error.kind() {
        ErrorKind::NotFound => "there is no such file".to_owned(),
        ErrorKind::PermissionDenied => "the server's user may not read it".to_owned(),
        ErrorKind::IsADirectory => "it is a directory".to_owned(),
        _ => error.to_string(),
    };
    Woken::error(format!("{what} {path}: {reason}"))
}
