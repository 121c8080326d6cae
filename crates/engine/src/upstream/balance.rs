//! Which server gets a request.
//!
//! Round robin is smooth and weighted: each choice gives every server its weight and takes the
//! total from the chosen one, so that weights 5 and 1 interleave instead of bunching. Least
//! requests compares what is in flight per weight. Weights are scaled by what agents say. Servers that
//! rest, or are to be left alone, are left out. When all are, those that only their agents want left
//! alone share the requests as configured; when there is none either, the one whose rest ends first
//! is tried: a refusal for sure is no better than a try.

use std::rc::Rc;

use config::model::Balance;

use super::Tried;
use super::server::Server;

/// Chooses among the servers not tried yet.
pub(super) fn choose(
    servers: &[Rc<Server>],
    balance: Balance,
    tried: &Tried,
    now_ms: u64,
) -> Option<usize> {
    if servers.len() == 1 {
        return (!tried.contains(0)).then_some(0);
    }
    let open = || {
        servers
            .iter()
            .enumerate()
            .filter(|(index, _)| !tried.contains(*index))
    };
    let by = |fit: &dyn Fn(&Server) -> bool, weigh: Weigh| {
        let fit = open().filter(|(_, server)| fit(server));
        match balance {
            Balance::RoundRobin => round_robin(fit, weigh),
            Balance::LeastRequests => least_requests(fit, weigh),
        }
    };
    by(&|server| server.is_fit(now_ms), Server::share)
        .or_else(|| by(&|server| server.is_rested(now_ms), Server::whole_share))
        .or_else(|| {
            let soonest = open().min_by_key(|(_, server)| server.resting_until_ms());
            soonest.map(|(index, _)| index)
        })
}

/// What a server's share is now.
type Weigh = fn(&Server) -> u64;

fn round_robin<'a>(
    servers: impl Iterator<Item = (usize, &'a Rc<Server>)>,
    weigh: Weigh,
) -> Option<usize> {
    let mut total = 0;
    let mut best: Option<(usize, &Rc<Server>)> = None;
    for (index, server) in servers {
        let weight = i64::try_from(weigh(server)).unwrap_or(i64::MAX / 1_024);
        total += weight;
        server.owed.set(server.owed.get() + weight);
        if best.is_none_or(|(_, best)| server.owed.get() > best.owed.get()) {
            best = Some((index, server));
        }
    }
    let (index, server) = best?;
    server.owed.set(server.owed.get() - total);
    Some(index)
}

fn least_requests<'a>(
    servers: impl Iterator<Item = (usize, &'a Rc<Server>)>,
    weigh: Weigh,
) -> Option<usize> {
    let load =
        |server: &Server| u64::from(server.in_flight.get()) * 100_000_000 / weigh(server).max(1);
    let mut tied: Vec<(usize, &Rc<Server>)> = Vec::new();
    for (index, server) in servers {
        match tied.first().map(|(_, best)| load(best)) {
            Some(best) if load(server) > best => continue,
            Some(best) if load(server) < best => tied.clear(),
            _ => {}
        }
        tied.push((index, server));
    }
    // Ties take turns, or an idle upstream would always ask its first server.
    round_robin(tied.into_iter(), weigh)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::agents::Agents;
    use crate::agents::line::AgentLine;
    use crate::stats::{Health, WorkerStats};
    use crate::upstream::server::InFlight;
    use config::model;

    fn servers(weights: &[u32]) -> Vec<Rc<Server>> {
        let server = |weight: &u32| {
            let address = model::ServerAddress::Tcp("127.0.0.1:1".parse().expect("address"));
            let config = model::Server {
                address,
                weight: *weight,
            };
            Rc::new(Server::new(&config, "app", &WorkerStats::default()))
        };
        weights.iter().map(server).collect()
    }

    fn tried(servers: &[usize]) -> Tried {
        let mut tried = Tried::default();
        servers.iter().for_each(|server| tried.add(*server));
        tried
    }

    #[test]
    fn weights_interleave() {
        let servers = servers(&[5, 1, 1]);
        let order: Vec<_> = (0..7)
            .filter_map(|_| choose(&servers, Balance::RoundRobin, &Tried::default(), 0))
            .collect();
        assert_eq!(order, [0, 0, 1, 0, 2, 0, 0]);
    }

    #[test]
    fn agents_scale_weights_and_have_servers_left_alone() {
        let agents = Agents::default();
        let told = |server: &mut Rc<Server>, place: &str| {
            let told = agents.of("app", &place.into());
            Rc::get_mut(server).expect("ours alone").told = Some(Arc::clone(&told));
            told
        };
        let mut servers = servers(&[1, 2]);
        let first = told(&mut servers[0], "a");
        let second = told(&mut servers[1], "b");
        let chosen = |balance| -> Vec<_> {
            let choose = |_| choose(&servers, balance, &Tried::default(), 0);
            (0..4).filter_map(choose).collect()
        };
        second.note(&AgentLine::new(50, []));
        assert_eq!(chosen(Balance::RoundRobin), [0, 1, 0, 1]);
        first.note(&AgentLine::new(0, []));
        for balance in [Balance::RoundRobin, Balance::LeastRequests] {
            assert_eq!(chosen(balance), [1; 4]);
        }
        // Where all are to be left alone somebody has to answer: all of them, as configured.
        second.note(&AgentLine::new(0, []));
        for balance in [Balance::RoundRobin, Balance::LeastRequests] {
            let twelve = [chosen(balance), chosen(balance), chosen(balance)].concat();
            let by_first = twelve.iter().filter(|server| **server == 0).count();
            assert_eq!(by_first, 4, "{twelve:?}");
        }
        // One that is resting besides is not among them.
        servers[0].note_failure(&upstream(1), 0, false);
        assert_eq!(chosen(Balance::RoundRobin), [1; 4]);
    }

    #[test]
    fn the_least_busy_server_per_weight_is_chosen() {
        let servers = servers(&[1, 2]);
        let _busy: Vec<_> = [0, 1, 1]
            .iter()
            .map(|index| InFlight::new(&servers[*index], 0))
            .collect();
        let _more = InFlight::new(&servers[0], 0);
        assert_eq!(
            choose(&servers, Balance::LeastRequests, &Tried::default(), 0),
            Some(1)
        );
    }

    #[test]
    fn a_tried_server_is_not_tried_again() {
        let servers = servers(&[1, 1]);
        assert_eq!(
            choose(&servers, Balance::RoundRobin, &tried(&[0]), 0),
            Some(1)
        );
        assert_eq!(
            choose(&servers, Balance::RoundRobin, &tried(&[0, 1]), 0),
            None
        );
    }

    #[test]
    fn an_only_server_fails_and_is_asked_on() {
        let worker = WorkerStats::default();
        let config = upstream(3);
        let server = model::Server {
            address: model::ServerAddress::Unix("/run/app.sock".into()),
            weight: 1,
        };
        let server = Server::new(&server, "app", &worker);
        let stats = &worker.upstreams()[0];
        for (fails, health) in [(1, Health::Up), (2, Health::Up), (3, Health::Failing)] {
            server.note_failure(&config, 0, true);
            assert!(stats.is(health) && server.is_fit(0), "{health:?}");
            assert_eq!(stats.fails_in_row.load(Relaxed), fails);
        }
        server.note_success();
        assert!(stats.is(Health::Up) && stats.fails_in_row.load(Relaxed) == 0);
    }

    fn upstream(fails: u32) -> model::Upstream {
        model::Upstream {
            agent_port: None,
            proxy_protocol: model::ProxyVersion::Off,
            tls: None,
            name: "app".into(),
            protocol: model::Protocol::Http,
            servers: Vec::new(),
            keepalive: 1,
            balance: Balance::RoundRobin,
            fails,
            back_off_ms: 100,
            back_off_max_ms: 150,
            tries: 2,
            limits: [].into(),
        }
    }

    #[test]
    fn a_resting_server_is_left_out_until_all_rest() {
        let servers = servers(&[1, 1]);
        let config = upstream(1);
        servers[0].note_failure(&config, 0, false);
        assert!(
            (0..4).all(|_| choose(&servers, Balance::RoundRobin, &Tried::default(), 50) == Some(1))
        );
        servers[1].note_failure(&config, 50, false);
        assert_eq!(
            choose(&servers, Balance::RoundRobin, &Tried::default(), 60),
            Some(0)
        );
        servers[0].note_failure(&config, 60, false);
        assert!(
            !servers[0].is_resting(100),
            "a second failure in the same rest adds nothing"
        );
        let probe = InFlight::new(&servers[0], 0);
        assert!(!servers[0].is_fit(100), "one request at a time finds out");
        drop(probe);
        assert!(servers[0].is_fit(100));
        servers[0].note_failure(&config, 100, false);
        assert!(servers[0].is_resting(249) && !servers[0].is_resting(250));
        servers[0].note_success();
        assert!(!servers[0].is_resting(101));
    }
}
