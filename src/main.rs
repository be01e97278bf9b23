//! The `ckptfs` command: arguments in, one library call, words out.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
