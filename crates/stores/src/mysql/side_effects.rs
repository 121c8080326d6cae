//! Which statements leave nothing in the session they ran in.
//!
//! A plain `SELECT` does not: it sets no variable, takes no lock, makes no table. Whatever could do
//! more, or only looks as if, counts as if it had: functions (`GET_LOCK`, `NEXTVAL`, one's own),
//! variables, comments that are run, several statements, locking reads. A word within a string is
//! taken for a word of the language, which costs a session and harms nobody.

/// The longest statement looked at; longer ones count as leaving something.
const LOOKED_AT_MAX: usize = 16 * 1024;

/// Words with which a `SELECT` does more than to read.
const WORDS: [&[u8]; 7] = [
    b"INTO",
    b"FOR",
    b"LOCK",
    b"PROCEDURE",
    b"NEXT",
    b"NEXTVAL",
    b"PREVIOUS",
];

/// What a statement may leave in its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SideEffects {
    /// Nothing.
    None,
    /// Something that no plain `SELECT` finds, such as the number given last.
    Some,
    /// What may change the answer to any: a character set, another database, a temporary table.
    Session,
}

impl SideEffects {
    pub(super) fn of(sql: &[u8]) -> Self {
        const HARMLESS: [&[u8]; 9] = [
            b"SELECT",
            b"INSERT",
            b"UPDATE",
            b"DELETE",
            b"REPLACE",
            b"BEGIN",
            b"START",
            b"COMMIT",
            b"ROLLBACK",
        ];
        if leaves_none(sql) {
            return Self::None;
        }
        let sql = sql.trim_ascii_start();
        let end = sql.iter().position(|byte| !byte.is_ascii_alphabetic());
        let first = sql.get(..end.unwrap_or(sql.len())).unwrap_or_default();
        match HARMLESS.iter().any(|word| word.eq_ignore_ascii_case(first)) {
            true => Self::Some,
            false => Self::Session,
        }
    }
}

/// Whether a statement surely leaves nothing behind.
fn leaves_none(sql: &[u8]) -> bool {
    let harmless = |byte: &u8| !b"(@;#".contains(byte);
    let comment = |pair: &[u8]| pair == b"/*" || pair == b"--";
    if sql.len() > LOOKED_AT_MAX || !sql.iter().all(harmless) || sql.windows(2).any(comment) {
        return false;
    }
    let mut words = sql
        .split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_' && byte.is_ascii())
        .filter(|word| !word.is_empty());
    let is = |word: &[u8], other: &[u8]| word.eq_ignore_ascii_case(other);
    words.next().is_some_and(|word| is(word, b"SELECT"))
        && words.all(|word| WORDS.iter().all(|other| !is(word, other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_selects_leave_nothing() {
        for sql in [
            "SELECT host FROM domain WHERE domain = ? LIMIT 1",
            " select\n*\tfrom t JOIN u ON t.a=u.a where information = 'x' order by a",
            "SELECT 1",
            "SELECT `format`, blocked FROM t WHERE a IN :b",
        ] {
            assert!(leaves_none(sql.as_bytes()), "{sql}");
        }
    }

    #[test]
    fn what_may_change_answers_in_its_session_is_told_from_what_only_leaves_numbers() {
        for sql in [
            "SET NAMES latin1",
            "use other",
            "CREATE TEMPORARY TABLE t (i INT)",
            "/*!50000 SET NAMES latin1 */",
            "CALL p()",
            "",
            "(SELECT 1)",
        ] {
            assert_eq!(
                SideEffects::of(sql.as_bytes()),
                SideEffects::Session,
                "{sql}"
            );
        }
        for sql in [
            " insert into t values (1)",
            "SELECT NOW()",
            "BEGIN",
            "COMMIT",
        ] {
            assert_eq!(SideEffects::of(sql.as_bytes()), SideEffects::Some, "{sql}");
        }
        assert_eq!(SideEffects::of(b"SELECT 1"), SideEffects::None);
    }

    #[test]
    fn whatever_may_do_more_counts_as_if_it_had() {
        for sql in [
            "",
            "SET a = 1",
            "INSERT INTO t VALUES (1)",
            "SELECT @a := 1",
            "SELECT GET_LOCK('a', 1)",
            "SELECT LAST_INSERT_ID (5)",
            "SELECT a INTO @b FROM t",
            "select a from t\nfor\nupdate",
            "SELECT a FROM t LOCK IN SHARE MODE",
            "SELECT 1; SET autocommit = 0",
            "SELECT /*!50000 1 */",
            "SELECT 1 -- for",
            "SELECT 1 # for",
            "SELECT NEXT VALUE FOR s",
            "SELECT s.nextval",
            "SELECT a FROM t WHERE b = 'for'",
            "USE other",
            "SHOW TABLES",
            "SELECTED",
            "(SELECT 1)",
            "WITH a AS b SELECT 1",
        ] {
            assert!(!leaves_none(sql.as_bytes()), "{sql}");
        }
        assert!(!leaves_none(
            format!("SELECT '{}'", "a".repeat(LOOKED_AT_MAX)).as_bytes()
        ));
    }
}
