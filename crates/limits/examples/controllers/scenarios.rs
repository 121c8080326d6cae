//! The experiments: what happens to the back end, and what is offered to it.

use super::simulator::{Backend, Overload, Scenario};

/// Twenty at once, 50 ms each: 400 requests a second.
pub(crate) const USUAL: Backend = Backend {
    capacity: 20,
    service_ms: 50.0,
    sigma: 0.0,
    away_ms: 0.0,
    overload: Overload::Collapses,
};

/// When the back end changes, and when it changes back.
pub(crate) const CHANGE_S: u64 = 30;
pub(crate) const RETURN_S: u64 = 60;

fn scenario(
    name: &'static str,
    arrivals_per_second: f64,
    then: Backend,
    first: Backend,
) -> Scenario {
    let phases = vec![(0, first), (CHANGE_S, then), (RETURN_S, first)];
    Scenario {
        name,
        seconds: 90,
        arrivals_per_second,
        queue: 40,
        phases,
    }
}

/// All of them, in the order of the table.
pub(crate) fn all() -> Vec<Scenario> {
    let sharing = Backend {
        overload: Overload::Shares,
        ..USUAL
    };
    let spread = Backend {
        sigma: 1.0,
        ..USUAL
    };
    let half = |backend: Backend| Backend {
        capacity: backend.capacity / 2,
        ..backend
    };
    let later = |backend: Backend| Backend {
        away_ms: backend.away_ms + 100.0,
        ..backend
    };
    let slower = Backend {
        service_ms: 100.0,
        ..USUAL
    };
    vec![
        scenario("fixed capacity, 2 x offered", 800.0, USUAL, USUAL),
        scenario("fixed capacity, 10 x offered", 4_000.0, USUAL, USUAL),
        scenario(
            "capacity halved and back, collapses",
            800.0,
            half(USUAL),
            USUAL,
        ),
        scenario(
            "capacity halved and back, shares",
            800.0,
            half(sharing),
            sharing,
        ),
        scenario(
            "capacity halved and back, at 80 %",
            320.0,
            half(USUAL),
            USUAL,
        ),
        scenario("every request twice as long", 800.0, slower, USUAL),
        scenario(
            "+100 ms on every reply, at 50 %",
            200.0,
            later(USUAL),
            USUAL,
        ),
        scenario(
            "+100 ms on every reply, at 80 %",
            320.0,
            later(USUAL),
            USUAL,
        ),
        scenario(
            "+100 ms on every reply, 2 x offered",
            800.0,
            later(USUAL),
            USUAL,
        ),
        scenario("lognormal, 2 x offered", 800.0, spread, spread),
        scenario("lognormal, halved and back", 800.0, half(spread), spread),
        scenario("lognormal, at 80 %", 320.0, spread, spread),
        scenario("lognormal, +100 ms, at 50 %", 200.0, later(spread), spread),
        few(),
    ]
}

/// A tenant with five requests a second, at which no limit should ever be felt; nothing waits.
pub(crate) fn few() -> Scenario {
    let page = Backend {
        sigma: 1.0,
        service_ms: 150.0,
        ..USUAL
    };
    let later = Backend {
        away_ms: 100.0,
        ..page
    };
    let phases = vec![(0, page), (CHANGE_S, later), (RETURN_S, page)];
    Scenario {
        name: "5 requests a second",
        seconds: 300,
        arrivals_per_second: 5.0,
        queue: 0,
        phases,
    }
}
