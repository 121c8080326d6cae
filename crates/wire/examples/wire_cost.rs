//! Repeats one piece of work, so that its instructions can be counted: `wire_cost WORK TIMES`.
//!
//! Run by `scripts/wire_cost.sh`, which takes the difference between two counts of repetitions.

use std::{env, hint::black_box, process::ExitCode};

use wire::{
    BodyCaps, BodyDecoder, Framing, HeadCaps, Method, PathRules, ReplyHead, RequestHead,
    strip_hop_by_hop,
};

const WRK: &[u8] = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n";
const BROWSER: &[u8] = b"GET /assets/js/app.min.js?v=20260101 HTTP/1.1\r\n\
    Host: www.example.jp\r\n\
    Connection: keep-alive\r\n\
    sec-ch-ua: \"Chromium\";v=\"140\", \"Not=A?Brand\";v=\"24\"\r\n\
    sec-ch-ua-mobile: ?0\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36\r\n\
    Accept: */*\r\n\
    Sec-Fetch-Site: same-origin\r\n\
    Sec-Fetch-Mode: no-cors\r\n\
    Sec-Fetch-Dest: script\r\n\
    Referer: https://www.example.jp/\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Accept-Language: ja,en-US;q=0.9,en;q=0.8\r\n\
    Cookie: session=0123456789abcdef0123456789abcdef; theme=dark\r\n\
    If-None-Match: \"5f3c-18c9a2b7d40\"\r\n\r\n";
const REPLY: &[u8] =
    b"HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
    Content-Type: text/plain\r\nContent-Length: 13\r\nConnection: keep-alive\r\n\r\n";
const CHUNKED: &[u8] = b"d\r\nHello, world!\r\n0\r\n\r\n";

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let (Some(work), Some(Ok(times))) = (
        arguments.next(),
        arguments.next().map(|times| times.parse::<u32>()),
    ) else {
        eprintln!("usage: wire_cost wrk|browser|escaped|partial|reply|chunked TIMES");
        return ExitCode::from(2);
    };
    let (mut request, mut reply) = (RequestHead::default(), ReplyHead::default());
    let escaped = [b"GET /a%20b/../%7Euser/c%2Bd", &WRK[5..]].concat();
    let partial = [&BROWSER[..BROWSER.len() - 2], b"X: ", &[b'y'; 8000]].concat();
    for _ in 0..times {
        match work.as_str() {
            "wrk" => take_request(&mut request, WRK),
            "browser" => take_request(&mut request, BROWSER),
            "escaped" => take_request(&mut request, &escaped),
            "partial" => take_request(&mut request, &partial),
            "reply" => {
                let parsed = reply.parse(black_box(REPLY), Method::Get, &HeadCaps::default());
                strip_hop_by_hop(&mut reply.fields);
                black_box((parsed.is_ok(), reply.framing));
            }
            _ => {
                let mut decoder = BodyDecoder::new(Framing::Chunked, &BodyCaps::default());
                black_box(decoder.decode(black_box(CHUNKED)).is_ok());
            }
        }
    }
    ExitCode::SUCCESS
}

fn take_request(request: &mut RequestHead, bytes: &[u8]) {
    let parsed = request.parse(black_box(bytes), &HeadCaps::default());
    let path = request.canonicalize(PathRules::default());
    black_box((parsed.is_ok(), path.is_ok(), request.host(), request.path()));
}
