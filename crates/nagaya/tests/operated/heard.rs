//! What the recorder hears of the server, and that it goes on hearing whatever befalls either.

use std::path::Path;
use std::time::Instant;

use ipc::console::IncidentKind;
use recorder::{FigureStore, Tier};
use rustix::process::Signal;
use testkit::{Gateway, eventually, processes};

use super::recorded::{
    CONFIG, PATIENCE, ask_many, await_quiet, await_reading, builder, figures, metric, recorded,
    signal, told,
};
use super::upgrade::upgraded;

/// How often a figure was measured, as far as that is on disk.
fn measured(directory: &Path, figure: &str) -> u64 {
    let Ok(store) = FigureStore::open_existing(directory) else {
        return 0;
    };
    let samples = store.samples(figure, Tier::Minute, 0, i64::MAX).unwrap();
    let counts = samples.iter().map(|(_, sums)| sums.count);
    counts.sum::<f64>() as u64
}

/// Waits until a figure was measured more often than so many times.
fn await_measured(gateway: &Gateway, figure: &str, before: u64) {
    let directory = figures(gateway);
    eventually(2 * PATIENCE, figure, || {
        (measured(&directory, figure) > before).then_some(())
    });
}

#[test]
fn figures_over_time_are_kept_and_a_recorder_that_was_killed_hears_again() {
    let mut gateway = builder().start();
    await_reading(&gateway);
    await_measured(&gateway, "load1", 0);
    let first = gateway.child_called("recorder");
    signal(first, Signal::KILL);
    processes::await_ended(first);
    ask_many(&gateway, "a.example", 0..1_000);
    let before = measured(&figures(&gateway), "load1");
    await_reading(&gateway);
    await_measured(&gateway, "load1", before);
    await_measured(&gateway, "tenant.a.example.requests", 0);
    await_measured(&gateway, "site.a.example.requests", 0);
    let directory = figures(&gateway);
    assert!(gateway.stop().success());
    // Whose requests are not recorded has no figures either.
    let store = FigureStore::open_existing(&directory).unwrap();
    let names = store.series(|_| true, 10_000).unwrap();
    assert!(
        !names.iter().any(|name| name.contains("silent.example")),
        "{names:?}"
    );
}

#[test]
fn what_was_written_survives_a_kill_and_that_is_all_but_the_last_seconds() {
    let gateway = builder().start();
    await_reading(&gateway);
    ask_many(&gateway, "a.example", 0..5_000);
    await_quiet(&gateway);
    let (asked, expected) = (Instant::now(), told(&gateway));
    // It writes every five seconds whatever there is: once it has done so since, all is there.
    eventually(PATIENCE, "figures are written", || {
        // Before what is compared with it: a machine that stands still in between makes it no longer.
        let passed_s = asked.elapsed().as_secs_f64();
        let since_s = metric(&gateway, "recorder_unwritten_seconds");
        (passed_s > since_s + 1.0).then_some(())
    });
    signal(gateway.child_called("recorder"), Signal::KILL);
    let found = recorded(&figures(&gateway), "a.example").0;
    assert_eq!(found as f64, expected);
}

#[test]
fn an_upgrade_goes_on_recording_and_being_heard() {
    let config = format!("{CONFIG}\n[control]\nsocket = \"{{dir}}/control\"\n");
    let mut gateway = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), &config).start();
    await_reading(&gateway);
    ask_many(&gateway, "a.example", 0..500);
    await_measured(&gateway, "load1", 0);
    let recorder = gateway.child_called("recorder");
    upgraded(&gateway);
    eventually(PATIENCE, "another recorder", || {
        (gateway.child_called("recorder") != recorder).then_some(())
    });
    await_reading(&gateway);
    let directory = figures(&gateway);
    let (requests, before) = (
        recorded(&directory, "a.example").0,
        measured(&directory, "load1"),
    );
    assert!(requests >= 500, "{requests}");
    ask_many(&gateway, "a.example", 0..500);
    await_measured(&gateway, "load1", before);
    assert!(gateway.stop().success());
    assert!(recorded(&directory, "a.example").0 >= requests + 500);
}

#[test]
fn a_limit_that_refuses_is_an_incident_that_is_kept_with_the_machines_last_minute() {
    let few = "[[sites]]\nhosts = [\"few.example\"]\nlimits = [{ name = \"few\", rate = \"1/d\", burst = 1 }]\n\
        rules = [{ handler = { respond = { body = \"x\" } } }]\n";
    let config = format!("{CONFIG}\n{few}");
    let gateway = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), &config).start();
    await_reading(&gateway);
    await_measured(&gateway, "load1", 0);
    let directory = figures(&gateway);
    let incident = eventually(PATIENCE, "an incident", || {
        // The first is let in, the others are not.
        let _ = gateway.ask(b"GET / HTTP/1.1\r\nHost: few.example\r\nConnection: close\r\n\r\n");
        let store = FigureStore::open_existing(&directory).unwrap();
        store.incidents(0, i64::MAX, 1).unwrap().pop()
    });
    assert_eq!(incident.incident.kind, IncidentKind::Limit);
    assert_eq!(incident.incident.what, "site few.example/few");
    assert!(incident.incident.times > 0 && !incident.incident.why.is_empty());
    assert!(incident.sensors.iter().any(|(name, _)| name == "load1"));
}
