//! The table of the API's cases, each with a made-up request.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::bed::{code, on_a_worker, settings};
use script::{Interpreter, Phase, Property, Redirect, Trial};
use testkit::script_cases::{ScriptCase, cases};

const ROOT: &str = "/srv/www";
const PORT: &str = "8080";

/// More than by default, for machines with more to do.
const CPU: Duration = Duration::from_secs(2);

#[test]
fn every_case_holds_of_a_made_up_request() {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors");
    let cases: Vec<ScriptCase> = cases(&vectors)
        .into_iter()
        .filter(|case| case.only.as_deref() != Some("server"))
        .map(|case| {
            case.filled(&[
                ("{root}", ROOT),
                ("{port}", PORT),
                ("{app}", "app"),
                ("{two}", "two"),
            ])
        })
        .collect();
    assert!(cases.len() >= 150, "{} cases", cases.len());
    let failed = on_a_worker(async {
        let mut settings = settings();
        settings.budgets.cpu = CPU;
        let interpreter = Interpreter::open(settings, Arc::default()).expect("it opens");
        let mut failed = Vec::new();
        for case in &cases {
            if let Err(why) = check(&interpreter, case).await {
                failed.push(format!("{}: {why}", case.id));
            }
        }
        failed
    });
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Runs a case as the engine would.
async fn check(interpreter: &Rc<Interpreter>, case: &ScriptCase) -> Result<(), String> {
    let mut request = request(case);
    let ran = run(interpreter, case, &mut request).await;
    let status = match &ran {
        Err(_) => 500,
        Ok(()) => status(&request),
    };
    if let Err(why) = &ran
        && case.status != 500
    {
        return Err(why.clone());
    }
    let body = match request.properties.get(&Property::Body) {
        Some(filtered) if case.body_filter.is_some() => filtered,
        _ => &request.scope.output,
    };
    let shown = String::from_utf8_lossy(body);
    if status != i64::from(case.status) {
        return Err(format!("status {status}, not {}: {shown}", case.status));
    }
    if ran.is_ok() && !case.says.holds(body) {
        return Err(format!("says {shown}, not {:?}", case.says));
    }
    fields_hold(case, &request)
}

async fn run(
    interpreter: &Rc<Interpreter>,
    case: &ScriptCase,
    request: &mut Trial,
) -> Result<(), String> {
    let one = async |phase, text: &str, request: &mut Trial| {
        let ran = interpreter.run(phase, &code(text), Some(request)).await;
        ran.map(drop).map_err(|failure| failure.to_string())
    };
    if let Some(text) = &case.rewrite {
        one(Phase::Rewrite, text, request).await?;
    }
    one(Phase::Content, &case.content, request).await?;
    if let Some(Redirect::Inside { target }) = request.scope.redirect.take_if(is_inside) {
        go(request, &String::from_utf8_lossy(&target));
        one(Phase::Content, &case.content, request).await?;
    }
    if let Some(text) = &case.header_filter {
        one(Phase::HeaderFilter, text, request).await?;
    }
    if let Some(text) = &case.body_filter {
        let body = request.scope.output.clone();
        request.properties.insert(Property::Body, body);
        one(Phase::BodyFilter, text, request).await?;
    }
    Ok(())
}

fn is_inside(redirect: &mut Redirect) -> bool {
    matches!(redirect, Redirect::Inside { .. })
}

/// The request is sent to another path and query.
fn go(request: &mut Trial, target: &str) {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let changed = [(Property::Uri, path), (Property::Args, query)];
    for (property, value) in changed {
        request.properties.insert(property, value.into());
    }
    request.scope.redirects += 1;
    request.scope.output.clear();
    request.scope.returned = None;
}

fn request(case: &ScriptCase) -> Trial {
    let mut trial = Trial::get(&case.target);
    let host = case.host();
    let line = format!("{} {} HTTP/1.1", case.method, case.target);
    let known = [
        (Property::Method, &*case.method),
        (Property::RequestLine, &line),
        (Property::Host, &host),
        (Property::HttpHost, &host),
        (Property::SiteName, &host),
        (Property::Tenant, &host),
        (Property::RemoteAddress, "127.0.0.1"),
        (Property::LocalAddress, "127.0.0.1"),
        (Property::LocalPort, PORT),
        (Property::DocumentRoot, ROOT),
        (Property::Handler, "script"),
        (Property::ConnectionRequests, "1"),
    ];
    for (property, value) in known {
        trial.properties.insert(property, value.into());
    }
    if !case.target.contains('?') {
        trial.properties.remove(&Property::Args);
    }
    trial.fields_in = vec![(b"Host".to_vec(), host.into_bytes())];
    let fields = case.fields.iter();
    let fields = fields.map(|(name, value)| (name.clone().into(), value.clone().into()));
    trial.fields_in.extend(fields);
    if let Some(body) = &case.body {
        trial.body = body.clone().into_bytes();
        let length = body.len().to_string().into_bytes();
        trial
            .properties
            .insert(Property::ContentLength, length.clone());
        trial.fields_in.push((b"Content-Length".to_vec(), length));
    }
    trial
}

fn status(request: &Trial) -> i64 {
    if let Some(Redirect::Outside { status, .. }) = request.scope.redirect {
        return status.into();
    }
    let given = request.properties.get(&Property::Status);
    let given = given.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    let returned = request.scope.returned.filter(|status| *status >= 100);
    returned.or(given).unwrap_or(200)
}

fn fields_hold(case: &ScriptCase, request: &Trial) -> Result<(), String> {
    let mut fields = request.fields_out.clone();
    if let Some(Redirect::Outside { location, .. }) = &request.scope.redirect {
        fields.push((b"Location".to_vec(), location.clone()));
    }
    let has = |name: &str, value: Option<&str>| {
        let mut named = fields
            .iter()
            .filter(|(known, _)| known.eq_ignore_ascii_case(name.as_bytes()));
        named.any(|(_, known)| value.is_none_or(|value| known == value.as_bytes()))
    };
    for (name, value) in &case.has {
        if !has(name, Some(value)) {
            return Err(format!("no field {name}: {value}"));
        }
    }
    match case.lacks.iter().find(|name| has(name, None)) {
        Some(name) => Err(format!("has the field {name}")),
        None => Ok(()),
    }
}
