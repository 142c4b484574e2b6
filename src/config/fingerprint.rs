//! What a job's table says of its fingerprint.

use serde::Deserialize;

use crate::handler::Job;

#[derive(Deserialize)]
#[serde(untagged, expecting = "fingerprint is a list of the payload's fields, or \"off\"")]
pub(super) enum FingerprintText {
    Fields(Vec<String>),
    Word(String),
}

impl FingerprintText {
    /// The job, comparing what its table says.
    pub fn applied_to(self, job: Job) -> Result<Job, String> {
        match self {
            Self::Word(word) if word == "off" => Ok(job.fingerprint_off()),
            Self::Word(word) => Err(format!(
                "fingerprint {word:?} is not known; write [\"a field\", ..] or \"off\", or leave \
                 it out to compare the whole payload"
            )),
            Self::Fields(fields) if fields.is_empty() => {
                Err("fingerprint names no field; write \"off\" to compare nothing".to_owned())
            }
            Self::Fields(_) if job.is_raw() => {
                Err("a raw body has no fields to compare; remove fingerprint, or write \"off\""
                    .to_owned())
            }
            Self::Fields(fields) => Ok(job.fingerprint_fields(fields)),
        }
    }
}
