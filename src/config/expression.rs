//! JMESPath expressions of the jobs file.

use jmespath::{ErrorReason, JmespathError, RuntimeError};
use serde_json::Value;

/// How many of what nests an expression may have. Each is a call within a call of JMESPath's parser
/// and interpreter, and some hundreds take more stack than a thread has, which ends the process.
const MOST_NESTING: usize = 64;

/// Compiles an expression. What it gives for a body that it does not fit is null.
pub(super) fn compile(text: &str) -> Result<impl Fn(&Value) -> Value + use<>, String> {
    if text.matches(|c| "([{}])!&|.*<=>".contains(c)).count() > MOST_NESTING {
        return Err(format!(
            "it has over {MOST_NESTING} brackets, dots and operators; derive the name from fewer \
             fields"
        ));
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
