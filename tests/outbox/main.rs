//! Events from a job's commit to whoever runs them, on each store that has an outbox.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[cfg(feature = "sqlite")]
mod folder;
mod kills;
#[cfg(feature = "postgres")]
#[path = "../servers/postgres.rs"]
mod server;
mod shop;
mod stream;
mod suite;
mod unique;

use std::any::Any;
use std::sync::Arc;

use onlyonce::store::{MemoryStore, Store};

/// A store, and what it lives on.
type Made = (Arc<dyn Store>, Option<Box<dyn Any>>);

async fn memory() -> Made {
    (Arc::new(MemoryStore::new()), None)
}

#[cfg(feature = "sqlite")]
async fn sqlite() -> Made {
    let folder = folder::Folder::new();
    let store = onlyonce::store::SqliteStore::open(folder.0.join("jobs.db")).await.unwrap();
    (Arc::new(store), Some(Box::new(folder)))
}

#[cfg(feature = "postgres")]
async fn postgres() -> Made {
    use onlyonce::store::PostgresStore;

    let server = server::Postgres::start();
    PostgresStore::create(&server.url()).await.unwrap();
    let store = PostgresStore::open_existing(&server.url()).await.unwrap();
    (Arc::new(store), Some(Box::new(server)))
}

#[cfg(feature = "dynamodb")]
async fn dynamodb() -> Made {
    use onlyonce::runtime::SystemClock;
    use onlyonce::sdk;
    use onlyonce::store::DynamoStore;

    let table = format!("outbox-{:016x}", fastrand::Rng::new().u64(..));
    let store = DynamoStore::new(&sdk::load().await, table);
    store.create_table(&SystemClock).await.unwrap();
    (Arc::new(store), None)
}

/// Declares the whole suite for one store.
macro_rules! relays {
    ($store:ident, [$($suite:ident::$test:ident),+ $(,)?]) => {
        mod $store {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                let (store, _keeps) = crate::$store().await;
                crate::$suite::$test(store).await;
            })+
        }
    };
    ($store:ident) => {
        relays!($store, [
            suite::a_completed_jobs_events_are_sent_once_under_their_ids,
            suite::the_trace_of_a_job_goes_on_with_its_events,
            suite::events_of_one_order_key_go_in_order_and_hold_up_no_other,
            suite::an_event_that_waits_holds_up_all_behind_it_however_many,
            suite::an_event_that_fails_for_good_is_quarantined_and_the_next_goes_on,
            suite::relays_side_by_side_send_each_event_once,
            suite::an_event_of_another_transaction_goes_the_same_way,
            suite::an_event_that_was_sent_and_not_removed_is_known_by_its_id,
            suite::a_row_that_is_no_entry_keeps_no_other_from_being_sent,
            suite::what_a_dead_relay_had_taken_is_soon_sent_by_another,
            suite::an_entry_is_never_given_without_those_before_it,
            unique::one_message_at_a_time,
            unique::a_period_ends_whatever_became_of_the_message,
            unique::each_end_of_a_job_makes_room_for_the_next,
            unique::a_late_message_clears_no_later_one,
            unique::many_at_once_are_one,
            unique::a_fused_jobs_row_goes_with_it_and_its_event_is_sent,
            unique::whatever_goes_wrong_with_its_end_the_next_has_room,
            unique::what_waits_to_be_sent_is_not_replaced,
            unique::what_is_quarantined_again_makes_room_too,
        ]);
    };
}

relays!(memory);
#[cfg(feature = "sqlite")]
relays!(sqlite);
#[cfg(feature = "postgres")]
relays!(postgres);
#[cfg(feature = "dynamodb")]
relays!(dynamodb);
