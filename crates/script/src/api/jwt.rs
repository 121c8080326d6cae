//! `JWT`: JSON Web Tokens, verified as the gem `jwt` does where that is safe.

use std::time::{SystemTime, UNIX_EPOCH};

use mruby::{Answer, Datum};

use super::chapter::{Chapter, takes};
use super::entries::{error, function, in_ruby, module};
use super::json;
use super::native::{answered, option};
use crate::state::NativeCall;
use crate::token::{ALGORITHMS, Algorithm, Doubt, Token};

pub(super) const CHAPTER: Chapter = Chapter {
    title: "JWT",
    text: "JSON Web Tokens (RFC 7519) by `HS256`, `HS384`, `HS512` (a secret), `RS256`, `RS384`, `RS512` (RSA from 2,048 \
           bits on), `ES256`, `ES384` and `EdDSA` (a public key or a certificate in PEM; dates and issuer of a certificate \
           are not looked at). Stricter than the gem `jwt`: `algorithms` has to be said, `none` is none, a token that is \
           not verified is not read, a text in PEM is no secret, and `iss`, `aud` and `sub` are compared wherever they are \
           given. All errors but `EncodeError` are a `JWT::DecodeError`.",
    classes: &[
        module("JWT"),
        error("JWT::EncodeError", "StandardError"),
        error("JWT::DecodeError", "StandardError"),
        error("JWT::VerificationError", "JWT::DecodeError"),
        error("JWT::IncorrectAlgorithm", "JWT::DecodeError"),
        error("JWT::ExpiredSignature", "JWT::DecodeError"),
        error("JWT::ImmatureSignature", "JWT::DecodeError"),
        error("JWT::InvalidIssuerError", "JWT::DecodeError"),
        error("JWT::InvalidIatError", "JWT::DecodeError"),
        error("JWT::InvalidAudError", "JWT::DecodeError"),
        error("JWT::InvalidSubError", "JWT::DecodeError"),
        error("JWT::InvalidJtiError", "JWT::DecodeError"),
        error("JWT::MissingRequiredClaim", "JWT::DecodeError"),
    ],
    constants: &[],
    methods: &[
        function(&["JWT"], &["__decode"], (takes(3, 3), ""), "", |call| {
            answered(decode(call))
        }),
        function(&["JWT"], &["__open"], (takes(1, 1), ""), "", |call| {
            answered(open(call))
        }),
    ],
    in_ruby: &[
        in_ruby(
            "JWT.decode",
            "token, key, verify = true, options",
            "`[payload, header]` of a token that `key` has signed and whose time has come and not gone. Options: \
             `algorithm:` or `algorithms:` (needed), `leeway:` (seconds, also `exp_leeway:` and `nbf_leeway:`), `iss:`, \
             `aud:` (each one or several), `sub:`, `required_claims:`, `verify_iat:`, `verify_jti:`; \
             `verify_expiration: false` and `verify_not_before: false` look at no time. Instead of the key a block may \
             be given, which is shown the header and the payload, neither of them verified, and ends with the key.",
        ),
        in_ruby(
            "JWT.encode",
            "payload, secret, algorithm = \"HS256\", header = {}",
            "A token signed by `HS256`, `HS384` or `HS512`; by a private key a script signs nothing.",
        ),
    ],
    prelude: include_str!("ruby/jwt.rb"),
};

/// A failure of a class of this chapter's.
fn raise(class: &'static str, message: impl Into<String>) -> Answer {
    Answer::Raise(class, message.into())
}

fn broken(message: &str) -> Answer {
    raise("JWT::DecodeError", message)
}

/// A token that is three texts in Base64, with its header and its payload.
fn taken_apart<'a>(call: &'a NativeCall<'_>) -> Result<(Token<'a>, Datum, Datum), Answer> {
    let text = call.bytes(0).ok_or_else(|| broken("there is no token"))?;
    let token = Token::split(text)
        .ok_or_else(|| broken("a token is three texts in Base64 with a dot between each"))?;
    let [header, payload] = [&token.header, &token.payload].map(|text| match json::read(text) {
        Ok(table @ Datum::Hash(_)) => Ok(table),
        _ => Err(broken("header and payload of a token are objects in JSON")),
    });
    Ok((token, header?, payload?))
}

fn open(call: &mut NativeCall<'_>) -> Result<Answer, Answer> {
    let (_, header, payload) = taken_apart(call)?;
    Ok(Answer::Datum(Datum::Array(vec![header, payload])))
}

fn decode(call: &mut NativeCall<'_>) -> Result<Answer, Answer> {
    let options = call.datum(2);
    let allowed = allowed(&options)?;
    let (token, header, payload) = taken_apart(call)?;
    let named = texts(option(&header, "alg"));
    let mut fitting = allowed.iter();
    let algorithm = fitting.find(|allowed| named == [allowed.name.as_bytes()]);
    let algorithm = algorithm.ok_or_else(|| {
        raise(
            "JWT::IncorrectAlgorithm",
            "the token names an algorithm that `algorithms` does not have",
        )
    })?;
    if option(&header, "crit").is_some() {
        return Err(broken("the token's header has critical extensions (crit)"));
    }
    let key = call
        .bytes(1)
        .ok_or_else(|| broken("there is no key: a String"))?;
    token.verify(algorithm, key).map_err(|doubt| match doubt {
        Doubt::Key(why) => broken(why),
        Doubt::Signature => raise("JWT::VerificationError", "the signature is not of this key"),
    })?;
    judge_times(&payload, &options)?;
    judge_names(&payload, &options)?;
    Ok(Answer::Datum(Datum::Array(vec![payload, header])))
}

/// What `algorithm` and `algorithms` allow.
fn allowed(options: &Datum) -> Result<Vec<&'static Algorithm>, Answer> {
    let mut allowed = Vec::new();
    for key in ["algorithm", "algorithms"] {
        for name in texts(option(options, key)) {
            allowed.push(Algorithm::of_name(name).ok_or_else(|| {
                let known: Vec<_> = ALGORITHMS.iter().map(|known| known.name).collect();
                let shown = String::from_utf8_lossy(name);
                let known = known.join(", ");
                raise(
                    "JWT::IncorrectAlgorithm",
                    format!("there is no algorithm {shown}; there are {known}"),
                )
            })?);
        }
    }
    match allowed.is_empty() {
        false => Ok(allowed),
        true => Err(raise(
            "JWT::IncorrectAlgorithm",
            "say which algorithms may have signed: algorithms: [\"HS256\"] for a secret, [\"RS256\"] for a public key in PEM",
        )),
    }
}

/// A text, or those of a list.
fn texts<'a>(value: Option<&'a Datum>) -> Vec<&'a [u8]> {
    let all: &'a [Datum] = match value {
        Some(Datum::Array(all)) => all,
        Some(one) => std::slice::from_ref(one),
        None => &[],
    };
    let text = |value: &'a Datum| match value {
        Datum::Bytes(text) | Datum::Symbol(text) => Some(text.as_slice()),
        _ => None,
    };
    all.iter().filter_map(text).collect()
}

fn is_true(options: &Datum, name: &str, unless_said: bool) -> bool {
    option(options, name).map_or(unless_said, |value| {
        !matches!(value, Datum::Nil | Datum::Bool(false))
    })
}

fn number(value: &Datum) -> Option<f64> {
    match value {
        #[allow(clippy::cast_precision_loss, reason = "seconds since 1970")]
        Datum::Int(number) => Some(*number as f64),
        Datum::Float(number) => Some(*number),
        _ => None,
    }
}

/// `exp`, `nbf` and `iat`.
fn judge_times(payload: &Datum, options: &Datum) -> Result<(), Answer> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default().as_secs_f64().floor();
    let claim = |name: &str| match option(payload, name) {
        None => Ok(None),
        Some(value) => match number(value) {
            Some(at) => Ok(Some(at)),
            None => Err(broken(&format!("the claim {name} is no number"))),
        },
    };
    let leeway = |own: &str| {
        let said = option(options, own).or_else(|| option(options, "leeway"));
        said.and_then(number).unwrap_or(0.0)
    };
    if is_true(options, "verify_expiration", true)
        && claim("exp")?.is_some_and(|exp| exp <= now - leeway("exp_leeway"))
    {
        return Err(raise("JWT::ExpiredSignature", "the token has expired"));
    }
    if is_true(options, "verify_not_before", true)
        && claim("nbf")?.is_some_and(|nbf| nbf > now + leeway("nbf_leeway"))
    {
        let message = "the token's time has not come yet";
        return Err(raise("JWT::ImmatureSignature", message));
    }
    if is_true(options, "verify_iat", false) && claim("iat")?.is_some_and(|iat| iat > now) {
        let message = "the token was issued in the future";
        return Err(raise("JWT::InvalidIatError", message));
    }
    Ok(())
}

/// `iss`, `aud`, `sub`, `jti`, and what has to be there.
fn judge_names(payload: &Datum, options: &Datum) -> Result<(), Answer> {
    let required = texts(option(options, "required_claims"));
    for name in required.iter().map(|name| String::from_utf8_lossy(name)) {
        if option(payload, &name).is_none() {
            let message = format!("the token has no claim {name}");
            return Err(raise("JWT::MissingRequiredClaim", message));
        }
    }
    for (name, class) in [
        ("iss", "JWT::InvalidIssuerError"),
        ("aud", "JWT::InvalidAudError"),
        ("sub", "JWT::InvalidSubError"),
    ] {
        let verify = format!("verify_{name}");
        let wanted = option(options, name);
        if !is_true(options, &verify, wanted.is_some()) {
            continue;
        }
        // A setting that is not there must not let every token pass.
        let wanted = wanted.filter(|value| **value != Datum::Nil);
        let wanted = wanted.ok_or_else(|| {
            let message = format!("{name} is to be compared, and is nil or left out");
            Answer::argument_error(message)
        })?;
        let found = texts(option(payload, name));
        if !texts(Some(wanted)).iter().any(|text| found.contains(text)) {
            let message = format!("the token's {name} is not one that is wanted");
            return Err(raise(class, message));
        }
    }
    let jti = texts(option(payload, "jti"));
    if is_true(options, "verify_jti", false) && jti.iter().all(|text| text.trim_ascii().is_empty())
    {
        return Err(raise("JWT::InvalidJtiError", "the token has no jti"));
    }
    Ok(())
}
