//! Which hashes of passwords are read, and how dear comparing one may be.
//!
//! The idea: whoever logs in has the server do what a hash asks for, so a hash that asks for too
//! much is told from one that is not read at all, and both are refused before anybody comes.

/// Cost of a bcrypt hash at most; each step doubles the time a check takes.
const BCRYPT_COST_MAX: u32 = 16;
/// Rounds of SHA-crypt at least, as crypt(3) has it, and at most: two seconds or so of a processor
/// with a password of the longest kind.
const ROUNDS: std::ops::RangeInclusive<u32> = 1_000..=500_000;
/// Memory of yescrypt at most; what most systems write takes 16 MiB.
const YESCRYPT_BYTES_MAX: u64 = 64 << 20;
/// The digits of crypt(3), by their value.
const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

const UNREAD: &str = "is none that is read: bcrypt ($2y$), SHA ({SHA}), apr1 ($apr1$), SHA-crypt ($5$, $6$) \
    and yescrypt ($y$) are; crypt(3) by DES, `$1$` and plain text are not";
const DEAR: &str = "takes too long to compare: bcrypt may have a cost of 16, SHA-crypt 500,000 rounds, yescrypt \
    64 MiB";

/// Whether a hash is of a kind that is read, and none that is too dear to compare.
#[must_use]
pub fn is_borne(hash: &str) -> bool {
    check(hash).is_ok()
}

/// Why a hash is refused, said of it.
pub(super) fn check(hash: &str) -> Result<(), &'static str> {
    let is_cheap = is_sha(hash) || is_apr1(hash);
    let fits = is_cheap.then_some(true).or_else(|| bcrypt(hash));
    let fits = fits.or_else(|| sha_crypt(hash)).or_else(|| yescrypt(hash));
    match fits {
        Some(true) => Ok(()),
        Some(false) => Err(DEAR),
        None => Err(UNREAD),
    }
}

fn is_sha(hash: &str) -> bool {
    let digest = hash
        .strip_prefix("{SHA}")
        .and_then(|rest| rest.strip_suffix('='));
    let base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/".contains(&byte);
    digest.is_some_and(|digest| digest.len() == 27 && digest.bytes().all(base64))
}

fn is_apr1(hash: &str) -> bool {
    let parts = hash
        .strip_prefix("$apr1$")
        .and_then(|rest| rest.split_once('$'));
    parts.is_some_and(|(salt, digest)| {
        (1..=8).contains(&salt.len()) && digest.len() == 22 && are_digits(digest)
    })
}

/// Whether its cost is one that is borne; `None` where it is no such hash, as of the next.
fn bcrypt(hash: &str) -> Option<bool> {
    let versions = ["$2y$", "$2b$", "$2a$"];
    let mut rests = versions
        .iter()
        .filter_map(|version| hash.strip_prefix(version));
    let (cost, digest) = rests.next()?.split_once('$')?;
    let is_whole = cost.len() == 2 && digest.len() == 53 && are_digits(digest);
    let cost = number(cost).filter(|cost| is_whole && *cost >= 4)?;
    Some(cost <= BCRYPT_COST_MAX)
}

fn sha_crypt(hash: &str) -> Option<bool> {
    let (rest, digest_digits) = match hash.strip_prefix("$5$") {
        Some(rest) => (rest, 43),
        None => (hash.strip_prefix("$6$")?, 86),
    };
    let (rounds, rest) = match rest.strip_prefix("rounds=") {
        Some(rest) => rest.split_once('$')?,
        None => ("5000", rest),
    };
    let (salt, digest) = rest.split_once('$')?;
    let is_salt = (1..=16).contains(&salt.len()) && are_digits(salt);
    let is_whole = is_salt && digest.len() == digest_digits && are_digits(digest);
    let rounds = number(rounds).filter(|rounds| is_whole && rounds >= ROUNDS.start())?;
    Some(ROUNDS.contains(&rounds))
}

/// Of the usual kind: read and write, no parallel part, nothing added.
fn yescrypt(hash: &str) -> Option<bool> {
    let (params, rest) = hash.strip_prefix("$y$")?.split_once('$')?;
    let (salt, digest) = rest.split_once('$')?;
    let is_salt = (1..=86).contains(&salt.len()) && are_digits(salt);
    if !is_salt || digest.len() != 43 || !are_digits(digest) {
        return None;
    }
    let [b'j', blocks_log2, block] = params.as_bytes() else {
        return None;
    };
    // From this value on a number goes on in the next digit.
    let value = |digit: &u8| DIGITS.iter().position(|known| known == digit);
    let value = |digit: &u8| value(digit).filter(|value| *value < 48);
    let (blocks_log2, block) = (value(blocks_log2)? + 1, value(block)? as u64 + 1);
    // Nothing is lost: 13 bits, moved by 48 at most.
    Some((128 * block) << blocks_log2 <= YESCRYPT_BYTES_MAX)
}

fn number(text: &str) -> Option<u32> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // One that is too long is too much.
    is_number.then(|| text.parse().unwrap_or(u32::MAX))
}

fn are_digits(text: &str) -> bool {
    text.bytes().all(|byte| DIGITS.contains(&byte))
}
