//! Every verb over what workers have left behind, word for word: the same over every store.
//! `cargo insta review`, or `INSTA_UPDATE=always`, takes what has changed.

use std::time::Duration;

use onlyonce::runtime::{Clock, SystemClock};
use serde_json::json;

use crate::dlq::Post;
use crate::operate::LONG_AGO;

/// What is different each time, in the order in which it is looked for.
const DIFFERENT: [(&str, &str); 9] = [
    (r"http://127\.0\.0\.1:\d+/\S+", "[url]"),
    (r"[0-9a-f]{8}-[0-9a-f-]{27}", "[message]"),
    (r"\b[0-9a-f]{64}\b", "[digest]"),
    (r"\b[0-9a-f]{32}\b", "[claim]"),
    (r"\b[a-z2-7]{32}\b", "[effect key]"),
    (r"\b20\d\d-\d\d-\d\dT[0-9:.]+Z", "[time]"),
    (r"\b1[0-9]{12}\b", "[ms]"),
    (r"\b1[0-9]{9}\b", "[s]"),
    (r"in \d+\.\d s, \d+/s", "in [time]"),
];

struct Transcript {
    post: Post,
    text: String,
}

impl Transcript {
    fn run(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let (code, said) = self.post.run(&words);
        let said = said.trim_end();
        self.text +=
            &format!("$ onlyonce {line}\n{said}{}", if said.is_empty() { "" } else { "\n" });
        if code != Some(0) {
            self.text += &format!("(exit status {})\n", code.unwrap());
        }
        self.text += "\n";
    }
}

async fn every_verb_says(kind: &str) {
    let mut told = Transcript { post: Post::on(kind).await, text: String::new() };
    let folder = &told.post.bench.folder;
    let body = folder.file("body.json", "{\"n\":1}");
    let other = folder.file("other.json", "{\"n\":2}");
    let lines = folder.file(
        "lines.jsonl",
        "{\"job\":\"user.welcome\",\"idempotency-key\":\"user:1:welcome\",\"body\":{\"user_id\":1,\
         \"name\":\"Ada\",\"email\":\"ada@example.com\"}}\n",
    );
    told.run("setup");
    told.run("list");

    // Its charge got no answer.
    told.post.bench.unknown("order:1").await;
    told.run("list unknown");
    told.run("list --json --job pay");
    told.run("list --job mail");
    told.run("inspect pay order:1");
    told.run("inspect pay order:1 --json");
    told.run("release pay order:1");
    told.run("forget pay order:1 --yes");
    told.run("resolve pay order:1");
    told.run("resolve pay order:1 --done --effect charge");
    told.run("resolve pay order:1 --done --effect charge --result 7");
    told.run("inspect pay order:1");

    // Its customer does not exist.
    told.post.bench.deliver(LONG_AGO, "decline", "order:2", "{\"n\": 1}").await;
    told.run("list failed --older 5m");
    told.run("list failed --older 1d");
    told.run(&format!("replay decline order:2 --body {other}"));
    told.run(&format!("replay decline order:2 --body {body}"));
    told.run("list");

    // Its worker died, and another is at work.
    told.post.bench.dead("order:3", SystemClock.now() - LONG_AGO).await;
    told.post.bench.dead("order:4", SystemClock.now() + Duration::from_secs(7200)).await;
    told.run("list claimed");
    told.run("list claimed --scan --job pay --newer 1h");
    told.run("release pay order:3");
    told.run("release pay order:4 --json");
    told.run("forget pay order:3");
    told.run("forget pay order:3 --yes");
    told.run("inspect pay order:3");
    told.run("inspect pay nobody");
    told.run("inspect nobody");

    told.run("import examples/done.jsonl");
    told.run("import examples/done.jsonl --json");
    told.run("list completed --scan --job user.welcome");
    told.run(&format!("send {lines}"));
    told.run("send");

    told.post.dead("mail", "e", Some("failed"), json!({ "n": 1 })).await;
    told.run("dlq list");
    told.run("dlq list --json");
    told.run("dlq show nobody");
    told.run("dlq replay");
    told.run("dlq replay --yes --json");
    told.run("dlq list");

    let text = told.text.replace(&told.post.bench.folder.0.display().to_string(), "[folder]");
    insta::with_settings!({ filters => DIFFERENT, prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("every verb", text);
    });
}

#[tokio::test]
async fn every_verb_says_the_same_on_sqlite() {
    every_verb_says("sqlite").await;
}

#[tokio::test]
async fn every_verb_says_the_same_on_dynamodb() {
    every_verb_says("dynamodb").await;
}
