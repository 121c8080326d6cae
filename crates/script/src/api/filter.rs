//! `Nginx::Filter` and `Apache::Filter`: the reply's body, in `body_filter`.

use mruby::Answer;

use super::chapter::{Chapter, takes, takes_texts};
use super::entries::{Classes, holder, method, missing, not_there, reader};
use super::native::answered;
use super::request::{initialize, own};
use crate::phase::Phase;
use crate::request::{Property, Request};
use crate::state::NativeCall;

const BOTH: Classes = &["Nginx::Filter", "Apache::Filter"];
const APACHE: Classes = &["Apache::Filter"];

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Filter",
    text: "The body of the reply, in the phase `body_filter` only: elsewhere these raise.",
    classes: &[holder("Nginx::Filter"), holder("Apache::Filter")],
    constants: &[],
    methods: &[
        reader(BOTH, &["initialize"], "", initialize),
        reader(BOTH, &["body"], "The whole body.", |call| {
            answered(body(call).map(Answer::Bytes))
        }),
        method(
            BOTH,
            &["body=", "output"],
            (takes_texts(1, 1), "text"),
            "Puts another in its place.",
            |call| {
                let text = call.bytes(0).unwrap_or_default().to_vec();
                put(call, text)
            },
        ),
        reader(APACHE, &["flatten"], "The whole body.", |call| {
            answered(body(call).map(Answer::Bytes))
        }),
        reader(APACHE, &["cleanup"], "Makes the body empty.", |call| {
            put(call, Vec::new())
        }),
        method(
            APACHE,
            &["insert_tail", "puts"],
            (takes_texts(1, 1), "text"),
            "Adds to the end of the body.",
            |call| added(call, |body, text| body.extend_from_slice(text)),
        ),
        method(
            APACHE,
            &["insert_head"],
            (takes_texts(1, 1), "text"),
            "Adds to the beginning of the body.",
            |call| {
                added(call, |body, text| {
                    body.splice(..0, text.iter().copied());
                })
            },
        ),
        reader(APACHE, &["length"], "Bytes of the body.", |call| {
            answered(body(call).map(|body| Answer::Int(i64::try_from(body.len()).unwrap_or(0))))
        }),
        reader(APACHE, &["empty?"], "Whether there is none.", |call| {
            answered(body(call).map(|body| Answer::Bool(body.is_empty())))
        }),
        method(
            APACHE,
            &["insert_eos", "destroy"],
            (takes(0, 0), ""),
            "Nothing: the body ends where it ends.",
            |_| Answer::Nil,
        ),
        missing(
            APACHE,
            &["first_bucket", "uid", "gid", "error_create"],
            |_| {
                not_there(
                    "this of Apache::Filter",
                    "the whole body is there at once, as body; a status is given in header_filter",
                )
            },
        ),
    ],
    in_ruby: &[],
    prelude: "",
};

fn filtered<'a>(call: &'a mut NativeCall<'_>) -> Result<&'a mut (dyn Request + 'static), Answer> {
    match call.host.phase {
        Phase::BodyFilter => own(call),
        phase => Err(Answer::runtime_error(format!(
            "a Filter is for scripts in body_filter, and this is {phase}"
        ))),
    }
}

fn body(call: &mut NativeCall<'_>) -> Result<Vec<u8>, Answer> {
    let mut body = Vec::new();
    filtered(call)?.read(Property::Body, &mut body);
    Ok(body)
}

fn put(call: &mut NativeCall<'_>, body: Vec<u8>) -> Answer {
    let bytes_max = call.host.settings.budgets.output_bytes;
    answered(filtered(call).and_then(|request| {
        if body.len() > bytes_max {
            return Err(Answer::runtime_error(format!(
                "the reply would be longer than {bytes_max} bytes: see scripts.output"
            )));
        }
        let changed = request.write(Property::Body, &body);
        changed.map_err(|refused| Answer::runtime_error(refused.0))?;
        Ok(Answer::Nil)
    }))
}

fn added(call: &mut NativeCall<'_>, add: fn(&mut Vec<u8>, &[u8])) -> Answer {
    let text = call.bytes(0).unwrap_or_default().to_vec();
    match body(call) {
        Ok(mut body) => {
            add(&mut body, &text);
            put(call, body)
        }
        Err(raise) => raise,
    }
}
