//! Regular expressions in scripts, as Ruby 3 has them.

use crate::bed;
use crate::bed::{code, failure, interpreter, on_a_worker, run, settings};
use script::{Datum, Interpreter, Phase, Trial};

/// Each script's value, told by `inspect`, as Ruby 3.1 prints it.
const TABLE: &[(&str, &str)] = &[
    (r###"/b/ =~ "abc""###, r###"1"###),
    (r###"/x/ =~ "abc""###, r###"nil"###),
    (r###"/B/i =~ "abc""###, r###"1"###),
    (r###""日本語" =~ /語/"###, r###"2"###),
    (
        r###"$1.inspect if "k=v" =~ /(\w)=(\w)/"###,
        r###""\"k\"""###,
    ),
    (
        r###"("k=v" =~ /(\w)=(\w)/; [$1, $2, $3, $&, $`, $'])"###,
        r###"["k", "v", nil, "k=v", "", ""]"###,
    ),
    (
        r###"("xk=vy" =~ /(\w)=(\w)/; [$~[0], $~[1], $~.pre_match, $~.post_match, $~.begin(0), $~.end(2)])"###,
        r###"["k=v", "k", "x", "y", 1, 4]"###,
    ),
    (r###"("a" =~ /b/; [$~, $1])"###, r###"[nil, nil]"###),
    (
        r###"/(?<y>\d+)-(?<m>\d+)/.match("2026-11")[:y]"###,
        r###""2026""###,
    ),
    (
        r###"/(?<y>\d+)-(?<m>\d+)/.match("2026-11")["m"]"###,
        r###""11""###,
    ),
    (
        r###"/(?<y>\d+)-(?<m>\d+)/.match("2026-11").named_captures"###,
        r###"{"y"=>"2026", "m"=>"11"}"###,
    ),
    (
        r###"/(?<y>\d+)-(?<m>\d+)/.match("2026-11").names"###,
        r###"["y", "m"]"###,
    ),
    (r###"/(a)(b)?/.match("ac").captures"###, r###"["a", nil]"###),
    (
        r###"/(a)(b)?/.match("ac").to_a"###,
        r###"["a", "a", nil]"###,
    ),
    (r###"/(.)(.)/.match("あい").offset(2)"###, r###"[1, 2]"###),
    (r###"/a/.match(nil)"###, r###"nil"###),
    (r###"/b/.match("abcb", 2).begin(0)"###, r###"3"###),
    (r###"/b/.match?("abc")"###, r###"true"###),
    (r###""abc".match?(/c/)"###, r###"true"###),
    (r###""abc".match("b")[0]"###, r###""b""###),
    (r###""abc".match(/(b)(c)/) { |m| m[2] }"###, r###""c""###),
    (
        r###"case "/users/42" when %r{\A/posts} then 1 when %r{\A/users/(\d+)} then $1 end"###,
        r###""42""###,
    ),
    (r###"/a/ === :cat"###, r###"true"###),
    (r###"/a/ === 5"###, r###"false"###),
    (r###""a1b22".scan(/\d+/)"###, r###"["1", "22"]"###),
    (
        r###""a1b22".scan(/([a-z])(\d+)/)"###,
        r###"[["a", "1"], ["b", "22"]]"###,
    ),
    (r###""aXbX".scan("X")"###, r###"["X", "X"]"###),
    (
        r###"(x = []; "a1b2".scan(/\d/) { |d| x << d + $~.pre_match }; x)"###,
        r###"["1a", "2a1b"]"###,
    ),
    (r###""hello".sub(/l/, "L")"###, r###""heLlo""###),
    (r###""hello".gsub(/l/, "L")"###, r###""heLLo""###),
    (r###""hello".gsub("l", "L")"###, r###""heLLo""###),
    (r###""hello".sub("l") { |m| m.upcase }"###, r###""heLlo""###),
    (
        r###""hello".gsub(/[eo]/) { |m| m.upcase }"###,
        r###""hEllO""###,
    ),
    (
        r###""hello".gsub(/[eo]/, "e" => "3", "o" => "0")"###,
        r###""h3ll0""###,
    ),
    (
        r###""john smith".gsub(/(\w+) (\w+)/, '\2 \1')"###,
        r###""smith john""###,
    ),
    (r###""john".sub(/(?<f>j)/, '[\k<f>]')"###, r###""[j]ohn""###),
    (r###""a.b".gsub(".", "-")"###, r###""a-b""###),
    (r###""abc".gsub(/b/, '<\0\&>')"###, r###""a<bb>c""###),
    (r###""abc".gsub(/b/, "\\`|\\'")"###, r###""aa|cc""###),
    (r###""a\\b".gsub("\\", "/")"###, r###""a/b""###),
    (r###""abc".gsub(//, "-")"###, r###""-a-b-c-""###),
    (r###""日本".gsub(//, "-")"###, r###""-日-本-""###),
    (r###""日本語".gsub("本", "x")"###, r###""日x語""###),
    (r###""日本語".gsub(/本/) { "y" }"###, r###""日y語""###),
    (r###""hello".gsub(/x/, "y")"###, r###""hello""###),
    (r###""hello".gsub!(/x/, "y")"###, r###"nil"###),
    (
        r###"(s = "hello"; s.gsub!(/l/, "r"); s)"###,
        r###""herro""###,
    ),
    (
        r###"(s = "hello"; s.sub!("l", "r"); s)"###,
        r###""herlo""###,
    ),
    (
        r###""hello".sub(/(?<first>l)/) { $~[:first].upcase }"###,
        r###""heLlo""###,
    ),
    (r###""a,b;c".split(/[,;]/)"###, r###"["a", "b", "c"]"###),
    (
        r###""a1b2c".split(/(\d)/)"###,
        r###"["a", "1", "b", "2", "c"]"###,
    ),
    (r###""abc".split(//)"###, r###"["a", "b", "c"]"###),
    (r###""日本".split(//)"###, r###"["日", "本"]"###),
    (r###"" a  b ".split(/\s+/)"###, r###"["", "a", "b"]"###),
    (r###""a,b,c".split(/,/, 2)"###, r###"["a", "b,c"]"###),
    (r###""a,b,,".split(/,/)"###, r###"["a", "b"]"###),
    (r###""a,b,,".split(/,/, -1)"###, r###"["a", "b", "", ""]"###),
    (r###""".split(/,/)"###, r###"[]"###),
    (r###""a b".split(" ")"###, r###"["a", "b"]"###),
    (r###""a,b".split(",")"###, r###"["a", "b"]"###),
    (r###""foo bar".index(/o+/)"###, r###"1"###),
    (r###""日本語本".index(/本/, 2)"###, r###"3"###),
    (r###""foo".index(/x/)"###, r###"nil"###),
    (r###""foo boo".rindex(/o/)"###, r###"6"###),
    (r###""foo boo".rindex(/o/, 3)"###, r###"2"###),
    (r###""foo".index("o")"###, r###"1"###),
    (r###""foobar"[/o+b/]"###, r###""oob""###),
    (r###""foobar"[/(o+)(b)/, 2]"###, r###""b""###),
    (r###""foobar".slice(/b(?<x>a)/, :x)"###, r###""a""###),
    (r###""foobar"[1, 2]"###, r###""oo""###),
    (r###""foobar"["ob"]"###, r###""ob""###),
    (r###""foobar"[/x/]"###, r###"nil"###),
    (r###""a-b-c".partition(/-/)"###, r###"["a", "-", "b-c"]"###),
    (r###""a-b-c".partition("-")"###, r###"["a", "-", "b-c"]"###),
    (r###""abc".partition(/x/)"###, r###"["abc", "", ""]"###),
    (
        r###"Regexp.escape("a.b*c[d] e-f")"###,
        r###""a\\.b\\*c\\[d\\]\\ e\\-f""###,
    ),
    (
        r###"Regexp.union("a.b", /c|d/i).source"###,
        r###""a\\.b|(?i-mx:c|d)""###,
    ),
    (
        r###"Regexp.new("a.c", Regexp::MULTILINE) =~ "a\nc""###,
        r###"0"###,
    ),
    (r###"Regexp.new("A", true) =~ "a""###, r###"0"###),
    (r###"/a/ix.options"###, r###"3"###),
    (r###"/a\/b/.source"###, r###""a/b""###),
    (r###"/ab/mi.inspect"###, r###""/ab/mi""###),
    (r###"/ab/i.to_s"###, r###""(?i-mx:ab)""###),
    (r###"/a/ == /a/"###, r###"true"###),
    (r###"/a/ == /a/i"###, r###"false"###),
    (r###"x = "b"; /a#{x}c/ =~ "xabc""###, r###"1"###),
    (r###"/#{/a/i}b/ =~ "Ab""###, r###"0"###),
    (r###"%w[apple bob cat].grep(/^b/)"###, r###"["bob"]"###),
    (r###""abc" !~ /z/"###, r###"true"###),
    (r###":abc =~ /c/"###, r###"2"###),
    (r###"nil =~ /a/"###, r###"nil"###),
    (r###"Regexp.new("(")"###, r###"RegexpError"###),
    (r###""ab" =~ "b""###, r###"TypeError"###),
    (r###"/(?<!\.)\bcom\b/ =~ "x.com com""###, r###"6"###),
    (
        r###""x=1&y=2".scan(/(\w+)=(\w+)/).to_h"###,
        r###"{"x"=>"1", "y"=>"2"}"###,
    ),
    (
        r###""Mozilla/5.0 (iPhone; CPU)" =~ /iPhone|Android/"###,
        r###"13"###,
    ),
    (
        r###""/index.php?x=1".sub(/\?.*\z/, "")"###,
        r###""/index.php""###,
    ),
    (
        r###""path//to///x".gsub(%r{/+}, "/")"###,
        r###""path/to/x""###,
    ),
    (
        r###""example.com:8080"[/\A([^:]+)(?::(\d+))?\z/, 2]"###,
        r###""8080""###,
    ),
    (r###""a" * 3 =~ /a{3}/"###, r###"0"###),
    (
        r###""foo.bar.baz".split(".", 2)"###,
        r###"["foo", "bar.baz"]"###,
    ),
    (
        r###""title case".gsub(/\b(\w)/) { $1.upcase }"###,
        r###""Title Case""###,
    ),
    (r###"/(\d+)/.match("a12b34").post_match"###, r###""b34""###),
    (r###""ab12cd".tr("a-c", "x")"###, r###""xx12xd""###),
    (r###"/\A[[:space:]]*\z/.match?(" \t")"###, r###"true"###),
    (r###""caf\u00e9" =~ /\u00e9/"###, r###"3"###),
    (r###"("abc".gsub(/b/) { "x" }; $~[0])"###, r###""b""###),
    (r###"/(?:(a)|b)*/.match("ab").to_a"###, r###"["ab", "a"]"###),
    (r###"/a(?=b)/.match("ab").to_s"###, r###""a""###),
    (
        r###"/\p{Katakana}+/.match("ひらカタ")[0]"###,
        r###""カタ""###,
    ),
    (
        r###"/(a)|(b)/.match("b").values_at(1, 2)"###,
        r###"[nil, "b"]"###,
    ),
    (
        r###"/x/.match("axb").inspect"###,
        r###""#<MatchData \"x\">""###,
    ),
    (
        r###"/(?<n>x)/.match("axb").inspect"###,
        r###""#<MatchData \"x\" n:\"x\">""###,
    ),
];

#[test]
fn patterns_do_what_they_do_in_ruby() {
    bed::check(TABLE, "e.class.to_s");
}

#[test]
fn what_one_request_matched_no_other_sees() {
    on_a_worker(async {
        let interpreter = interpreter();
        let slow = code("'abc' =~ /(b)/; sleep 0.05; [$1, $&].inspect");
        let quick = code("x = $1.inspect; 'xyz' =~ /(y)/; x");
        let (mut one, mut other) = (Trial::get("/"), Trial::get("/"));
        let (slow, quick) = tokio::join!(
            interpreter.run(Phase::Access, &slow, Some(&mut one)),
            interpreter.run(Phase::Access, &quick, Some(&mut other)),
        );
        assert_eq!(slow.expect("it runs").value, Datum::from("[\"b\", \"b\"]"));
        assert_eq!(quick.expect("it runs").value, Datum::from("nil"));
        for _ in 0..3 {
            let ran = run(&interpreter, "x = $~.inspect; 'q' =~ /q/; x", &mut one).await;
            assert_eq!(ran.expect("it runs").value, Datum::from("nil"));
        }
    });
}

#[test]
fn a_wait_inside_of_a_block_of_gsub_is_one() {
    let script = "'a1b2'.gsub(/(\\d)/) { sleep 0.001; \"<#{$1}>\" }";
    assert_eq!(bed::value(script), Datum::from("a<1>b<2>"));
}

#[test]
fn an_endless_match_ends_in_an_error() {
    for script in [
        "('a' * 40 + 'b') =~ /(a+)+\\1*$/",
        "('a' * 40 + 'b').gsub(/(a|a)*\\1c/, '')",
        "/(a*)*\\1c/.match?('a' * 40)",
    ] {
        let said = failure(script);
        let is_told = said.contains("given up after") || said.contains("used up its CPU time");
        assert!(is_told, "{script}: {said}");
    }
    let said = failure("Regexp.new('(')");
    assert!(
        said.contains("RegexpError") && said.contains("a ( without its )"),
        "{said}"
    );
}

#[test]
fn patterns_made_at_run_time_are_bounded() {
    on_a_worker(async {
        let mut settings = settings();
        settings.budgets.cpu = std::time::Duration::from_secs(60);
        let interpreter = Interpreter::open(settings, Default::default()).expect("it opens");
        let mut request = Trial::get("/");
        let keep = "$all = []; 2000.times { |n| $all << Regexp.new('(?:ab){2000}' + n.to_s) }";
        let said = run(&interpreter, keep, &mut request).await;
        let said = said.expect_err("it is too much").to_string();
        assert!(said.contains("32 MiB"), "{said}");
    });
}
