# A small JSON API: notes that are kept under names.
#
#   GET    /notes         the names
#   GET    /notes/NAME    a note
#   PUT    /notes/NAME    writes one, any JSON
#   DELETE /notes/NAME    takes it away
#
# Use it as the beginning of an API of your own. Notes lie in `Cache`: all workers see them, and
# they are gone when the server stops; Redis or MySQL would keep them.
#
#   [[sites.rules]]
#   match = { path = "/notes*" }
#   handler = { script = "hooks/json_api.rb" }

request = Nginx::Request.new
notes = Cache.new(namespace: "json_api")
name = request.uri.delete_prefix("/notes").delete_prefix("/")

# A status, and what is answered with it.
status, answer =
  begin
    case request.method
    when "GET", "HEAD"
      if name.empty?
        [200, notes.keys.sort]
      elsif note = notes[name]
        [200, JSON.parse(note)]
      else
        [404, { error: "there is no note #{name}" }]
      end
    when "PUT"
      if name.empty? || name.size > 100
        [400, { error: "a name has 1 to 100 characters" }]
      else
        note = JSON.parse(request.body)
        is_new = notes[name].nil?
        notes[name] = JSON.generate(note)
        [is_new ? 201 : 200, note]
      end
    when "DELETE"
      notes.delete(name) ? [204, nil] : [404, { error: "there is no note #{name}" }]
    else
      request.headers_out["Allow"] = "GET, HEAD, PUT, DELETE"
      [405, { error: "notes are asked for with GET, PUT and DELETE" }]
    end
  rescue JSON::ParserError => error
    [400, { error: error.message }]
  end

unless status == 204
  request.content_type = "application/json"
  Nginx.echo JSON.generate(answer)
end
Nginx.return status
