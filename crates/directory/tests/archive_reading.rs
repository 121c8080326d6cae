//! What is read of the archive in a real PostgreSQL.

use std::collections::BTreeMap;

use ipc::archive::question::{
    ARCHIVE_DAYS, ArchiveFound, ArchiveQuestion, ArchiveRead, DURATIONS_BYTES_MAX, INCIDENTS_MAX,
    IncidentsWanted, NAMES_MAX, SAMPLES_MAX, SITES_MAX, SamplesWanted, SitesWanted,
};
use ipc::archive::{ArchiveRows, ArchiveSaid, ArchivedSample, ArchivedSite, SITE_NUMBERS};
use testkit::{PATIENCE, Postgres, a_postgres};

use super::archive::{archive, now_s, rows};
use crate::asking::run;

/// All there is of the hour before, in two parts.
fn question(now_s: i64, machine: Option<&str>) -> ArchiveQuestion {
    let (from_s, to_s) = (now_s - 3_540, now_s + 60);
    ArchiveQuestion {
        id: 7,
        machine: machine.map(str::to_owned),
        from_s,
        to_s,
        samples: Some(SamplesWanted {
            summed_max: 10,
            step_s: 1_800,
            ..SamplesWanted::default()
        }),
        sites: Some(SitesWanted {
            edges: vec![from_s, from_s + 1_800, to_s],
            ..SitesWanted::default()
        }),
        incidents: Some(IncidentsWanted::default()),
    }
}

fn read(server: &Postgres, question: &ArchiveQuestion) -> ArchiveRead {
    assert!(question.is_bounded());
    let mut read = ArchiveRead::TooMuch;
    run(async { read = archive(server, "web1").read(question).await });
    read
}

/// What is read in time: this machine may stand still for longer than a question may take.
fn read_in_time(server: &Postgres, question: &ArchiveQuestion) -> ArchiveRead {
    testkit::eventually(PATIENCE, "an answer", || match read(server, question) {
        ArchiveRead::Down(_) | ArchiveRead::Late => None,
        read => Some(read),
    })
}

fn found(server: &Postgres, question: &ArchiveQuestion) -> ArchiveFound {
    match read_in_time(server, question) {
        ArchiveRead::Found(found) => *found,
        other => panic!("{other:?}"),
    }
}

fn write(server: &Postgres, machine: &str, rows: &ArchiveRows) {
    run(async {
        let said = archive(server, machine).write(rows).await;
        assert_eq!(said, ArchiveSaid::Written, "{machine}");
    });
}

/// The first number of sites' parts, by machine.
fn requests(found: &ArchiveFound) -> Vec<i64> {
    found.sites.iter().map(|it| it.numbers[0]).collect()
}

#[test]
fn all_machines_come_to_their_sum_and_each_to_its_own() {
    let Some(server) = a_postgres() else { return };
    let now_s = now_s();
    for (machine, count) in [("web1", 1), ("web2", 20)] {
        write(&server, machine, &rows(now_s, 60, count));
    }
    for (machine, sum, heard) in [(None, 630, 2), (Some("web2"), 600, 1), (Some("none"), 0, 0)] {
        let found = found(&server, &question(now_s, machine));
        let names: Vec<_> = found.machines.iter().map(|it| it.name.as_str()).collect();
        assert_eq!((&*found.own, names), ("web1", vec!["web1", "web2"]));
        assert!(
            found
                .machines
                .iter()
                .all(|it| (it.heard_s - now_s).abs() < 600)
        );
        let parts = if heard == 0 { vec![] } else { vec![sum, sum] };
        assert_eq!(requests(&found), parts, "{machine:?}");
        let bytes = found.sites.iter().map(|it| it.durations.len());
        assert_eq!(bytes.sum::<usize>(), heard * 60 * (4 + 3));
        // Parts begin where a machine's own do, the first where the question does.
        let is_begin = |at_s: i64| at_s % 1_800 == 0 || at_s == now_s - 3_540;
        assert!(found.samples.iter().all(|it| is_begin(it.at_s)));
        let samples = |place: usize| found.samples.iter().map(move |it| it.sums[place]);
        let sums = [0, 1].map(|place| samples(place).sum::<f64>());
        assert_eq!(sums, [60.0 * heard as f64, 2.0 * sum as f64], "{machine:?}");
        assert!(samples(2).all(|it| it == 0.5) && samples(3).all(|it| it == 2.0));
        let incidents = found
            .incidents
            .iter()
            .map(|(machine, it)| (&**machine, it.times));
        let all = [("web1", 1), ("web2", 20)];
        let of = all
            .into_iter()
            .filter(|(name, _)| machine.is_none_or(|it| it == *name));
        assert_eq!(incidents.collect::<Vec<_>>(), of.collect::<Vec<_>>());
    }
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|it| (*it).to_owned()).collect()
}

#[test]
fn figures_that_are_asked_for_are_those_that_come() {
    let Some(server) = a_postgres() else { return };
    let now_s = now_s();
    let mut names = [
        "load1",
        "tenant.a.cpu",
        "tenant.b.cpu",
        "tenant.a.b.cpu",
        "limit.tenant a/few\twaited\t",
        "limit.tenant ab/few\twaited\t",
        "limit.tenant a",
    ];
    names.sort_unstable();
    let sample = |name: &str| ArchivedSample {
        name: name.into(),
        at_s: now_s,
        sums: [1.0; 4],
    };
    let rows = ArchiveRows {
        samples: names.map(sample).into(),
        ..ArchiveRows::default()
    };
    for machine in ["web1", "web2"] {
        write(&server, machine, &rows);
    }
    let asked = |begin: &[&str], of: Option<&[&str]>, summed_max: u32| SamplesWanted {
        begin: texts(begin),
        of: of.map(texts),
        summed_max,
        step_s: 60,
        ..SamplesWanted::default()
    };
    let mut of_machines = asked(&[], None, 9);
    of_machines.unlike = texts(&["tenant.", "limit."]);
    let mut filtered = asked(&["tenant."], None, 9);
    filtered.filter = "a.c".into();
    let of_tenants = ["tenant.a.b.cpu", "tenant.a.cpu", "tenant.b.cpu"];
    let of_limits = ["limit.tenant a", "limit.tenant a/few\twaited\t"];
    for (wanted, expected, summed) in [
        (asked(&[], None, 9), &names[..], 7),
        (of_machines, &["load1"], 1),
        (asked(&["tenant."], None, 1), &of_tenants, 1),
        (filtered, &["tenant.a.cpu"], 1),
        (asked(&[], Some(&["tenant.a"]), 9), &["tenant.a.cpu"], 1),
        (asked(&[], Some(&["limit.tenant a"]), 9), &of_limits, 2),
        (asked(&[], Some(&[]), 9), &[], 0),
    ] {
        let mut question = question(now_s, None);
        question.samples = Some(wanted.clone());
        let found = found(&server, &question);
        assert_eq!(found.names, expected, "{wanted:?}");
        assert_eq!(found.samples.len(), summed, "{wanted:?}");
    }
}

#[test]
fn sites_that_are_asked_for_are_those_that_come() {
    let Some(server) = a_postgres() else { return };
    let now_s = now_s();
    let site = |(site, requests): (&str, i64)| ArchivedSite {
        site: site.into(),
        at_s: now_s,
        numbers: [requests; SITE_NUMBERS],
        durations: Vec::new(),
    };
    let rows = ArchiveRows {
        sites: [("a.example", 1 << 48), ("b.example", 1)].map(site).into(),
        ..ArchiveRows::default()
    };
    for machine in ["web1", "web2"] {
        write(&server, machine, &rows);
    }
    for (names, filter, expected) in [
        (None, "", vec![1 << 49, 2]),
        (None, "b.ex", vec![2]),
        (Some(texts(&["a.example"])), "", vec![1 << 49]),
        (Some(vec![]), "", vec![]),
    ] {
        let mut question = question(now_s, None);
        if let Some(sites) = &mut question.sites {
            (sites.names, sites.filter) = (names, filter.into());
        }
        assert_eq!(requests(&found(&server, &question)), expected, "{filter}");
    }
}

#[test]
fn a_broken_machine_harms_no_other() {
    let Some(server) = a_postgres() else { return };
    let now_s = now_s();
    write(&server, "web1", &rows(now_s, 60, 1));
    let sound = found(&server, &question(now_s, None));
    write(&server, "broken", &ArchiveRows::default());
    let wrong = ["1.7e308", "'NaN'", "'Infinity'", "'-Infinity'", "-1.7e308"];
    let columns = ["count", "sum", "low", "high"];
    for (place, (column, wrong)) in columns
        .iter()
        .flat_map(|column| wrong.map(|it| (column, it)))
        .enumerate()
    {
        // Two in a part, whose sum would be none.
        let values = columns.map(|it| if it == *column { wrong } else { "1" });
        let at = [0, 1].map(|more| now_s - 60 * place as i64 - more);
        let values = at.map(|at| format!("('broken', 'load1', {at}, {})", values.join(", ")));
        server.sql(&format!(
            "INSERT INTO nagaya_samples VALUES {}",
            values.join(", ")
        ));
    }
    for (place, wrong) in [-1, i64::MIN, i64::MAX].into_iter().enumerate() {
        for number in 0..SITE_NUMBERS {
            let mut numbers = [1; SITE_NUMBERS];
            numbers[number] = if number == 4 { i64::MIN } else { wrong };
            let numbers = numbers.map(|it| format!("'{it}'")).join(", ");
            let at = now_s - 60 * number as i64 - place as i64 - 1;
            server.sql(&format!(
                "INSERT INTO nagaya_sites VALUES ('broken', 'a.example', {at}, '\\x01', {numbers})"
            ));
        }
    }
    // Durations that say nothing, and more of them than a minute can have.
    for (place, bytes) in [0, 1, 20_000, DURATIONS_BYTES_MAX].into_iter().enumerate() {
        server.sql(&format!(
            "INSERT INTO nagaya_sites VALUES ('broken', 'a.example', {}, decode(repeat('00', {bytes}), 'hex'), {})",
            now_s - 60 * place as i64 - 30,
            ["0"; SITE_NUMBERS].join(", ")
        ));
    }
    let beside = found(&server, &question(now_s, None));
    let by_time = |found: &ArchiveFound| {
        let mut samples = found.samples.clone();
        samples.sort_by_key(|it| it.at_s);
        samples
    };
    assert_eq!(by_time(&beside), by_time(&sound));
    assert_eq!(beside.sites, sound.sites);
    assert!(!beside.cut.durations);
}

#[test]
fn durations_that_are_too_long_are_left_out() {
    let Some(server) = a_postgres() else { return };
    let now_s = now_s();
    write(&server, "web1", &rows(now_s, 60, 1));
    // As long as one may be, of as many as there must be.
    let sql = format!(
        "INSERT INTO nagaya_sites SELECT 'web' || n, site, at, decode(repeat('00', 12288), 'hex'), {} \
        FROM nagaya_sites, generate_series(2, {}) AS n",
        ["0"; SITE_NUMBERS].join(", "),
        DURATIONS_BYTES_MAX / 12_288 / 60 + 2
    );
    server.sql(&sql);
    let left_out = found(&server, &question(now_s, None));
    assert!(left_out.cut.durations && left_out.sites.iter().all(|it| it.durations.is_empty()));
    assert_eq!(requests(&left_out), [30, 30]);
    // The month that is kept, at a time.
    let mut days = question(now_s, None);
    days.samples = None;
    if let Some(sites) = &mut days.sites {
        let edges = (0..=i64::from(ARCHIVE_DAYS)).rev();
        sites.edges = edges.map(|day| now_s + 60 - 86_400 * day).collect();
    }
    assert_eq!(requests(&found(&server, &days)), [60]);
}

#[test]
fn of_what_is_too_much_the_busiest_come_and_none_in_part() {
    let Some(server) = a_postgres() else { return };
    let now_s = now_s();
    write(&server, "web1", &ArchiveRows::default());
    let question = question(now_s, None);
    // Of each site two parts: the later its name the more, but for the first.
    server.sql(&format!(
        "INSERT INTO nagaya_sites SELECT 'web1', 's' || n, {} + 1800 * part, '\\x0000', \
        CASE n WHEN 1 THEN 1000000 ELSE n END, {} FROM generate_series(1, {SITES_MAX}) AS n, generate_series(0, 1) AS part",
        question.from_s,
        ["0"; SITE_NUMBERS - 1].join(", ")
    ));
    let mut of_sites = question.clone();
    (of_sites.samples, of_sites.incidents) = (None, None);
    let some = found(&server, &of_sites);
    assert!(some.cut.sites && !some.cut.durations);
    assert_eq!(some.sites.len(), SITES_MAX);
    let told: Vec<_> = some.sites.iter().take(2).map(|it| &*it.site).collect();
    assert_eq!(told, ["s1", "s1"]);
    for it in &some.sites {
        assert!(it.numbers[0] > SITES_MAX as i64 / 2 && it.durations.len() == 6);
    }
    // So many parts of each figure that the last one that begins to fit does not.
    let (parts, names) = (719, SAMPLES_MAX / 719);
    server.sql(&format!(
        "INSERT INTO nagaya_samples SELECT 'web1', 'busy.' || n, {} + second, 1, \
        CASE n WHEN 1 THEN 1000000 ELSE n END, 1, 1 \
        FROM generate_series(1, {names} + 1) AS n, generate_series(1, {parts}) AS second",
        question.from_s
    ));
    let mut of_figures = question;
    (of_figures.sites, of_figures.incidents) = (None, None);
    if let Some(samples) = &mut of_figures.samples {
        (samples.step_s, samples.summed_max) = (1, u32::MAX);
    }
    let some = found(&server, &of_figures);
    assert!(some.cut.samples && !some.cut.names);
    let mut told = BTreeMap::<&str, usize>::new();
    for it in &some.samples {
        *told.entry(&it.name).or_default() += 1;
    }
    assert_eq!(told.len(), names);
    assert!(told.contains_key("busy.1") && !told.contains_key("busy.2"));
    assert!(told.values().all(|it| *it == parts));
    // More figures than are looked at.
    server.sql(&format!(
        "INSERT INTO nagaya_samples SELECT 'web1', 'n' || n, {}, 1, 1, 1, 1 FROM generate_series(1, {NAMES_MAX}) AS n",
        of_figures.from_s
    ));
    if let Some(samples) = &mut of_figures.samples {
        samples.summed_max = 1;
    }
    let some = found(&server, &of_figures);
    assert!(some.cut.names && !some.cut.samples);
    assert_eq!((some.names.len(), some.samples.len()), (NAMES_MAX, parts));
}

#[test]
fn incidents_that_concern_others_crowd_nobodys_out() {
    let Some(server) = a_postgres() else { return };
    let now_s = now_s();
    let mut quiet = rows(now_s, 1, 1);
    quiet.incidents[0].at_s -= 1_800;
    write(&server, "web1", &quiet);
    server.sql(&format!(
        "INSERT INTO nagaya_incidents SELECT 'web1', {now_s} - n % 60, 0, 'tenant noisy/' || n, 1, '{{}}', \
        ARRAY['tenant noisy'] FROM generate_series(1, {INCIDENTS_MAX}) AS n"
    ));
    let few = Some("tenant a/few".to_owned());
    for (owners, what, filter, expected) in [
        (None, None, "", (INCIDENTS_MAX, true)),
        (Some("tenant a"), None, "", (1, false)),
        (Some("site a.example"), None, "", (1, false)),
        (Some("tenant b"), None, "", (0, false)),
        (None, few.clone(), "", (1, false)),
        (None, None, "a/f", (1, false)),
    ] {
        let mut question = question(now_s, None);
        question.incidents = Some(IncidentsWanted {
            owners: owners.map(|it| vec![it.to_owned()]),
            what: what.clone(),
            filter: filter.into(),
        });
        let found = found(&server, &question);
        let told = (found.incidents.len(), found.cut.incidents);
        assert_eq!(told, expected, "{owners:?} {what:?} {filter}");
    }
}

#[test]
fn one_that_is_away_or_locked_is_said_to_be_soon() {
    let Some(mut server) = a_postgres() else {
        return;
    };
    let now_s = now_s();
    write(&server, "web1", &rows(now_s, 1, 1));
    std::thread::scope(|scope| {
        let holder = "FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        scope.spawn(|| {
            server.sql(
                "DO $$ BEGIN LOCK TABLE nagaya_samples; PERFORM pg_sleep(300); \
                EXCEPTION WHEN query_canceled THEN NULL; END $$",
            )
        });
        testkit::eventually(PATIENCE, "the lock", || {
            (server.sql(&format!("SELECT count(*) {holder}")) == "1").then_some(())
        });
        let locked = read(&server, &question(now_s, None));
        server.sql(&format!("SELECT pg_cancel_backend(pid) {holder}"));
        // Down is one that does not connect in time, as where this machine stands still.
        let is_found = matches!(locked, ArchiveRead::Found(_) | ArchiveRead::TooMuch);
        assert!(!is_found, "{locked:?}");
    });
    server.stop();
    let away = read(&server, &question(now_s, None));
    assert!(matches!(away, ArchiveRead::Down(_)), "{away:?}");
}
