//! `Nginx::Async`: what ngx_mruby's scripts call when they mean to wait.
//!
//! Every wait suspends only its request here, so that `sleep` is `Kernel#sleep` in milliseconds. A
//! request inside is the engine's to make. What it was answered last is kept for each request apart,
//! and goes with it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use mruby::{Answer, Datum, MethodOf};

use super::chapter::{Chapter, InRuby, Method, takes};
use super::entries::{Classes, class, hidden};
use super::native::{ask, holding, wait};
use crate::state::NativeCall;
use crate::wait::{Ask, Woken};

/// Longest path and query of a request inside.
const TARGET_BYTES_MAX: usize = 8 * 1_024;

const HTTP: (Classes, MethodOf) = (&["Nginx::Async::HTTP"], MethodOf::Class);

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Async",
    text: "Every method that waits suspends only its own request; these are here for the scripts \
           that were written for them.",
    classes: &[class("Nginx::Async"), class("Nginx::Async::HTTP")],
    constants: &[],
    methods: &[
        Method {
            classes: &["Nginx::Async"],
            names: &["sleep"],
            of: MethodOf::Class,
            takes: takes(1, 1),
            arguments: "milliseconds",
            waits: "the time given",
            doc: "Suspends this request's script.",
            native: |call| pause(call, Duration::from_millis),
        },
        Method {
            classes: &["Kernel"],
            names: &["usleep"],
            of: MethodOf::Object,
            takes: takes(1, 1),
            arguments: "microseconds",
            waits: "the time given",
            doc: "Suspends this request's script. Answers the microseconds.",
            native: |call| pause(call, Duration::from_micros),
        },
        hidden(HTTP, &["__ask"], takes(1, 1), sub_request),
        hidden(HTTP, &["__keep"], takes(1, 1), keep),
        hidden(HTTP, &["__kept"], takes(0, 0), kept),
    ],
    in_ruby: &[
        InRuby {
            name: "Nginx::Async::HTTP.sub_request",
            arguments: "location, query = nil",
            waits: "the reply",
            doc: "Makes a request to this server, inside of it. `query` is a String or a Hash. \
                  Answers the reply, with `status`, `headers` and `body`.",
        },
        InRuby {
            name: "Nginx::Async::HTTP.last_response",
            arguments: "",
            waits: "",
            doc: "The reply to this request's last `sub_request`, or `nil`.",
        },
    ],
    prelude: "
class Nginx::Async::HTTP
  class Response
    attr_reader :status, :headers, :body
    def initialize(status, headers, body)
      @status, @headers, @body = status, headers, body
    end
    def code() @status end
  end
  def self.sub_request(location, query = nil)
    query = HttpRequest.new.encode_parameters(query) if query.is_a?(Hash)
    target = location.to_s
    target += (target.include?('?') ? '&' : '?') + query.to_s unless query.nil? || query.empty?
    __keep(__ask(target))
    last_response
  end
  def self.last_response
    kept = __kept
    kept && Response.new(*kept)
  end
end
",
};

fn pause(call: &mut NativeCall<'_>, of: fn(u64) -> Duration) -> Answer {
    let Some(count) = call.int(0) else {
        return Answer::type_error("the time to sleep is an Integer");
    };
    let Ok(time) = u64::try_from(count) else {
        return Answer::argument_error("the time to sleep is not negative");
    };
    wait(call, async move {
        tokio::time::sleep(of(time)).await;
        Woken::Value(Datum::Int(count))
    })
}

fn sub_request(call: &mut NativeCall<'_>) -> Answer {
    let target = call.bytes(0).unwrap_or_default().to_vec();
    if !target.starts_with(b"/") || target.len() > TARGET_BYTES_MAX {
        return Answer::argument_error(
            "sub_request takes a location: a path that begins with /, at most 8 KiB with its query",
        );
    }
    ask(call, Ask::SubRequest { target })
}

/// Forgets with its request what that was answered.
struct Kept {
    answered: Rc<RefCell<HashMap<u64, Datum>>>,
    serial: u64,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.answered.borrow_mut().remove(&self.serial);
    }
}

fn keep(call: &mut NativeCall<'_>) -> Answer {
    let answer = call.datum(0);
    let answered = Rc::clone(&call.host.answered);
    let scope = holding(call);
    let serial = scope.serial();
    let before = answered.borrow_mut().insert(serial, answer);
    if before.is_none() {
        let kept = Kept { answered, serial };
        if scope.hold(Box::new(kept)).is_none() {
            return Answer::runtime_error("this request holds too much already");
        }
    }
    Answer::Nil
}

fn kept(call: &mut NativeCall<'_>) -> Answer {
    let answered = Rc::clone(&call.host.answered);
    let serial = holding(call).serial();
    let kept = answered.borrow().get(&serial).cloned();
    Answer::Datum(kept.unwrap_or(Datum::Nil))
}
