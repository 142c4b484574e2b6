//! The DynamoDB store against the service at `AWS_ENDPOINT_URL`, and what only it can do.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, Put,
    ScalarAttributeType, TransactWriteItem,
};
use onlyonce::error::ErrorKind;
use onlyonce::protocol::{Held, Output, Retention, Status, complete};
use onlyonce::runtime::SystemClock;
use onlyonce::sdk;
use onlyonce::store::{Columns, Commit, DynamoStore, RowValue, RowWrite, StagedWrite, Store};

use crate::records::{NOW, first_claim};

pub async fn settings() -> aws_config::SdkConfig {
    assert!(
        std::env::var_os("AWS_ENDPOINT_URL").is_some(),
        "AWS_ENDPOINT_URL is not set; `make test` starts a local DynamoDB and sets it"
    );
    sdk::load().await
}

/// A store on a table of its own; rows go to the table `stock`.
pub async fn store() -> Arc<dyn Store> {
    Arc::new(store_of(&client().await).await)
}

pub async fn client() -> Client {
    Client::new(&settings().await)
}

/// The same, wherever this client leads.
pub async fn store_of(client: &Client) -> DynamoStore {
    let (store, _) = fresh_of(client).await;
    make_table(client, "stock", "sku").await;
    store
}

/// Makes a table for rows, unless it is there.
async fn make_table(client: &Client, name: &str, key: &str) {
    let attribute = AttributeDefinition::builder()
        .attribute_name(key)
        .attribute_type(ScalarAttributeType::S)
        .build()
        .unwrap();
    let hash =
        KeySchemaElement::builder().attribute_name(key).key_type(KeyType::Hash).build().unwrap();
    let made = client
        .create_table()
        .table_name(name)
        .billing_mode(BillingMode::PayPerRequest)
        .attribute_definitions(attribute)
        .key_schema(hash)
        .send()
        .await;
    if let Err(error) = made {
        let error = error.into_service_error();
        assert!(error.is_resource_in_use_exception(), "{error:?}");
    }
}

async fn fresh() -> (DynamoStore, Client, String) {
    let client = client().await;
    let (store, table) = fresh_of(&client).await;
    (store, client, table)
}

async fn fresh_of(client: &Client) -> (DynamoStore, String) {
    let table = format!("conformance-{:016x}", fastrand::Rng::new().u64(..));
    let store = DynamoStore::with_client(client.clone(), &table);
    assert!(store.create_table(&SystemClock).await.unwrap());
    (store, table)
}

async fn raw(client: &Client, table: &str, pk: &str) -> Item {
    let key = AttributeValue::S(pk.to_owned());
    let got = client.get_item().table_name(table).key("pk", key).send().await.unwrap();
    got.item.unwrap()
}

/// Writes one attribute past the store, as another program would.
async fn set(client: &Client, table: &str, held: &Held, name: &str, value: AttributeValue) {
    client
        .update_item()
        .table_name(table)
        .key("pk", AttributeValue::S(held.id.to_string()))
        .update_expression(format!("SET {name} = :value"))
        .expression_attribute_values(":value", value)
        .send()
        .await
        .unwrap();
}

type Item = std::collections::HashMap<String, AttributeValue>;

#[tokio::test]
async fn ttl_is_whole_epoch_seconds_and_parked_is_sparse() {
    let (store, client, table) = fresh().await;
    let (write, held) = first_claim("k", "first");
    store.commit(&write, &[]).await.unwrap();
    let item = raw(&client, &table, held.id.as_str()).await;
    let AttributeValue::N(expiry) = &item["expires_at"] else { panic!("no number") };
    let seconds: u64 = expiry.parse().expect("whole");
    assert_eq!(seconds, NOW.millis() / 1000 + 45 * 24 * 3600);
    assert!(!item.contains_key("parked"));
    assert_eq!(item["v"], AttributeValue::N("1".to_owned()));
}

#[tokio::test]
async fn an_existing_table_is_left_as_it_is() {
    let (store, ..) = fresh().await;
    assert!(!store.create_table(&SystemClock).await.unwrap());
}

#[tokio::test]
async fn attributes_of_a_later_version_survive_an_update() {
    let (store, client, table) = fresh().await;
    let (write, held) = first_claim("k", "first");
    store.commit(&write, &[]).await.unwrap();
    set(&client, &table, &held, "later", AttributeValue::S("kept".to_owned())).await;
    let (done, _) = complete(&held, Output::Omitted, Retention::Forever, NOW);
    assert_eq!(store.commit(&done, &[]).await.unwrap(), Commit::Applied);
    let item = raw(&client, &table, held.id.as_str()).await;
    assert_eq!(item["later"], AttributeValue::S("kept".to_owned()));
}

#[tokio::test]
async fn a_record_of_a_later_version_fails_closed() {
    let (store, client, table) = fresh().await;
    let (write, held) = first_claim("k", "first");
    store.commit(&write, &[]).await.unwrap();
    set(&client, &table, &held, "v", AttributeValue::N("2".to_owned())).await;
    let error = store.commit(&write, &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Record);
    assert!(error.to_string().contains("version 2"), "{error}");
}

#[tokio::test]
async fn a_missing_table_is_refused_for_good() {
    let store = DynamoStore::new(&settings().await, "there-is-no-such-table");
    let error = store.commit(&first_claim("k", "first").0, &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreRefused, "{error}");
}

#[tokio::test]
async fn a_native_transaction_item_lands_with_the_completion() {
    let (store, client, _) = fresh().await;
    let orders = format!("orders-{:016x}", fastrand::Rng::new().u64(..));
    make_table(&client, &orders, "id").await;
    let put = Put::builder()
        .table_name(&orders)
        .item("id", AttributeValue::S("42".to_owned()))
        .build()
        .unwrap();
    let staged = [StagedWrite::from(TransactWriteItem::builder().put(put).build())];
    let (write, held) = first_claim("k", "first");
    store.commit(&write, &[]).await.unwrap();
    let (done, _) = complete(&held, Output::Omitted, Retention::Forever, NOW);
    assert_eq!(store.commit(&done, &staged).await.unwrap(), Commit::Applied);
    assert_eq!(store.load(&held.id).await.unwrap().unwrap().status, Status::Completed);
    let found = client.scan().table_name(&orders).send().await.unwrap();
    assert_eq!(found.count(), 1);
}

/// A pooled connection that died while the process was frozen accepts bytes and answers nothing.
#[tokio::test]
async fn more_than_a_transaction_takes_is_refused_for_good() {
    let (store, ..) = fresh().await;
    let (write, held) = first_claim("k", "first");
    assert_eq!(store.commit(&write, &[]).await.unwrap(), Commit::Applied);
    let put = |n: usize| RowWrite::PutIfAbsent {
        table: "stock".to_owned(),
        key: [("sku".to_owned(), RowValue::from(n.to_string()))].into(),
        values: Columns::new(),
    };
    let staged: Vec<_> = (0..100).map(|n| put(n).into()).collect();
    let (done, _) = complete(&held, Output::Omitted, Retention::Forever, NOW);
    let error = store.commit(&done, &staged).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Staged);
    assert!(error.to_string().contains("99"), "{error}");
}

#[tokio::test]
async fn a_stalled_connection_is_an_error_within_its_time() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let keep = onlyonce::runtime::spawn(async move {
        let mut open = Vec::new();
        while let Ok((connection, _)) = silent.accept().await {
            open.push(connection);
        }
    });
    let config = aws_sdk_dynamodb::config::Builder::from(&settings().await).endpoint_url(endpoint);
    let client = Client::from_conf(config.build());
    let store = DynamoStore::with_client(client, "onlyonce");
    let write = first_claim("k", "first").0;
    let commit = tokio::time::timeout(Duration::from_secs(20), store.commit(&write, &[]));
    let error = commit.await.expect("bounded by the SDK's own time limits").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreUnavailable, "{error}");
    drop(keep);
}
