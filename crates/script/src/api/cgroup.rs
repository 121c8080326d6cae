//! `Cgroup`: groups of the kernel's that a request's program is born in.
//!
//! A script defines a group by its name and says which one; it touches no file. The program this
//! request starts is made in it; a worker, which serves many, is never moved.

use std::sync::{Arc, Mutex};

use mruby::{Answer, MethodOf};
use os::cgroup::{Controller, CpuTimes, Device, Layout, NumberList, Usage};

use super::chapter::{Chapter, takes};
use super::entries::{Classes, hidden, in_ruby, module};
use super::native::{answered, holding, request, scope};
use crate::scope::CgroupWish;
use crate::shared::{Form, Given, Groups, Key, enter};
use crate::state::NativeCall;

/// Functions of the module.
const CGROUP: (Classes, MethodOf) = (&["Cgroup"], MethodOf::Class);

/// Longest name of a group.
const NAME_BYTES_MAX: usize = 200;

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Cgroup",
    text: "`Cgroup::CPU`, `CPUACCT`, `CPUSET`, `BLKIO`, `MEMORY` and `PIDS`, whatever version the \
           machine has. Objects of one name are one group, in all workers. It stands below the group \
           that `cgroup` of the rule, site or tenant makes, and can only have less than that; without \
           one there, the program of a request that attached is refused. The worker itself is never \
           moved. What is not there raises a NotImplementedError: real-time shares, figures by \
           core. The figures are read off the kernel when they are asked for, as they stand for \
           the group below the rule of this request: of all programs it has had since it was made (it goes \
           when nothing has run in it for ten seconds). They are `nil` where it does not stand, and where \
           nothing counts them: CPU time, memory and processes are each counted where a limit of that kind \
           is set, for the group or one above it.",
    classes: &[module("Cgroup")],
    constants: &[],
    methods: &[
        hidden(CGROUP, &["__get"], takes(2, 2), get),
        hidden(CGROUP, &["__set"], takes(3, 3), set),
        hidden(CGROUP, &["__figure"], takes(2, 2), figure),
        hidden(CGROUP, &["__define"], takes(1, 1), define),
        hidden(CGROUP, &["__delete"], takes(1, 1), delete),
        hidden(CGROUP, &["__exist"], takes(1, 1), exist),
        hidden(CGROUP, &["__attach"], takes(1, 1), attach),
        hidden(CGROUP, &["__detach"], takes(0, 0), detach),
    ],
    in_ruby: &[
        in_ruby(
            "Cgroup::CPU.new",
            "name",
            "The group of that name; it is defined by the first setter, `create` or `attach`.",
        ),
        in_ruby(
            "Cgroup::CPU#cfs_quota_us=",
            "microseconds",
            "CPU time a period; -1 or `nil` for no limit. Also `cfs_period_us=` (only the ratio counts) \
             and `shares=`; each is read under its name, `nil` where it is not set.",
        ),
        in_ruby(
            "Cgroup::MEMORY#limit_in_bytes=",
            "bytes",
            "Also `memsw_limit_in_bytes=`; the lesser binds, and swap counts.",
        ),
        in_ruby(
            "Cgroup::PIDS#max=",
            "count",
            "Processes and threads at once.",
        ),
        in_ruby(
            "Cgroup::BLKIO#throttle_read_bps_device=",
            "text",
            "`\"8:0 1048576\"`; also `throttle_write_bps_device=` and both with `iops`.",
        ),
        in_ruby(
            "Cgroup::CPUSET#cpus=",
            "text",
            "CPUs by number, as the kernel lists them: `\"0-1,4\"`; `\"\"` or `nil` for those of the group \
             above. Also `mems=`, for memory nodes. Where the group above has none of them the program is \
             refused.",
        ),
        in_ruby(
            "Cgroup::CPU#create",
            "",
            "Defines the group; also `modify` and `open`.",
        ),
        in_ruby(
            "Cgroup::CPU#attach",
            "",
            "The program this request starts is born in the group. A request has one: attaching to \
             another name raises.",
        ),
        in_ruby("Cgroup::CPU#detach", "", "It is not after all."),
        in_ruby(
            "Cgroup::CPU#stat",
            "",
            "`\"nr_periods 90\\nnr_throttled 4\\nthrottled_time 30000000\"`: periods with a quota, those in \
             which it ran out, and nanoseconds waited for the next.",
        ),
        in_ruby(
            "Cgroup::CPUACCT#usage",
            "",
            "Nanoseconds of CPU time; `stat` tells them as `\"user 7\\nsystem 2\"`, in hundredths of a second.",
        ),
        in_ruby(
            "Cgroup::MEMORY#usage_in_bytes",
            "",
            "Memory now; `max_usage_in_bytes` is the most it has been (version 2: from Linux 5.19 on).",
        ),
        in_ruby("Cgroup::PIDS#current", "", "Processes and threads now."),
        in_ruby(
            "Cgroup::CPU#delete",
            "",
            "Deletes the definition once the other requests that use it have ended; also `close`. A \
             program keeps its limits as long as it runs.",
        ),
        in_ruby(
            "Cgroup::CPU#exist?",
            "",
            "Whether it is defined and not deleted.",
        ),
    ],
    prelude: include_str!("ruby/cgroup.rb"),
};

fn name(call: &NativeCall<'_>) -> Result<String, Answer> {
    let name = call
        .bytes(0)
        .and_then(|name| std::str::from_utf8(name).ok());
    match name.filter(|name| (1..=NAME_BYTES_MAX).contains(&name.len())) {
        Some(name) => Ok(name.to_owned()),
        None => Err(Answer::argument_error(format!(
            "a group's name is a String of 1 to {NAME_BYTES_MAX} bytes"
        ))),
    }
}

fn key(call: &NativeCall<'_>) -> Result<Key, Answer> {
    let name = call.name(1).unwrap_or_default();
    Key::of_name(&name).ok_or_else(|| Answer::argument_error("groups have no such limit"))
}

fn groups(call: &NativeCall<'_>) -> Arc<Mutex<Groups>> {
    Arc::clone(&call.host.shared.groups)
}

/// Defines the group and holds it as long as the request lasts.
fn held(call: &mut NativeCall<'_>, name: &str) -> Result<(), Answer> {
    let groups = groups(call);
    let scope = holding(call);
    let hold = Groups::define(&groups, name, scope.serial()).map_err(Answer::runtime_error)?;
    if let Some(hold) = hold
        && scope.hold(Box::new(hold)).is_none()
    {
        return Err(Answer::runtime_error("this request holds too much already"));
    }
    Ok(())
}

fn define(call: &mut NativeCall<'_>) -> Answer {
    answered(name(call).and_then(|name| {
        held(call, &name)?;
        Ok(Answer::Int(0))
    }))
}

fn exist(call: &mut NativeCall<'_>) -> Answer {
    answered(name(call).map(|name| {
        let serial = holding(call).serial();
        Answer::Bool(enter(&groups(call)).has(&name, serial))
    }))
}

fn delete(call: &mut NativeCall<'_>) -> Answer {
    answered(name(call).map(|name| {
        let serial = holding(call).serial();
        enter(&groups(call)).delete(&name, serial);
        Answer::Int(0)
    }))
}

fn get(call: &mut NativeCall<'_>) -> Answer {
    answered(name(call).and_then(|name| {
        let key = key(call)?;
        let groups = groups(call);
        let groups = enter(&groups);
        let given = groups.given(&name);
        let Some(given) = given else {
            return Ok(Answer::Nil);
        };
        Ok(Answer::Datum(match key.form() {
            Form::Number(..) => given.number(key).into(),
            Form::Disks => given.disks(key).as_deref().into(),
            Form::List => given.list(key).map(NumberList::as_str).into(),
        }))
    }))
}

fn set(call: &mut NativeCall<'_>) -> Answer {
    answered(name(call).and_then(|name| {
        let key = key(call)?;
        let change = match key.form() {
            Form::Number(least, most) => number(call, key, least, most)?,
            Form::Disks => disk(call, key)?,
            Form::List => list(call, key)?,
        };
        held(call, &name)?;
        let groups = groups(call);
        let mut groups = enter(&groups);
        groups.change(&name, change);
        let limits = groups.given(&name).map(Given::limits).unwrap_or_default();
        if let Some(wish) = &mut holding(call).cgroup
            && wish.name == name
        {
            wish.limits = limits;
        }
        Ok(Answer::Argument(2))
    }))
}

/// A figure of the group that a program of this request would be born in.
fn figure(call: &mut NativeCall<'_>) -> Answer {
    answered(name(call).and_then(|name| {
        let figure = call.name(1).unwrap_or_default();
        let Some((layout, path)) = request(call)?.group(&name) else {
            return Ok(Answer::Nil);
        };
        let by = |controller| Usage::by(controller, layout, &path);
        let number = match figure.as_slice() {
            b"cpu_stat" => {
                return Ok(Answer::Datum(
                    throttling(&by(Controller::Cpu)).as_deref().into(),
                ));
            }
            b"cpuacct_stat" => return Ok(Answer::Datum(times(layout, &path).as_deref().into())),
            b"usage" => Usage::cpu_us(layout, &path).map(|us| us.saturating_mul(1_000)),
            b"usage_in_bytes" => by(Controller::Memory).memory_bytes,
            b"max_usage_in_bytes" => by(Controller::Memory).memory_peak_bytes,
            b"current" => by(Controller::Pids).pids,
            _ => None,
        };
        let number = number.map(|number| i64::try_from(number).unwrap_or(i64::MAX));
        Ok(Answer::Datum(number.into()))
    }))
}

/// In the words of `cpu.stat` of version 1.
fn throttling(usage: &Usage) -> Option<String> {
    let (periods, throttled) = (usage.periods?, usage.throttled_periods?);
    let waited_ns = usage.throttled_us?.saturating_mul(1_000);
    Some(format!(
        "nr_periods {periods}\nnr_throttled {throttled}\nthrottled_time {waited_ns}"
    ))
}

/// In those of `cpuacct.stat`.
fn times(layout: &Layout, path: &[String]) -> Option<String> {
    let times = CpuTimes::of(layout, path)?;
    let (user, system) = (times.user_us / 10_000, times.system_us / 10_000);
    Some(format!("user {user}\nsystem {system}"))
}

/// The limit's name, for messages.
fn said(call: &NativeCall<'_>) -> String {
    String::from_utf8_lossy(&call.name(1).unwrap_or_default()).into_owned()
}

type Change = Box<dyn FnOnce(&mut Given)>;

/// A number within what the kernel takes; `nil` and what is negative take the limit away.
fn number(call: &NativeCall<'_>, key: Key, least: i64, most: i64) -> Result<Change, Answer> {
    let said = said(call);
    let value = match (call.truth(2), call.int(2)) {
        (false, _) => None,
        (true, Some(value)) if value < 0 => None,
        (true, Some(value)) if (least..=most).contains(&value) => Some(value),
        (true, None) if call.bytes(2) == Some(b"max") => None,
        _ => {
            return Err(Answer::argument_error(format!(
                "{said} is an Integer from {least} to {most}, or -1 for no limit"
            )));
        }
    };
    Ok(Box::new(move |given: &mut Given| given.set(key, value)))
}

/// `8:0 1048576`.
fn disk(call: &NativeCall<'_>, key: Key) -> Result<Change, Answer> {
    let text = call
        .bytes(2)
        .and_then(|text| std::str::from_utf8(text).ok());
    let parsed = text.and_then(|text| {
        let (device, value) = text.trim().split_once(' ')?;
        let (major, minor) = device.split_once(':')?;
        let device = Device {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
        };
        let value: i64 = value.trim().parse().ok()?;
        (value > 0).then_some((device, value))
    });
    match parsed {
        Some((device, value)) => Ok(Box::new(move |given: &mut Given| {
            given.set_disk(key, device, value);
        })),
        None => Err(Answer::argument_error(
            "a limit of a disk is told as \"MAJOR:MINOR NUMBER\": \"8:0 1048576\"",
        )),
    }
}

/// `0-3,8`; `nil` and an empty text take the list away.
fn list(call: &NativeCall<'_>, key: Key) -> Result<Change, Answer> {
    let list = match (call.truth(2), call.bytes(2)) {
        (false, _) | (true, Some(b"")) => None,
        (true, text) => {
            let text = text.and_then(|text| std::str::from_utf8(text).ok());
            Some(text.and_then(NumberList::parse).ok_or_else(|| {
                let said = said(call);
                Answer::argument_error(format!(
                    "{said} are numbers as \"0-3,8\", or \"\" for those of the group above"
                ))
            })?)
        }
    };
    Ok(Box::new(move |given: &mut Given| given.set_list(key, list)))
}

fn attach(call: &mut NativeCall<'_>) -> Answer {
    answered(name(call).and_then(|name| {
        if let Some(wish) = &scope(call)?.cgroup
            && wish.name != name
        {
            let before = &wish.name;
            return Err(Answer::runtime_error(format!(
                "this request's program is attached to {before} already: one name for all its limits"
            )));
        }
        held(call, &name)?;
        let groups = groups(call);
        let limits = enter(&groups).given(&name).map(Given::limits);
        scope(call)?.cgroup = Some(CgroupWish {
            name,
            limits: limits.unwrap_or_default(),
        });
        Ok(Answer::Int(0))
    }))
}

fn detach(call: &mut NativeCall<'_>) -> Answer {
    answered(scope(call).map(|scope| {
        scope.cgroup = None;
        Answer::Nil
    }))
}
