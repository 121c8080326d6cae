//! The modules `Nginx` and `Apache`: output, status, redirects, and what they say of themselves.

use mruby::Answer;

use super::chapter::{Chapter, InRuby, Method, takes, takes_texts};
use super::entries::{Classes, class, function};
use super::kernel;
use super::native::{answered, request, scope};
use crate::request::{Property, Request};
use crate::scope::{DECLINED, Redirect};
use crate::state::NativeCall;

const BOTH: Classes = &["Nginx", "Apache"];
const NGINX: Classes = &["Nginx"];
const APACHE: Classes = &["Apache"];

const VERSION: &str = env!("CARGO_PKG_VERSION");

const GIVE_STATUS: &[&str] = &["return", "send_header", "status_code="];

/// What Apache calls `DECLINED`, and nginx `ERROR`.
const APACHE_DECLINED: i64 = -1;

/// Longest target of a redirect.
const LOCATION_BYTES_MAX: usize = 8_192;

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Nginx and Apache",
    text: "Both are there, whatever `scripts.server` says; the constants differ as they always did.",
    classes: &[class("Nginx"), class("Apache")],
    constants: &[],
    methods: &[
        function(
            NGINX,
            GIVE_STATUS,
            (takes(1, 1), "status"),
            "Sets the status the request is answered with when the script has ended. It does not end \
             the script. `OK` and `DECLINED` let the request go on.",
            |call| give_status(call, DECLINED),
        ),
        function(APACHE, GIVE_STATUS, (takes(1, 1), "status"), "", |call| {
            give_status(call, APACHE_DECLINED)
        }),
        function(
            BOTH,
            &["rputs"],
            (takes_texts(1, 1), "object"),
            "Writes to the reply's body.",
            |call| put(call, b""),
        ),
        function(
            BOTH,
            &["echo"],
            (takes_texts(1, 1), "object"),
            "Writes to the reply's body, and a line feed behind it.",
            |call| put(call, b"\n"),
        ),
        function(
            BOTH,
            &["redirect"],
            (REDIRECT, "uri, status = 302"),
            "Sends the client to `uri` if that begins with `http://`, `https://` or `$scheme`, or if \
             a status is given; otherwise the request is resolved anew, here, as if it had asked for \
             that path: with the query it has, unless `uri` has one.",
            redirect,
        ),
        function(
            NGINX,
            &["module_name"],
            (takes(0, 0), ""),
            "`\"ngx_mruby\"`, or `\"mod_mruby\"`.",
            |_| said("ngx_mruby"),
        ),
        function(APACHE, &["module_name"], (takes(0, 0), ""), "", |_| {
            said("mod_mruby")
        }),
        function(
            BOTH,
            &["module_version", "nginx_version"],
            (takes(0, 0), ""),
            "The gateway's version.",
            |_| said(VERSION),
        ),
        function(
            NGINX,
            &["server_version"],
            (takes(0, 0), ""),
            "The gateway's version; of `Apache` with its name before it.",
            |_| said(VERSION),
        ),
        function(APACHE, &["server_version"], (takes(0, 0), ""), "", |_| {
            said(concat!("Nagaya/", env!("CARGO_PKG_VERSION")))
        }),
        function(
            BOTH,
            &["server_build", "configure"],
            (takes(0, 0), ""),
            "What the gateway was built as: its name and version.",
            |_| said(concat!("Nagaya ", env!("CARGO_PKG_VERSION"))),
        ),
        function(
            BOTH,
            &["count_arena"],
            (takes(0, 0), ""),
            "Always 0: natives leave nothing in the arena.",
            |_| Answer::Int(0),
        ),
        function(
            BOTH,
            &["get_tid"],
            (takes(0, 0), ""),
            "The number of the worker the script runs on, from 0.",
            worker,
        ),
        mruby_sleep(),
    ],
    in_ruby: &[
        InRuby {
            name: "Nginx.var",
            arguments: "",
            waits: "",
            doc: "`Nginx::Var.new`.",
        },
        InRuby {
            name: "Nginx.remove_global_variable, Apache.remove_global_variable",
            arguments: "name",
            waits: "",
            doc: "Makes a global variable `nil`; `name` is `:$counter` or the like.",
        },
    ],
    prelude: "
class Nginx
  def self.var() Nginx::Var.new end
  def self.remove_global_variable(name)
    name = name.to_s
    letters = name[1..-1].to_s.delete('_')
    plain = letters.bytes.all? { |b| b > 96 && b < 123 || b > 64 && b < 91 || b > 47 && b < 58 }
    raise ArgumentError, 'a global variable: :$name' unless name[0] == '$' && name.size > 1 && plain
    Kernel.eval(name + ' = nil')
  end
end
class Apache
  def self.remove_global_variable(name) Nginx.remove_global_variable(name) end
end
",
};

const REDIRECT: mruby::Takes = mruby::Takes {
    least: 1,
    most: 2,
    texts: 1,
};

const fn mruby_sleep() -> Method {
    let mut sleep = function(
        APACHE,
        &["sleep"],
        (takes(1, 1), "seconds"),
        "As `sleep`: suspends this request's script, and nothing else.",
        kernel::sleep,
    );
    sleep.waits = "the time given";
    sleep
}

fn said(text: &str) -> Answer {
    Answer::Bytes(text.as_bytes().to_vec())
}

fn worker(call: &mut NativeCall<'_>) -> Answer {
    Answer::Int(i64::try_from(call.host.settings.worker).unwrap_or(0))
}

/// Notes a status; `declined` is what this server's module calls so.
fn give_status(call: &mut NativeCall<'_>, declined: i64) -> Answer {
    let Some(status) = call.int(0) else {
        return Answer::type_error("return takes a status: an Integer");
    };
    answered(scope(call).map(|scope| {
        scope.returned = Some(match status == declined {
            true => DECLINED,
            false => status,
        });
        Answer::Int(status)
    }))
}

fn put(call: &mut NativeCall<'_>, after: &[u8]) -> Answer {
    let bytes_max = call.host.settings.budgets.output_bytes;
    let text = call.bytes(0).unwrap_or_default().to_vec();
    answered(scope(call).map(|scope| {
        if scope.output.len() + text.len() + after.len() > bytes_max {
            return Answer::runtime_error(format!(
                "the reply would be longer than {bytes_max} bytes: see scripts.output"
            ));
        }
        scope.output.extend_from_slice(&text);
        scope.output.extend_from_slice(after);
        Answer::Nil
    }))
}

fn redirect(call: &mut NativeCall<'_>) -> Answer {
    // Whoever gives a status wants the client to see it.
    let told = call.count() > 1;
    let status = if told { call.int(1) } else { Some(302) };
    let Some(status @ (301..=303 | 307 | 308)) = status.and_then(|code| u16::try_from(code).ok())
    else {
        return Answer::argument_error("redirect takes a status of 301, 302, 303, 307 or 308");
    };
    let uri = call.bytes(0).unwrap_or_default().to_vec();
    if uri.len() > LOCATION_BYTES_MAX || uri.iter().any(|byte| *byte <= b' ' || *byte == 0x7f) {
        return Answer::argument_error(format!(
            "redirect takes at most {LOCATION_BYTES_MAX} bytes without spaces and control characters: \
             encode them as %20 and the like"
        ));
    }
    answered(request(call).and_then(|request| {
        let redirect = destination(request, uri, status, told)?;
        request.scope().redirect = Some(redirect);
        Ok(Answer::Int(i64::from(status)))
    }))
}

fn destination(
    request: &dyn Request,
    uri: Vec<u8>,
    status: u16,
    told: bool,
) -> Result<Redirect, Answer> {
    if let Some(rest) = uri.strip_prefix(b"$scheme") {
        let mut location = Vec::new();
        request.read(Property::Scheme, &mut location);
        location.extend_from_slice(rest);
        return Ok(Redirect::Outside { status, location });
    }
    let is_told = told && uri.starts_with(b"/");
    if is_told || uri.starts_with(b"http://") || uri.starts_with(b"https://") {
        return Ok(Redirect::Outside {
            status,
            location: uri,
        });
    }
    if !uri.starts_with(b"/") {
        return Err(Answer::argument_error(
            "redirect takes http://…, https://…, $scheme://… or a path that begins with /",
        ));
    }
    let mut target = uri;
    if !target.contains(&b'?') {
        let path_bytes = target.len();
        target.push(b'?');
        if !request.read(Property::Args, &mut target) || target.len() == path_bytes + 1 {
            target.truncate(path_bytes);
        }
    }
    Ok(Redirect::Inside { target })
}
