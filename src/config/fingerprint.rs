//! What a job's table says of its fingerprint.

use serde::Deserialize;

use super::jobs_file::JobTable;
use crate::handler::Job;

#[derive(Deserialize)]
#[serde(untagged, expecting = "fingerprint is a list of the payload's fields, or \"off\"")]
pub(super) enum FingerprintText {
    Fields(Vec<String>),
    Word(String),
}

impl JobTable {
    /// The job, comparing what its table says.
    pub fn compared(&self, job: Job) -> Result<Job, String> {
        match &self.fingerprint {
            None => Ok(job),
            Some(FingerprintText::Word(word)) if word == "off" => Ok(job.fingerprint_off()),
            Some(FingerprintText::Word(word)) => Err(format!(
                "fingerprint {word:?} is not known; write [\"a field\", ..] or \"off\", or leave \
                 it out to compare the whole payload"
            )),
            Some(FingerprintText::Fields(fields)) if fields.is_empty() => {
                Err("fingerprint names no field; write \"off\" to compare nothing".to_owned())
            }
            Some(FingerprintText::Fields(_)) if self.body.as_deref() == Some("raw") => {
                Err("a raw body has no fields to compare; remove fingerprint, or write \"off\""
                    .to_owned())
            }
            Some(FingerprintText::Fields(fields)) => Ok(job.fingerprint_fields(fields.clone())),
        }
    }
}
