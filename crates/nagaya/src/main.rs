//! The `nagaya` program: one file per subcommand.
//!
//! Exit status: 0 fine, 1 failed while running, 2 wrong use or wrong configuration.
#![forbid(unsafe_code)]

mod agent;
mod capacity;
mod certificates;
mod certs;
mod check;
mod cli;
mod control;
mod directory;
mod doctor;
mod fleet;
mod htaccess;
mod import;
mod limits;
mod man;
mod outcome;
mod overrides;
mod paths;
mod pools;
mod recorder;
mod reload;
mod script;
mod sendmail;
mod sensors;
mod serve;
mod server;
mod status;
mod tenant;
mod top;
mod verify;

use std::process::ExitCode;

use cli::{Arguments, Command};
use reload::Order;
use supervisor::Role;

fn main() -> ExitCode {
    // First of all: what is handed over is told from what this program opens.
    let inherited = os::exec::Inherited::take();
    match Role::of_this_process() {
        Some(Role::Server { user }) => return server::run(&user).into(),
        Some(Role::Spawner) => return spawner::run(),
        Some(Role::Acme { user }) => return keeper::acme::run(&user),
        Some(Role::Keeper { user }) => return keeper::run(&user),
        Some(Role::Recorder { user }) => return ::recorder::run(&user),
        Some(Role::Directory { user }) => return ::directory::run(&user),
        Some(Role::Successor { format }) => return supervisor::succeed(&format),
        None => {}
    }
    if let Some(measuring) = cli::measuring() {
        return bench::main(&measuring.called_as, measuring.words);
    }
    let arguments = Arguments::read();
    let config = arguments.config();
    let command = arguments.command;
    let outcome = match command {
        Command::Serve => return serve::run(&config, inherited),
        Command::Check(options) => check::run(&config, &options),
        Command::Doctor => doctor::run(&config),
        Command::Status(options) => status::run(&config, &options),
        Command::Certs(options) => certs::run(&config, &options),
        Command::Reload(options) => reload::run(Order::Reload, &config, &options),
        Command::Upgrade(options) => reload::run(Order::Upgrade, &config, &options),
        Command::Sensors(options) => sensors::run(&config, &options),
        Command::Limits(command) => limits::run(&config, &command),
        Command::Why(options) => limits::why(&config, &options),
        Command::Htaccess(command) => htaccess::run(&config, &command),
        Command::Script(command) => script::run(&command),
        Command::Pools(options) => pools::run(&config, &options),
        Command::Top(options) => top::run(&config, &options),
        Command::Tenant(command) => tenant::run(&config, &command),
        Command::Directory(command) => directory::run(&config, &command),
        Command::Fleet(options) => fleet::run(&config, &options),
        Command::Agent(options) => agent::run(&options),
        Command::Sendmail(options) => return sendmail::run(&options),
        Command::Import(command) => import::run(&config, &command),
        Command::Recorder(command) => return recorder::run(&config, &command, inherited),
        Command::Report(options) => recorder::report(&config, &options),
        Command::Capacity(options) => capacity::run(&config, &options),
        Command::Bench(elsewhere) => cli::refuse_configuration(&elsewhere),
        Command::Lab(_) => cli::name_the_lab(),
        Command::Completions { shell } => cli::print_completions(shell),
        Command::Man => cli::print_man_page(),
    };
    outcome.into()
}
