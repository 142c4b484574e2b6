//! JMESPath expressions of the jobs file.

use jmespath::{ErrorReason, JmespathError, RuntimeError};
use serde_json::Value;

/// Compiles an expression. What it gives for a body that it does not fit is null.
pub(super) fn compile(text: &str) -> Result<impl Fn(&Value) -> Value + use<>, String> {
    let expression = jmespath::compile(text).map_err(|error| fault(&error))?;
    // Functions are looked up at run time only: every message would be in quarantine by then.
    if let Err(error) = expression.search(Value::Null)
        && !matches!(
            error.reason,
            ErrorReason::Runtime(RuntimeError::InvalidType { .. })
                | ErrorReason::Runtime(RuntimeError::InvalidReturnType { .. })
        )
    {
        return Err(fault(&error));
    }
    Ok(move |body: &Value| match expression.search(body) {
        Ok(found) => serde_json::to_value(found).unwrap_or(Value::Null),
        // An error may quote the body.
        Err(_) => Value::Null,
    })
}

/// On one line, without the picture.
fn fault(error: &JmespathError) -> String {
    format!("{} at column {}", error.reason, error.column + 1)
}
