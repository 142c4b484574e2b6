//! Every command of the README and the guides is run: here, or where this says. Their links lead
//! somewhere.

use std::fs;
use std::path::{Path, PathBuf};

use aws_sdk_sqs::Client;
use onlyonce::sdk;

use crate::{Folder, example, onlyonce, root, run};

/// Commands that need more than this test has, and the file that runs them.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    ("make test", ".ci/run", "make test"),
    (
        "cargo run -- drill --local --html drill.html",
        "tests/cli/drill.rs",
        "[\"--local\", \"--html\",",
    ),
    ("sam validate --lint", "tests/run.py", "\"validate\", \"--lint\""),
    ("sam build && sam deploy --guided", "tests/e2e/test_template.py", "\"deploy\""),
    (
        "cargo lambda build --release --no-default-features --features worker --bin worker",
        "tests/run.py",
        "\"cargo\", \"lambda\", \"build\", \"--locked\", \"--release\", \"--no-default-features\", \
         \"--features\", \"worker\"",
    ),
];

/// The lines of all ```sh blocks.
fn commands(file: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(file)).unwrap();
    let blocks = text.split("```sh\n").skip(1).chain(text.split("```sh\r\n").skip(1));
    blocks
        .flat_map(|block| block.split("```").next().unwrap().lines())
        .map(|line| line.trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect()
}

#[tokio::test]
async fn every_command_of_the_readme_and_the_guides_is_run() {
    let folder = Folder::new();
    let client = Client::new(&sdk::load().await);
    let name = format!("readme-{:016x}", fastrand::Rng::new().u64(..));
    let queue = client.create_queue().queue_name(name).send().await.unwrap().queue_url.unwrap();
    // So that there is something to inspect, as there is once a worker has run.
    let done = "{\"job\":\"user.welcome\",\"idempotency-key\":\"user:ada:welcome_email:v1\"}";
    let done = folder.file("done.jsonl", done);
    run(&mut onlyonce(&folder.0), &["setup"]);
    run(&mut onlyonce(&folder.0), &["import", &done]);

    let files =
        ["README.md", "src/docs/adopting.md", "src/docs/guarantees.md", "src/docs/producers.md"];
    let commands: Vec<_> = files.iter().flat_map(|file| commands(file)).collect();
    assert!(commands.len() > 10, "{commands:?}");
    for command in commands {
        if let Some((_, file, words)) = ELSEWHERE.iter().find(|(it, ..)| *it == command) {
            let text = fs::read_to_string(root().join(file)).unwrap();
            assert!(text.contains(words), "{file} does not run {command:?}");
            continue;
        }
        let words: Vec<&str> = command.split_whitespace().collect();
        let (mut program, arguments) = match words.as_slice() {
            ["cargo", "run", "--", arguments @ ..] | ["onlyonce", arguments @ ..] => {
                (onlyonce(&folder.0), arguments)
            }
            ["cargo", "run", "--example", name, "--", arguments @ ..] => (example(name), arguments),
            _ => panic!("no test runs {command:?}; run it here, or say where it is run"),
        };
        let (code, said) = run(program.env("ONLYONCE_QUEUE_URL", &queue), arguments);
        assert_eq!(code, Some(0), "{command}\n{said}");
    }
}

/// The Markdown in a folder and below.
fn markdown(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.flat_map(|path| if path.is_dir() { markdown(&path) } else { vec![path] });
    files.filter(|file| file.extension().is_some_and(|it| it == "md")).collect()
}

/// What a text links to, other than addresses and items of this crate.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    links.filter(|link| !link.contains(':'))
}

/// What a link may name in a text: GitHub makes it of each heading.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let words = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        words.chars().filter(|it| it.is_alphanumeric() || "-_".contains(*it)).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let mut files = vec![root().join("README.md"), root().join("CONTRIBUTING.md")];
    files.extend(["docs", "src/docs"].iter().flat_map(|folder| markdown(&root().join(folder))));
    let mut followed = 0;
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for link in links(&text) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match path {
                "" => file.clone(),
                _ => file.parent().unwrap().join(path),
            };
            assert!(target.exists(), "{}: {link} leads nowhere", file.display());
            if !anchor.is_empty() {
                let anchors = anchors(&fs::read_to_string(&target).unwrap());
                assert!(anchors.iter().any(|it| it == anchor), "{}: {link}", file.display());
            }
            followed += 1;
        }
    }
    assert!(followed > 30, "{followed}");
}
