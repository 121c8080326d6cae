//! How a server ends: it finishes what is under way, alone or beside the one that has taken over.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ipc::server::{HeldPermits, LinkSender, ToServer, ToSupervisor};

use super::receiver::LinkReceiver;
use super::{END_LOOK, ServerThreads};
use crate::access_log::queue::Order;
use crate::permits::elsewhere;
use crate::worker::commands::Command;

/// How long the last access records may take to be written.
const LAST_RECORDS_MAX: Duration = Duration::from_secs(2);
/// Beyond the drain's own deadline: closing and ending.
const END_MARGIN: Duration = Duration::from_secs(2);
/// How long an ending server waits for the files of scripts' `Cache`.
const KEPT_FILES_MAX: Duration = Duration::from_secs(2);
/// How often a server that retires tells what is held of limits.
const HELD_LOOK: Duration = Duration::from_millis(100);

impl ServerThreads {
    /// As [`Self::drain`], where another server has taken over: who waits for its next request may
    /// still send one, since it may be on its way.
    pub(super) fn retire(mut self, receiver: &mut LinkReceiver, sender: &LinkSender) {
        // Without a socket no thread is started.
        let _ = self.control.replace(None, &self.shared);
        self.shared.process.spares_idle.store(true, Relaxed);
        self.reports = Some(sender.clone());
        self.drain(receiver);
    }

    /// Lets the workers finish, then the writer of their records.
    pub(super) fn drain(self, receiver: &mut LinkReceiver) {
        // What still waits in the kernel is for the workers, each of which empties its own.
        self.watched.retain(&Arc::from([]));
        for worker in 0..self.threads.len() {
            self.shared.peers.tell(worker, Command::Drain);
        }
        self.wait_for(&self.threads, self.drain_max + END_MARGIN, receiver);
        self.shared.scripts.keep_files(KEPT_FILES_MAX);
        self.shared.access_log.close();
        let writer = std::slice::from_ref(&self.log_writer);
        self.wait_for(writer, LAST_RECORDS_MAX, receiver);
        self.shared.access_log.say_losses();
    }

    /// Waits until the threads have ended, but not for ever. Meanwhile hands on the logs the
    /// supervisor opens: the first record for one may be of what ends now.
    fn wait_for(
        &self,
        threads: &[JoinHandle<()>],
        patience: Duration,
        receiver: &mut LinkReceiver,
    ) {
        let until = Instant::now() + patience;
        let mut look = Instant::now();
        while !threads.iter().all(JoinHandle::is_finished) && Instant::now() < until {
            if look <= Instant::now() {
                look += HELD_LOOK;
                self.report_held();
            }
            match receiver.receive_within(END_LOOK) {
                Ok(Some(Ok(ToServer::LogFile { path, result }))) => {
                    self.order(Order::Opened { path, result });
                }
                Ok(Some(Ok(ToServer::Programs { links }))) => self.use_programs(links),
                Ok(Some(Ok(ToServer::Reopen { logs }))) => self.order(Order::Reopen(logs)),
                Ok(Some(Ok(ToServer::Drain))) => self.end_idle(),
                Ok(_) => {}
                // The supervisor has gone: its silence is not one to wait in.
                Err(_) => {
                    self.end_idle();
                    std::thread::sleep(END_LOOK);
                }
            }
        }
    }

    /// Takes out what requests of an earlier server hold.
    pub(super) fn hear_held(&mut self, by: u32, held: Vec<HeldPermits>) {
        if let Some(generation) = self.shared.generation() {
            let limits = (&*self.shared.limits, &generation.limits);
            self.elsewhere.hear(limits, by, held);
        }
    }

    /// Tells what is still held of limits, for the server that has taken over.
    fn report_held(&self) {
        if let Some(sender) = &self.reports {
            let held = HeldPermits::bounded(elsewhere::held(&self.shared.limits));
            // Where nobody listens nobody needs it.
            let _ = sender.send(&ToSupervisor::Held { held });
        }
    }

    fn end_idle(&self) {
        self.shared.process.spares_idle.store(false, Relaxed);
    }
}
