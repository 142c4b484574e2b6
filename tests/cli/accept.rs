//! The endpoint of `examples/accept.rs`: whatever its clients do, each order runs once.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::example;
use crate::queue::Queue;

/// Ends with its owner, also when the test panics.
struct Shop {
    process: Child,
    said: std::io::Lines<BufReader<std::process::ChildStdout>>,
    address: String,
}

impl Shop {
    fn open(queue_url: &str) -> Self {
        let mut process = example("accept")
            .env("ONLYONCE_QUEUE_URL", queue_url)
            .env("LISTEN", "127.0.0.1:0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(process.stdout.take().unwrap()).lines();
        let first = said.next().unwrap().unwrap();
        let address = first.strip_prefix("listening on ").unwrap().to_owned();
        Self { process, said, address }
    }

    /// Sends a request, whose answer is still to come.
    fn ask(&self, headers: &str, body: &str) -> TcpStream {
        self.send(headers, body, body.len())
    }

    fn send(&self, headers: &str, body: &str, length: usize) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        write!(
            stream,
            "POST /orders HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n{headers}\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        stream
    }

    /// Sends all of a request but its end.
    fn begin(&self, headers: &str, body: &str) -> TcpStream {
        let half = body.get(..body.len() / 2).unwrap();
        self.send(headers, half, body.len())
    }

    fn post(&self, headers: &str, body: &Value) -> (u16, Value) {
        answer(self.ask(headers, &body.to_string()))
    }

    /// As a platform ends it.
    fn close(mut self) {
        let pid = self.process.id().to_string();
        let told = std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap();
        assert!(told.success());
        assert_eq!(self.said.next().unwrap().unwrap(), "stopped");
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn answer(mut stream: TcpStream) -> (u16, Value) {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or_else(|_| panic!("{text}")))
}

fn order(n: usize) -> Value {
    json!({"number": format!("A-{n}"), "sku": "mug", "quantity": 1})
}

const ADA: &str = "x-customer: ada\r\n";

#[tokio::test(flavor = "multi_thread")]
async fn each_order_runs_once_whatever_its_client_does() {
    let queue = Queue::new().await;
    let shop = Shop::open(&queue.url);

    let keyed = format!("{ADA}Idempotency-Key: 5f3a\r\n");
    let (status, first) = shop.post(&keyed, &order(1000));
    assert_eq!((status, first["key"].as_str().unwrap().len()), (202, 64));
    assert_eq!(shop.post(&keyed, &order(1000)), (202, first.clone()), "the same answer");
    let (_, of_bo) = shop.post("x-customer: bo\r\nIdempotency-Key: 5f3a\r\n", &order(1000));
    assert_ne!(first, of_bo, "another customer's key is another key");

    // Hangs up with its request on the way, and comes again.
    drop(shop.ask(ADA, &order(1001).to_string()));
    drop(shop.begin(ADA, &order(1001).to_string()));
    assert_eq!(shop.post(ADA, &order(1001)).0, 202);

    // Twenty orders, fifty requests at once.
    let asked: Vec<_> =
        (0..50).map(|n| (n % 20, shop.ask(ADA, &order(n % 20).to_string()))).collect();
    let mut keys: BTreeMap<usize, Value> = BTreeMap::new();
    for (n, stream) in asked {
        let (status, said) = answer(stream);
        assert_eq!(status, 202, "{said}");
        assert_eq!(keys.entry(n).or_insert_with(|| said.clone()), &said);
    }
    shop.close();

    assert!(queue.len().await >= 54, "each request made a message");
    let mut ran: BTreeMap<String, usize> = BTreeMap::new();
    for payload in queue.served("order.place").await {
        *ran.entry(payload["number"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    let twice = ran.iter().filter(|(_, times)| **times != 1);
    assert_eq!(twice.collect::<Vec<_>>(), [(&"A-1000".to_owned(), &2)], "Ada's and Bo's");
    assert_eq!(ran.len(), 22);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_accepted_is_refused_with_a_reason() {
    let queue = Queue::new().await;
    let shop = Shop::open(&queue.url);
    let large = json!({"number": "A-1", "sku": "x".repeat(70_000), "quantity": 1});
    let keyed = format!("{ADA}Idempotency-Key: 1\r\n");
    assert_eq!(shop.post(&keyed, &order(1)).0, 202);
    for (status, headers, body, why) in [
        (400, ADA, json!({"number": "A-1"}), "send JSON"),
        (400, ADA, json!({"number": "A 1", "sku": "mug", "quantity": 1}), "number"),
        (400, "", order(1), "x-customer"),
        (400, "x-customer: a:b\r\n", order(1), "x-customer"),
        (400, &format!("{ADA}Idempotency-Key:\r\n"), order(1), "1 to 255"),
        (409, &keyed, order(2), "another order"),
        (413, ADA, large, "64 KB"),
    ] {
        let (answered, said) = shop.post(headers, &body);
        let error = said["error"].as_str().unwrap();
        assert!(answered == status && error.contains(why), "{answered} {error}");
    }
    assert_eq!(queue.len().await, 1);
    shop.close();

    let shop = Shop::open(&format!("{}-none", queue.url));
    let (status, said) = shop.post(ADA, &order(1));
    assert_eq!(status, 503);
    assert!(said["error"].as_str().unwrap().contains("send the same request again"), "{said}");
    shop.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_finish_is_not_waited_for() {
    let queue = Queue::new().await;
    let shop = Shop::open(&queue.url);
    let slow = shop.begin(ADA, &order(1).to_string());
    assert_eq!(shop.post(ADA, &order(2)).0, 202, "it holds up nobody");
    assert_eq!(answer(slow).0, 503);
    assert_eq!(queue.len().await, 1);
    shop.close();
}
