//! `Mutex`: locks that a request waits for without holding up its worker.
//!
//! A lock belongs to a request (or to a run without one), not to a thread or a VM. The request holds
//! its stake in it among all it holds, which is how the lock is freed when it ends in any way.

use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mruby::{Answer, Datum, MethodOf};

use super::chapter::{Chapter, InRuby, Method, takes};
use super::entries::{error, holder};
use super::native::{holding, wait_for};
use crate::shared::{Entered, Lock, Turn};
use crate::state::NativeCall;
use crate::wait::Woken;

const MUTEXES: &[&str] = &["Mutex"];

/// What a script waits for whose wait for a lock takes too long.
const ANOTHERS: &str = "a Mutex that another request has";

/// Longest name of a global lock.
const NAME_BYTES_MAX: usize = 1_024;

/// What an object of `Mutex` holds.
struct MutexHandle(Arc<Lock>);

const fn method(
    name: &'static [&'static str],
    arguments: u8,
    waits: &'static str,
    doc: &'static str,
    native: fn(&mut NativeCall<'_>) -> Answer,
) -> Method {
    Method {
        classes: MUTEXES,
        names: name,
        of: MethodOf::Object,
        takes: takes(arguments, arguments),
        arguments: "",
        waits,
        doc,
        native,
    }
}

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Mutex",
    text: "A lock. With `:global => true` it is one for all workers, and the same after a reload, \
           under the name it is given with `:name`, or else that of the line it is made on; without, \
           each object has its own. Who waits holds up nobody else. A lock is freed when its \
           holder's request ends, however it ends; one that was taken where there is no request (in \
           `init`), when that script ends. A ThreadError is a RuntimeError, which mruby-mutex raises.",
    classes: &[holder("Mutex"), error("ThreadError", "RuntimeError")],
    constants: &[],
    methods: &[
        method(&["__open"], 1, "", "", open),
        method(
            &["lock"],
            0,
            "the lock",
            "Takes the lock, and answers 0. ThreadError if this request has it already.",
            lock,
        ),
        method(&["__enter"], 1, "", "", enter_in_time),
        method(
            &["try_lock"],
            0,
            "",
            "Takes the lock if it is free; says whether it did.",
            try_lock,
        ),
        method(
            &["unlock"],
            0,
            "",
            "Frees the lock, and answers 0. ThreadError if this request does not have it. If it was \
             broken meanwhile, it stays with the one who has it now.",
            unlock,
        ),
    ],
    in_ruby: &[
        InRuby {
            name: "Mutex.new",
            arguments: "options = {}",
            waits: "",
            doc: "`:global` and `:name` as said above.",
        },
        InRuby {
            name: "Mutex#try_lock_loop",
            arguments: "retry_us = 100000, timeout_us = 5000000 { }",
            waits: "the lock, at most `timeout_us`",
            doc: "Takes the lock and calls the block, which has to unlock it. When the time is up, \
                  it breaks the lock: takes it from whoever has it. Answers whether it did. \
                  `retry_us` has no meaning here: it is woken when its turn has come.",
        },
        InRuby {
            name: "Mutex#synchronize",
            arguments: "{ }",
            waits: "the lock",
            doc: "Calls the block with the lock taken, and answers its value. Not in mruby-mutex.",
        },
    ],
    prelude: "
class Mutex
  def initialize(options = nil)
    options ||= {}
    return __open(nil) unless options[:global]
    __open((options[:name] || __made_at).to_s)
  end
  def __made_at
    line = caller.find { |frame| !frame.start_with?('<nagaya>/') } || ''
    line.split(':in ')[0]
  end
  def try_lock_loop(retry_us = 100_000, timeout_us = 5_000_000)
    broken = __enter(timeout_us)
    yield
    broken
  end
  def synchronize
    lock
    begin
      yield
    ensure
      unlock
    end
  end
end
",
};

fn open(call: &mut NativeCall<'_>) -> Answer {
    let lock = match call.bytes(0) {
        None => Some(Arc::default()),
        Some(name) if name.len() > NAME_BYTES_MAX => {
            return Answer::argument_error("the name of a Mutex has at most 1024 bytes");
        }
        Some(name) => call.host.shared.locks.named(name),
    };
    match lock {
        Some(lock) => Answer::Attach(Rc::new(MutexHandle(lock)) as Rc<dyn Any>),
        None => Answer::Raise(
            "ThreadError",
            "too many global locks are in use: make them in init, and keep them in Userdata"
                .to_owned(),
        ),
    }
}

/// What trying to take the receiver's lock came to.
enum Tried {
    Taken,
    Busy(Arc<Lock>, Claim),
    /// The request has it already.
    Again,
    Raised(Answer),
}

/// Who wants a lock.
#[derive(Clone, Copy)]
struct Claim {
    ticket: u64,
    serial: u64,
    held: u64,
}

impl Claim {
    fn queue(self, lock: &Arc<Lock>) -> Turn {
        lock.queue(self.ticket, self.serial, self.held)
    }
}

fn attempt(call: &mut NativeCall<'_>) -> Tried {
    let Some(handle) = call.attached::<MutexHandle>() else {
        return Tried::Raised(thread_error("this Mutex was made without Mutex.new"));
    };
    let lock = &handle.0;
    let scope = holding(call);
    let serial = scope.serial();
    let stake = lock.stake();
    let ticket = stake.ticket();
    let Some(held) = scope.hold(Box::new(stake)) else {
        return Tried::Raised(thread_error("this request holds too much already"));
    };
    match lock.try_enter(ticket, serial, held) {
        Entered::Now => Tried::Taken,
        Entered::Busy => {
            let claim = Claim {
                ticket,
                serial,
                held,
            };
            Tried::Busy(Arc::clone(lock), claim)
        }
        Entered::Again => {
            drop(scope.release(held));
            Tried::Again
        }
    }
}

fn deadlock() -> Answer {
    thread_error("deadlock: this request has the lock already, and would wait for itself")
}

fn lock(call: &mut NativeCall<'_>) -> Answer {
    match attempt(call) {
        Tried::Taken => Answer::Int(0),
        Tried::Again => deadlock(),
        Tried::Raised(raise) => raise,
        Tried::Busy(lock, claim) => {
            let turn = claim.queue(&lock);
            wait_for(call, Rc::from(ANOTHERS), async move {
                turn.await;
                Woken::Value(Datum::Int(0))
            })
        }
    }
}

/// Takes the lock, by breaking it when the time is up; says whether it was broken.
fn enter_in_time(call: &mut NativeCall<'_>) -> Answer {
    let Some(timeout) = call.int(0).map(|us| u64::try_from(us).unwrap_or(0)) else {
        return Answer::type_error("try_lock_loop takes microseconds: Integers");
    };
    match attempt(call) {
        Tried::Taken => Answer::Bool(false),
        Tried::Again => deadlock(),
        Tried::Raised(raise) => raise,
        Tried::Busy(lock, claim) => {
            let mut turn = claim.queue(&lock);
            wait_for(call, Rc::from(ANOTHERS), async move {
                let timeout = Duration::from_micros(timeout);
                let broken = match tokio::time::timeout(timeout, &mut turn).await {
                    Ok(()) => false,
                    Err(_) => turn.break_in(),
                };
                Woken::Value(Datum::Bool(broken))
            })
        }
    }
}

fn try_lock(call: &mut NativeCall<'_>) -> Answer {
    match attempt(call) {
        Tried::Taken => Answer::Bool(true),
        Tried::Again => Answer::Bool(false),
        Tried::Raised(raise) => raise,
        Tried::Busy(_, claim) => {
            drop(holding(call).release(claim.held));
            Answer::Bool(false)
        }
    }
}

fn unlock(call: &mut NativeCall<'_>) -> Answer {
    let Some(handle) = call.attached::<MutexHandle>() else {
        return thread_error("this Mutex was made without Mutex.new");
    };
    let scope = holding(call);
    match handle.0.held_by(scope.serial()) {
        Some(held) => {
            drop(scope.release(held));
            Answer::Int(0)
        }
        None => thread_error("this request does not have the lock it unlocks"),
    }
}

fn thread_error(message: &str) -> Answer {
    Answer::Raise("ThreadError", message.to_owned())
}
