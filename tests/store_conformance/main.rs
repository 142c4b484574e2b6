//! One suite over every store: what the protocol relies on, races included.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[cfg(any(feature = "dynamodb", feature = "sqlite", feature = "postgres"))]
mod kept;
mod records;
mod suite;

use std::sync::Arc;

use onlyonce::store::{MemoryStore, Store};

/// Declares the whole suite for one store.
macro_rules! conforms {
    ($store:ident, $make:expr, [$($test:ident),+ $(,)?]) => {
        mod $store {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                let store: std::sync::Arc<dyn onlyonce::store::Store> = $make.await;
                crate::suite::$test(store).await;
            })+
        }
    };
    ($store:ident, $make:expr) => {
        conforms!($store, $make, [
            a_record_is_made_once,
            an_update_lands_only_at_its_claim_and_revision,
            an_update_of_nothing_is_a_conflict_with_nothing,
            of_many_racing_claims_one_wins,
            of_many_racing_take_overs_one_wins,
            every_field_is_read_back_as_written,
            an_update_leaves_what_it_does_not_name,
            a_claim_and_its_end_are_one_write,
            falsy_outputs_are_kept,
            a_repeated_write_is_known_by_what_is_there,
            a_stale_take_over_does_not_land_on_a_completion,
            staged_rows_land_with_the_record_or_not_at_all,
            a_floor_refuses_and_names_the_row,
            a_duplicates_staged_rows_do_not_land,
            rows_are_deleted_only_as_they_were_seen,
            parked_records_are_scanned_oldest_first_in_pages,
            a_foreign_staged_form_is_refused_by_name,
            a_row_that_no_store_could_write_is_refused_when_it_is_staged,
        ]);
    };
}

async fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

conforms!(memory, crate::memory());

#[cfg(feature = "sqlite")]
mod sqlite_file;

#[cfg(feature = "sqlite")]
conforms!(sqlite, crate::sqlite_file::store());

#[cfg(feature = "postgres")]
#[path = "../servers/postgres.rs"]
mod server;

#[cfg(feature = "postgres")]
mod postgres_server;

#[cfg(feature = "postgres")]
mod postgres_login;

#[cfg(feature = "postgres")]
mod postgres_lost;

#[cfg(all(feature = "postgres", feature = "sqlite"))]
mod sql;

#[cfg(feature = "postgres")]
conforms!(postgres, crate::postgres_server::store());

#[cfg(feature = "dynamodb")]
mod dynamo;

#[cfg(feature = "dynamodb")]
conforms!(dynamodb, crate::dynamo::store());

#[cfg(feature = "dynamodb")]
mod dynoxide;

#[cfg(feature = "dynamodb")]
conforms!(dynoxide_server, crate::dynoxide::store());

#[cfg(all(feature = "dynamodb", feature = "sqlite", feature = "postgres"))]
mod differential;
