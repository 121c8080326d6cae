//! `nagaya script …`: scripts tried where no gateway runs.
//!
//! An interpreter of this process runs them, with the same API and the same budgets as a worker's,
//! for a request that is made up. Nothing here asks the running gateway, and only `nagaya check`, which
//! has its scripts compiled here, reads its configuration.

mod configured;
mod made_up;
mod report;
mod text;
mod trial;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use clap::{Args, Subcommand};
use script::{Budgets, Failure, Files, Interpreter, Phase, ServerClass, Settings, Shared};

use crate::cli::without_configuration;
use crate::outcome::{Outcome, complain, print};
pub(crate) use configured::problems;
use text::Text;

/// Most timed runs.
const TIMES_MAX: u32 = 1_000_000;

/// What to do with scripts.
#[derive(Debug, Subcommand)]
pub(crate) enum ScriptCommand {
    /// Say whether scripts are Ruby, without running them
    #[command(after_help = "\
Exit status: 0 all are, 1 one is not or cannot be read.
What is wrong is told as FILE:LINE: MESSAGE. Constants and methods are looked up only when a script
runs: `nagaya script run` finds misspelt ones.", arg = without_configuration())]
    Check(CheckOptions),
    /// Run a script for a made-up request, and show what it did and what it cost
    #[command(after_help = RUN_HELP, arg = without_configuration())]
    Run(Box<RunOptions>),
    /// Print the reference of all classes and methods: docs/reference/ruby.md
    #[command(arg = without_configuration())]
    Reference,
}

const RUN_HELP: &str = "\
Examples:
  nagaya script run hooks/access.rb --request 'GET /x.php?id=1' --header 'Cookie: plan=gold'
  nagaya script run hooks/route.rb --phase set --host shop.example.jp --init hooks/worker_init.rb
  nagaya script run hooks/deny.rb --client 203.0.113.7 --root /srv/example/htdocs --env PLAN=gold
  echo 'p Nginx::Request.new.uri' | nagaya script run -
What it did goes to standard output, what it logs to standard error. Stores that it asks are asked
indeed, once more for each timed run. Exit status: 0 it came to its end, 1 it failed.";

/// Options of `script check`.
#[derive(Debug, Args)]
pub(crate) struct CheckOptions {
    /// The scripts; `-` is standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

/// Options of `script run`.
#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// The script; `-` is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// When it is to run: ssl_handshake, rewrite, access, set, content, header_filter, body_filter,
    /// log, init, worker_init or worker_exit
    #[arg(long, value_name = "PHASE", default_value = "access", value_parser = phase)]
    phase: Phase,
    /// Method and target of the request
    #[arg(long, value_name = "REQUEST", default_value = "GET /", value_parser = made_up::line)]
    request: made_up::RequestLine,
    /// A field of the request, as often as there are fields
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = made_up::field)]
    fields: Vec<made_up::Field>,
    /// The host it is for
    #[arg(long, value_name = "HOST", default_value = "example.test")]
    host: String,
    /// The client: an address, with or without a port
    #[arg(long, value_name = "ADDRESS", default_value = "192.0.2.1", value_parser = made_up::client)]
    client: SocketAddr,
    /// The site's root, below which the file of the request lies
    #[arg(long, value_name = "DIR", default_value = "/srv/www", value_parser = made_up::root)]
    root: PathBuf,
    /// Body of the request
    #[arg(long, value_name = "TEXT", default_value = "")]
    body: String,
    /// Status of the reply, for header_filter, body_filter and log
    #[arg(long, value_name = "STATUS", default_value_t = 200, value_parser = clap::value_parser!(u16).range(100..=599))]
    status: u16,
    /// Body of the reply, for body_filter
    #[arg(long, value_name = "TEXT", default_value = "")]
    reply: String,
    /// What get_server_class answers: nginx or apache
    #[arg(long, value_name = "SERVER", default_value = "nginx", value_parser = server)]
    server: ServerClass,
    /// A script that is run before, as init and worker_init are; as often as there are some
    #[arg(long, value_name = "FILE")]
    init: Vec<PathBuf>,
    /// A variable that the script may read in ENV; without a value the one it has here. As often as
    /// there are some
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = made_up::variable)]
    env: Vec<(String, String)>,
    /// How often it is run again, by the clock
    #[arg(short = 'n', value_name = "TIMES", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=i64::from(TIMES_MAX)))]
    times: u32,
}

/// Does what is asked.
pub(crate) fn run(command: &ScriptCommand) -> Outcome {
    match command {
        ScriptCommand::Check(options) => on_a_worker(check(options)),
        ScriptCommand::Run(options) => on_a_worker(trial::run(options)),
        ScriptCommand::Reference => print(script::reference().as_bytes()),
    }
}

async fn check(options: &CheckOptions) -> Outcome {
    let interpreter = match open(ServerClass::Nginx, Budgets::default(), &[]) {
        Ok(interpreter) => interpreter,
        Err(failure) => return failed(&failure),
    };
    let mut outcome = Outcome::Fine;
    for file in &options.files {
        let checked = match Text::read(file) {
            Ok(text) => interpreter.check(&text.script()).await,
            Err(told) => {
                complain(&told);
                outcome = Outcome::Failed;
                continue;
            }
        };
        if let Err(failure) = checked {
            outcome = failed(&failure);
        }
    }
    outcome
}

/// Tells of a failure.
fn failed(failure: &Failure) -> Outcome {
    complain(&report::failure(failure));
    Outcome::Failed
}

/// An interpreter like a worker's, with these variables in `ENV`.
fn open(
    server: ServerClass,
    budgets: Budgets,
    env: &[(String, String)],
) -> Result<Rc<Interpreter>, Failure> {
    let settings = Settings {
        server,
        budgets,
        env: env.to_vec(),
        cache_files: Arc::default(),
        library: Arc::default(),
        worker: 0,
        reader: Rc::new(Files),
    };
    let shared = Shared::default();
    let sensors = engine::sensors::sampling::of_machine();
    shared.answer_sensors(move |name| sensors.sense(name));
    Interpreter::open(settings, Arc::new(shared))
}

/// Runs `work` as a worker would.
fn on_a_worker(work: impl Future<Output = Outcome>) -> Outcome {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    match runtime.enable_all().build() {
        Ok(runtime) => tokio::task::LocalSet::new().block_on(&runtime, work),
        Err(error) => {
            let why = config::reason(&error);
            complain(&format!("nagaya: start a runtime for scripts: {why}\n"));
            Outcome::Failed
        }
    }
}

fn phase(name: &str) -> Result<Phase, String> {
    let mut all = Phase::ALL.into_iter();
    all.find(|phase| phase.name() == name).ok_or_else(|| {
        let names: Vec<_> = Phase::ALL.iter().map(|phase| phase.name()).collect();
        format!("there are the phases {}", names.join(", "))
    })
}

fn server(name: &str) -> Result<ServerClass, String> {
    match name {
        "nginx" => Ok(ServerClass::Nginx),
        "apache" => Ok(ServerClass::Apache),
        _ => Err("either nginx or apache".to_owned()),
    }
}
