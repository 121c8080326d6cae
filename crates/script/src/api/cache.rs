//! `Cache`: strings for every worker and generation, with the methods of localmemcache.

use std::any::Any;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use mruby::{Answer, Datum, MethodOf};

use super::chapter::{Chapter, InRuby, Method, takes};
use super::entries::{Native, error, holder};
use super::native::option;
use crate::shared::{BY_FILE, Bounds, Namespace, Refusal};
use crate::state::NativeCall;

const CACHES: &[&str] = &["Cache"];

/// Longest name of a file, which has a longer one while it is written.
const FILE_NAME_BYTES_MAX: usize = 200;

/// Longest name of a namespace.
const NAME_BYTES_MAX: usize = 1_024;

/// What an object of `Cache` holds.
struct CacheHandle(Arc<Namespace>);

const fn method(
    names: &'static [&'static str],
    arguments: &'static str,
    (least, most): (u8, u8),
    doc: &'static str,
    native: Native,
) -> Method {
    Method {
        classes: CACHES,
        names,
        of: MethodOf::Object,
        takes: takes(least, most),
        arguments,
        waits: "",
        doc,
        native,
    }
}

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Cache",
    text: "Strings under Strings, shared by all workers and kept over reloads, until the server \
           stops. What all namespaces hold together is bounded by `scripts.cache_bytes` and \
           `scripts.cache_entries`; one that finds no room forgets the keys of its own that were \
           longest not asked for, and raises `Cache::MemoryPoolFull` when it has none to forget.",
    classes: &[
        holder("Cache"),
        error("Cache::LocalMemCacheError", "StandardError"),
        error("Cache::ArgError", "Cache::LocalMemCacheError"),
        error("Cache::InitError", "Cache::LocalMemCacheError"),
        error("Cache::LockError", "Cache::LocalMemCacheError"),
        error("Cache::LockTimedOut", "Cache::LocalMemCacheError"),
        error("Cache::MemoryPoolClosed", "Cache::LocalMemCacheError"),
        error("Cache::MemoryPoolFull", "Cache::LocalMemCacheError"),
        error("Cache::OutOfMemoryError", "Cache::LocalMemCacheError"),
        error("Cache::RecoveryFailed", "Cache::LocalMemCacheError"),
        error("Cache::ShmError", "Cache::LocalMemCacheError"),
        error("Cache::ShmLockFailed", "Cache::LocalMemCacheError"),
        error("Cache::ShmUnlockFailed", "Cache::LocalMemCacheError"),
    ],
    constants: &[],
    methods: &[
        method(&["initialize"], "", (1, 1), "", initialize),
        Method {
            classes: CACHES,
            names: &["drop"],
            of: MethodOf::Class,
            takes: takes(1, 1),
            arguments: "options",
            waits: "",
            doc: "Takes away all keys of a namespace, named as in `Cache.new`.",
            native: drop_namespace,
        },
        method(
            &["get", "[]", "get_by_no_lock"],
            "key",
            (1, 1),
            "The key's value, or `nil`.",
            get,
        ),
        method(
            &["set", "[]="],
            "key, value",
            (2, 2),
            "Stores a value. Both are Strings, or it raises TypeError.",
            set,
        ),
        method(
            &["incr"],
            "key, by = 1",
            (1, 2),
            "Adds to the number that is stored and answers the sum, in one step. A key that is not \
             there counts as 0. Not in localmemcache.",
            |call| add(call, 1),
        ),
        method(
            &["decr"],
            "key, by = 1",
            (1, 2),
            "As `incr`, but takes away; the number may become negative. Not in localmemcache.",
            |call| add(call, -1),
        ),
        method(
            &["delete"],
            "key",
            (1, 1),
            "Takes a key away; `true` if it was there.",
            delete,
        ),
        method(&["clear"], "", (0, 0), "Takes every key away.", clear),
        method(&["size"], "", (0, 0), "How many keys there are.", size),
        method(&["keys"], "", (0, 0), "Every key, in no order.", keys),
        method(
            &["shm_status"],
            "",
            (0, 0),
            "What all namespaces hold, and may hold, as a Hash: `:total_bytes`, `:used_bytes`, \
             `:free_bytes`, `:largest_chunk` and `:free_chunks` (keys there is room for).",
            shm_status,
        ),
        method(
            &["check_consistency"],
            "",
            (0, 0),
            "`true`: a request that ends in the middle leaves nothing half done.",
            |_| Answer::Bool(true),
        ),
        method(
            &["close"],
            "",
            (0, 0),
            "Does nothing: there is nothing to close, and the object can still be used.",
            |_| Answer::Nil,
        ),
    ],
    in_ruby: &[
        InRuby {
            name: "Cache.new",
            arguments: "options",
            waits: "",
            doc: "`:namespace => name` or `:filename => path`. With `scripts.cache_files` the file lies in one of its \
                  directories and keeps the namespace, a line a key: others may change it, which counts within a \
                  second or so; without, the path is a name like another, and no file is made. Other options are for \
                  the original and change nothing.",
        },
        InRuby {
            name: "Cache#each",
            arguments: "{ |key, value| }",
            waits: "",
            doc: "Calls the block with every key and its value; also `each_pair`.",
        },
    ],
    prelude: "
class Cache
  def each
    keys.each { |key| value = self[key]; yield key, value if value }
    self
  end
  alias each_pair each
end
",
};

fn initialize(call: &mut NativeCall<'_>) -> Answer {
    let name = match name(call) {
        Ok(name) => name,
        Err(raise) => return raise,
    };
    match call.host.shared.pool.open(&name) {
        Some(namespace) => Answer::Attach(Rc::new(CacheHandle(namespace)) as Rc<dyn Any>),
        None => Answer::Raise(
            "Cache::MemoryPoolFull",
            "too many namespaces: give keys prefixes rather than namespaces of their own"
                .to_owned(),
        ),
    }
}

fn drop_namespace(call: &mut NativeCall<'_>) -> Answer {
    match name(call) {
        Ok(name) => call.host.shared.pool.drop_namespace(&name),
        Err(raise) => return raise,
    }
    Answer::Nil
}

/// The namespace that the options name; those by `filename` are others than those by `namespace`.
fn name(call: &NativeCall<'_>) -> Result<Vec<u8>, Answer> {
    let options = call.datum(0);
    let (prefix, value) = match (option(&options, "namespace"), option(&options, "filename")) {
        (Some(value), _) => (b'n', value),
        (None, Some(value)) => (BY_FILE, value),
        (None, None) => return Err(usage()),
    };
    match value {
        Datum::Bytes(name) | Datum::Symbol(name) if name.len() <= NAME_BYTES_MAX => {
            let mut full = vec![prefix];
            let directories = &call.host.settings.cache_files;
            match prefix {
                BY_FILE if !directories.is_empty() => full.extend(kept(name, directories)?),
                _ => full.extend_from_slice(name),
            }
            Ok(full)
        }
        Datum::Bytes(_) | Datum::Symbol(_) => Err(Answer::argument_error(
            "a namespace of Cache has a name of at most 1024 bytes",
        )),
        _ => Err(Answer::type_error("the name of a Cache is a String")),
    }
}

/// The full name of a file that lies in one of the directories, in the first if it is a bare name:
/// however it was written, one file has one name.
fn kept(name: &[u8], directories: &[PathBuf]) -> Result<Vec<u8>, Answer> {
    let path = Path::new(OsStr::from_bytes(name));
    let mut known = directories.iter();
    let directory = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => known.next(),
        parent => known.find(|known| parent == Some(known.as_path())),
    };
    let is_plain = |name: &&OsStr| {
        let name = name.as_bytes();
        name.len() <= FILE_NAME_BYTES_MAX && !name.starts_with(b".") && !name.contains(&0)
    };
    let file = path.file_name().filter(is_plain);
    if let (Some(directory), Some(file)) = (directory, file) {
        return Ok(directory.join(file).into_os_string().into_vec());
    }
    let known: Vec<_> = directories
        .iter()
        .map(|known| known.display().to_string())
        .collect();
    Err(Answer::Raise(
        "Cache::InitError",
        format!(
            "a file of Cache lies in one of the directories of scripts.cache_files ({})",
            known.join(", ")
        ),
    ))
}

fn usage() -> Answer {
    Answer::argument_error("write Cache.new(:namespace => \"name\")")
}

fn get(call: &mut NativeCall<'_>) -> Answer {
    let Some(handle) = call.held::<CacheHandle>() else {
        return unopened();
    };
    let mut out = std::mem::take(call.scratch);
    let found = call.bytes(0).map(|key| handle.0.get(key, &mut out));
    *call.scratch = out;
    match found {
        Some(true) => Answer::Scratch,
        Some(false) => Answer::Nil,
        None => Answer::type_error("a key of Cache is a String"),
    }
}

fn set(call: &mut NativeCall<'_>) -> Answer {
    let Some(handle) = call.held::<CacheHandle>() else {
        return unopened();
    };
    let bounds = bounds(call);
    let (Some(key), Some(value)) = (call.bytes(0), call.bytes(1)) else {
        return Answer::type_error("key and value of Cache are Strings: write value.to_s");
    };
    match handle.0.set(key, value, bounds) {
        Ok(()) => Answer::Argument(1),
        Err(refusal) => refused(refusal),
    }
}

fn add(call: &mut NativeCall<'_>, sign: i64) -> Answer {
    let Some(handle) = call.held::<CacheHandle>() else {
        return unopened();
    };
    let by = match call.count() {
        1 => Some(1),
        _ => call.int(1),
    };
    let Some(by) = by.and_then(|by| by.checked_mul(sign)) else {
        return Answer::type_error("incr and decr take an Integer to count by");
    };
    let Some(key) = call.bytes(0) else {
        return Answer::type_error("a key of Cache is a String");
    };
    match handle.0.add(key, by, bounds(call)) {
        Ok(sum) => Answer::Int(sum),
        Err(refusal) => refused(refusal),
    }
}

fn delete(call: &mut NativeCall<'_>) -> Answer {
    let Some(handle) = call.held::<CacheHandle>() else {
        return unopened();
    };
    match call.bytes(0) {
        Some(key) => Answer::Bool(handle.0.delete(key)),
        None => Answer::type_error("a key of Cache is a String"),
    }
}

fn clear(call: &mut NativeCall<'_>) -> Answer {
    with(call, |namespace, _| {
        namespace.clear();
        Answer::Bool(true)
    })
}

fn size(call: &mut NativeCall<'_>) -> Answer {
    with(call, |namespace, _| count(namespace.len()))
}

fn keys(call: &mut NativeCall<'_>) -> Answer {
    with(call, |namespace, _| {
        let keys = namespace.keys().into_iter().map(Datum::Bytes);
        Answer::Datum(Datum::Array(keys.collect()))
    })
}

fn shm_status(call: &mut NativeCall<'_>) -> Answer {
    with(call, |namespace, bounds| {
        let (bytes, entries) = namespace.used().now();
        let free_bytes = bounds.bytes.saturating_sub(bytes);
        let facts = [
            ("free_bytes", free_bytes),
            ("total_bytes", bounds.bytes),
            ("used_bytes", bytes),
            ("free_chunks", bounds.entries.saturating_sub(entries)),
            ("largest_chunk", free_bytes),
        ];
        let pairs = facts.map(|(name, number)| {
            let number = i64::try_from(number).unwrap_or(i64::MAX);
            (Datum::Symbol(name.into()), Datum::Int(number))
        });
        Answer::Datum(Datum::Hash(pairs.into()))
    })
}

fn with(call: &mut NativeCall<'_>, act: impl FnOnce(&Namespace, Bounds) -> Answer) -> Answer {
    match call.held::<CacheHandle>() {
        Some(handle) => act(&handle.0, bounds(call)),
        None => unopened(),
    }
}

fn bounds(call: &NativeCall<'_>) -> Bounds {
    call.host.settings.budgets.of_cache()
}

fn count(number: usize) -> Answer {
    Answer::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

fn unopened() -> Answer {
    Answer::Raise(
        "Cache::MemoryPoolClosed",
        "this Cache was made without Cache.new".to_owned(),
    )
}

fn refused(refusal: Refusal) -> Answer {
    match refusal {
        Refusal::Full => Answer::Raise(
            "Cache::MemoryPoolFull",
            "no room for it, and nothing in this namespace to forget: see scripts.cache_bytes and \
             scripts.cache_entries"
                .to_owned(),
        ),
        Refusal::NotANumber => {
            Answer::argument_error("incr and decr count numbers, and what is stored is none")
        }
        Refusal::OutOfRange => {
            Answer::Raise("RangeError", "the number would leave 64 bits".to_owned())
        }
    }
}
