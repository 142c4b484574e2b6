//! On the way to a DynamoDB: counts what is asked, and refuses what it is told to, down to one
//! statement of a batch.

use std::sync::{Arc, Mutex};

use aws_sdk_dynamodb::Client;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use onlyonce::runtime::{Task, spawn};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Stands between a store and its DynamoDB, for as long as it is kept.
pub struct Wire {
    inside: Arc<Inside>,
    address: String,
    _serving: Task<()>,
}

struct Inside {
    upstream: String,
    calls: Mutex<Vec<Call>>,
    rules: Mutex<Vec<Rule>>,
}

/// A request that was made.
#[derive(Clone, Debug)]
pub struct Call {
    pub operation: String,
    pub body: Value,
}

impl Call {
    /// How many records it is about.
    pub fn members(&self) -> usize {
        let statements = self.body["Statements"].as_array().map_or(0, Vec::len);
        statements + keys(&self.body).map_or(0, |keys| keys.len()).max(usize::from(statements == 0))
    }
}

/// What is refused: a whole operation, or of a batch what is about one record.
#[derive(Clone, Debug)]
struct Rule {
    operation: &'static str,
    record: Option<String>,
    code: &'static str,
}

impl Wire {
    /// In front of `upstream`, as `host:port`.
    pub async fn to(upstream: String) -> Self {
        let inside =
            Arc::new(Inside { upstream, calls: Mutex::default(), rules: Mutex::default() });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let router = Router::new().fallback(answer).with_state(inside.clone());
        let serving = spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { inside, address, _serving: serving }
    }

    /// The same client, through here.
    pub fn through(&self, client: &Client) -> Client {
        let config = client.config().to_builder().endpoint_url(format!("http://{}", self.address));
        Client::from_conf(config.build())
    }

    /// From now on, beside what is refused already.
    pub fn refuses(&self, operation: &'static str, record: Option<&str>, code: &'static str) {
        let rule = Rule { operation, record: record.map(str::to_owned), code };
        self.inside.rules.lock().unwrap().push(rule);
    }

    /// From now on nothing is refused.
    pub fn heals(&self) {
        self.inside.rules.lock().unwrap().clear();
    }

    /// What has been asked since the last time: operation and records of each request.
    pub fn asked(&self) -> Vec<(String, usize)> {
        self.calls().iter().map(|call| (call.operation.clone(), call.members())).collect()
    }

    pub fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.inside.calls.lock().unwrap())
    }
}

fn keys(body: &Value) -> Option<&Vec<Value>> {
    let (_, table) = body["RequestItems"].as_object()?.iter().next()?;
    table["Keys"].as_array()
}

async fn answer(
    State(wire): State<Arc<Inside>>,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, [(&'static str, &'static str); 1], Vec<u8>) {
    let target = headers["x-amz-target"].to_str().unwrap().to_owned();
    let operation = target.rsplit('.').next().unwrap().to_owned();
    let mut asked: Value = serde_json::from_slice(&body).unwrap();
    wire.calls.lock().unwrap().push(Call { operation: operation.clone(), body: asked.clone() });
    let rules: Vec<Rule> = wire.rules.lock().unwrap().clone();
    let mine = rules.iter().filter(|rule| rule.operation == operation);
    let (status, answer) = match mine.clone().find(|rule| rule.record.is_none()) {
        Some(rule) => {
            let kind = format!("com.amazonaws.dynamodb.v20120810#{}", rule.code);
            (400, json!({"__type": kind, "message": "injected"}))
        }
        None => {
            let mine: Vec<_> = mine.collect();
            let statements = statements_taken(&mut asked, &mine);
            let left = keys_taken(&mut asked, &mine);
            let (status, mut answer) = passed_on(&wire.upstream, &target, &headers, &asked).await;
            for (at, code) in statements {
                let error = json!({"Error": {"Code": code, "Message": "injected"}});
                answer["Responses"].as_array_mut().unwrap().insert(at, error);
            }
            if let Some(left) = left {
                answer["UnprocessedKeys"] = left;
            }
            (status, answer)
        }
    };
    let status = StatusCode::from_u16(status).unwrap();
    (status, [("content-type", "application/x-amz-json-1.0")], answer.to_string().into_bytes())
}

/// Takes out the statements that are refused; where they were, and with which code.
fn statements_taken(asked: &mut Value, rules: &[&Rule]) -> Vec<(usize, &'static str)> {
    let Some(statements) = asked["Statements"].as_array_mut() else { return Vec::new() };
    let code = |statement: &Value| rules.iter().find(|rule| is_about(rule, statement));
    let taken: Vec<_> = statements
        .iter()
        .enumerate()
        .filter_map(|(at, statement)| Some((at, code(statement)?.code)))
        .collect();
    statements.retain(|statement| code(statement).is_none());
    taken
}

/// Takes out the keys that are left unprocessed.
fn keys_taken(asked: &mut Value, rules: &[&Rule]) -> Option<Value> {
    let (table, of) = asked["RequestItems"].as_object_mut()?.iter_mut().next()?;
    let keys = of["Keys"].as_array_mut()?;
    let is_left = |key: &Value| rules.iter().any(|rule| is_about(rule, key));
    let left: Vec<_> = keys.iter().filter(|key| is_left(key)).cloned().collect();
    keys.retain(|key| !is_left(key));
    (!left.is_empty()).then(|| json!({table: {"Keys": left, "ConsistentRead": true}}))
}

fn is_about(rule: &Rule, what: &Value) -> bool {
    rule.record.as_ref().is_some_and(|record| what.to_string().contains(record.as_str()))
}

async fn passed_on(
    upstream: &str,
    target: &str,
    headers: &HeaderMap,
    body: &Value,
) -> (u16, Value) {
    let is_empty = |list: &str| body[list].as_array().is_some_and(Vec::is_empty);
    if is_empty("Statements") || keys(body).is_some_and(Vec::is_empty) {
        return (
            200,
            json!({"Responses": if body["Statements"].is_array() { json!([]) } else { json!({}) }}),
        );
    }
    let body = body.to_string();
    let authorization = headers["authorization"].to_str().unwrap();
    let mut stream = TcpStream::connect(upstream).await.unwrap();
    let head = format!(
        "POST / HTTP/1.1\r\nHost: {upstream}\r\nConnection: close\r\nX-Amz-Target: {target}\r\n\
         Authorization: {authorization}\r\nX-Amz-Date: 20261130T000000Z\r\n\
         Content-Type: application/x-amz-json-1.0\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_slice(&answer[end + 4..]).unwrap())
}
