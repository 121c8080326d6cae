//! What is asked: php-fpm with few processes, and the server before it, in a temporary directory.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::crowd::site_name;
use super::{LIMIT, PAGE, SITES, WORKERS, runaway};
use lab::{Ports, Running, Start, interrupted, on_path};
use load::Error;

/// How long a server may take to come up.
const START_WAIT: Duration = Duration::from_secs(20);
/// Between two looks at it.
const LOOK: Duration = Duration::from_millis(10);
/// Whom pools become where root starts them: not the gateway's own user.
const POOL_USER: &str = "daemon";
/// Whom php-fpm becomes where root starts it.
const USER: &str = "nobody";

/// A server and how it is started.
pub(super) struct Server {
    /// As it is shown.
    pub(super) name: &'static str,
    program: PathBuf,
    arguments: &'static [&'static str],
    config: fn(&Path, u16) -> String,
}

/// The directory of it all; gone with its owner.
pub(super) struct Stage {
    directory: PathBuf,
    php_fpm: PathBuf,
}

/// php-fpm and a server before it.
pub(super) struct Playing {
    pub(super) port: u16,
    /// Ended in this order.
    _server: Running,
    _php: Option<Running>,
}

impl Server {
    pub(super) fn nginx(program: &Path) -> Server {
        Server {
            name: "nginx",
            program: program.to_owned(),
            arguments: &["-e", "stderr", "-c"],
            config: nginx_config,
        }
    }

    pub(super) fn nagaya(program: &Path) -> Server {
        Server {
            name: "nagaya",
            program: program.to_owned(),
            arguments: &["serve", "-c"],
            config: nagaya_config,
        }
    }
}

impl Stage {
    pub(super) fn new() -> Result<Stage, Error> {
        let missing = "it is not installed; on Debian: apt install php-fpm";
        let php_fpm = on_path("php-fpm").ok_or_else(|| Error::new("find php-fpm", missing))?;
        let name = format!("nagaya-demo.{}", std::process::id());
        let stage = Stage {
            directory: std::env::temp_dir().join(name),
            php_fpm,
        };
        stage.make_directory("")?;
        stage.make_directory("site")?;
        let page = format!("<?php usleep({}); echo \"A page.\\n\";\n", PAGE.as_micros());
        stage.write("site/index.php", &page)?;
        Ok(stage)
    }

    /// Starts php-fpm afresh, so that nobody waits there from before, and the server before it.
    pub(super) fn start(&self, server: &Server) -> Result<Playing, Error> {
        let socket = self.directory.join("php.sock");
        let _ = fs::remove_file(&socket);
        let config = self.write("php-fpm.conf", &php_config(&self.directory))?;
        let mut php = self.run("php-fpm", &self.php_fpm, &["-F", "-y"], &config)?;
        wait_until_up("php-fpm", &mut php, || UnixStream::connect(&socket).is_ok())?;
        let port = Ports::default().free()?;
        let config = self.write(server.name, &(server.config)(&self.directory, port))?;
        let program = absolute(&server.program)?;
        let mut running = self.run(server.name, &program, server.arguments, &config)?;
        let connects = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
        wait_until_up(server.name, &mut running, connects)?;
        Ok(Playing {
            port,
            _server: running,
            _php: Some(php),
        })
    }

    /// Starts a gateway that starts PHP itself, a pool for each site.
    pub(super) fn start_pools(&self, nagaya: &Path) -> Result<Playing, Error> {
        self.write("site/loop.php", "<?php while (true) {}\n")?;
        let port = Ports::default().free()?;
        let config = pools_config(&self.directory, &self.php_fpm, port);
        let config = self.write("pools.toml", &config)?;
        let program = absolute(nagaya)?;
        let mut running = self.run("pools", &program, &["serve", "-c"], &config)?;
        let connects = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
        wait_until_up("nagaya", &mut running, connects)?;
        Ok(Playing {
            port,
            _server: running,
            _php: None,
        })
    }

    /// What that gateway says of its tenants.
    pub(super) fn top(&self, nagaya: &Path) -> Result<String, Error> {
        runaway::top(&absolute(nagaya)?, &self.directory.join("control"))
    }

    fn run(
        &self,
        name: &str,
        program: &Path,
        arguments: &[&str],
        config: &str,
    ) -> Result<Running, Error> {
        let mut words = vec![program.display().to_string()];
        words.extend(arguments.iter().map(|word| (*word).to_owned()));
        words.push(config.to_owned());
        let output = self.directory.join(format!("{name}.output"));
        let start = Start {
            words: &words,
            cores: &[],
            directory: &self.directory,
            output: &output,
            environment: &[],
        };
        start.run()
    }

    /// Everybody may look in: servers started by root become somebody else.
    fn make_directory(&self, name: &str) -> Result<(), Error> {
        let path = self.directory.join(name);
        fs::create_dir_all(&path)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)))
            .map_err(|e| Error::new(format!("make {}", path.display()), e))
    }

    /// Writes a file of its directory; returns its path.
    fn write(&self, name: &str, text: &str) -> Result<String, Error> {
        let path = self.directory.join(name);
        fs::write(&path, text)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o644)))
            .map_err(|e| Error::new(format!("write {}", path.display()), e))?;
        Ok(path.display().to_string())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn wait_until_up(name: &str, running: &mut Running, is_up: impl Fn() -> bool) -> Result<(), Error> {
    let deadline = Instant::now() + START_WAIT;
    while !is_up() {
        interrupted()?;
        let ended = running.ended();
        if ended.is_some() || Instant::now() > deadline {
            let how = ended.map_or_else(|| "not up yet".to_owned(), |status| status.to_string());
            return Err(Error::new(
                format!("start {name}"),
                format!("{how}; {}", running.words()),
            ));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

fn absolute(program: &Path) -> Result<PathBuf, Error> {
    let absolute = std::path::absolute(program);
    absolute.map_err(|e| Error::new(format!("find {}", program.display()), e))
}

fn php_config(directory: &Path) -> String {
    let user = match os::process::is_root() {
        true => format!("user = {USER}\nlisten.mode = 0666\n"),
        false => String::new(),
    };
    let directory = directory.display();
    format!(
        "[global]\nerror_log = {directory}/php-fpm.log\ndaemonize = no\n[www]\n{user}\
         listen = {directory}/php.sock\nlisten.backlog = 4096\npm = static\npm.max_children = {WORKERS}\n"
    )
}

fn nginx_config(directory: &Path, port: u16) -> String {
    let directory = directory.display();
    format!(
        "daemon off;\nworker_processes 1;\npid {directory}/nginx.pid;\nerror_log stderr crit;\n\
         events {{ worker_connections 8192; }}\nhttp {{\n  access_log off;\n\
         client_body_temp_path {directory}/body;\n  proxy_temp_path {directory}/proxy;\n\
         fastcgi_temp_path {directory}/fastcgi;\n  uwsgi_temp_path {directory}/uwsgi;\n\
         scgi_temp_path {directory}/scgi;\n  server {{\n    listen 127.0.0.1:{port} backlog=4096;\n\
         location / {{\n      fastcgi_pass unix:{directory}/php.sock;\n\
         fastcgi_param REQUEST_METHOD $request_method;\n\
         fastcgi_param SERVER_PROTOCOL $server_protocol;\n\
         fastcgi_param SCRIPT_FILENAME {directory}/site/index.php;\n    }}\n  }}\n}}\n"
    )
}

/// One limit on what all sites share; each site is a tenant, as it is by itself.
fn nagaya_config(directory: &Path, port: u16) -> String {
    let directory = directory.display();
    let mut text = format!(
        "workers = 1\ntrusted_proxies = [\"127.0.0.1\"]\n\n[[listen]]\naddress = \"127.0.0.1:{port}\"\n\n\
         [log]\naccess = \"\"\nlevel = \"error\"\n\n[caps]\nconnections_per_client = 0\n\
         requests_per_connection = 0\n\n[upstreams.php]\nprotocol = \"fastcgi\"\n\
         servers = [\"unix:{directory}/php.sock\"]\n\
         limits = [{LIMIT}]\n"
    );
    for site in 0..SITES {
        let host = site_name(site);
        text += &format!(
            "\n[[sites]]\nhosts = [\"{host}\"]\nroot = \"{directory}/site\"\n\n  [[sites.rules]]\n  \
             match = {{ file = \"*.php\" }}\n  handler = {{ fastcgi = \"php\" }}\n"
        );
    }
    text
}

/// Each site is a tenant with a pool of its own, as it is by itself; the first one has a quota where
/// there can be one.
fn pools_config(directory: &Path, php_fpm: &Path, port: u16) -> String {
    let (directory, php_fpm) = (directory.display(), php_fpm.display());
    let user = match os::process::is_root() {
        true => format!("user = \"{POOL_USER}\"\n"),
        false => String::new(),
    };
    let mut text = format!(
        "workers = 1\ntrusted_proxies = [\"127.0.0.1\"]\n\n[[listen]]\naddress = \"127.0.0.1:{port}\"\n\n\
         [control]\nsocket = \"{directory}/control\"\n\n[log]\naccess = \"\"\nlevel = \"error\"\n\n\
         [pools]\ndirectory = \"{directory}/pools\"\n\n[php.demo]\nprogram = \"{php_fpm}\"\n\n\
         [tenants.\"{}\"]\ncgroup = {{ cpu = \"{}\" }}\ncgroup_required = false\n",
        runaway::name(0),
        runaway::CPU
    );
    for site in 0..=runaway::NEIGHBOURS {
        let host = runaway::name(site);
        let tenant = match site {
            0 => format!("tenant = \"{host}\"\n"),
            _ => String::new(),
        };
        text += &format!(
            "\n[[sites]]\nhosts = [\"{host}\"]\n{tenant}root = \"{directory}/site\"\n{user}\
             pool = {{ php = \"demo\", isolate = \"none\" }}\n\n  [[sites.rules]]\n  \
             match = {{ file = \"*.php\" }}\n  handler = {{ php = true }}\n"
        );
    }
    text
}
