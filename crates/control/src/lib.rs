//! What the running gateway answers to an operator who asks over its control socket.
//!
//! The idea: an answer is a type, and its JSON is made of the type's fields in their order. The
//! server fills them and knows no JSON. How a machine is measured, what a limit is, and how a
//! question is read is not known here.

#![forbid(unsafe_code)]

mod agent;
mod certificates;
mod fleet;
mod handshakes;
mod json;
mod limits;
mod named;
mod pools;
mod recorder;
mod sensors;
mod snapshot;
mod status;
mod top;

pub use agent::Agent;
pub use certificates::{
    AcmeProcess, Certificate, CertificateOrder, Certificates, Keeper, OnDemand,
};
pub use fleet::{Fleet, FleetLease, FleetMachine, FleetMachines, FleetRate};
pub use handshakes::{HandshakeFailure, Handshakes, TenantHandshakes};
pub use json::json;
pub use limits::{Concurrent, Key, Limit};
pub use named::Named;
pub use pools::PoolStanding;
pub use recorder::{Recorder, RecorderSends, UntoldAlert};
pub use sensors::{Advice, Missing, Sensor, Sensors};
pub use snapshot::Snapshot;
pub use status::{
    Directory, Group, Map, Phase, Pool, Programs, RefusedReload, Replies, RequestClass,
    ScriptInShadow, Scripts, SetAside, ShedRule, ShedTenant, Site, SlowQuestion, Status,
    Stragglers, Suspended, Time, Times, Upstream, Worker,
};
pub use top::TenantNow;
