//! How many orders may leave in how short a time, whatever is wanted.
//!
//! The idea: ten in ten seconds for each account, and for each domain that somebody has registered,
//! so that one who has thousands of names spends neither an authority's patience nor its limits for
//! others. Time comes in. What a registered domain is says the public suffix list, as it was when
//! this program was made; authorities count by it, too.

use std::collections::{HashMap, VecDeque};

use psl::{List, Psl};

/// Orders of an account or a domain within ten seconds.
const TEN_IN_TEN: Pace = Pace {
    orders_max: 10,
    span_s: 10,
};
/// Whose orders are remembered; those of the last span alone count.
const KEYS_MAX: usize = 100_000;

/// So many orders in so long a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub(super) orders_max: usize,
    pub(super) span_s: i64,
}

/// Remembers whose orders left when, as far back as their pace looks.
#[derive(Debug, Default)]
pub(super) struct Brake {
    orders: HashMap<String, (Pace, VecDeque<i64>)>,
}

impl Brake {
    /// Lets an order pass, or tells when the same question may be answered with yes.
    pub(super) fn pass(&mut self, account: &str, names: &[&String], now_s: i64) -> Result<(), i64> {
        let mut keys: Vec<String> = names.iter().map(|name| registered(name).into()).collect();
        keys.push(format!("account {account}"));
        keys.sort_unstable();
        keys.dedup();
        let full = keys
            .iter()
            .map(|key| self.full_until(key, TEN_IN_TEN, now_s));
        if let Some(until_s) = full.flatten().max() {
            return Err(until_s);
        }
        for key in keys {
            self.note(key, TEN_IN_TEN, now_s);
        }
        Ok(())
    }

    /// Notes an order, none of later ones.
    pub(super) fn note(&mut self, key: String, pace: Pace, now_s: i64) {
        if self.orders.len() >= KEYS_MAX {
            self.orders.retain(|_, (pace, times)| {
                times.back().is_some_and(|last| last + pace.span_s > now_s)
            });
        }
        let (known, times) = self.orders.entry(key).or_insert((pace, VecDeque::new()));
        *known = pace;
        while times.len() >= pace.orders_max {
            times.pop_front();
        }
        times.push_back(now_s);
    }

    /// When the oldest of as many orders as may be is long enough ago; `None`: it is already.
    pub(super) fn full_until(&self, key: &str, pace: Pace, now_s: i64) -> Option<i64> {
        let (_, times) = self.orders.get(key)?;
        let first = times.len().checked_sub(pace.orders_max)?;
        let until_s = times.get(first)? + pace.span_s;
        (until_s > now_s).then_some(until_s)
    }
}

/// The domain that somebody has registered, above a name; a name without one is its own.
pub(super) fn registered(name: &str) -> &str {
    let domain = List.domain(name.as_bytes());
    let domain = domain.and_then(|domain| std::str::from_utf8(domain.as_bytes()).ok());
    domain.unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_registered_domain_is_what_the_public_suffix_list_says() {
        let cases = [
            ("example.com", "example.com"),
            ("a.b.example.com", "example.com"),
            ("*.example.com", "example.com"),
            ("www.example.jp", "example.jp"),
            ("www.example.co.jp", "example.co.jp"),
            ("www.example.com.au", "example.com.au"),
            // What a guess by labels gets wrong.
            ("shop.example.kawasaki.jp", "shop.example.kawasaki.jp"),
            ("www.city.kawasaki.jp", "city.kawasaki.jp"),
            ("www.example.pvt.k12.ma.us", "example.pvt.k12.ma.us"),
            // Each of these is somebody's own.
            ("a.github.io", "a.github.io"),
            ("b.a.github.io", "a.github.io"),
            ("www.xn--85x722f.xn--55qx5d.cn", "xn--85x722f.xn--55qx5d.cn"),
            ("co.jp", "co.jp"),
            ("localhost", "localhost"),
            ("192.0.2.7", "2.7"),
            ("", ""),
            (".", "."),
            ("..", ".."),
        ];
        for (name, expected) in cases {
            assert_eq!(registered(name), expected, "{name}");
        }
    }

    #[test]
    fn the_eleventh_order_of_a_domain_waits_and_another_domain_of_another_account_does_not() {
        let mut brake = Brake::default();
        let names: Vec<String> = (0..11).map(|i| format!("w{i}.example.com")).collect();
        for name in &names[..10] {
            assert_eq!(brake.pass("le", &[name], 100), Ok(()));
        }
        assert_eq!(brake.pass("le", &[&names[10]], 100), Err(110));
        assert_eq!(brake.pass("other", &[&names[10]], 109), Err(110));
        let elsewhere = "example.org".to_owned();
        assert_eq!(brake.pass("le", &[&elsewhere], 100), Err(110));
        assert_eq!(brake.pass("other", &[&elsewhere], 100), Ok(()));
        assert_eq!(brake.pass("le", &[&names[10]], 110), Ok(()));
    }

    proptest! {
        #[test]
        fn no_ten_seconds_see_more_than_ten_orders_of_an_account_or_a_domain(
            orders in proptest::collection::vec((0_i64..4, 0..2_usize, 0..3_usize), 1..300),
        ) {
            let domains: Vec<String> = (0..3).map(|i| format!("w.example{i}.com")).collect();
            let (mut brake, mut now_s, mut passed) = (Brake::default(), 0, Vec::new());
            for (gap_s, account, domain) in orders {
                now_s += gap_s / 3;
                let accounts = ["a", "b"];
                if brake.pass(accounts[account], &[&domains[domain]], now_s).is_ok() {
                    passed.push((now_s, account, domain));
                }
            }
            for (from_s, account, domain) in &passed {
                let within = |at_s: &i64| (*from_s..from_s + TEN_IN_TEN.span_s).contains(at_s);
                let of_account = passed.iter().filter(|(at, its, _)| within(at) && its == account);
                prop_assert!(of_account.count() <= TEN_IN_TEN.orders_max);
                let of_domain = passed.iter().filter(|(at, _, its)| within(at) && its == domain);
                prop_assert!(of_domain.count() <= TEN_IN_TEN.orders_max);
            }
        }
    }
}
