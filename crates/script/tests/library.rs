//! What scripts have of Ruby's library beyond mruby: JSON, checksums, times, files, environment.

use crate::bed::{self, failure, on_a_worker, run, settings, value};
use script::{Datum, Interpreter, Trial};

/// Each script's value, told by `inspect`.
fn check(table: &[(&str, &str)]) {
    bed::check(table, "\"#{e.class}: #{e.message}\"");
}

#[test]
fn json_is_read() {
    check(&[
        (
            r#"JSON.parse('{"a":[1,2.5,null,true,"x"]}')"#,
            r#"{"a"=>[1, 2.5, nil, true, "x"]}"#,
        ),
        (r#"JSON.parse('{"b":1,"a":2}').keys"#, r#"["b", "a"]"#),
        (
            r#"JSON.parse('{"a":{"b":1}}', symbolize_names: true)"#,
            "{:a=>{:b=>1}}",
        ),
        ("JSON.parse('9223372036854775807')", "9223372036854775807"),
        ("JSON.parse('9223372036854775808').class", "Float"),
        (
            "JSON.parse('123456789012345678901234567890').class",
            "Float",
        ),
        ("JSON.parse('[1e3]')", "[1000.0]"),
        (r#"JSON.parse('"\u00e9\n"')"#, "\"é\\n\""),
        (
            "begin; JSON.parse('{'); rescue JSON::ParserError => e; e.message[0, 7]; end",
            "\"no JSON\"",
        ),
        (
            "begin; JSON.parse(''); rescue JSON::ParserError; 1; end",
            "1",
        ),
        (
            "begin; JSON.parse('[1] 2'); rescue JSON::ParserError; 1; end",
            "1",
        ),
        (
            "begin; JSON.parse('[' * 61 + ']' * 61); rescue JSON::NestingError; 1; end",
            "1",
        ),
        (
            "x = JSON.parse('[' * 60 + ']' * 60); 59.times { x = x[0] }; x",
            "[]",
        ),
        (
            "begin; JSON.parse('[' + '1,' * 100_000 + '1]'); rescue JSON::ParserError => e; e.message.include?('100000'); end",
            "true",
        ),
        ("begin; JSON.parse(nil); rescue TypeError; 1; end", "1"),
    ]);
}

#[test]
fn json_is_written() {
    check(&[
        (
            r#"JSON.generate({"a" => [1, 2.5, nil, true, :s, "\"\n"], 1 => nil})"#,
            r#""{\"a\":[1,2.5,null,true,\"s\",\"\\\"\\n\"],\"1\":null}""#,
        ),
        ("JSON.stringify([])", "\"[]\""),
        ("[1, {a: 2}].to_json", r#""[1,{\"a\":2}]""#),
        ("nil.to_json + 1.to_json + 'é'.to_json", r#""null1\"é\"""#),
        (
            "class Point; def to_json(*) '[1,2]' end; end; JSON.generate({p: Point.new})",
            r#""{\"p\":[1,2]}""#,
        ),
        ("JSON.generate([Math])", r#""[\"Math\"]""#),
        (
            "JSON.pretty_generate({a: [1, 2], b: {}})",
            r#""{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {}\n}""#,
        ),
        (
            "begin; JSON.generate([Float::NAN]); rescue JSON::GeneratorError; 1; end",
            "1",
        ),
        (
            r#"begin; JSON.generate("\xff"); rescue JSON::GeneratorError; 1; end"#,
            "1",
        ),
        (
            "a = []; a << a; begin; JSON.generate(a); rescue JSON::NestingError; 1; end",
            "1",
        ),
        (
            "JSON.parse(JSON.generate({'k' => [1.0, -0.5, 1e20]}))",
            r#"{"k"=>[1.0, -0.5, 1.0e+20]}"#,
        ),
    ]);
}

#[test]
fn symbols_made_of_texts_are_bounded() {
    let script = "11_000.times { |n| JSON.parse(\"{\\\"k#{n}\\\":1}\", symbolize_names: true) if n % 100 < 99 || true }";
    let mut settings = settings();
    settings.budgets.cpu = std::time::Duration::from_secs(60);
    on_a_worker(async {
        let interpreter = Interpreter::open(settings, Default::default()).expect("it opens");
        let mut request = Trial::get("/");
        let said = run(&interpreter, script, &mut request).await;
        let said = said.expect_err("it is too much").to_string();
        assert!(said.contains("symbolize_names"), "{said}");
    });
}

#[test]
fn checksums_are_those_of_the_standards() {
    check(&[
        (
            "Digest::MD5.hexdigest('abc')",
            "\"900150983cd24fb0d6963f7d28e17f72\"",
        ),
        (
            "Digest::SHA1.hexdigest('abc')",
            "\"a9993e364706816aba3e25717850c26c9cd0d89d\"",
        ),
        (
            "Digest::SHA256.hexdigest('abc')",
            "\"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"",
        ),
        (
            "Digest::SHA384.hexdigest('abc')[0, 16]",
            "\"cb00753f45a35e8b\"",
        ),
        (
            "Digest::SHA512.hexdigest('abc')[0, 16]",
            "\"ddaf35a193617aba\"",
        ),
        (
            "Digest::MD5.base64digest('abc')",
            "\"kAFQmDzST7DWlj99KOF/cg==\"",
        ),
        (
            "Digest::SHA256.new.update('a').<<('bc').hexdigest == Digest::SHA256.hexdigest('abc')",
            "true",
        ),
        // RFC 4231, case 2, and RFC 2202, case 2.
        (
            "Digest::HMAC.hexdigest('what do ya want for nothing?', 'Jefe', Digest::SHA256)",
            "\"5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843\"",
        ),
        (
            "Digest::HMAC.hexdigest('what do ya want for nothing?', 'Jefe', Digest::MD5)",
            "\"750c783e6ab0b503eaa86e310a5db738\"",
        ),
        // RFC 4231, case 6: a key longer than a block.
        (
            "Digest::HMAC.hexdigest('Test Using Larger Than Block-Size Key - Hash Key First', \"\\xaa\" * 131, Digest::SHA512)[0, 16]",
            "\"80b24263c7c1a3eb\"",
        ),
        (
            "Digest::HMAC.new('Jefe', Digest::SHA256).update('x').hexdigest.size",
            "64",
        ),
        (
            "begin; Digest::MD5.hexdigest(1); rescue TypeError; 1; end",
            "1",
        ),
    ]);
}

#[test]
fn base64_goes_both_ways() {
    check(&[
        (
            "Base64.encode64('a' * 50)",
            "\"YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFh\\nYWFhYWE=\\n\"",
        ),
        ("Base64.encode64('')", "\"\""),
        (
            "[Base64.encode('ab'), Base64.decode('YWI=')]",
            r#"["YWI=", "ab"]"#,
        ),
        (r#"Base64.strict_encode64("\xff\xfe\xfd")"#, "\"//79\""),
        (r#"Base64.urlsafe_encode64("\xff\xfe\xfd")"#, "\"__79\""),
        ("Base64.decode64(\"YW\\nJj!\")", "\"abc\""),
        ("Base64.decode64('YQ==')", "\"a\""),
        ("Base64.strict_decode64('YQ==')", "\"a\""),
        (
            "begin; Base64.strict_decode64('YQ'); rescue ArgumentError; 1; end",
            "1",
        ),
        ("Base64.urlsafe_decode64('YQ')", "\"a\""),
    ]);
}

#[test]
fn random_values_differ_between_interpreters() {
    check(&[
        ("SecureRandom.hex(4).size", "8"),
        ("SecureRandom.random_bytes.size >= 1", "true"),
        (
            "u = SecureRandom.uuid; [u.size, u[14], u[8]]",
            r#"[36, "4", "-"]"#,
        ),
        (
            "(0...50).all? { (0...3).include?(SecureRandom.random_number(3)) }",
            "true",
        ),
        (
            "begin; SecureRandom.hex(-1); rescue ArgumentError; 1; end",
            "1",
        ),
        (
            "Random.new(5).rand(1000) == Random.new(5).rand(1000)",
            "true",
        ),
    ]);
    let one = value("(0...4).map { rand(1_000_000_000) }.inspect + Random.new.rand.to_s");
    let other = value("(0...4).map { rand(1_000_000_000) }.inspect + Random.new.rand.to_s");
    assert_ne!(one, other);
}

#[test]
fn times_are_written_as_ruby_writes_them() {
    let t = "Time.at(1_700_000_000, 123_456).utc";
    let table: Vec<(String, &str)> = [
        ("%Y-%m-%d %H:%M:%S", "\"2023-11-14 22:13:20\""),
        (
            "%a %A %b %B %^a %e %-d %j",
            "\"Tue Tuesday Nov November TUE 14 14 318\"",
        ),
        ("%I %l %p %P %#p", "\"10 10 PM pm pm\""),
        ("%L %N %3N %6N", "\"123 123456000 123 123456\""),
        ("%z %:z %Z", "\"+0000 +00:00 UTC\""),
        (
            "%s %u %w %U %W %V %G %g %C %y",
            "\"1700000000 2 2 46 46 46 2023 23 20 23\"",
        ),
        ("%F %T %D %R", "\"2023-11-14 22:13:20 11/14/23 22:13\""),
        (
            "%5d|%-m|%_m|%010Y|%%|%Q|%",
            "\"00014|11|11|0000002023|%|%Q|%\"",
        ),
        ("%c", "\"Tue Nov 14 22:13:20 2023\""),
    ]
    .into_iter()
    .map(|(format, expected)| (format!("{t}.strftime('{format}')"), expected))
    .collect();
    let table: Vec<(&str, &str)> = table
        .iter()
        .map(|(script, e)| (script.as_str(), *e))
        .collect();
    check(&table);
    check(&[
        (
            "Time.at(1_700_000_000).utc.iso8601",
            "\"2023-11-14T22:13:20Z\"",
        ),
        (
            "Time.at(1_700_000_000, 5000).utc.iso8601(3)",
            "\"2023-11-14T22:13:20.005Z\"",
        ),
        ("Time.at(0).httpdate", "\"Thu, 01 Jan 1970 00:00:00 GMT\""),
        (
            "Time.at(0).utc.strftime('%9999d' * 90)",
            "ArgumentError: strftime: the text would be longer than 64 KiB",
        ),
    ]);
}

#[test]
fn files_are_read_off_the_worker_and_capped() {
    let directory = std::env::temp_dir().join(format!("nagaya-library-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory is made");
    let file = directory.join("x.txt");
    std::fs::write(&file, "hello").expect("a file is written");
    let path = file.display();
    assert_eq!(value(&format!("File.read('{path}')")), Datum::from("hello"));
    assert_eq!(value(&format!("File.exist?('{path}')")), Datum::Bool(true));
    assert_eq!(
        value(&format!("File.exist?('{path}x')")),
        Datum::Bool(false)
    );
    assert_eq!(
        value(&format!("File.mtime('{path}') > Time.at(0)")),
        Datum::Bool(true)
    );
    let said = failure(&format!("File.read('{path}x')"));
    assert!(said.contains("there is no such file"), "{said}");
    let said = failure("File.read('etc/passwd')");
    assert!(said.contains("only absolute paths"), "{said}");
    on_a_worker(async {
        let mut settings = settings();
        settings.budgets.read_bytes = 4;
        let interpreter = Interpreter::open(settings, Default::default()).expect("it opens");
        let mut request = Trial::get("/");
        let said = run(&interpreter, &format!("File.read('{path}')"), &mut request).await;
        let said = said.expect_err("it is too long").to_string();
        assert!(said.contains("scripts.read"), "{said}");
    });
    std::fs::remove_dir_all(&directory).expect("the directory goes");
}

#[test]
fn names_of_paths_are_taken_apart() {
    check(&[
        ("File.basename('/a/b.rb')", "\"b.rb\""),
        ("File.basename('/a/b.rb', '.rb')", "\"b\""),
        ("File.basename('/a/b.tar.gz', '.*')", "\"b.tar\""),
        ("File.basename('/')", "\"/\""),
        ("File.basename('/a/b/')", "\"b\""),
        ("File.dirname('/a/b/c')", "\"/a/b\""),
        ("File.dirname('/a')", "\"/\""),
        ("File.dirname('a')", "\".\""),
        ("File.extname('/x.d/a.php')", "\".php\""),
        (
            "File.extname('.bashrc') + File.extname('a.') + File.extname('a')",
            "\"\"",
        ),
        ("File.join('a', '/b/', 'c')", "\"a/b/c\""),
        ("File.join('/a', ['b', 'c'])", "\"/a/b/c\""),
    ]);
}

#[test]
fn the_environment_is_what_was_allowed_and_stays() {
    on_a_worker(async {
        let mut settings = settings();
        settings.env = vec![("REGION".to_owned(), "tokyo".to_owned())];
        let interpreter = Interpreter::open(settings, Default::default()).expect("it opens");
        let mut request = Trial::get("/");
        let script = "[ENV['REGION'], ENV['PATH'], ENV.fetch('HOME', 1), ENV.key?('REGION'), ENV.to_h].inspect";
        let ran = run(&interpreter, script, &mut request)
            .await
            .expect("it runs");
        let expected = r#"["tokyo", nil, 1, true, {"REGION"=>"tokyo"}]"#;
        assert_eq!(ran.value, Datum::from(expected));
        for script in [
            "ENV['A'] = '1'",
            "ENV.to_h['REGION'] = 'x'; ENV.delete('REGION')",
        ] {
            let said = run(&interpreter, script, &mut request).await;
            let said = said.expect_err("it cannot be changed").to_string();
            assert!(said.contains("NotImplementedError"), "{said}");
        }
    });
}

#[test]
fn what_would_block_or_leave_the_worker_says_what_to_use() {
    for script in [
        "system('ls')",
        "`ls`",
        "%x(ls)",
        "fork",
        "exec('ls')",
        "spawn('ls')",
        "load '/x.rb'",
        "open('/etc/passwd')",
        "IO.popen('ls')",
        "IO.new(1)",
        "Dir.glob('*')",
        "TCPSocket.new('localhost', 80)",
        "TCPSocket.open('localhost', 80)",
        "UDPSocket.new",
        "Thread.new { }",
        "File.open('/etc/passwd')",
        "File.write('/tmp/x', '')",
        "Process.fork",
        "Process.kill(9, 1)",
        "at_exit { }",
    ] {
        let said = failure(script);
        let is_clear =
            said.contains("NotImplementedError") && said.contains("is not there for scripts");
        assert!(is_clear, "{script}: {said}");
    }
}

#[test]
fn process_and_machine_are_told() {
    check(&[
        ("Process.pid == $$ && Process.pid > 0", "true"),
        (
            "Process.clock_gettime(Process::CLOCK_MONOTONIC).class",
            "Float",
        ),
        (
            "Process.clock_gettime(Process::CLOCK_REALTIME, :second) > 1_700_000_000",
            "true",
        ),
        (
            "Process.clock_gettime(9)",
            "ArgumentError: Process.clock_gettime knows Process::CLOCK_MONOTONIC and CLOCK_REALTIME",
        ),
        ("Uname.sysname", "\"Linux\""),
        ("Uname.nodename.empty?", "false"),
        (
            "$stderr.puts('x'); $stdout.print('y'); STDERR.write('ab')",
            "2",
        ),
    ]);
}

#[test]
fn nagaya_tells_of_the_request() {
    check(&[
        (
            "r = Nagaya.request; [r[:method], r[:path], r[:query], r[:client], r[:time], r[:status]]",
            r#"["GET", "/a.php", "x=1", "192.0.2.1", 0.001, nil]"#,
        ),
        (
            "[Nagaya.site, Nagaya.tenant, Nagaya.worker, Nagaya.phase]",
            r#"["example.test", "example.test", 0, "access"]"#,
        ),
        ("Nagaya.log(:info, 'x')", "nil"),
        (
            "Nagaya.log(:loud, 'x')",
            "ArgumentError: Nagaya.log knows no level loud: error, warn, info or debug",
        ),
        ("Nagaya::Limit.acquire('k', concurrent: 2)", "true"),
        (
            "Nagaya::Limit.acquire('k', concurrent: 2, queue: 1, wait: 0.5)",
            "true",
        ),
        // Here nobody measures.
        ("Nagaya.sensor('load1')", "nil"),
        (
            "Nagaya::Limit.acquire('k', concurrent: 0)",
            "ArgumentError: Nagaya::Limit.acquire: concurrent is an Integer from 1: how many at once",
        ),
        (
            "Nagaya::Limit.acquire('', concurrent: 1)",
            "ArgumentError: Nagaya::Limit.acquire takes a key of 1 to 1024 bytes",
        ),
        (
            "Nagaya::Limit.acquire('k', concurrent: 1, wait: -1)",
            "ArgumentError: Nagaya::Limit.acquire: wait is a number of seconds from 0 to 3600",
        ),
    ]);
}
