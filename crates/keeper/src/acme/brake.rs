//! How many orders may leave in how short a time, whatever is wanted.
//!
//! The idea: ten in ten seconds for each account, and for each domain that somebody has registered,
//! so that one who has thousands of names spends neither an authority's patience nor its limits for
//! others. Time comes in. What a registered domain is says the public suffix list, as it was when
//! this program was made; authorities count by it, too.

use std::collections::{HashMap, VecDeque};

use psl::{List, Psl};

/// Orders within [`SPAN_S`].
const ORDERS_MAX: usize = 10;
/// The stretch of time that is looked at, in seconds.
const SPAN_S: i64 = 10;
/// Accounts and domains that are remembered; those of the last ten seconds alone count.
const KEYS_MAX: usize = 100_000;

/// Remembers the orders of the last ten seconds.
#[derive(Debug, Default)]
pub(super) struct Brake {
    orders: HashMap<String, VecDeque<i64>>,
}

impl Brake {
    /// Lets an order pass, or tells when the same question may be answered with yes.
    pub(super) fn pass(&mut self, account: &str, names: &[&String], now_s: i64) -> Result<(), i64> {
        let mut keys: Vec<String> = names.iter().map(|name| registered(name).into()).collect();
        keys.push(format!("account {account}"));
        keys.sort_unstable();
        keys.dedup();
        let full = keys.iter().filter_map(|key| self.full_until(key, now_s));
        if let Some(until_s) = full.max() {
            return Err(until_s);
        }
        if self.orders.len() >= KEYS_MAX {
            self.orders
                .retain(|_, times| times.back().is_some_and(|last| last + SPAN_S > now_s));
        }
        for key in keys {
            let times = self.orders.entry(key).or_default();
            if times.len() >= ORDERS_MAX {
                times.pop_front();
            }
            times.push_back(now_s);
        }
        Ok(())
    }

    /// When the oldest of as many orders as may be is long enough ago.
    fn full_until(&self, key: &str, now_s: i64) -> Option<i64> {
        let times = self.orders.get(key)?;
        let until_s = times.front()? + SPAN_S;
        (times.len() >= ORDERS_MAX && until_s > now_s).then_some(until_s)
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
                let within = |at_s: &i64| (*from_s..from_s + SPAN_S).contains(at_s);
                let of_account = passed.iter().filter(|(at, its, _)| within(at) && its == account);
                prop_assert!(of_account.count() <= ORDERS_MAX);
                let of_domain = passed.iter().filter(|(at, _, its)| within(at) && its == domain);
                prop_assert!(of_domain.count() <= ORDERS_MAX);
            }
        }
    }
}
