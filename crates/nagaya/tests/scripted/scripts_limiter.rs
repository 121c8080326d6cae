//! A limiter of requests per file, as a script: it counts in `Cache` under a global `Mutex`.

use crate::fixtures::php::get;
use testkit::client::{Body, reply};
use testkit::php::Listen;
use testkit::{Gateway, PATIENCE, PhpFpm, TempDir, eventually};

const CONFIG: &str = r#"
workers = 2
[log]
level = "info"
[scripts]
cpu = "1s"
init = "hooks/init.rb"
worker_init = "hooks/worker_init.rb"

[[sites]]
hosts = ["app.test"]
root = "{site}"
  [[sites.rules]]
  match = { file = "*.php" }
  handler = { fastcgi = "{php}" }
  scripts = { access = "hooks/limiter.rb", log = "hooks/limiter_end.rb" }
"#;

const INIT: &str = r#"
class FileLimiter
  def initialize(request, threshold)
    @file = request.filename
    @threshold = threshold
    @cache = Userdata.new("limiter").cache
  end

  attr_reader :file

  def count
    @cache[@file].to_i
  end

  def enter
    @cache[@file] = (count + 1).to_s
    say "access_limiter: file:#{@file} counter:#{count}"
  end

  def leave
    @cache[@file] = [count - 1, 0].max.to_s
    say "access_limiter_end: #{@file} #{count}"
  end

  def full?
    count > @threshold
  end

  def say(line)
    server = get_server_class
    server.errlogger server::LOG_NOTICE, line
  end
end

Userdata.new.mutex = Mutex.new :global => true
"#;

const WORKER_INIT: &str = r#"
Userdata.new("limiter").cache = Cache.new :namespace => "access_limiter"
"#;

const LIMITER: &str = r#"
server = get_server_class
request = server::Request.new
unless request.sub_request?
  limiter = FileLimiter.new(request, 2)
  lock = Userdata.new.mutex
  gone_through = lock.try_lock_loop(50_000) do
    begin
      limiter.enter
      if limiter.full?
        limiter.say "access_limiter: file:#{limiter.file} reached threshold: 2: return 503"
        server.return server::HTTP_SERVICE_UNAVAILABLE
      end
    ensure
      lock.unlock
    end
  end
end
"#;

const LIMITER_END: &str = r#"
request = get_server_class::Request.new
unless request.sub_request?
  lock = Userdata.new.mutex
  lock.try_lock_loop(50_000) do
    begin
      FileLimiter.new(request, 2).leave
    ensure
      lock.unlock
    end
  end
end
"#;

/// Takes as long as the test says.
const SLOW: &str = "<?php while (!file_exists(__DIR__ . '/go')) { usleep(20000); clearstatcache(); }\n\
                    echo 'loaded';\n";

fn gateway(php: &PhpFpm, site: &TempDir) -> Gateway {
    let builder = Gateway::with_config(env!("CARGO_BIN_EXE_nagaya"), CONFIG);
    let directory = builder.directory();
    for (name, script) in [
        ("init", INIT),
        ("worker_init", WORKER_INIT),
        ("limiter", LIMITER),
        ("limiter_end", LIMITER_END),
    ] {
        directory.write(&format!("hooks/{name}.rb"), script);
    }
    let builder = builder.with("php", php.address());
    builder.with("site", site.path().display()).start()
}

#[test]
fn a_file_is_served_to_as_many_at_once_as_its_script_lets_through() {
    let Some(php) = PhpFpm::start(Listen::Unix, 4, "") else {
        return;
    };
    let site = TempDir::new();
    site.write("slow.php", SLOW);
    let gateway = gateway(&php, &site);
    let mut slow: Vec<_> = (0..2)
        .map(|_| {
            let mut client = gateway.client().with_deadline(PATIENCE);
            client.send(&get("/slow.php"));
            client
        })
        .collect();
    let file = site.path().join("slow.php");
    let file = file.display();
    gateway.wait_for_message(&format!("access_limiter: file:{file} counter:2"));
    let third = reply(gateway.ask(&get("/slow.php")));
    assert_eq!(third.status, 503);
    assert!(
        third.text().contains("Service Unavailable"),
        "{}",
        third.text()
    );
    for line in [
        format!("access_limiter: file:{file} counter:3"),
        format!("access_limiter: file:{file} reached threshold: 2: return 503"),
        format!("access_limiter_end: {file} 2"),
    ] {
        gateway.wait_for_message(&line);
    }
    site.write("go", "");
    for client in &mut slow {
        assert_eq!(reply(client.read_reply(Body::Framed)).text(), "loaded");
    }
    gateway.wait_for_message(&format!("access_limiter_end: {file} 0"));
    let again = eventually(PATIENCE, "the file to be free again", || {
        let again = reply(gateway.ask(&get("/slow.php")));
        (again.status == 200).then_some(again)
    });
    assert_eq!(again.text(), "loaded");
}
