//! Numbers of requests that differ from one sending to the next: hosts and paths of which there are many.
//!
//! The idea: bytes stay made once; where a request has a number, its digits are written over in one copy that a
//! thread has.

use super::plan::{NUMBER_DIGITS, Numbers, Request};

/// Numbers are below this: more have no room.
const NUMBERS: u64 = 10_u64.pow(NUMBER_DIGITS as u32);

/// What a thread draws numbers from, and where it puts them.
#[derive(Debug)]
pub(crate) struct NumberSource {
    random: fastrand::Rng,
    next: u64,
    threads: u64,
    bytes: Vec<u8>,
}

impl NumberSource {
    /// That of one of some threads; what it draws by Zipf's law is the same in every run.
    pub(crate) fn new(thread: usize, threads: usize, first: u64) -> Self {
        Self {
            random: fastrand::Rng::with_seed(thread as u64),
            next: first.wrapping_add(thread as u64),
            threads: threads as u64,
            bytes: Vec::new(),
        }
    }

    /// The next number for a request; 0 where it has none.
    #[inline]
    pub(crate) fn draw(&mut self, request: &Request) -> u64 {
        let Some(numbered) = &request.numbered else {
            return 0;
        };
        match numbered.numbers {
            Numbers::Rising => {
                let number = self.next % NUMBERS;
                self.next = self.next.wrapping_add(self.threads);
                number
            }
            // Logarithms of places are spread evenly where their shares are inverse to them.
            Numbers::Zipf(count) => {
                let place = (f64::from(count) + 1.0).powf(self.random.f64());
                (place as u64).clamp(1, u64::from(count.max(1))) - 1
            }
        }
    }

    /// A request's bytes with its number.
    #[inline]
    pub(crate) fn bytes<'b>(&'b mut self, request: &'b Request, number: u64) -> &'b [u8] {
        let Some(numbered) = &request.numbered else {
            return &request.bytes;
        };
        self.bytes.clear();
        self.bytes.extend_from_slice(&request.bytes);
        let digits = self.bytes.iter_mut().skip(numbered.at).take(NUMBER_DIGITS);
        let mut rest = number;
        for digit in digits.rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::Numbers;
    use super::super::request::RequestBuilder;
    use super::*;

    fn request(numbers: Numbers) -> Request {
        let builder = RequestBuilder {
            headers: vec![("Host".to_owned(), "n@number@.example".to_owned())],
            numbers: Some(numbers),
            ..RequestBuilder::default()
        };
        builder.build(&"unix:/s".parse().unwrap()).unwrap()
    }

    #[test]
    fn rising_numbers_are_all_different_over_all_threads() {
        let request = request(Numbers::Rising);
        let mut seen = std::collections::HashSet::new();
        for thread in 0..3 {
            let mut source = NumberSource::new(thread, 3, 99_999_990);
            for _ in 0..100 {
                let number = source.draw(&request);
                let bytes = source.bytes(&request, number);
                let text = String::from_utf8(bytes.to_vec()).unwrap();
                assert!(
                    text.contains(&format!("Host: n{number:08}.example\r\n")),
                    "{text}"
                );
                assert!(seen.insert(number));
            }
        }
    }

    #[test]
    fn the_first_of_many_comes_as_often_as_zipf_says() {
        let request = request(Numbers::Zipf(100_000));
        let mut source = NumberSource::new(0, 1, 0);
        let drawn: Vec<u64> = (0..100_000).map(|_| source.draw(&request)).collect();
        assert!(drawn.iter().all(|number| *number < 100_000));
        let share = |number: u64| drawn.iter().filter(|it| **it == number).count() as f64 / 1e5;
        // ln((k + 1) / k) / ln(100,001).
        assert!((share(0) - 0.0602).abs() < 0.005, "{}", share(0));
        assert!((share(9) - 0.0083).abs() < 0.002, "{}", share(9));
        assert!(drawn.iter().any(|number| *number > 50_000));
    }

    #[test]
    fn a_request_that_is_numbered_has_room_for_the_number() {
        let builder = RequestBuilder {
            numbers: Some(Numbers::Rising),
            ..RequestBuilder::default()
        };
        let error = builder.build(&"unix:/s".parse().unwrap()).unwrap_err();
        assert!(error.to_string().contains("@number@"), "{error}");
    }
}
