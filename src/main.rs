//! The `ckptfs` command: arguments in, one library call, words out.

mod cli;

fn main() {
    let code = cli::main();
    ckptfs::local::process::leave(code)
}
