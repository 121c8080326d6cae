//! HTTP/1.1 as clients and the servers behind see it, and clients that are slow, many or odd.

mod admission;
mod exchanges;
mod garden;
mod mutations;
mod refused_clients;
mod replies;
mod steady_clients;
mod vectors;
