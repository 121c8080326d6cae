//! Limits: models, properties, threads and simulations.

mod controllers;
mod fleet;
mod keys;
mod leases;
mod ledger;
mod many_tenants;
mod model;
mod naive;
mod records;
mod remedies;
mod reserves;
mod setting;
mod threads;
