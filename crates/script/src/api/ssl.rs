//! `Nginx::SSL`: whom a handshake is for, and which certificate it shows.

use mruby::Answer;

use super::chapter::Chapter;
use super::entries::{Classes, holder, reader};
use super::native::answered;
use super::request::{breaks, initialize, number, own, property, writer};
use crate::phase::Phase;
use crate::request::{Property, Refused, ShownPart, TlsProperty};
use crate::state::NativeCall;

const SSL: Classes = &["Nginx::SSL"];

/// Longest name of a file.
const PATH_BYTES_MAX: usize = 1_024;
/// Longest chain that is given as data.
const CHAIN_BYTES_MAX: usize = 40 * 1_024;
/// Longest key that is given as data.
const KEY_BYTES_MAX: usize = 16 * 1_024;

pub(super) const CHAPTER: Chapter = Chapter {
    title: "SSL",
    text: "For the phase `ssl_handshake`: the handshake that the script runs for. What it is about can be read in the \
           phases of a request that came over TLS as well. A certificate is named by files or given as data, which \
           goes before files; where a script says nothing of it, the site's own is shown.",
    classes: &[holder("Nginx::SSL")],
    constants: &[],
    methods: &[
        reader(SSL, &["initialize"], "", begin),
        reader(
            SSL,
            &["servername"],
            "The host that the client asks for, in lower case; `\"\"` where it names none.",
            |call| match property(call, Property::Tls(TlsProperty::ServerName)) {
                Answer::Nil => Answer::Bytes(Vec::new()),
                name => name,
            },
        ),
        reader(
            SSL,
            &["tls_version"],
            "The version that both will speak, `\"TLSv1.3\"` or `\"TLSv1.2\"`.",
            |call| property(call, Property::Tls(TlsProperty::Protocol)),
        ),
        reader(SSL, &["local_port"], "The port it connected to.", |call| {
            number(call, Property::LocalPort)
        }),
        writer(
            SSL,
            &["certificate="],
            "Shows the certificate of this PEM file, its chain in it, leaf first. The file lies below a directory of \
             `script_files` of `[tls]`, and is read by the process that reads all certificates.",
            |call| show(call, ShownPart::Certificate, PATH_BYTES_MAX),
        ),
        writer(
            SSL,
            &["certificate_key="],
            "The file of its private key, likewise; it may be left out where the certificate's file has it. The script's \
             process never sees what is in it.",
            |call| show(call, ShownPart::Key, PATH_BYTES_MAX),
        ),
        writer(
            SSL,
            &["certificate_data="],
            "Shows this certificate: its chain in PEM, of at most 40 KiB.",
            |call| show(call, ShownPart::CertificateData, CHAIN_BYTES_MAX),
        ),
        writer(
            SSL,
            &["certificate_key_data="],
            "Its private key in PEM, of at most 16 KiB. What a script has in hand is in the memory of a process that talks \
             with clients: name a file instead where there is one.",
            |call| show(call, ShownPart::KeyData, KEY_BYTES_MAX),
        ),
    ],
    in_ruby: &[],
    prelude: "",
};

/// Makes the receiver an object of the handshake, of whose certificate nothing is said yet.
fn begin(call: &mut NativeCall<'_>) -> Answer {
    let made = initialize(call);
    if call.host.phase == Phase::SslHandshake
        && let Some(request) = call.lent()
    {
        for part in ShownPart::ALL {
            // Whoever has this phase lets it be said.
            let _ = request.write(Property::Shown(part), b"");
        }
    }
    made
}

fn show(call: &mut NativeCall<'_>, part: ShownPart, bytes_max: usize) -> Answer {
    if call.host.phase != Phase::SslHandshake {
        return Answer::runtime_error(format!(
            "a certificate is shown in the phase ssl_handshake, and this is {}",
            call.host.phase
        ));
    }
    let Some(value) = call.bytes(0).map(<[u8]>::to_vec) else {
        return Answer::type_error("a certificate or a key is a String, and this is nil");
    };
    if value.len() > bytes_max {
        return Answer::argument_error(format!("longer than {bytes_max} bytes"));
    }
    if part.is_file() && breaks(&value) {
        return Answer::argument_error("no line breaks and no NUL in the name of a file");
    }
    answered(own(call).and_then(|own| {
        let shown = own.write(Property::Shown(part), &value);
        shown.map_err(|Refused(why)| Answer::runtime_error(why))?;
        Ok(Answer::Argument(0))
    }))
}
