//! Secrets in SSM's Parameter Store and in Secrets Manager.

use async_trait::async_trait;
use tokio::sync::OnceCell;

use super::KeptIn;
use super::cache::Vault;
use crate::error::{Error, ErrorKind};
use crate::sdk;

/// AWS, by the environment's settings, looked up when the first secret is read: a worker without
/// secrets there pays nothing.
#[derive(Debug, Default)]
pub(super) struct Aws {
    clients: OnceCell<(aws_sdk_ssm::Client, aws_sdk_secretsmanager::Client)>,
}

#[async_trait]
impl Vault for Aws {
    async fn fetch(&self, place: &KeptIn) -> Result<Option<String>, Error> {
        let made = async {
            let sdk = sdk::load().await;
            (aws_sdk_ssm::Client::new(&sdk), aws_sdk_secretsmanager::Client::new(&sdk))
        };
        let (ssm, secrets_manager) = self.clients.get_or_init(|| made).await;
        match place {
            KeptIn::Ssm(name) => {
                let found = ssm.get_parameter().name(name).with_decryption(true).send().await;
                let found = found.map_err(|error| failed("ssm:GetParameter").with_source(error))?;
                Ok(found.parameter.and_then(|parameter| parameter.value))
            }
            KeptIn::SecretsManager(name) => {
                let found = secrets_manager.get_secret_value().secret_id(name).send().await;
                let found = found
                    .map_err(|error| failed("secretsmanager:GetSecretValue").with_source(error))?;
                Ok(found.secret_string)
            }
        }
    }
}

fn failed(action: &'static str) -> Error {
    Error::new(ErrorKind::Secret, action)
}
