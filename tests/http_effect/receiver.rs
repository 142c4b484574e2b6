//! The other end of a request: a small HTTP server that remembers what it was sent.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use onlyonce::runtime::{Task, spawn};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// One request, as it came over the wire.
#[derive(Clone, Debug)]
pub struct Request {
    pub line: String,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(header, _)| header.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// Answers each request with the next of its answers, or with 200.
pub struct Receiver {
    pub port: u16,
    seen: Arc<Mutex<Vec<Request>>>,
    _serving: Task<()>,
}

impl Receiver {
    pub async fn start(answers: &[&str]) -> Self {
        Self::at(0, answers).await
    }

    /// Listens at this port; 0 is any.
    pub async fn at(port: u16, answers: &[&str]) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen: Arc<Mutex<Vec<Request>>> = Arc::default();
        let answers: VecDeque<String> = answers.iter().map(|text| (*text).to_owned()).collect();
        let (requests, answers) = (seen.clone(), Arc::new(Mutex::new(answers)));
        let serving = spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                // One after another is enough: each test sends one request at a time.
                serve(connection, &requests, &answers).await;
            }
        });
        Self { port, seen, _serving: serving }
    }

    pub fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }
}

async fn serve(
    mut connection: TcpStream,
    seen: &Mutex<Vec<Request>>,
    answers: &Mutex<VecDeque<String>>,
) {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at;
        }
        if connection.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            return;
        }
    };
    let head = String::from_utf8(bytes[..head_end].to_vec()).unwrap();
    let mut lines = head.split("\r\n");
    let line = lines.next().unwrap().to_owned();
    let headers: Vec<_> = lines
        .map(|header| header.split_once(": ").unwrap())
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let mut request = Request { line, headers, body: String::new() };
    let length = request.header("content-length").map_or(0, |text| text.parse().unwrap());
    while bytes.len() < head_end + 4 + length {
        if connection.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            return;
        }
    }
    request.body = String::from_utf8(bytes[head_end + 4..].to_vec()).unwrap();
    seen.lock().unwrap().push(request);
    let answer = answers.lock().unwrap().pop_front();
    match answer.as_deref() {
        // Takes the request and says nothing until the client gives up.
        Some("silence") => while connection.read_buf(&mut bytes).await.unwrap_or(0) > 0 {},
        Some("hang up") => {}
        answer => {
            let answer = answer.unwrap_or("200 OK\r\ncontent-length: 2\r\n\r\n{}");
            let text = format!("HTTP/1.1 {answer}");
            let close = text.replacen("\r\n", "\r\nconnection: close\r\n", 1);
            connection.write_all(close.as_bytes()).await.unwrap();
        }
    }
}
