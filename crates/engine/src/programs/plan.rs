//! What the supervisor and the spawner say to each other, over a pair of sockets
//! (`os::fdpass::pair`).
//!
//! The idea: the spawner reads no configuration. For each generation it gets a [`Plan`]: every
//! rule that runs programs, and all it has to know to run them. Sites and rules without programs
//! are not in it, so that it costs nothing where there are none.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use os::cgroup::{CpuLimit, Device, Group, IoLimit, Layout};
use os::file::Symlinks;

use crate::codec::{BadMessage, Reader, Writer};

/// Bytes in one message to the spawner.
pub const TO_SPAWNER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Descriptors in one message to the spawner: a link for every worker.
pub const TO_SPAWNER_FDS_MAX: usize = 65_536;
/// Bytes in one message of the spawner.
pub const FROM_SPAWNER_BYTES_MAX: usize = 64 * 1024;
/// As much of a text as fits a message of the spawner beside its numbers.
const TEXT_BYTES_MAX: usize = FROM_SPAWNER_BYTES_MAX - 64;

/// What the supervisor says to the spawner.
#[derive(Debug)]
pub enum ToSpawner {
    /// Be ready to run this generation's programs; answered by `Ready` or `Refused`.
    Plan(Plan),
    /// Take orders from the workers of a new server, one link each.
    Workers {
        /// The spawner's ends.
        links: Vec<OwnedFd>,
    },
}

/// What the spawner says to the supervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromSpawner {
    /// Programs of the generation can be run.
    Ready {
        /// Its number.
        generation: u64,
    },
    /// They cannot; nothing has changed.
    Refused {
        /// Its number.
        generation: u64,
        /// Why: a problem a line.
        message: String,
    },
}

/// A generation's programs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// The generation's number.
    pub generation: u64,
    /// Programs that may run at once.
    pub programs_max: u64,
    /// Where control groups stand; no hierarchy where none is wanted or to be had.
    pub layout: Layout,
    /// The groups there are to be (`groups::Shape`), each after those it is in.
    pub groups: Vec<Group>,
    /// Every site with a rule that runs programs, by rising index.
    pub sites: Vec<PlannedSite>,
    /// Every map that runs a program, by rising index.
    pub maps: Vec<PlannedMap>,
}

/// A map that runs a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedMap {
    /// Its index in the model.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Where it starts.
    pub directory: PathBuf,
    /// The user it runs as; `None` is the user of the spawner itself, which is not root.
    pub user: Option<String>,
    /// How many of it run.
    pub processes: u32,
}

/// A site that runs programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedSite {
    /// Its index in the model.
    pub index: u32,
    /// Its first host: its name in messages.
    pub name: String,
    /// Its document root, in which the programs are.
    pub root: PathBuf,
    /// The directory nothing leads out of; `root` is in it.
    pub within: PathBuf,
    /// What is done with symbolic links.
    pub symlinks: Symlinks,
    /// The user its programs run as; `None` is the user of the spawner itself, which is not root.
    pub user: Option<String>,
    /// Its rules that run programs, by rising index.
    pub rules: Vec<PlannedRule>,
}

/// A rule that runs programs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlannedRule {
    /// Its index in the site.
    pub index: u32,
    /// Variables it sets beyond those that every program may get.
    pub names: Vec<String>,
    /// What each process of it may use.
    pub limits: os::spawn::Limits,
    /// Which of the plan's groups its programs are born in; none: the spawner's own.
    pub group: Option<u32>,
}

impl ToSpawner {
    /// Sends the message.
    ///
    /// # Errors
    /// When the spawner has gone or does not listen.
    pub fn send(&self, link: BorrowedFd<'_>) -> io::Result<()> {
        let mut out = Writer::default();
        match self {
            ToSpawner::Plan(plan) => {
                out.byte(1);
                plan.encode(&mut out);
            }
            ToSpawner::Workers { links } => {
                out.byte(2);
                out.fds(links);
            }
        }
        os::fdpass::send(link, &out.bytes, &out.fds)
    }

    /// Receives the next message; the supervisor's end is `UnexpectedEof`.
    ///
    /// # Errors
    /// When the supervisor has gone, or says what cannot be understood.
    pub fn recv(link: BorrowedFd<'_>) -> io::Result<ToSpawner> {
        let (bytes, fds) = os::fdpass::recv(link, TO_SPAWNER_BYTES_MAX, TO_SPAWNER_FDS_MAX)?;
        Ok(ToSpawner::decode(Reader::of(&bytes, fds)?)?)
    }

    fn decode(mut from: Reader<'_>) -> Result<ToSpawner, BadMessage> {
        let message = match from.byte()? {
            1 => ToSpawner::Plan(Plan::decode(&mut from)?),
            2 => ToSpawner::Workers { links: from.fds()? },
            _ => return Err(BadMessage("unknown kind")),
        };
        from.end()?;
        Ok(message)
    }
}

impl FromSpawner {
    /// Sends the message. Text too long for one is cut.
    ///
    /// # Errors
    /// When the supervisor has gone.
    pub fn send(&self, link: BorrowedFd<'_>) -> io::Result<()> {
        let mut out = Writer::default();
        match self {
            FromSpawner::Ready { generation } => {
                out.byte(1);
                out.number(*generation);
            }
            FromSpawner::Refused {
                generation,
                message,
            } => {
                out.byte(2);
                out.number(*generation);
                out.text_cut(message, TEXT_BYTES_MAX);
            }
        }
        os::fdpass::send(link, &out.bytes, &[])
    }

    /// Receives the next message; the spawner's end is `UnexpectedEof`.
    ///
    /// # Errors
    /// When the spawner has gone, or says what cannot be understood.
    pub fn recv(link: BorrowedFd<'_>) -> io::Result<FromSpawner> {
        let (bytes, fds) = os::fdpass::recv(link, FROM_SPAWNER_BYTES_MAX, 0)?;
        Ok(FromSpawner::decode(Reader::of(&bytes, fds)?)?)
    }

    fn decode(mut from: Reader<'_>) -> Result<FromSpawner, BadMessage> {
        let message = match from.byte()? {
            1 => FromSpawner::Ready {
                generation: from.number()?,
            },
            2 => FromSpawner::Refused {
                generation: from.number()?,
                message: from.string()?,
            },
            _ => return Err(BadMessage("unknown kind")),
        };
        from.end()?;
        Ok(message)
    }
}

impl Plan {
    fn encode(&self, out: &mut Writer<'_>) {
        out.number(self.generation);
        out.number(self.programs_max);
        out.text(self.layout.encode().as_bytes());
        out.number(self.groups.len() as u64);
        for group in &self.groups {
            encode_group(group, out);
        }
        out.number(self.sites.len() as u64);
        for site in &self.sites {
            site.encode(out);
        }
        out.number(self.maps.len() as u64);
        for map in &self.maps {
            map.encode(out);
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Plan, BadMessage> {
        Ok(Plan {
            generation: from.number()?,
            programs_max: from.number()?,
            layout: Layout::decode(&from.string()?).ok_or(BadMessage("no layout of groups"))?,
            groups: from.list(decode_group)?,
            sites: from.list(PlannedSite::decode)?,
            maps: from.list(PlannedMap::decode)?,
        })
    }
}

pub(super) fn encode_group(group: &Group, out: &mut Writer<'_>) {
    out.number(group.path.len() as u64);
    for name in &group.path {
        out.text(name.as_bytes());
    }
    let limits = &group.limits;
    out.limit(limits.cpu.map(|cpu| cpu.millicores.into()));
    out.number(limits.cpu.map_or(0, |cpu| cpu.burst_us));
    out.limit(limits.cpu_weight.map(u64::from));
    out.limit(limits.memory_bytes);
    out.limit(limits.memory_high_bytes);
    out.limit(limits.pids.map(u64::from));
    out.number(limits.io.len() as u64);
    for disk in &limits.io {
        out.number(disk.device.major.into());
        out.number(disk.device.minor.into());
        for limit in [
            disk.read_bytes,
            disk.write_bytes,
            disk.read_ops,
            disk.write_ops,
        ] {
            out.limit(limit);
        }
    }
}

pub(super) fn decode_group(from: &mut Reader<'_>) -> Result<Group, BadMessage> {
    let path = from.list(Reader::string)?;
    // They become directories: the supervisor makes them of letters that are safe.
    let is_name = |name: &String| !name.is_empty() && !name.starts_with('.') && !name.contains('/');
    if path.is_empty() || !path.iter().all(is_name) {
        return Err(BadMessage("no path of a group"));
    }
    let millicores = from.small_limit()?;
    let burst_us = from.number()?;
    Ok(Group {
        path,
        limits: os::cgroup::Limits {
            cpu: millicores.map(|millicores| CpuLimit {
                millicores,
                burst_us,
            }),
            cpu_weight: from.small_limit()?,
            memory_bytes: from.limit()?,
            memory_high_bytes: from.limit()?,
            pids: from.small_limit()?,
            io: from.list(decode_disk)?,
        },
    })
}

fn decode_disk(from: &mut Reader<'_>) -> Result<IoLimit, BadMessage> {
    Ok(IoLimit {
        device: Device {
            major: from.small_number()?,
            minor: from.small_number()?,
        },
        read_bytes: from.limit()?,
        write_bytes: from.limit()?,
        read_ops: from.limit()?,
        write_ops: from.limit()?,
    })
}

impl PlannedSite {
    fn encode(&self, out: &mut Writer<'_>) {
        out.number(self.index.into());
        out.text(self.name.as_bytes());
        out.text(self.root.as_os_str().as_bytes());
        out.text(self.within.as_os_str().as_bytes());
        out.byte(match self.symlinks {
            Symlinks::Deny => 0,
            Symlinks::Owner => 1,
            Symlinks::Allow => 2,
        });
        // No user has an empty name.
        out.text(self.user.as_deref().unwrap_or_default().as_bytes());
        out.number(self.rules.len() as u64);
        for rule in &self.rules {
            rule.encode(out);
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<PlannedSite, BadMessage> {
        let path = |text: &[u8]| PathBuf::from(OsStr::from_bytes(text));
        Ok(PlannedSite {
            index: from.small_number()?,
            name: from.string()?,
            root: path(from.text()?),
            within: path(from.text()?),
            symlinks: match from.byte()? {
                0 => Symlinks::Deny,
                1 => Symlinks::Owner,
                2 => Symlinks::Allow,
                _ => return Err(BadMessage("unknown policy for links")),
            },
            user: Some(from.string()?).filter(|user| !user.is_empty()),
            rules: from.list(PlannedRule::decode)?,
        })
    }
}

impl PlannedMap {
    fn encode(&self, out: &mut Writer<'_>) {
        out.number(self.index.into());
        out.text(self.name.as_bytes());
        out.number(self.command.len() as u64);
        for word in &self.command {
            out.text(word.as_bytes());
        }
        out.text(self.directory.as_os_str().as_bytes());
        out.text(self.user.as_deref().unwrap_or_default().as_bytes());
        out.number(self.processes.into());
    }

    fn decode(from: &mut Reader<'_>) -> Result<PlannedMap, BadMessage> {
        Ok(PlannedMap {
            index: from.small_number()?,
            name: from.string()?,
            command: from.list(Reader::string)?,
            directory: PathBuf::from(OsStr::from_bytes(from.text()?)),
            user: Some(from.string()?).filter(|user| !user.is_empty()),
            processes: from.small_number()?,
        })
    }
}

impl PlannedRule {
    fn encode(&self, out: &mut Writer<'_>) {
        out.number(self.index.into());
        out.number(self.names.len() as u64);
        for name in &self.names {
            out.text(name.as_bytes());
        }
        let limits = &self.limits;
        for limit in [
            limits.cpu_s,
            limits.memory_bytes,
            limits.files,
            limits.processes,
            limits.file_size_bytes,
        ] {
            out.limit(limit);
        }
        out.limit(self.group.map(u64::from));
    }

    fn decode(from: &mut Reader<'_>) -> Result<PlannedRule, BadMessage> {
        Ok(PlannedRule {
            index: from.small_number()?,
            names: from.list(Reader::string)?,
            limits: os::spawn::Limits {
                cpu_s: from.limit()?,
                memory_bytes: from.limit()?,
                files: from.limit()?,
                processes: from.limit()?,
                file_size_bytes: from.limit()?,
            },
            group: from.small_limit()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn map(index: u32, user: Option<&str>) -> PlannedMap {
        PlannedMap {
            index,
            name: "load".into(),
            command: vec!["perl".into(), "load average.pl".into(), String::new()],
            directory: "/etc/nagaya".into(),
            user: user.map(str::to_owned),
            processes: 4,
        }
    }

    fn plan() -> Plan {
        let rule = |index| PlannedRule {
            index,
            names: vec!["APP_MODE".into(), "PATH".into()],
            limits: os::spawn::Limits {
                cpu_s: Some(60),
                memory_bytes: None,
                files: Some(0),
                processes: Some(u64::MAX - 1),
                file_size_bytes: Some(1 << 30),
            },
            group: (index == 0).then_some(1),
        };
        let site = |index, symlinks, user: Option<&str>| PlannedSite {
            index,
            name: "example.jp".into(),
            root: "/srv/a/htdocs".into(),
            within: "/srv/a".into(),
            symlinks,
            user: user.map(str::to_owned),
            rules: vec![rule(0), rule(7)],
        };
        Plan {
            generation: 12,
            programs_max: 256,
            layout: Layout::decode("v2 cpu,memory /sys/fs/cgroup/nagaya-7\n").unwrap(),
            groups: groups(),
            sites: vec![
                site(0, Symlinks::Deny, Some("a")),
                site(1, Symlinks::Owner, None),
                site(u32::MAX, Symlinks::Allow, Some("c")),
            ],
            maps: vec![map(0, None), map(9, Some("maps"))],
        }
    }

    fn groups() -> Vec<Group> {
        let limits = os::cgroup::Limits {
            cpu: Some(CpuLimit {
                millicores: 100,
                burst_us: 5_000,
            }),
            cpu_weight: Some(10_000),
            memory_bytes: Some(1 << 40),
            memory_high_bytes: None,
            pids: Some(u32::MAX),
            io: vec![IoLimit {
                device: Device {
                    major: 254,
                    minor: 0,
                },
                read_bytes: Some(1),
                write_bytes: None,
                read_ops: Some(0),
                write_ops: None,
            }],
        };
        let group = |path: &[&str], limits| Group {
            path: path.iter().map(|&name| name.to_owned()).collect(),
            limits,
        };
        vec![
            group(&["tenant-a"], os::cgroup::Limits::default()),
            group(&["tenant-a", "rule-a.example-1"], limits),
        ]
    }

    #[test]
    fn what_the_supervisor_says_arrives() {
        let (here, there) = os::fdpass::pair().unwrap();
        ToSpawner::Plan(plan()).send(here.as_fd()).unwrap();
        let ToSpawner::Plan(arrived) = ToSpawner::recv(there.as_fd()).unwrap() else {
            panic!("another message arrived");
        };
        assert_eq!(arrived, plan());
        for count in [0, 1, 300] {
            let links = (0..count).map(|_| os::fdpass::packet_pair().unwrap().0);
            let links = links.collect();
            ToSpawner::Workers { links }.send(here.as_fd()).unwrap();
            let ToSpawner::Workers { links } = ToSpawner::recv(there.as_fd()).unwrap() else {
                panic!("another message arrived");
            };
            assert_eq!(links.len(), count);
        }
    }

    #[test]
    fn what_the_spawner_says_arrives() {
        let (here, there) = os::fdpass::pair().unwrap();
        let refused = |message| FromSpawner::Refused {
            generation: 3,
            message,
        };
        let ready = FromSpawner::Ready { generation: 3 };
        for message in [ready, refused("no such user: example".into())] {
            message.send(there.as_fd()).unwrap();
            assert_eq!(FromSpawner::recv(here.as_fd()).unwrap(), message);
        }
        refused("遅".repeat(100_000)).send(there.as_fd()).unwrap();
        let FromSpawner::Refused { message, .. } = FromSpawner::recv(here.as_fd()).unwrap() else {
            panic!("another message arrived");
        };
        assert!(message.len() > TEXT_BYTES_MAX - 3 && message.chars().all(|c| c == '遅'));
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_refused_or_understood_never_a_panic() {
        let mut out = Writer::default();
        out.byte(1);
        plan().encode(&mut out);
        for length in 0..out.bytes.len() {
            let cut = out.bytes.get(..length).unwrap();
            assert!(
                ToSpawner::decode(Reader::new(cut, Vec::new())).is_err(),
                "{length}"
            );
        }
        for at in 0..out.bytes.len() {
            for value in [0, 1, 2, 0x7f, 0xff] {
                let mut bytes = out.bytes.clone();
                bytes[at] = value;
                let _ = ToSpawner::decode(Reader::new(&bytes, Vec::new()));
                let _ = FromSpawner::decode(Reader::new(&bytes, Vec::new()));
            }
        }
    }
}
