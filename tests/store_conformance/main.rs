//! One suite over every store: what the protocol relies on, races included.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod apart;
mod counted;
mod crashes;
mod faults;
mod records;
mod suite;
mod table;

#[cfg(any(feature = "dynamodb", feature = "sqlite", feature = "redis", feature = "postgres"))]
mod kept;
#[cfg(any(feature = "redis", feature = "postgres"))]
mod outage;
#[cfg(any(feature = "redis", feature = "postgres"))]
mod outages;
#[cfg(any(feature = "sqlite", feature = "redis"))]
mod scratch;

use std::sync::Arc;

use onlyonce::store::{MemoryStore, Store};

/// Declares the whole suite for one store. `Crashes` says how many crash points it is quick enough
/// for.
macro_rules! conforms {
    ($store:ident, $make:expr, $crashes:ident) => {
        conforms!($store, $make, $crashes,
            every: [
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
                parked_records_are_scanned_oldest_first_in_pages,
                a_walk_meets_every_record,
                a_foreign_staged_form_is_refused_by_name,
            ],
            rows: [
                staged_rows_land_with_the_record_or_not_at_all,
                a_floor_refuses_and_names_the_row,
                a_duplicates_staged_rows_do_not_land,
                rows_are_deleted_only_as_they_were_seen,
                a_row_that_no_store_could_write_is_refused_when_it_is_staged,
            ]
        );
    };
    ($store:ident, $make:expr, $crashes:ident,
        every: [$($every:ident),+ $(,)?], rows: [$($rows:ident),+ $(,)?]) => {
        mod $store {
            const NAME: &str = stringify!($store);

            $(#[tokio::test(flavor = "multi_thread")]
            async fn $every() {
                crate::table::ran(NAME, $make.await, crate::suite::$every).await;
            })+

            $(#[tokio::test(flavor = "multi_thread")]
            async fn $rows() {
                crate::table::ran_if_rows(NAME, $make.await, crate::suite::$rows).await;
            })+

            #[test]
            fn every_crash_point_holds() {
                crate::crashes::all_hold(NAME, $make, crate::crashes::Crashes::$crashes);
            }

            #[test]
            fn every_fault_is_survived() {
                crate::faults::all_hold(NAME, $make);
            }
        }
    };
}

async fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

conforms!(memory, crate::memory(), Pairs);

#[cfg(feature = "sqlite")]
mod sqlite_file;

#[cfg(feature = "sqlite")]
conforms!(sqlite, crate::sqlite_file::store(), Pairs);

#[cfg(feature = "redis")]
mod redis_server;

#[cfg(feature = "redis")]
conforms!(redis, crate::redis_server::store(), Pairs);

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
conforms!(postgres, crate::postgres_server::store(), Singles);

#[cfg(feature = "dynamodb")]
mod dynamo;

#[cfg(feature = "dynamodb")]
conforms!(dynamodb, crate::dynamo::store(), Singles);

#[cfg(feature = "dynamodb")]
mod dynoxide;

#[cfg(feature = "dynamodb")]
conforms!(dynoxide_server, crate::dynoxide::store(), Singles);

#[cfg(all(feature = "dynamodb", feature = "sqlite", feature = "redis", feature = "postgres"))]
mod differential;
