//! Compiles the shim with the defines and the headers that mruby itself is built with.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The directory of the bound source, as the registry calls it.
const SOURCE: &str = "mruby3-sys-3.2.0";

fn main() {
    let mut shim = cc::Build::new();
    for file in [
        "shim.c",
        "room.c",
        "pool.c",
        "look.c",
        "fiber.c",
        "missing.c",
        "times.c",
        "pattern.c",
    ] {
        shim.file(format!("shim/{file}"));
        println!("cargo:rerun-if-changed=shim/{file}");
    }
    println!("cargo:rerun-if-changed=shim/shim.h");
    println!("cargo:rerun-if-env-changed=BINDGEN_EXTRA_CLANG_ARGS");
    println!("cargo:rerun-if-env-changed=NAGAYA_MRUBY_FLAGS");
    let defines = env::var("BINDGEN_EXTRA_CLANG_ARGS").expect(
        "BINDGEN_EXTRA_CLANG_ARGS is set by .cargo/config.toml: build inside the workspace",
    );
    let more = env::var("NAGAYA_MRUBY_FLAGS").unwrap_or_default();
    for flag in defines.split_whitespace().chain(more.split_whitespace()) {
        shim.flag(flag);
    }
    // The table of symbols known beforehand is made while mruby is built; we look names up instead.
    shim.define("MRB_NO_PRESYM", None)
        .include(headers())
        .opt_level(3)
        .warnings(true)
        .flag("-Wno-unused-parameter")
        .compile("nagaya_mruby_shim");
}

/// mruby's own headers, wherever cargo keeps the source of `mruby3-sys`.
fn headers() -> PathBuf {
    unpacked()
        .or_else(vendored)
        .expect("mruby3-sys lies in cargo's registry or where its configuration says")
        .join("mruby/include")
}

/// The source as cargo unpacks it from the registry. Asking cargo for the place would want every
/// package of the workspace to be there, those of other systems too, and a first build has only
/// what it compiles.
fn unpacked() -> Option<PathBuf> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")))?;
    let registries = fs::read_dir(home.join("registry/src")).ok()?;
    registries
        .filter_map(|registry| Some(registry.ok()?.path().join(SOURCE)))
        .find(|source| source.is_dir())
}

/// The source where cargo's configuration puts it, as `cargo vendor` does.
fn vendored() -> Option<PathBuf> {
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let metadata = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--locked", "--offline"])
        .output()
        .expect("run cargo metadata");
    let text = String::from_utf8_lossy(&metadata.stdout);
    let place = text
        .split("\"manifest_path\":\"")
        .filter_map(|rest| rest.split('"').next())
        .find(|path| path.contains("mruby3-sys"))?;
    PathBuf::from(place).parent().map(PathBuf::from)
}
