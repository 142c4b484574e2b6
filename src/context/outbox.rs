//! Events that a job sends on once it is completed.

use serde::Serialize;

use super::{Context, is_over};
use crate::error::HandlerError;
use crate::protocol::{IdempotencyKey, OutboxEntry, event_id, xml_json};
use crate::telemetry::here;

impl Context {
    /// Puts an event into the outbox, in the transaction that completes this job: it is sent on if
    /// and only if the job is completed, and then at least once, each time under the id that this
    /// answers. The relay runs the job named `event` for it, with `payload` as its body.
    ///
    /// It goes on in this attempt's trace, or, where none is taken, in that of the job's message.
    /// The events of one job are sent on in their order; see
    /// [`outbox_for`](Self::outbox_for) for an order beyond it.
    pub async fn outbox(
        &self,
        event: &str,
        payload: &impl Serialize,
    ) -> Result<IdempotencyKey, HandlerError> {
        self.outbox_for(self.id().as_str(), event, payload).await
    }

    /// The same, in order with all other events of `order_key`: an order, an account.
    pub async fn outbox_for(
        &self,
        order_key: &str,
        event: &str,
        payload: &impl Serialize,
    ) -> Result<IdempotencyKey, HandlerError> {
        let store = self.attempt.commits.store();
        let table = store.capabilities().outbox.ok_or_else(|| {
            HandlerError::terminal(
                "this store has no outbox; DynamoDB, Postgres and SQLite have one",
            )
        })?;
        let body = xml_json(serde_json::to_string(payload).map_err(HandlerError::terminal)?);
        let mut journal = self.attempt.journal.lock().await;
        let journal = journal.as_mut().ok_or_else(is_over)?;
        let nth = journal.staged.writes().len();
        let created_at = self.now();
        let id = event_id(created_at, nth, self.id(), &journal.held.claim_id);
        let entry = OutboxEntry {
            order_key: order_key.to_owned(),
            event_id: IdempotencyKey::new(id).map_err(HandlerError::terminal)?,
            event: event.to_owned(),
            body,
            created_at,
            unique: None,
            trace: here().or_else(|| self.attempt.about.trace.clone()),
        };
        let row = entry.row(&table).map_err(HandlerError::terminal)?;
        journal.staged.push(row.into(), None)?;
        Ok(entry.event_id)
    }
}
