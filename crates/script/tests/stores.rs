//! The classes of stores, from Ruby, against the real servers.

use std::fmt::Write as _;
use std::rc::Rc;

use crate::bed::{on_a_worker, patient, run, with};
use script::{Datum, Interpreter, Trial};
use testkit::{MariaDb, Memcached, ScriptedUpstream, Step, a_mariadb, a_redis, free_port};

/// What `inspect` says of the value of a script, or of its failure.
async fn shown(interpreter: &Rc<Interpreter>, code: &str, request: &mut Trial) -> String {
    let code = format!("begin\n{code}\nrescue => e\n\"#{{e.class}}: #{{e.message}}\"\nend.inspect");
    match run(interpreter, &code, request).await {
        Ok(ran) => match ran.value {
            Datum::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            other => format!("{other:?}"),
        },
        Err(failure) => failure.to_string(),
    }
}

/// Runs each script after `before`, in one interpreter, each for a request of its own; what it shows
/// begins with what is expected, or holds it after `…`.
fn check(before: &str, cases: &[(&str, &str)]) {
    let mut wrong = String::new();
    on_a_worker(async {
        let interpreter = patient();
        for (code, expected) in cases {
            let mut request = Trial::get("/");
            let shown = shown(&interpreter, &format!("{before}\n{code}"), &mut request).await;
            let right = match expected.strip_prefix('…') {
                Some(part) => shown.contains(part),
                None => shown == *expected,
            };
            if !right {
                let _ = writeln!(wrong, "{code}\n  {shown}\n  instead of {expected}");
            }
        }
    });
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn memcached_keeps_values() {
    let Some(memcached) = Memcached::start(&[]) else {
        return;
    };
    let before = format!("m = Memcached.new('{}')", memcached.address());
    let cases = [
        ("[m.set('a', '1'), m.get('a')]", "[0, \"1\"]"),
        ("m['b'] = 2; m['b']", "\"2\""),
        ("m.set(:c, 3.5); m.get('c')", "\"3.5\""),
        ("m.set('d', nil); m.get(:d)", "\"\""),
        ("m.set('e', 1, 1000); m.get('e')", "\"1\""),
        ("m.get('none')", "nil"),
        ("m.add('f', 1) == Memcached::MEMCACHED_SUCCESS", "true"),
        ("m.add('f', 2) == Memcached::MEMCACHED_NOTSTORED", "true"),
        (
            "[m.delete('f'), m.delete('f') == Memcached::MEMCACHED_NOTFOUND]",
            "[0, true]",
        ),
        ("m.set('g', \"\\0\\xff\"); m.get('g').bytes", "[0, 255]"),
        (
            "m.behavior_set(Memcached::MEMCACHED_BEHAVIOR_NO_BLOCK, 1)",
            "0",
        ),
        ("[m.flush_buffers, m.server_add('127.0.0.1', 1)]", "[0, 0]"),
        ("m.set('h', 1); [m.flush, m.get('h')]", "[0, nil]"),
        ("m.get(nil)", "…RuntimeError: a key of Memcached"),
        ("m.set(1, 'a')", "…RuntimeError: a key of Memcached"),
        ("m.set('a', 'b', 'c')", "…TypeError"),
        ("m.get('with blank')", "nil"),
        ("m.get('x' * 251)", "nil"),
        ("m.close; m.get('a')", "…closed before"),
        ("Memcached.new(1)", "…TypeError"),
        ("Memcached.new('a b')", "…RuntimeError: `a b"),
        ("Memcached.new('')['a']", "nil"),
    ];
    check(&before, &cases);
}

#[test]
fn without_memcached_everything_is_nil() {
    let before = format!("m = Memcached.new('127.0.0.1:{}')", free_port());
    let cases = [
        ("m.get('a')", "nil"),
        ("m.set('a', 1)", "nil"),
        ("m.add('a', 1)", "nil"),
        ("m.delete('a')", "nil"),
        ("m.flush", "nil"),
        ("m.get(nil)", "…RuntimeError"),
    ];
    check(&before, &cases);
}

#[test]
fn a_restarted_memcached_is_found_again() {
    with(Memcached::start(&[]), async |mut memcached| {
        let interpreter = patient();
        let mut request = Trial::get("/");
        let open = format!(
            "Userdata.new('m').c = Memcached.new('{}')",
            memcached.address()
        );
        run(&interpreter, &open, &mut request)
            .await
            .expect("opened");
        let both = "c = Userdata.new('m').c; [c.set('a', 1), c.get('a')]";
        assert_eq!(shown(&interpreter, both, &mut request).await, "[0, \"1\"]");
        memcached.stop();
        assert_eq!(shown(&interpreter, both, &mut request).await, "[nil, nil]");
        memcached.restart();
        assert_eq!(shown(&interpreter, both, &mut request).await, "[0, \"1\"]");
    });
}

fn mysql(mariadb: &MariaDb) -> String {
    let address = mariadb.address();
    format!(
        "MySQL::Database.new('{}', '{}', '{}', '{}', {})",
        address.ip(),
        MariaDb::USER,
        MariaDb::PASSWORD,
        MariaDb::DATABASE,
        address.port()
    )
}

#[test]
fn mysql_gives_rows() {
    let Some(mariadb) = a_mariadb() else { return };
    let before = format!("d = ($d ||= {})", mysql(&mariadb));
    check(&before, MYSQL);
}

const MYSQL: &[(&str, &str)] = &[
    (
        "d.execute('CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(20))')",
        "nil",
    ),
    (
        "d.execute('INSERT INTO t (v) VALUES (?), (?)', 'one', nil); [d.changes, d.last_insert_rowid]",
        "[2, 1]",
    ),
    (
        "d.execute_batch('INSERT INTO t (v) VALUES (?)', :three)",
        "0",
    ),
    ("d.changes", "0"),
    (
        "r = d.execute('SELECT id, v FROM t ORDER BY id'); [r.fields, r.next, r.next, r.eof?, r.next, r.eof?, r.next]",
        "[[\"id\", \"v\"], [1, \"one\"], [2, nil], false, [3, \"three\"], true, nil]",
    ),
    (
        "rows = []; [d.execute('SELECT v FROM t WHERE id > ?', 1) { |row, fields| rows << row + fields }, rows]",
        "[nil, [[nil, \"v\"], [\"three\", \"v\"]]]",
    ),
    (
        "r = d.execute('SELECT 1'); r.close; [r.next, r.eof?]",
        "[nil, true]",
    ),
    (
        "d.execute('SELECT ?, ?, ?, ?', -7, 0.5, true, 'a').next",
        "[-7, 0.5, 1, \"a\"]",
    ),
    (
        "d.execute('SELECT -2147483648, 1.25, NULL').next",
        "[-2147483648, \"1.25\", nil]",
    ),
    (
        "t = d.execute(\"SELECT TIMESTAMP('2016-07-15 11:12:13')\").next[0]; [t.class, t.year, t.month, t.day, t.hour, t.min, t.sec]",
        "[Time, 2016, 7, 15, 11, 12, 13]",
    ),
    (
        "t = d.execute(\"SELECT CAST('2016-07-15' AS DATE)\").next[0]; [t.year, t.month, t.day, t.hour]",
        "[2016, 7, 15, 0]",
    ),
    (
        "t = d.execute(\"SELECT CAST('11:12:13' AS TIME)\").next[0]; [t.year, t.hour, t.min, t.sec]",
        "[1970, 11, 12, 13]",
    ),
    ("d.execute('SELEC 1')", "…RuntimeError: "),
    ("d.execute(1)", "…TypeError"),
    ("d.execute('SELECT ?', [1])", "…TypeError"),
    ("d.execute('SELECT v FROM t WHERE id = ?', 99).next", "nil"),
    (
        "d.transaction; d.execute('DELETE FROM t'); d.rollback; d.execute('SELECT COUNT(*) FROM t').next",
        "[3]",
    ),
    (
        "d.transaction; d.execute('DELETE FROM t WHERE id = 1'); d.commit; d.execute('SELECT COUNT(*) FROM t').next",
        "[2]",
    ),
    ("d.transaction; d.execute('DELETE FROM t')", "nil"),
    ("d.execute('SELECT COUNT(*) FROM t').next", "[2]"),
    (
        "e = MySQL::Database.new('127.0.0.1', 'nobody', 'x', 'y', 1)",
        "…RuntimeError: connect to MySQL 127.0.0.1:1",
    ),
    (
        "MySQL::Database.new('127.0.0.1', 'u', 'p', 'd', 70000)",
        "…ArgumentError",
    ),
    ("d.close; d.execute('SELECT 1')", "…closed before"),
];

#[test]
fn many_requests_use_one_database_at_once() {
    with(MariaDb::start(&[]), async |mariadb| {
        let interpreter = patient();
        let mut request = Trial::get("/");
        let open = format!("$d = {}; nil", mysql(&mariadb));
        assert_eq!(shown(&interpreter, &open, &mut request).await, "nil");
        let runs: Vec<_> = (0..50)
            .map(|number| {
                let interpreter = Rc::clone(&interpreter);
                tokio::task::spawn_local(async move {
                    let mut request = Trial::get("/");
                    let code = format!("$d.execute('SELECT SLEEP(0.01), ?', {number}).next[1]");
                    (number, shown(&interpreter, &code, &mut request).await)
                })
            })
            .collect();
        for run in runs {
            let (number, shown) = run.await.expect("it did not panic");
            assert_eq!(shown, number.to_string());
        }
    });
}

#[test]
fn a_stopped_database_raises_once_and_is_found_again() {
    with(MariaDb::start(&[]), async |mut mariadb| {
        let interpreter = patient();
        let mut request = Trial::get("/");
        let open = format!("$d = {}; nil", mysql(&mariadb));
        assert_eq!(shown(&interpreter, &open, &mut request).await, "nil");
        mariadb.stop();
        for _ in 0..2 {
            let failed = shown(&interpreter, "$d.execute('SELECT 1')", &mut request).await;
            assert!(failed.contains("RuntimeError"), "{failed}");
        }
        mariadb.restart();
        let again = shown(&interpreter, "$d.execute('SELECT 1').next", &mut request).await;
        assert_eq!(again, "[1]");
    });
}

#[test]
fn redis_does_its_commands() {
    let Some(redis) = a_redis() else { return };
    let address = redis.address();
    let before = format!(
        "r = ($r ||= Redis.new('{}', {}, 60)); r.flushall",
        address.ip(),
        address.port()
    );
    check(&before, STRINGS);
    check(&before, COLLECTIONS);
    check(&before, TOGETHER);
}

const STRINGS: &[(&str, &str)] = &[
    ("r.ping", "\"PONG\""),
    (
        "[r.set('a', 'b'), r.get('a'), r['a']]",
        "[\"OK\", \"b\", \"b\"]",
    ),
    ("r[\"a\\0\"] = \"b\\0\"; r[\"a\\0\"].size", "2"),
    ("r.get('none')", "nil"),
    ("r.set('a', 'b', 'EX' => 100); r.ttl('a')", "100"),
    ("r.set('a', 'b', 'PX' => 100_000); r.ttl('a') > 90", "true"),
    (
        "r.set('a', '1'); [r.set('a', '2', 'NX' => true), r.set('a', '3', 'XX' => true), r['a']]",
        "[nil, \"OK\", \"3\"]",
    ),
    ("r.set('a', 'b', 'EX' => 1, 'PX' => 1)", "…ArgumentError"),
    (
        "r.set('a', 'b', 'NX' => true, 'XX' => true)",
        "…ArgumentError",
    ),
    ("r.set('a', 'b', :EX => 1)", "…ArgumentError"),
    ("[r.setnx('a', '1'), r.setnx('a', '2')]", "[true, false]"),
    (
        "[r.exists?('a'), r.set('a', ''), r.exists?('a')]",
        "[false, \"OK\", true]",
    ),
    (
        "[r.expire('a', 9), r.set('a', '1'), r.expire('a', 9), r.ttl('a')]",
        "[false, \"OK\", true, 9]",
    ),
    (
        "[r.incr('n'), r.incrby('n', 9), r.decr('n'), r.decrby('n', 4), r['n']]",
        "[1, 10, 9, 5, \"5\"]",
    ),
    (
        "r.mset('a', '1', 'b', '2'); [r.mget('a', 'b', 'c'), r.keys('*').sort, r.del('a', 'b')]",
        "[[\"1\", \"2\", nil], [\"a\", \"b\"], 2]",
    ),
    (
        "r['a'] = '1'; [r.randomkey, r.flushdb, r.randomkey]",
        "[\"a\", \"OK\", nil]",
    ),
    ("r.publish('channel', 'word')", "0"),
    ("r.set(:a, 'b')", "…TypeError: argument 1 is a String"),
    ("r.set('a', 1)", "…TypeError: argument 2 is a String"),
    ("r.expire('a', nil)", "…TypeError: argument 2 is a number"),
    ("r.get(nil)", "…TypeError"),
    ("r['s'] = 'x'; r.incr('s')", "…Redis::ReplyError"),
    ("r.get", "…ArgumentError"),
];

const COLLECTIONS: &[(&str, &str)] = &[
    (
        "[r.rpush('l', 'b'), r.lpush('l', 'a'), r.llen('l'), r.lrange('l', 0, -1), r.lindex('l', 1)]",
        "[1, 2, 2, [\"a\", \"b\"], \"b\"]",
    ),
    (
        "r.rpush('l', 'a', 'b', 'c'); [r.ltrim('l', 1, -1), r.lpop('l'), r.rpop('l'), r.lrange('l', 0, -1)]",
        "[\"OK\", \"b\", \"c\", []]",
    ),
    (
        "[r.sadd('s', 'a', 'b'), r.sismember('s', 'a'), r.scard('s'), r.smembers('s').sort, r.srem('s', 'a'), r.spop('s')]",
        "[2, 1, 2, [\"a\", \"b\"], 1, \"b\"]",
    ),
    (
        "[r.hset('h', 'f', '1'), r.hset('h', 'f', '2'), r.hget('h', 'f'), r.hsetnx('h', 'f', '3'), r.hexists?('h', 'f')]",
        "[true, false, \"2\", false, true]",
    ),
    (
        "r.hmset('h', 'a', '1', 'b', '2'); [r.hgetall('h'), r.hkeys('h'), r.hvals('h'), r.hmget('h', 'a', 'x')]",
        "[{\"a\"=>\"1\", \"b\"=>\"2\"}, [\"a\", \"b\"], [\"1\", \"2\"], [\"1\", nil]]",
    ),
    (
        "[r.hgetall('x'), r.hkeys('x'), r.hvals('x'), r.hincrby('x', 'n', 5), r.hdel('x', 'n')]",
        "[nil, nil, nil, 5, 1]",
    ),
    ("r.hmset('h', 'a', '1', 'b')", "…ArgumentError"),
    (
        "[r.zadd('z', 2, 'b'), r.zadd('z', 1.5, 'a'), r.zcard('z'), r.zrange('z', 0, -1), r.zrevrange('z', 0, 0), r.zrank('z', 'a'), r.zrevrank('z', 'a'), r.zscore('z', 'a')]",
        "[1, 1, 2, [\"a\", \"b\"], [\"b\"], 0, 1, \"1.5\"]",
    ),
    (
        "[r.pfadd('p', 'a', 'b'), r.pfadd('q', 'c'), r.pfcount('p', 'q'), r.pfmerge('t', 'p', 'q'), r.pfcount('t')]",
        "[1, 1, 3, \"OK\", 3]",
    ),
];

const TOGETHER: &[(&str, &str)] = &[
    (
        "r.queue(:set, 'a', 'b'); r.queue(:get, 'a'); [r.reply, r.reply]",
        "[:OK, \"b\"]",
    ),
    (
        "r.queue(:set, 'a', 1); r.queue('incr', 'a'); r.bulk_reply",
        "[:OK, 2]",
    ),
    (
        "r.queue(:set, 's', 'x'); r.queue(:incr, 's'); r.bulk_reply.map { |x| x.class }",
        "[Symbol, Redis::ReplyError]",
    ),
    ("r.reply", "…RuntimeError: nothing is queued"),
    (
        "begin; 2000.times { Mutex.new.lock }; rescue ThreadError; end; r.queue(:get, 'a')",
        "…holds too much",
    ),
    (
        "[r.multi, r.set('a', '1'), r.incr('a'), r.exec]",
        "[\"OK\", \"QUEUED\", \"QUEUED\", [\"OK\", 2]]",
    ),
    (
        "r.multi; r.set('a', '9'); [r.discard, r['a']]",
        "[\"OK\", nil]",
    ),
    (
        "r.watch('a'); Redis.new(r.host, r.port).set('a', '1'); r.multi; r.set('a', '2'); [r.exec, r['a']]",
        "[nil, \"1\"]",
    ),
    ("[r.watch('a', 'b'), r.unwatch]", "[\"OK\", \"OK\"]"),
    ("r.multi; r.set('a', 'never'); nil", "nil"),
    ("r['a']", "nil"),
    (
        "[r.select(1), r.set('a', '1'), r.select(0), r['a']]",
        "[\"OK\", \"OK\", \"OK\", nil]",
    ),
    ("r.select(-1)", "…Redis::ReplyError"),
    ("r.select(nil)", "…TypeError"),
    ("r.auth('wrong')", "…Redis::AuthError"),
    (
        "[r.keepalive, r.enable_keepalive, r.keepalive]",
        "[:off, nil, :on]",
    ),
    ("Redis.new('127.0.0.1', 1)", "…Redis::ConnectionError"),
    ("Redis.new('127.0.0.1', 1, nil)", "…TypeError"),
    ("[r.host.class, r.port.class]", "[String, Integer]"),
    ("r.close; r.get('a')", "…Redis::ClosedError"),
    ("$r.host", "…Redis::ClosedError"),
];

#[test]
fn http_request_asks_other_servers() {
    let upstream = ScriptedUpstream::start(|seen| {
        let head = "HTTP/1.1 201 Created\r\nContent-Type: text/plain\r\nSet-Cookie: a=1\r\n\
                    Set-Cookie: b=2\r\nContent-Length: 2\r\n\r\n";
        let body = if seen.head.line.starts_with("HEAD ") {
            ""
        } else {
            "hi"
        };
        vec![Step::ReadBody, Step::Send(format!("{head}{body}").into())]
    });
    let address = upstream.address();
    let before = format!("h = HttpRequest.new; url = 'http://{address}/a?b=c'");
    let cases = [
        (
            "x = h.get(url); [x.code, x.body, x['code'], x['body'], x['content-type'], x['set-cookie']]",
            "[201, \"hi\", 201, \"hi\", \"text/plain\", [\"a=1\", \"b=2\"]]",
        ),
        ("h.post(url, { 'k' => 'a b' }, 'X-A' => 'b').code", "201"),
        ("h.put(url, 'body').status", "\"HTTP/1.1 201\""),
        (
            "h.head(url).header.include?('content-type: text/plain')",
            "true",
        ),
        ("h.delete(url)['none']", "nil"),
        ("h.request('patch', url, 'x', {}).code", "201"),
        ("got = nil; h.get(url) { |body| got = body }; got", "\"hi\""),
        (
            "h.encode_parameters('a b' => 'ü/', :n => 1)",
            "\"a%20b=%C3%BC%2F&n=1\"",
        ),
        ("h.encode_parameters(['a b', 2], ',')", "\"a%20b,2\""),
        (
            "h.encode_parameters({ 'a' => 'b' }, '&', '\"')",
            "\"a=\\\"b\\\"\"",
        ),
        (
            "h.get('http://127.0.0.1:1/')",
            "…RuntimeError: connect to HTTP server 127.0.0.1:1",
        ),
        ("h.get('ftp://x/')", "…RuntimeError"),
        ("h.request('GE T', url, nil, {})", "…RuntimeError"),
    ];
    check(&before, &cases);
}
