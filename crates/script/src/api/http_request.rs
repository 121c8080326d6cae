//! `HttpRequest`: the class of mruby-httprequest, on our own client.
//!
//! It speaks HTTP/1.1 and keeps connections, where the original made one for each request. The reply
//! is an object with the original's names: `["body"]`, `["code"]`, `["header"]`, and each field under
//! its name in lower case.

use std::rc::Rc;

use mruby::{Answer, Datum, MethodOf};

use super::chapter::{Chapter, InRuby, Method, takes};
use super::entries::class;
use super::native::wait_for;
use super::stores::{raised, stores};
use crate::state::NativeCall;
use crate::wait::Woken;
use stores::http::{Request, Response};

const fn row(name: &'static str, arguments: &'static str, doc: &'static str) -> InRuby {
    InRuby {
        name,
        arguments,
        waits: "the reply",
        doc,
    }
}

pub(super) const CHAPTER: Chapter = Chapter {
    title: "HttpRequest",
    text: "Requests to other servers, `http` and `https`. A reply has `code` (an Integer), `body`, \
           `header` (its head as one String) and its fields: `reply[\"content-type\"]`, names in \
           lower case, an Array for one that came several times; `reply[\"body\"]` and \
           `reply[\"code\"]` work too. Redirects are not followed. A server that cannot be reached \
           raises RuntimeError.",
    classes: &[class("HttpRequest"), class("HttpRequest::Response")],
    constants: &[],
    methods: &[Method {
        classes: &["HttpRequest"],
        names: &["__ask"],
        of: MethodOf::Object,
        takes: takes(4, 4),
        arguments: "",
        waits: "",
        doc: "",
        native: ask,
    }],
    in_ruby: &[
        row(
            "HttpRequest#get",
            "url, body = nil, headers = {}",
            "Asks with GET.",
        ),
        row("HttpRequest#head", "url, headers = {}", "Asks with HEAD."),
        row(
            "HttpRequest#post",
            "url, body = nil, headers = {}",
            "Asks with POST; a body that is a Hash is sent as a form.",
        ),
        row(
            "HttpRequest#put",
            "url, body = nil, headers = {}",
            "Asks with PUT.",
        ),
        row(
            "HttpRequest#delete",
            "url, headers = {}",
            "Asks with DELETE.",
        ),
        row(
            "HttpRequest#request",
            "method, url, body, headers",
            "Asks with any method.",
        ),
        InRuby {
            name: "HttpRequest#encode_parameters",
            arguments: "parameters, delimiter = '&', quote = nil",
            waits: "",
            doc: "A Hash or Array as the text of a form, percent-encoded.",
        },
    ],
    prelude: PRELUDE,
};

const PRELUDE: &str = r##"
class HttpRequest
  class Response
    attr_reader :code, :status, :header, :body
    def initialize(code, fields, body)
      @code, @body = code, body
      @status = "HTTP/1.1 #{code}"
      @header = ([@status] + fields.map { |name, value| "#{name}: #{value}" }).join("\r\n")
      @all = { 'code' => code, 'body' => body, 'header' => @header, 'status' => @status }
      fields.each { |name, value| @all[name] = @all.key?(name) ? [@all[name], value].flatten : value }
    end
    def [](name) @all[name] end
    def []=(name, value) @all[name] = value end
    def each(&block) @all.each(&block) end
  end
  def get(url, body = nil, headers = {}, &block) request('GET', url, body, headers, &block) end
  def head(url, headers = {}, &block) request('HEAD', url, nil, headers, &block) end
  def post(url, body = nil, headers = {}, &block) request('POST', url, body, headers, &block) end
  def put(url, body = nil, headers = {}, &block) request('PUT', url, body, headers, &block) end
  def delete(url, headers = {}, &block) request('DELETE', url, nil, headers, &block) end
  def request(method, url, body = nil, headers = {})
    fields = (headers || {}).map { |name, value| [name.to_s, value.to_s] }
    if body.is_a?(Hash)
      body = encode_parameters(body)
      form = 'application/x-www-form-urlencoded'
      fields << ['Content-Type', form] unless fields.any? { |name, _| name.downcase == 'content-type' }
    end
    reply = Response.new(*__ask(method.to_s.upcase, url.to_s, body.nil? ? nil : body.to_s, fields))
    yield reply.body if block_given?
    reply
  end
  def encode_parameters(parameters, delimiter = '&', quote = nil)
    texts = if parameters.is_a?(Hash)
      parameters.map { |name, value| "#{escape(name)}=#{quote}#{escape(value)}#{quote}" }
    else
      parameters.map { |value| escape(value) }
    end
    delimiter ? texts.join(delimiter) : texts
  end
  def escape(text)
    escaped = ''
    text.to_s.each_byte do |byte|
      kept = byte >= 97 && byte <= 122 || byte >= 65 && byte <= 90 || byte >= 48 && byte <= 57
      kept ||= byte == 45 || byte == 46 || byte == 95 || byte == 126
      escaped << (kept ? byte.chr : sprintf('%%%02X', byte))
    end
    escaped
  end
end
"##;

fn ask(call: &mut NativeCall<'_>) -> Answer {
    let text = |index| String::from_utf8_lossy(call.bytes(index).unwrap_or_default()).into_owned();
    let request = Request {
        method: text(0),
        url: text(1),
        fields: fields(call.datum(3)),
        body: call.bytes(2).unwrap_or_default().to_vec(),
    };
    let server = server_of(&request.url);
    let replied = stores(call).http(request);
    wait_for(call, server, async move {
        match replied.await {
            Ok(response) => Woken::Value(parts(response)),
            Err(error) => raised("RuntimeError", &error),
        }
    })
}

/// What messages call the server of a URL, without what may be secret in it.
fn server_of(url: &str) -> Rc<str> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("the HTTP server {host}").into()
}

/// Pairs of Strings.
fn fields(pairs: Datum) -> Vec<(Vec<u8>, Vec<u8>)> {
    let Datum::Array(pairs) = pairs else {
        return Vec::new();
    };
    let pair = |pair: Datum| match pair {
        Datum::Array(pair) => match <[Datum; 2]>::try_from(pair) {
            Ok([Datum::Bytes(name), Datum::Bytes(value)]) => Some((name, value)),
            _ => None,
        },
        _ => None,
    };
    pairs.into_iter().filter_map(pair).collect()
}

/// Status, fields and body, of which Ruby makes the reply.
fn parts(response: Response) -> Datum {
    let field = |(name, value): (String, Vec<u8>)| {
        Datum::Array(vec![Datum::Bytes(name.into_bytes()), Datum::Bytes(value)])
    };
    Datum::Array(vec![
        Datum::Int(response.status.into()),
        Datum::Array(response.fields.into_iter().map(field).collect()),
        Datum::Bytes(response.body),
    ])
}
