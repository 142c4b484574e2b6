//! What of a payload must be the same each time its key comes.

use super::Job;
use crate::payload::Payload;
use crate::protocol::Fingerprint;

/// By default the whole.
#[derive(Clone, Debug)]
pub(super) enum Compared {
    Whole,
    Fields(Vec<String>),
    Nothing,
}

impl Job {
    /// Compares these top-level fields of the payload alone, where a key comes again: the others,
    /// such as a `sent_at`, may then differ between messages of one key, and any of those messages
    /// may be the one that runs. A field that is missing counts as absent; a payload that is no
    /// JSON object is compared as a whole.
    #[must_use]
    pub fn fingerprint_fields<F: Into<String>>(
        mut self,
        fields: impl IntoIterator<Item = F>,
    ) -> Self {
        self.compared = Compared::Fields(fields.into_iter().map(Into::into).collect());
        self
    }

    /// Compares nothing: the key alone names the operation, and whichever payload comes first
    /// under it runs. A producer that uses a key twice by mistake is not noticed.
    #[must_use]
    pub fn fingerprint_off(mut self) -> Self {
        self.compared = Compared::Nothing;
        self
    }

    /// The digest of what is compared.
    pub(crate) fn fingerprint(&self, payload: &Payload) -> Option<Fingerprint> {
        match &self.compared {
            Compared::Whole => Some(payload.fingerprint()),
            Compared::Fields(fields) => Some(payload.fingerprint_of(fields)),
            Compared::Nothing => None,
        }
    }
}
