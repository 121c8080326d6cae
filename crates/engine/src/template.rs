//! The texts of a configuration, their variables filled in.

use config::model::{Template, TemplatePart};

use crate::exchange::request::Request;
use crate::maps::answers::Answers;

/// Appends a template's text, its variables filled in from the request, and what it asks of maps
/// from what was answered.
pub(crate) fn expand(template: &Template, request: &Request, answers: &Answers, out: &mut Vec<u8>) {
    let head = &request.head;
    for part in &template.parts {
        match part {
            TemplatePart::Text(text) => out.extend_from_slice(text.as_bytes()),
            TemplatePart::Host => out.extend_from_slice(head.host().as_bytes()),
            TemplatePart::Path => out.extend_from_slice(head.path_wire()),
            TemplatePart::Query => out.extend_from_slice(head.query().unwrap_or_default()),
            TemplatePart::Uri => {
                out.extend_from_slice(head.path_wire());
                if let Some(query) = head.query() {
                    out.push(b'?');
                    out.extend_from_slice(query);
                }
            }
            TemplatePart::Scheme => out.extend_from_slice(request.scheme_word()),
            TemplatePart::Client => out.extend_from_slice(request.client.to_string().as_bytes()),
            TemplatePart::RequestId => out.extend_from_slice(request.id.as_bytes()),
            TemplatePart::TlsClient(fact) => {
                if let Some(tls) = &request.tls {
                    tls.push_client(*fact, out);
                }
            }
            TemplatePart::Method => out.extend_from_slice(head.method_bytes()),
            TemplatePart::Map(lookup) => {
                let mut key = Vec::new();
                expand(&lookup.key, request, answers, &mut key);
                match answers.find(lookup.map, &key).flatten() {
                    Some(answer) => out.extend_from_slice(answer),
                    None => expand(&lookup.default, request, answers, out),
                }
            }
        }
    }
}
