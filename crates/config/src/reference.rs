//! The reference manual of the configuration, as Markdown.
//!
//! The idea: it is the table of keys, printed; there is no second description to keep in step.

use crate::keys::{Fallback, Key, SECTIONS, Section};

const HEAD: &str = "\
# Configuration

This file is generated from the table of keys that the gateway itself reads its configuration by.

A configuration is TOML. Unknown keys are errors; `nagaya check` reports all problems at once, and
`nagaya check --dump` prints the effective configuration with every default.

- Durations are `\"500ms\"`, `\"2s\"`, `\"1m\"` or `\"1h\"`; sizes are `512`, `\"64KiB\"`, `\"8MiB\"` or `\"1GiB\"`.
- Paths are relative to the directory of the file they stand in.
- A template is text with variables: `$host`, `$path`, `$query`, `$uri` (path and query), `$scheme`, `$client`,
  `$request_id`, `$method`. `${host}` sets a name apart from what follows it; `$$` is a dollar.
";

/// The reference manual: `docs/reference/config.md`.
pub fn reference() -> String {
    let mut out = HEAD.to_owned();
    for section in SECTIONS {
        out.push_str(&format!("\n## {}\n\n{}\n", heading(section), section.about));
        for key in section.keys {
            describe(key, &mut out);
        }
    }
    out.push_str("\n## Not in this build\n\nThese keys are reserved, and refused until they do something.\n\n");
    for section in SECTIONS.iter().filter(|section| !section.later.is_empty()) {
        let names: Vec<String> = section
            .later
            .iter()
            .map(|name| format!("`{name}`"))
            .collect();
        out.push_str(&format!("- {}: {}\n", heading(section), names.join(", ")));
    }
    out
}

fn heading(section: &Section) -> String {
    if section.title.contains(['[', '=']) {
        format!("`{}`", section.title)
    } else {
        section.title.to_owned()
    }
}

fn describe(key: &Key, out: &mut String) {
    let default = match key.default {
        Fallback::Required => "required".to_owned(),
        Fallback::Value(value) => format!("default `{}`", key.kind.quoted(value)),
        Fallback::Absent(meaning) => format!("default: {meaning}"),
    };
    out.push_str(&format!(
        "\n### `{}`\n\n{} · {default}\n\n{}\n",
        key.name, key.kind, key.about
    ));
    out.push_str(&format!("\n```toml\n{}\n```\n", key.example));
}
