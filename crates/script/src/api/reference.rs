//! The page `docs/reference/ruby.md`, out of the tables.

use std::fmt::Write;

use mruby::MethodOf;

use super::chapter::{Chapter, Method, Value};

const INTRODUCTION: &str = "# Ruby reference

Every class and method scripts may use, beside those of mruby 3.2 itself. A method that waits suspends
only the request it is called for; it cannot be called inside a block that a method in C calls
(`Class.new { }`, `Hash.new { }`, `to_s` inside of an interpolation), and says so.

Gems of your own (mrbgems) cannot be built in. A gem is C in the address space of the server: no budget
of CPU time or memory holds it, one of its calls may block a worker, and a slip of its pointers ends
every request. What it does is either here already, or Ruby that a file can hold, or the business of
a service that a script asks.
";

/// The reference in Markdown.
pub(super) fn page(chapters: &[&Chapter]) -> String {
    let mut page = INTRODUCTION.to_owned();
    for chapter in chapters {
        write_chapter(chapter, &mut page);
    }
    page
}

fn write_chapter(chapter: &Chapter, page: &mut String) {
    let _ = write!(page, "\n## {}\n", chapter.title);
    if !chapter.text.is_empty() {
        let _ = write!(page, "\n{}\n", chapter.text);
    }
    write_constants(chapter, page);
    let shown: Vec<&Method> = chapter
        .methods
        .iter()
        .filter(|method| !method.doc.is_empty())
        .collect();
    if shown.is_empty() && chapter.in_ruby.is_empty() {
        return;
    }
    page.push_str("\n| method | what it does | waits for |\n|---|---|---|\n");
    for method in shown {
        let names: Vec<String> = names_of(method);
        write_row(&names.join("<br>"), method.doc, method.waits, page);
    }
    for method in chapter.in_ruby {
        let name = format!("`{}{}`", method.name, list(method.arguments));
        write_row(&name, method.doc, method.waits, page);
    }
}

fn write_constants(chapter: &Chapter, page: &mut String) {
    if chapter.constants.is_empty() {
        return;
    }
    page.push_str("\n| constant | value |\n|---|---|\n");
    for constant in chapter.constants {
        let classes = constant.classes.iter();
        let names: Vec<_> = classes
            .map(|class| match *class {
                "" => format!("`{}`", constant.name),
                class => format!("`{class}::{}`", constant.name),
            })
            .collect();
        let names = names.join("<br>");
        let _ = match constant.value {
            Value::Int(number) => writeln!(page, "| {names} | {number} |"),
            Value::Text(text) => writeln!(page, "| {names} | `{text:?}` |"),
        };
    }
}

fn write_row(name: &str, doc: &str, waits: &str, page: &mut String) {
    let waits = if waits.is_empty() { "–" } else { waits };
    let _ = writeln!(page, "| {name} | {doc} | {waits} |");
}

fn names_of(method: &Method) -> Vec<String> {
    let joint = match method.of {
        MethodOf::Object => "#",
        MethodOf::Class => ".",
    };
    let arguments = list(method.arguments);
    let names = method.classes.iter().flat_map(|class| {
        method.names.iter().map(move |name| match *class {
            "Kernel" => (*name).to_owned(),
            class => format!("{class}{joint}{name}"),
        })
    });
    names.map(|name| format!("`{name}{arguments}`")).collect()
}

fn list(arguments: &str) -> String {
    match arguments.is_empty() {
        true => String::new(),
        false => format!("({arguments})"),
    }
}
