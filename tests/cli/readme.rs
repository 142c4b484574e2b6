//! Every command of the README and the guides is run: here, or where this says.

use std::fs;

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
