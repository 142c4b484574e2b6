//! JMESPath expressions of the jobs file.

use jmespath::{ErrorReason, JmespathError, RuntimeError};
use serde_json::Value;

/// The longest expression. Each bracket and dot of one is a call of its parser's and interpreter's:
/// a longer one could take more stack than a thread has, which ends the process.
const LONGEST: usize = 1024;

/// Compiles an expression. What it gives for a body that it does not fit is null.
pub(super) fn compile(text: &str) -> Result<impl Fn(&Value) -> Value + use<>, String> {
    if text.len() > LONGEST {
        return Err(format!("it is over {LONGEST} bytes; derive the name from fewer fields"));
    }
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
