//! HTTP/1.1 as clients and the servers behind see it, and clients that are slow, many or odd.

mod admission;
mod exchanges;
mod garden;
mod idle;
mod mutations;
mod refused_clients;
mod replies;
mod slow_clients;
mod steady_clients;
mod vectors;
