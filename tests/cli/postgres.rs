//! The command on a Postgres server.

use std::process::Command;

use crate::server::Postgres;
use crate::{Folder, onlyonce, run};

fn on(url: &str, folder: &Folder) -> Command {
    let mut command = onlyonce(&folder.0);
    command.env("ONLYONCE_STORE", url);
    command
}

#[test]
fn setup_makes_the_tables_once_and_what_is_imported_is_seen() {
    let folder = Folder::new();
    let server = Postgres::start();
    let import = || run(&mut on(&server.url(), &folder), &["import", "examples/done.jsonl"]);
    let (code, said) = import();
    assert!(code == Some(1) && said.contains("onlyonce setup"), "{said}");
    let (code, said) = run(&mut on(&server.url(), &folder), &["setup"]);
    assert!(code == Some(0) && said.contains("is made"), "{said}");
    let (code, said) = run(&mut on(&server.url(), &folder), &["setup"]);
    assert!(code == Some(0) && said.contains("was there already"), "{said}");
    let (code, said) = import();
    assert!(code == Some(0) && said.starts_with("2 imported, 0 completed before"), "{said}");
    let (code, said) = import();
    assert!(code == Some(0) && said.starts_with("0 imported, 2 completed before"), "{said}");
    let arguments = ["inspect", "invoice.finalize", "invoice:1000:finalize"];
    let (code, said) = run(&mut on(&server.url(), &folder), &arguments);
    assert!(code == Some(0) && said.contains("completed"), "{said}");
}

#[test]
fn a_server_that_is_not_there_is_named_and_the_password_is_not() {
    let folder = Folder::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("postgres://ada:s3cret@{free}/jobs");
    let (code, said) = run(on(&url, &folder).env("RUST_LOG", "trace"), &["list", "failed"]);
    assert_eq!(code, Some(1));
    assert!(said.contains(&free.to_string()) && !said.contains("s3cret"), "{said}");
}
