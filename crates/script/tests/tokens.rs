//! What scripts have for tokens, forms and addresses: `JWT`, `URI`, `CGI` and `IPAddr`.

use std::sync::Arc;

use crate::bed::{self, code, on_a_worker, run, settings};
use script::{Datum, Interpreter, Phase, Trial};

/// Public keys, and tokens that were signed elsewhere.
const FIXTURES: &str = include_str!("tokens.rb");

fn check(table: &[(&str, &str)]) {
    bed::check(table, "\"#{e.class}: #{e.message}\"");
}

/// The same for scripts that know the fixtures; of an exception its class alone.
fn check_tokens(table: &[(&str, &str)]) {
    on_a_worker(async {
        let interpreter = Interpreter::open(settings(), Arc::default()).expect("it opens");
        let fixtures = vec![(Phase::Init, code(FIXTURES))];
        interpreter.start(fixtures).await.expect("fixtures");
        for (script, expected) in table {
            let text = format!(
                "begin; ({script}).inspect; rescue StandardError, NotImplementedError => e; e.class.to_s; end"
            );
            let ran = run(&interpreter, &text, &mut Trial::get("/")).await;
            let ran = ran.unwrap_or_else(|failure| panic!("{script}: {failure}"));
            assert_eq!(ran.value, Datum::from(*expected), "{script}");
        }
    });
}

const TANAKA: &str = "\"tanaka\"";

#[test]
fn tokens_that_others_signed_are_verified_by_their_public_keys() {
    check_tokens(&[
        (
            "JWT.decode(TOKENS[:rs256], KEYS[:rsa], true, algorithm: 'RS256')",
            r#"[{"sub"=>"tanaka", "exp"=>32503680000}, {"alg"=>"RS256", "typ"=>"JWT"}]"#,
        ),
        (
            "JWT.decode(TOKENS[:rs256], KEYS[:certificate], true, { algorithms: ['ES256', 'RS256'] })[0]['sub']",
            TANAKA,
        ),
        (
            "JWT.decode(TOKENS[:es256], KEYS[:ec], true, algorithm: 'ES256')[0]['sub']",
            TANAKA,
        ),
        (
            "JWT.decode(TOKENS[:es384], KEYS[:ec_384], true, 'algorithm' => 'ES384')[0]['sub']",
            TANAKA,
        ),
        (
            "JWT.decode(TOKENS[:eddsa], KEYS[:ed], true, algorithm: :EdDSA)[0]['sub']",
            TANAKA,
        ),
        // A block chooses by what nobody has verified yet.
        (
            "JWT.decode(TOKENS[:es256], nil, true, algorithm: 'ES256') { |header, payload| header['alg'] + payload['sub'] == 'ES256tanaka' ? KEYS[:ec] : nil }[0]['sub']",
            TANAKA,
        ),
        // One bit of the payload, of the signature, and a key of somebody else.
        (
            "JWT.decode(TOKENS[:rs256].sub('.eyJ', '.eyK'), KEYS[:rsa], true, algorithm: 'RS256')",
            "JWT::DecodeError",
        ),
        (
            "JWT.decode(JWT.encode({ 'sub' => 'x' }, 'k').split('.')[1].then { |other| TOKENS[:rs256].split('.').then { |a| [a[0], other, a[2]].join('.') } }, KEYS[:rsa], true, algorithm: 'RS256')",
            "JWT::VerificationError",
        ),
        (
            "JWT.decode(TOKENS[:rs256][0..-6] + 'AAAAA', KEYS[:rsa], true, algorithm: 'RS256')",
            "JWT::VerificationError",
        ),
        (
            "JWT.decode(TOKENS[:es256], KEYS[:rsa], true, algorithm: 'ES256')",
            "JWT::DecodeError",
        ),
        (
            "JWT.decode(TOKENS[:es256], KEYS[:ec_384], true, algorithm: 'ES256')",
            "JWT::DecodeError",
        ),
        (
            "JWT.decode(TOKENS[:short_rsa], KEYS[:short_rsa], true, algorithm: 'RS256')",
            "JWT::VerificationError",
        ),
        // The form that X.509 has is not that of tokens.
        (
            "JWT.decode(TOKENS[:es256_as_x509], KEYS[:ec], true, algorithm: 'ES256')",
            "JWT::VerificationError",
        ),
    ]);
}

#[test]
fn no_token_chooses_how_it_is_judged() {
    check_tokens(&[
        // Signed with the text of the public key, as if that were a secret.
        (
            "JWT.decode(TOKENS[:confused], KEYS[:rsa], true, algorithms: ['RS256', 'HS256'])",
            "JWT::DecodeError",
        ),
        (
            "JWT.decode(TOKENS[:confused], KEYS[:rsa], true, algorithm: 'HS256')",
            "JWT::DecodeError",
        ),
        (
            "JWT.decode(TOKENS[:confused], \"\\xEF\\xBB\\xBF \" + KEYS[:rsa], true, algorithm: 'HS256')",
            "JWT::DecodeError",
        ),
        (
            "JWT.decode(TOKENS[:rs256], 'a secret', true, algorithm: 'RS256')",
            "JWT::DecodeError",
        ),
        (
            "JWT.decode(TOKENS[:rs256], KEYS[:rsa], true, algorithm: 'HS256')",
            "JWT::IncorrectAlgorithm",
        ),
        (
            "JWT.decode(TOKENS[:rs256], KEYS[:rsa])",
            "JWT::IncorrectAlgorithm",
        ),
        (
            "JWT.decode(TOKENS[:rs256], KEYS[:rsa], true, algorithms: [])",
            "JWT::IncorrectAlgorithm",
        ),
        (
            "JWT.decode(TOKENS[:rs256], KEYS[:rsa], false)",
            "NotImplementedError",
        ),
        // {"alg":"none"}, {"alg":"None"} and no algorithm at all
        (
            "JWT.decode('eyJhbGciOiJub25lIn0.e30.', '', true, algorithm: 'none')",
            "JWT::IncorrectAlgorithm",
        ),
        (
            "JWT.decode('eyJhbGciOiJub25lIn0.e30.', nil, true, algorithm: 'HS256')",
            "JWT::IncorrectAlgorithm",
        ),
        (
            "JWT.decode('eyJhbGciOiJOb25lIn0.e30.', nil, true, algorithm: 'HS256')",
            "JWT::IncorrectAlgorithm",
        ),
        (
            "JWT.decode('e30.e30.', 'k', true, algorithm: 'HS256')",
            "JWT::IncorrectAlgorithm",
        ),
        (
            "JWT.decode(JWT.encode({}, 'k'), '', true, algorithm: 'HS256')",
            "JWT::DecodeError",
        ),
        (
            "JWT.decode(JWT.encode({}, 'k'), nil, true, algorithm: 'HS256')",
            "JWT::DecodeError",
        ),
        (
            "JWT.decode(JWT.encode({}, 'k', 'HS256', { 'crit' => ['b64'] }), 'k', true, algorithm: 'HS256')",
            "JWT::DecodeError",
        ),
        ("JWT.encode({}, '')", "JWT::EncodeError"),
        ("JWT.encode({}, 'k', 'none')", "JWT::EncodeError"),
    ]);
}

#[test]
fn what_is_no_token_is_said_to_be_none() {
    for broken in [
        "nil",
        "''",
        "'a'",
        "'a.b'",
        "'..'",
        "'e30.e30.e30.e30'",
        "'W10.W10.'",
        "'e30=.e30.'",
        "'a' * 70_000",
        "5",
        "\"\\xff.\\xff.\"",
    ] {
        let script = format!("JWT.decode({broken}, 'k', true, algorithm: 'HS256')");
        check_tokens(&[(&script, "JWT::DecodeError")]);
    }
}

#[test]
fn secrets_sign_and_verify() {
    check_tokens(&[
        // The token of RFC 7515, A.1, which has expired since.
        (
            "JWT.decode('eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk', Base64.urlsafe_decode64('AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow'), true, algorithm: 'HS256', verify_expiration: false)[0]['iss']",
            "\"joe\"",
        ),
        (
            "%w[HS256 HS384 HS512].map { |alg| JWT.decode(JWT.encode({ sub: 'a' }, 'k', alg), 'k', true, algorithm: alg) }",
            r#"[[{"sub"=>"a"}, {"alg"=>"HS256"}], [{"sub"=>"a"}, {"alg"=>"HS384"}], [{"sub"=>"a"}, {"alg"=>"HS512"}]]"#,
        ),
        (
            "JWT.decode(JWT.encode({}, 'k', 'HS256', { 'kid' => '1', 'alg' => 'none' }), 'k', true, algorithm: 'HS256')[1]",
            r#"{"alg"=>"HS256", "kid"=>"1"}"#,
        ),
        (
            "JWT.decode(JWT.encode({}, 'k'), 'K', true, algorithm: 'HS256')",
            "JWT::VerificationError",
        ),
        (
            "JWT.decode(JWT.encode({}, 'k') + 'A', 'k', true, algorithm: 'HS256')",
            "JWT::VerificationError",
        ),
    ]);
}

#[test]
fn claims_are_compared() {
    let decode = |claims: &str, options: &str| {
        format!(
            "JWT.decode(JWT.encode({{ {claims} }}, 'k'), 'k', true, algorithm: 'HS256'{options})[0].size"
        )
    };
    for (claims, options, expected) in [
        ("exp: Time.now.to_i + 60", "", "1"),
        ("exp: Time.now.to_i - 1", "", "JWT::ExpiredSignature"),
        ("exp: Time.now.to_i - 30", ", leeway: 60", "1"),
        ("exp: Time.now.to_i - 30", ", exp_leeway: 60", "1"),
        (
            "exp: Time.now.to_i - 30",
            ", nbf_leeway: 60",
            "JWT::ExpiredSignature",
        ),
        ("exp: 1", ", verify_expiration: false", "1"),
        ("exp: 'soon'", "", "JWT::DecodeError"),
        ("exp: nil", "", "JWT::DecodeError"),
        ("nbf: Time.now.to_i - 1", "", "1"),
        ("nbf: Time.now.to_i + 60", "", "JWT::ImmatureSignature"),
        ("nbf: Time.now.to_i + 30", ", leeway: 60", "1"),
        ("iat: Time.now.to_i + 60", "", "1"),
        (
            "iat: Time.now.to_i + 60",
            ", verify_iat: true",
            "JWT::InvalidIatError",
        ),
        ("iss: 'a'", ", iss: 'a'", "1"),
        ("iss: 'a'", ", iss: ['b', 'a'], verify_iss: true", "1"),
        ("iss: 'a'", ", iss: 'b'", "JWT::InvalidIssuerError"),
        ("sub: 'a'", ", iss: 'b'", "JWT::InvalidIssuerError"),
        ("iss: 'a'", ", iss: []", "JWT::InvalidIssuerError"),
        ("iss: 'a'", ", iss: 'b', verify_iss: false", "1"),
        ("iss: 'a'", ", verify_iss: true", "ArgumentError"),
        ("iss: 'a'", ", iss: nil", "ArgumentError"),
        ("iss: 'a'", ", iss: nil, verify_iss: false", "1"),
        ("aud: ['a', 'b']", ", aud: 'b'", "1"),
        (
            "aud: 'a'",
            ", aud: ['b', 'c'], verify_aud: true",
            "JWT::InvalidAudError",
        ),
        ("sub: 'a'", ", sub: 'b'", "JWT::InvalidSubError"),
        ("jti: ' '", ", verify_jti: true", "JWT::InvalidJtiError"),
        ("jti: '1'", ", verify_jti: true", "1"),
        ("sub: 'a'", ", required_claims: ['sub']", "1"),
        (
            "sub: 'a'",
            ", required_claims: ['sub', 'exp']",
            "JWT::MissingRequiredClaim",
        ),
    ] {
        check_tokens(&[(&decode(claims, options), expected)]);
    }
}

#[test]
fn texts_are_made_fit_for_forms_and_pages() {
    check(&[
        (
            "URI.encode_www_form_component('a b&c=ä*~')",
            "\"a+b%26c%3D%C3%A4*%7E\"",
        ),
        ("URI.encode_www_form_component(5)", "\"5\""),
        ("URI.decode_www_form_component('a+b%26%c3%A4')", "\"a b&ä\""),
        (
            "URI.decode_www_form_component('%4')",
            "ArgumentError: a % in the text has no two digits behind it",
        ),
        (
            "URI.decode_www_form_component('%+1')",
            "ArgumentError: a % in the text has no two digits behind it",
        ),
        ("URI.encode_uri_component('a b')", "\"a%20b\""),
        ("URI.decode_uri_component('a+b%20c')", "\"a+b c\""),
        (
            "URI.encode_www_form('q' => 'a b', :n => 1, 'x' => nil, 'l' => ['1', '&'])",
            "\"q=a+b&n=1&x&l=1&l=%26\"",
        ),
        (
            "URI.encode_www_form([['a', 'b'], ['a', 'c']])",
            "\"a=b&a=c\"",
        ),
        (
            "URI.decode_www_form('a=1&b=%3D+&&c')",
            r#"[["a", "1"], ["b", "= "], ["c", ""]]"#,
        ),
        ("URI.decode_www_form('&a' * 2_000).size", "1000"),
        ("CGI.escape('*~ /')", "\"%2A~+%2F\""),
        ("CGI.unescape('a+%2F%zz%')", "\"a /%zz%\""),
        (
            "CGI.escapeURIComponent('a b') + HTTP::URL.encode('/') + HTTP::URL.decode('%2f+')",
            "\"a%20b%2F/+\"",
        ),
        (
            "CGI.escapeHTML(%q(<a href=\"x\">'&'))",
            "\"&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;\"",
        ),
        ("Nginx::Utils.escape('a b*~')", "\"a%20b%2A~\""),
    ]);
}

#[test]
fn addresses_and_networks_are_compared() {
    check(&[
        ("IPAddr.new('10.0.0.0/8').include?('10.255.0.1')", "true"),
        (
            "IPAddr.new('10.0.0.0/8').include?(IPAddr.new('11.0.0.1'))",
            "false",
        ),
        ("IPAddr.new('10.0.0.0/8').include?('10.0.0.0/7')", "false"),
        ("IPAddr.new('10.0.0.0/8') === '10.1.0.0/16'", "true"),
        (
            "case IPAddr.new('192.0.2.7') when IPAddr.new('10.0.0.0/8') then 1 when IPAddr.new('192.0.2.0/24') then 2 end",
            "2",
        ),
        (
            "IPAddr.new('10.0.0.0/8').include?('::ffff:10.0.0.1')",
            "true",
        ),
        ("IPAddr.new('::/0').include?('10.0.0.1')", "false"),
        (
            "IPAddr.new('2001:db8::/32').include?('2001:db8:1::1')",
            "true",
        ),
        (
            "IPAddr.new('192.0.2.77/255.255.255.0').to_s",
            "\"192.0.2.0\"",
        ),
        ("IPAddr.new('192.0.2.77/24').cidr", "\"192.0.2.0/24\""),
        (
            "[IPAddr.new('10.1.2.3').mask(8), IPAddr.new('10.1.2.3').mask('255.255.0.0')].map(&:cidr)",
            r#"["10.0.0.0/8", "10.1.0.0/16"]"#,
        ),
        (
            "IPAddr.new('[2001:db8::1]').to_string",
            "\"2001:0db8:0000:0000:0000:0000:0000:0001\"",
        ),
        (
            "IPAddr.new('192.0.2.0/24').inspect",
            "\"#<IPAddr: IPv4:192.0.2.0/255.255.255.0>\"",
        ),
        (
            "IPAddr.new('10.0.0.1') == '10.0.0.1' && IPAddr.new('10.0.0.1') == IPAddr.new('10.0.0.1/32')",
            "true",
        ),
        (
            "IPAddr.new('10.0.0.1') == nil || IPAddr.new('10.0.0.1') == 'x'",
            "false",
        ),
        (
            "{ IPAddr.new('10.0.0.1') => 1 }[IPAddr.new('10.0.0.1')]",
            "1",
        ),
        (
            "%w[10.0.0.2 10.0.0.1].map { |text| IPAddr.new(text) }.sort.map(&:to_s)",
            r#"["10.0.0.1", "10.0.0.2"]"#,
        ),
        ("IPAddr.new('10.0.0.1') <=> 'x'", "nil"),
    ]);
}

#[test]
fn addresses_tell_of_themselves() {
    check(&[
        (
            "IPAddr.new('192.0.2.0/24').to_range.last.to_s",
            "\"192.0.2.255\"",
        ),
        ("IPAddr.new('0.0.1.2').to_i", "258"),
        (
            "IPAddr.new('::1').to_i",
            "RangeError: an address of IPv6 has 128 bits",
        ),
        (
            "['127.0.0.9', '::1', '::ffff:127.0.0.1', '10.0.0.1'].map { |text| IPAddr.new(text).loopback? }",
            "[true, true, true, false]",
        ),
        (
            "['10.0.0.1', 'fd00::1', '172.32.0.1'].map { |text| IPAddr.new(text).private? }",
            "[true, true, false]",
        ),
        (
            "[IPAddr.new('::1').ipv4?, IPAddr.new('::1').ipv6?, IPAddr.new('::1').prefix]",
            "[false, true, 128]",
        ),
        (
            "IPAddr.new('10.0.0.256')",
            "IPAddr::InvalidAddressError: invalid address: 10.0.0.256",
        ),
        (
            "IPAddr.new('10.0.0.1/33')",
            "IPAddr::InvalidPrefixError: invalid prefix: 10.0.0.1/33",
        ),
        (
            "IPAddr.new('10.0.0.1/255.0.255.0')",
            "IPAddr::InvalidPrefixError: invalid prefix: 10.0.0.1/255.0.255.0",
        ),
        (
            "begin; IPAddr.new('010.0.0.1'); rescue IPAddr::Error => e; e.class; end",
            "IPAddr::InvalidAddressError",
        ),
        ("IPAddr.new(5)", "TypeError: an IPAddr is made of a String"),
        (
            "IPAddr.allocate.to_s",
            "TypeError: this IPAddr was made without IPAddr.new",
        ),
    ]);
}
