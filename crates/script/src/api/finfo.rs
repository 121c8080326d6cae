//! `Apache::Finfo`: the file a request is for.
//!
//! A script gets to know when it was changed; the rest would need a look at the file that nobody
//! else takes.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use mruby::{Answer, Datum};

use super::chapter::{Chapter, Method};
use super::entries::{Classes, holder, missing, not_there, reader};
use super::native::wait;
use super::request::{initialize, own};
use crate::request::Property;
use crate::state::NativeCall;
use crate::wait::Woken;

const FINFO: Classes = &["Apache::Finfo"];

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Apache::Finfo",
    text: "The file of the request whose script it is.",
    classes: &[holder("Apache::Finfo")],
    constants: &[],
    methods: &[
        reader(FINFO, &["initialize"], "", initialize),
        Method {
            waits: "the file system",
            ..reader(
                FINFO,
                &["mtime"],
                "When the file was changed last: seconds since 1970, or `nil` if it is not there.",
                mtime,
            )
        },
        missing(
            FINFO,
            &[
                "permission",
                "mode",
                "filetype",
                "group",
                "user",
                "device",
                "inode",
                "nlink",
                "size",
                "csize",
                "atime",
                "ctime",
            ],
            |_| {
                not_there(
                    "this of Apache::Finfo",
                    "mtime is; File.exist? tells whether a file is there",
                )
            },
        ),
    ],
    in_ruby: &[],
    prelude: "",
};

fn mtime(call: &mut NativeCall<'_>) -> Answer {
    let reader = call.host.settings.reader.clone();
    let mut name = Vec::new();
    let there = own(call).map(|own| own.read(Property::Filename, &mut name));
    match there {
        Ok(true) => {}
        Ok(false) => return Answer::Nil,
        Err(raise) => return raise,
    }
    let path = PathBuf::from(OsString::from_vec(name));
    let changed = reader.changed(&path);
    wait(call, async move {
        let seconds = changed.await.ok().and_then(|changed| {
            let since = changed.duration_since(UNIX_EPOCH).ok()?;
            i64::try_from(since.as_secs()).ok()
        });
        Woken::Value(seconds.map_or(Datum::Nil, Datum::Int))
    })
}
