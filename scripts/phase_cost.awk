# Adds up callgrind's counts by phase of the pipeline, one column for each file.
#
# A line belongs to the phase of the source file it stands in. What was inlined from a library
# goes with the line before it; a function of a library costs those who call it, by what each
# call cost. The runtime is a phase, not a library.

function phase(path, name) {
    if (path ~ /^engine\/outbox/) return "send"
    if (path ~ /^(engine\/io|os\/stream)/) return name ~ /write|send|finish|[Rr]eply|outbox/ ? "send" : "read, parse heads"
    if (path ~ /^(wire|httparse)|^engine\/(buffer|decoding|exchange\/h1\/body)/) return "read, parse heads"
    if (path ~ /^engine\/(stats|access_log)/) return "record, counters"
    if (path ~ /^engine\/(handler|upstream)/) return "handler"
    if (path ~ /^engine\/(pipeline|client|site|glob|generation|resolve|admission|exchange\/(route|request))/) return "route, rules"
    if (path ~ /^engine\/(exchange|fields|status|error_reply)/) return "reply head"
    if (path ~ /^(tokio|mio)|^engine\/(listener|worker|thread|board|deadline|clock|warden|server)/) return "event loop, accept"
    return ""
}

# engine/site for .../crates/engine/src/site.rs, tokio/io for .../tokio-1.2.3/src/io.rs
function of_file(file) {
    if (sub(/.*\/crates\//, "", file)) { sub(/\/src\//, "/", file); return file }
    if (file ~ /\/registry\/src\//) { sub(/.*\/registry\/src\/[^\/]*\//, "", file); sub(/-[0-9][^\/]*\/src\//, "/", file); return file }
    return ""
}

# engine/site/Site for <engine::site::Site as ...>::...
function of_name(name) { sub(/^[<&]*/, "", name); gsub(/::/, "/", name); return name }

function close_column(  i, name, to, share) {
    for (i = 0; i < 50; i++)
        for (name in library) {
            share = library[name]
            if (!(name in weight) || share < 1) continue
            library[name] = 0
            for (to in callers) {
                split(to, edge, "\t")
                if (edge[1] != name) continue
                if (edge[2] == "phase") cost[edge[3], column] += share * callers[to] / weight[name]
                else library[edge[3]] += share * callers[to] / weight[name]
            }
        }
    for (name in library) cost["the rest", column] += library[name]
    delete library; delete callers; delete weight
}

FNR == 1 { if (column) close_column(); column++; title[column] = FILENAME; gsub(/.*\/|\.cost/, "", title[column]) }
/^f[lie]=/ { file = substr($0, 4); in_file = phase(of_file(file), name); if (in_file) near = in_file; next }
/^fn=/ { name = substr($0, 4); in_name = phase(of_name(name), name); near = phase(of_file(file), name); next }
/^cfn=/ { callee = substr($0, 5); next }
/^calls=/ {
    getline
    if (callee != name && !phase(of_name(callee), callee)) {
        here = near ? near : in_name
        to = callee "\t" (here ? "phase\t" here : "name\t" name)
        callers[to] += $2; weight[callee] += $2
    }
    next
}
/^[0-9]+ [0-9]+$/ {
    here = near ? near : in_name
    if (here) cost[here, column] += $2; else library[name] += $2
}
END {
    close_column()
    order = split("event loop, accept;read, parse heads;route, rules;handler;reply head;send;record, counters;the rest", phases, ";")
    printf "%-20s", "phase"; for (c = 1; c <= column; c++) printf "%10s", title[c]; print ""
    for (i = 1; i <= order; i++) {
        printf "%-20s", phases[i]
        for (c = 1; c <= column; c++) { total[c] += cost[phases[i], c]; printf "%10d", cost[phases[i], c] / requests }
        print ""
    }
    printf "%-20s", "together"; for (c = 1; c <= column; c++) printf "%10d", total[c] / requests; print ""
}
