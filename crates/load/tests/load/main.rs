//! The generator over real sockets: what it counts is what its server did. And servers looked at.

mod hostile;
mod http2;
mod plain;
mod server;
mod tls;

use std::time::Duration;

use load::client::{Arrivals, Live, Outcome, Pace, Plan, run};

/// So many requests a second, evenly.
fn constant(per_second: f64) -> Pace {
    Pace::Open {
        per_second,
        arrivals: Arrivals::Constant,
        ramp: Duration::ZERO,
    }
}

fn load(plan: &Plan) -> Outcome {
    run(plan, &Live::new()).expect("the plan can be run")
}
