//! What one would write by hand: a conditional put, the job, which does nothing, and an update; the
//! same client settings and as many messages at once as this crate has, and nothing else. It has no
//! leases, no fencing, no fingerprints, no retries, no quarantine and no log.

use std::collections::HashMap;
use std::env;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure};
use futures_util::{StreamExt, stream};
use lambda_runtime::{LambdaEvent, service_fn};
use onlyonce::BoxError;
use serde::{Deserialize, Serialize};

/// As many as this crate has by default.
const AT_ONCE: usize = 32;
const RETENTION: Duration = Duration::from_secs(45 * 24 * 3600);
const LEASE: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "Records", default)]
    records: Vec<Message>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message {
    message_id: String,
    body: String,
    #[serde(default)]
    message_attributes: HashMap<String, Attribute>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Attribute {
    string_value: Option<String>,
}

#[derive(Deserialize)]
struct Order {
    amount: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    batch_item_failures: Vec<Failure>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Failure {
    item_identifier: String,
}

/// On `#[tokio::main]`, as everybody's is; or, with ONE_THREAD, on the runtime of this crate's worker, to
/// tell how much of a difference that alone makes.
fn main() -> ExitCode {
    let runtime = match env::var_os("ONE_THREAD") {
        Some(_) => onlyonce::runtime::executor(),
        None => tokio::runtime::Builder::new_multi_thread().enable_all().build(),
    };
    match runtime.map_err(BoxError::from).and_then(|runtime| runtime.block_on(serve())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> Result<(), BoxError> {
    let table = env::var("TABLE")?;
    let client = Client::new(&onlyonce::sdk::load().await);
    let (client, table) = (&client, table.as_str());
    lambda_runtime::run(service_fn(move |event: LambdaEvent<Event>| async move {
        let failed = stream::iter(event.payload.records)
            .map(|message| async move {
                let done = once(client, table, &message).await;
                done.err().map(|_| Failure { item_identifier: message.message_id })
            })
            .buffer_unordered(AT_ONCE)
            .filter_map(async |failed| failed)
            .collect()
            .await;
        Ok::<_, BoxError>(Answer { batch_item_failures: failed })
    }))
    .await
}

#[allow(
    clippy::disallowed_methods,
    reason = "written by hand, it has no clock that a test could set"
)]
async fn once(client: &Client, table: &str, message: &Message) -> Result<(), BoxError> {
    let attribute = message.message_attributes.get("idempotency-key");
    let key = attribute.and_then(|found| found.string_value.clone()).ok_or("no key")?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let claimed = client
        .put_item()
        .table_name(table)
        .item("pk", AttributeValue::S(key.clone()))
        .item("status", AttributeValue::S("running".to_owned()))
        .item("locked_until", number(now + LEASE))
        .item("expires_at", number(now + RETENTION))
        .condition_expression(
            "attribute_not_exists(pk) OR expires_at < :now OR (#s = :running AND locked_until < :now)",
        )
        .expression_attribute_names("#s", "status")
        .expression_attribute_values(":now", number(now))
        .expression_attribute_values(":running", AttributeValue::S("running".to_owned()))
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
        .send()
        .await;
    match claimed {
        Ok(_) => {}
        Err(SdkError::ServiceError(refused)) => match refused.into_err() {
            PutItemError::ConditionalCheckFailedException(failed) => {
                let status = failed.item.as_ref().and_then(|item| item.get("status"));
                return match status.and_then(|status| status.as_s().ok()) {
                    Some(status) if status == "done" => Ok(()),
                    _ => Err("another worker has it".into()),
                };
            }
            error => return Err(error.into()),
        },
        Err(error) => return Err(error.into()),
    }
    let order: Order = serde_json::from_str(&message.body)?;
    client
        .update_item()
        .table_name(table)
        .key("pk", AttributeValue::S(key))
        .update_expression("SET #s = :done, charged = :charged")
        .condition_expression("#s = :running")
        .expression_attribute_names("#s", "status")
        .expression_attribute_values(":done", AttributeValue::S("done".to_owned()))
        .expression_attribute_values(":running", AttributeValue::S("running".to_owned()))
        .expression_attribute_values(":charged", AttributeValue::N(order.amount.to_string()))
        .send()
        .await?;
    Ok(())
}

fn number(time: Duration) -> AttributeValue {
    AttributeValue::N(time.as_secs().to_string())
}
