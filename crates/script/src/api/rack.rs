//! `run app`: a rack application as a script.
//!
//! The environment is made in Rust, the rest in Ruby, since the application may wait.

use mruby::{Answer, Datum};

use super::chapter::{Chapter, InRuby, takes};
use super::entries::function;
use super::native::{answered, request};
use crate::request::Property;
use crate::state::NativeCall;

pub(super) const CHAPTER: Chapter = Chapter {
    title: "Rack",
    text: "",
    classes: &[],
    constants: &[],
    methods: &[function(
        &["Nagaya"],
        &["__rack_env"],
        (takes(0, 0), ""),
        "",
        environment,
    )],
    in_ruby: &[InRuby {
        name: "run",
        arguments: "app",
        waits: "what the application waits for",
        doc: "Calls `app.call(env)` and answers the request with the `[status, headers, body]` it \
              gives. `nil` lets the request go on; a status of `nil` leaves the status alone. Headers \
              are a Hash or an Array of pairs, a value is a String (with a line for each of several \
              values) or an Array; `Content-Length`, `Transfer-Encoding` and `Connection` are the \
              gateway's own and passed over. The body has `each`. `env` has what CGI has, and \
              `rack.input` (`read`, `gets`, `each`, `rewind`, `size`), `rack.logger` and `rack.errors`.",
    }],
    prelude: RUBY,
};

const RUBY: &str = "
class Nagaya::RackInput
  def initialize(request)
    @request = request
    @at = 0
  end
  def read(length = nil, buffer = nil)
    length ||= size - @at
    part = text.byteslice(@at, length) || ''
    return nil if part.empty? && length > 0 && @at >= size
    @at += part.bytesize
    buffer ? buffer.replace(part) : part
  end
  def gets
    rest = text.byteslice(@at, size) || ''
    return nil if rest.empty?
    feed = rest.index(\"\\n\")
    line = feed ? rest[0..feed] : rest
    @at += line.bytesize
    line
  end
  def each
    while line = gets
      yield line
    end
    self
  end
  def rewind() @at = 0 end
  def size() text.bytesize end
  def close() nil end
  private
  def text
    @text ||= ['POST', 'PUT', 'PATCH'].include?(@request.method) ? @request.body.to_s : ''
  end
end
class Nagaya::RackLogger
  def initialize(server) @server = server end
  def emerg(text = nil) @server.errlogger(@server::LOG_EMERG, text || yield) end
  def alert(text = nil) @server.errlogger(@server::LOG_ALERT, text || yield) end
  def crit(text = nil) @server.errlogger(@server::LOG_CRIT, text || yield) end
  def fatal(text = nil) @server.errlogger(@server::LOG_CRIT, text || yield) end
  def error(text = nil) @server.errlogger(@server::LOG_ERR, text || yield) end
  def warn(text = nil) @server.errlogger(@server::LOG_WARN, text || yield) end
  def notice(text = nil) @server.errlogger(@server::LOG_NOTICE, text || yield) end
  def info(text = nil) @server.errlogger(@server::LOG_INFO, text || yield) end
  def debug(text = nil) @server.errlogger(@server::LOG_DEBUG, text || yield) end
  def puts(text) error(text) end
  def write(text) error(text) end
  def flush() self end
end
module Nagaya
  def self.__rack_headers(headers)
    pairs = headers.is_a?(Hash) ? headers.to_a : headers
    unless pairs.is_a?(Array) && pairs.all? { |pair| pair.is_a?(Array) && pair.size == 2 }
      raise TypeError, 'the headers of a rack application are a Hash or an Array of pairs'
    end
    fields = {}
    pairs.each do |name, value|
      field = (fields[name.to_s.downcase] ||= [name.to_s, []])
      field[1].concat(value.is_a?(Array) ? value : value.to_s.split(\"\\n\"))
    end
    ['content-length', 'transfer-encoding', 'connection'].each { |name| fields.delete(name) }
    fields.values
  end
end
module Kernel
  def run(app)
    server = get_server_class
    request = server::Request.new
    env = Nagaya.__rack_env
    env['rack.input'] = Nagaya::RackInput.new(request)
    env['rack.logger'] = env['rack.errors'] = Nagaya::RackLogger.new(server)
    answer = app.call(env)
    return if answer.nil?
    unless answer.is_a?(Array) && answer.size == 3 && answer[2].respond_to?(:each)
      raise TypeError, 'a rack application answers [status, headers, body], the body with each'
    end
    status, headers, body = answer
    fields = Nagaya.__rack_headers(headers)
    fields.each do |name, values|
      if name.downcase == 'content-type'
        request.content_type = values.last
      else
        Nginx::Headers_out.new[name] = values
      end
    end
    body.each { |part| server.rputs(part) }
    body.close if body.respond_to?(:close)
    server.return(status.to_i) unless status.nil?
    nil
  end
end
";

const PROPERTIES: &[(&str, Property)] = &[
    ("REQUEST_METHOD", Property::Method),
    ("PATH_INFO", Property::Uri),
    ("REQUEST_URI", Property::UnparsedUri),
    ("QUERY_STRING", Property::Args),
    ("SERVER_NAME", Property::Host),
    ("SERVER_ADDR", Property::LocalAddress),
    ("SERVER_PORT", Property::LocalPort),
    ("SERVER_PROTOCOL", Property::Protocol),
    ("REMOTE_ADDR", Property::RemoteAddress),
    ("REMOTE_PORT", Property::RemotePort),
    ("rack.url_scheme", Property::Scheme),
];

const FLAGS: &[(&str, bool)] = &[
    ("rack.multithread", false),
    ("rack.multiprocess", true),
    ("rack.run_once", false),
    ("rack.hijack?", false),
];

fn environment(call: &mut NativeCall<'_>) -> Answer {
    answered(request(call).map(|request| {
        let mut all = vec![
            (Datum::from("SCRIPT_NAME"), Datum::from("")),
            (Datum::from("server.name"), Datum::from("Nagaya")),
            (
                Datum::from("server.version"),
                Datum::from(env!("CARGO_PKG_VERSION")),
            ),
        ];
        for (name, property) in PROPERTIES {
            let mut value = Vec::new();
            request.read(*property, &mut value);
            all.push((Datum::from(*name), Datum::Bytes(value)));
        }
        all.extend(
            FLAGS
                .iter()
                .map(|(name, flag)| ((*name).into(), (*flag).into())),
        );
        all.extend(super::notes::fields_as_variables(request));
        Answer::Datum(Datum::Hash(all))
    }))
}
