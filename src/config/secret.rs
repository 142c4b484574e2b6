//! What a job's table says of its secret.

use serde::{Deserialize, Deserializer};

use super::effect::header;
use super::jobs_file::Env;
use crate::secret::{KeptIn, Secret, SecretValue};

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SecretTable {
    header: Option<String>,
    env: Option<String>,
    ssm: Option<String>,
    secretsmanager: Option<String>,
}

/// A table. Anything else may be the secret itself, which no error may show.
pub(super) fn table<'de, D: Deserializer<'de>>(input: D) -> Result<Option<SecretTable>, D::Error> {
    match toml::Value::deserialize(input)? {
        toml::Value::Table(table) => match table.try_into() {
            Ok(secret) => Ok(Some(secret)),
            Err(error) => Err(serde::de::Error::custom(error.message())),
        },
        _ => Err(serde::de::Error::custom(
            "a secret is not written here; say where it is kept: { header = \"Authorization\", env \
             = \"VARIABLE\" }, or ssm, or secretsmanager; a login has no header",
        )),
    }
}

impl SecretTable {
    /// The secret of a header. One in the environment is read now.
    pub fn secret(&self, env: Env<'_>) -> Result<Secret, String> {
        let name =
            self.header.as_deref().ok_or("the secret names no header; add header = \"..\"")?;
        let header = header("secret header", name)?;
        Ok(Secret::new(header, self.value(env)?))
    }

    /// A login, `user:password`.
    #[cfg(feature = "email")]
    pub fn login(&self, env: Env<'_>) -> Result<SecretValue, String> {
        if self.header.is_some() {
            return Err("a login goes into no header; remove header".to_owned());
        }
        let value = self.value(env)?;
        match (&value, &self.env) {
            (SecretValue::Here(text), Some(variable)) if !text.as_bytes().contains(&b':') => {
                Err(format!("the login in {variable} is not of the form user:password"))
            }
            _ => Ok(value),
        }
    }

    fn value(&self, env: Env<'_>) -> Result<SecretValue, String> {
        let places = [&self.env, &self.ssm, &self.secretsmanager];
        if places.into_iter().flatten().any(String::is_empty) {
            return Err(
                "the secret's place is empty; name the variable, parameter or secret".into()
            );
        }
        match places {
            [Some(variable), None, None] => in_env(variable, env),
            [None, Some(name), None] => in_aws(KeptIn::Ssm(name.clone())),
            [None, None, Some(name)] => in_aws(KeptIn::SecretsManager(name.clone())),
            [None, None, None] => Err("the secret says not where it is kept; add env, ssm or \
                                       secretsmanager"
                .to_owned()),
            _ => Err("the secret is said to be kept in several places; leave one of env, ssm and \
                      secretsmanager"
                .to_owned()),
        }
    }
}

fn in_env(variable: &str, env: Env<'_>) -> Result<SecretValue, String> {
    let value = env(variable).filter(|value| !value.is_empty()).ok_or_else(|| {
        format!("the secret's variable {variable} is not set; set it in the environment")
    })?;
    SecretValue::here(&value).ok_or_else(|| {
        format!(
            "the secret in {variable} has characters that no header can carry, such as a line's \
             end; take them out"
        )
    })
}

#[cfg(feature = "secrets")]
fn in_aws(place: KeptIn) -> Result<SecretValue, String> {
    Ok(SecretValue::Aws(place))
}

#[cfg(not(feature = "secrets"))]
fn in_aws(place: KeptIn) -> Result<SecretValue, String> {
    Err(format!(
        "this program was built without the feature \"secrets\" and cannot read {place}; build it \
         with the feature, or use env"
    ))
}
