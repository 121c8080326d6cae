//! `nagaya agent`: says how a machine is to whoever forwards requests there.
//!
//! The idea: one line answers everybody. It is HAProxy's agent-check (`up ready 75%`), with the
//! sensors behind the sign that begins a description there; a client that speaks HTTP is answered
//! in JSON. Few connections at once, each with little time: what is to tell of overload must not
//! add to it. Beside a gateway it says, too, whether that is drained in its fleet.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use clap::Args;
use config::model::sensor::{Gauge, Sensor};
use engine::agents::line::AgentLine;
use engine::sensors::gauges::Sensors;
use engine::sensors::sampling::Here;

use crate::control::{EVERY, Running};
use crate::outcome::{Outcome, complain};

/// How often the machine is measured.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// How long a client may say nothing and still be answered; HAProxy says nothing.
const SILENCE: Duration = Duration::from_millis(100);
/// How long an answer may take to be taken.
const WRITE: Duration = Duration::from_secs(1);
/// Connections at once; one more is closed.
const CONNECTIONS_MAX: usize = 64;
/// Bytes of a question that are read.
const QUESTION_BYTES_MAX: usize = 4_096;
/// The least a server that is asked at all is said to be up to.
const PERCENT_MIN: f64 = 5.0;

/// Options of `agent`.
#[derive(Debug, Args)]
pub(crate) struct AgentOptions {
    /// Address to answer on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9707", value_parser = address)]
    pub(crate) listen: SocketAddr,
    /// While this file is there, ask for no further requests
    #[arg(long, value_name = "FILE")]
    pub(crate) drain: Option<PathBuf>,
    /// Control socket of a gateway here: while that is drained (`nagaya fleet drain`), ask for no further requests
    #[arg(long, value_name = "PATH")]
    pub(crate) gateway: Option<PathBuf>,
}

/// What says that no further requests are wanted.
struct Drains {
    file: Option<PathBuf>,
    is_gateway_drained: Arc<AtomicBool>,
}

impl Drains {
    /// Asks the gateway, where there is one, for as long as the process lives.
    fn follow(options: &AgentOptions) -> io::Result<Drains> {
        let is_gateway_drained = Arc::<AtomicBool>::default();
        if let Some(socket) = options.gateway.clone() {
            let is_drained = Arc::clone(&is_gateway_drained);
            let body = move || {
                let running = Running::at(socket);
                loop {
                    // One that does not answer is as it was.
                    if let Ok(answer) = running.try_ask("fleet-drained") {
                        is_drained.store(answer.starts_with(b"drain"), Relaxed);
                    }
                    std::thread::sleep(EVERY);
                }
            };
            let thread = std::thread::Builder::new().name("gateway".to_owned());
            thread.spawn(body)?;
        }
        Ok(Drains {
            file: options.drain.clone(),
            is_gateway_drained,
        })
    }

    fn is_draining(&self) -> bool {
        self.is_gateway_drained.load(Relaxed) || self.file.as_deref().is_some_and(Path::exists)
    }
}

/// Reads an address.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        // A port alone is mostly what is typed.
        let port = text.rsplit(':').next().unwrap_or_default();
        let port = port.parse::<u16>().unwrap_or(9707);
        format!(
            "write an IP address and a port: 127.0.0.1:{port} for this machine, 0.0.0.0:{port} for others, too"
        )
    })
}

/// Answers until it is ended.
pub(crate) fn run(options: &AgentOptions) -> Outcome {
    let listener = match TcpListener::bind(options.listen) {
        Ok(listener) => listener,
        Err(error) => {
            let (address, why) = (options.listen, config::reason(&error));
            complain(&format!("nagaya: listen on {address}: {why}\n"));
            return Outcome::Failed;
        }
    };
    let sensors = Arc::new(Sensors::new(0));
    let measured = Arc::clone(&sensors);
    let measuring = std::thread::Builder::new()
        .name("sensors".to_owned())
        .spawn(move || {
            let mut here = Here::look();
            loop {
                measured.publish(&here.sample());
                std::thread::sleep(SAMPLE_EVERY);
            }
        });
    let drains = match measuring.and_then(|_| Drains::follow(options)) {
        Ok(drains) => drains,
        Err(error) => {
            let why = config::reason(&error);
            complain(&format!("nagaya: start a thread: {why}\n"));
            return Outcome::Failed;
        }
    };
    complain(&format!("nagaya: agent answers on {}\n", options.listen));
    answer_all(&listener, &sensors, &drains)
}

fn answer_all(listener: &TcpListener, sensors: &Arc<Sensors>, drains: &Drains) -> Outcome {
    let open = Arc::<AtomicUsize>::default();
    loop {
        let Ok((stream, _)) = listener.accept() else {
            // Out of descriptors, mostly: it passes.
            std::thread::sleep(SILENCE);
            continue;
        };
        let place = ConnectionSlot::acquire(&open);
        let (Some(place), line) = (place, line(sensors, drains)) else {
            continue;
        };
        // Where no thread can be had, the client hears nothing.
        let _ = std::thread::Builder::new().spawn(move || {
            let _place = place;
            // One that has gone does not want it.
            let _ = answer(stream, &line);
        });
    }
}

/// A place among the connections there may be.
struct ConnectionSlot(Arc<AtomicUsize>);

impl ConnectionSlot {
    fn acquire(open: &Arc<AtomicUsize>) -> Option<Self> {
        let place = Self(Arc::clone(open));
        // Taken by one thread alone, so nobody comes between.
        (open.fetch_add(1, Relaxed) < CONNECTIONS_MAX).then_some(place)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// What there is to say now.
fn line(sensors: &Sensors, drains: &Drains) -> AgentLine {
    let of_machine = Gauge::ALL.into_iter().filter(|gauge| gauge.is_of_machine());
    let values = of_machine.filter_map(|gauge| Some((gauge, sensors.value(&Sensor::Here(gauge))?)));
    let percent = match drains.is_draining() {
        true => 0,
        false => percent(|gauge| sensors.mean(&Sensor::Here(gauge))),
    };
    AgentLine::new(percent, values)
}

/// How much of its weight a server here is up to: what is left beside the time lost for want of
/// processors or of memory, on average over ten seconds.
fn percent(mean: impl Fn(Gauge) -> Option<f64>) -> u32 {
    let lost = [Gauge::CpuPressure, Gauge::MemoryPressure].map(|gauge| mean(gauge).unwrap_or(0.0));
    let lost = lost.into_iter().fold(0.0, f64::max);
    let left = ((1.0 - lost) * 100.0).clamp(PERCENT_MIN, 100.0);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is from 5 to 100"
    )]
    let percent = left.round() as u32;
    percent
}

fn answer(mut stream: TcpStream, line: &AgentLine) -> io::Result<()> {
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_write_timeout(Some(WRITE))?;
    let mut question = [0; QUESTION_BYTES_MAX];
    let asked = match stream.read(&mut question) {
        Ok(read) => question.get(..read).unwrap_or_default(),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => &[],
        Err(error) => return Err(error),
    };
    let is_http = asked.starts_with(b"GET ") || asked.starts_with(b"HEAD ");
    if !is_http {
        return stream.write_all(format!("{line}\n").as_bytes());
    }
    let body = json(line);
    let length = body.len();
    let shown = if asked.starts_with(b"HEAD ") {
        ""
    } else {
        &body
    };
    stream.write_all(
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n{shown}"
        )
        .as_bytes(),
    )
}

fn json(line: &AgentLine) -> String {
    let gauges = Gauge::ALL.into_iter().filter(|gauge| gauge.is_of_machine());
    control::json(&control::Agent {
        state: if line.percent == 0 { "drain" } else { "up" },
        percent: line.percent,
        sensors: gauges.map(|it| (it.name(), line.value(it))).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_none_is_answered_with_one() {
        assert_eq!(
            address("[::1]:9"),
            Ok("[::1]:9".parse().expect("an address"))
        );
        for (text, port) in [
            ("18486", "18486"),
            ("localhost:18486", "18486"),
            ("", "9707"),
        ] {
            let help = address(text).expect_err(text);
            assert!(help.contains(&format!("127.0.0.1:{port} ")), "{help}");
        }
    }

    #[test]
    fn what_is_lost_to_waiting_is_not_offered() {
        for (cpu, memory, expected) in [
            (None, None, 100),
            (Some(0.0), Some(0.0), 100),
            (Some(0.254), None, 75),
            (Some(0.1), Some(0.6), 40),
            (Some(1.0), Some(0.0), 5),
            (Some(f64::INFINITY), None, 5),
        ] {
            let found = percent(|gauge| match gauge {
                Gauge::CpuPressure => cpu,
                _ => memory,
            });
            assert_eq!(found, expected, "{cpu:?} {memory:?}");
        }
    }

    #[test]
    fn there_are_only_so_many_places() {
        let open = Arc::<AtomicUsize>::default();
        let places: Vec<_> = (0..CONNECTIONS_MAX)
            .map(|_| ConnectionSlot::acquire(&open))
            .collect();
        assert!(places.iter().all(Option::is_some) && ConnectionSlot::acquire(&open).is_none());
        drop(places);
        assert!(ConnectionSlot::acquire(&open).is_some());
        assert_eq!(open.load(Relaxed), 0);
    }
}
