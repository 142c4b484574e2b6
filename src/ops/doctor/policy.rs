//! What a role may do, read from its policies.

use serde_json::Value;

use super::facts::Place;

/// The statements of a role.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    pub statements: Vec<Statement>,
    /// Policies that could not be read, each with why: they may grant more.
    pub unread: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statement {
    pub sid: Option<String>,
    pub is_allow: bool,
    pub actions: Vec<String>,
    pub resources: Vec<String>,
    /// It names the actions that it does not mean: all others are meant.
    pub is_but_actions: bool,
    /// The same of its resources.
    pub is_but_resources: bool,
}

impl Statement {
    fn is_of(&self, action: &str) -> bool {
        let action = lower(action);
        self.actions.iter().any(|it| is_like(&lower(it), &action)) != self.is_but_actions
    }

    /// Whether it is about `place`; with none, about some place where it allows, and about every one
    /// where it denies.
    fn is_on(&self, place: Option<&Place>) -> bool {
        match place {
            Some(place) => {
                self.resources.iter().any(|it| covers(it, place)) != self.is_but_resources
            }
            None => self.is_allow || !self.is_but_resources,
        }
    }
}

impl Policies {
    /// Adds what a policy's document says.
    pub fn add(&mut self, document: &Value) {
        let statements = match document.get("Statement") {
            Some(Value::Array(statements)) => statements.iter().collect(),
            Some(one) => vec![one],
            None => Vec::new(),
        };
        self.statements.extend(statements.into_iter().filter(|it| it.is_object()).map(statement));
    }

    /// Whether `action` may be done, on `place` if it is given.
    pub fn allows(&self, action: &str, place: Option<&Place>) -> bool {
        let meant = |is_allow: bool| {
            let mut statements = self.statements.iter().filter(|it| it.is_allow == is_allow);
            statements.any(|it| it.is_of(action) && it.is_on(place))
        };
        meant(true) && !meant(false)
    }

    /// Whether some resource on which `action` is allowed, or is not denied, is only known elsewhere: in
    /// a template, what is open is `${?..}`.
    pub fn is_vague_on(&self, action: &str) -> bool {
        self.statements.iter().any(|statement| {
            (statement.is_allow || statement.is_but_resources)
                && statement.is_of(action)
                && statement.resources.iter().any(|it| it.contains("${?"))
        })
    }
}

fn statement(it: &Value) -> Statement {
    let texts = |name: &str, but: &str| match it.get(name).or_else(|| it.get(but)) {
        Some(Value::Array(texts)) => {
            texts.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        }
        Some(Value::String(text)) => vec![text.clone()],
        _ => Vec::new(),
    };
    Statement {
        sid: it.get("Sid").and_then(Value::as_str).map(str::to_owned),
        is_allow: it.get("Effect").and_then(Value::as_str) != Some("Deny"),
        actions: texts("Action", "NotAction"),
        resources: texts("Resource", "NotResource"),
        is_but_actions: it.get("NotAction").is_some(),
        is_but_resources: it.get("NotResource").is_some(),
    }
}

/// Whether a resource of a policy is this place, or more than it.
fn covers(resource: &str, place: &Place) -> bool {
    if let Some(arn) = &place.arn
        && is_like(resource, arn)
    {
        return true;
    }
    // Without the whole ARN the name must do.
    resource == "*" || is_like(last(resource), &place.name)
}

/// The name at an ARN's end; a template's placeholder in it may have colons of its own.
pub fn last(arn: &str) -> &str {
    let (mut depth, mut from) = (0_usize, 0);
    for (at, character) in arn.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ':' if depth == 0 => from = at + 1,
            _ => {}
        }
    }
    let end = arn.get(from..).unwrap_or(arn);
    end.strip_prefix("table/").unwrap_or(end)
}

fn lower(text: &str) -> String {
    text.to_ascii_lowercase()
}

/// `*` is any text, `?` any character.
pub fn is_like(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(first) = parts.next() else { return text.is_empty() };
    let Some(mut rest) = start(text, first) else { return false };
    let Some(end) = pattern.contains('*').then(|| parts.next_back()).flatten() else {
        return rest.is_empty();
    };
    for part in parts {
        let found = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
        let found = found.filter_map(|at| start(rest.get(at..)?, part)).next();
        match found {
            Some(after) => rest = after,
            None => return false,
        }
    }
    let at = rest.chars().count().checked_sub(end.chars().count());
    at.and_then(|at| rest.char_indices().map(|(at, _)| at).chain([rest.len()]).nth(at))
        .and_then(|at| start(rest.get(at..)?, end))
        .is_some_and(str::is_empty)
}

/// What follows `part` at the text's start.
fn start<'t>(text: &'t str, part: &str) -> Option<&'t str> {
    let mut rest = text.chars();
    for wanted in part.chars() {
        let found = rest.next()?;
        if wanted != '?' && wanted != found {
            return None;
        }
    }
    Some(rest.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn stars_and_question_marks() {
        for (pattern, text) in [
            ("*", ""),
            ("*", "a"),
            ("a*", "abc"),
            ("*c", "abc"),
            ("a*c", "abc"),
            ("a?c", "abc"),
            ("a*b*c", "a-b-b-c"),
            ("sqs:*Message", "sqs:SendMessage"),
            ("", ""),
            ("*ä?", "xäö"),
        ] {
            assert!(is_like(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("", "a"),
            ("a", ""),
            ("a", "ab"),
            ("a*c", "ab"),
            ("a?", "a"),
            ("*b", "abc"),
            ("a*a", "a"),
        ] {
            assert!(!is_like(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn an_arn_ends_with_a_name() {
        for (arn, name) in [
            ("arn:aws:sqs:eu-west-1:1:orders", "orders"),
            ("arn:aws:dynamodb:eu-west-1:1:table/claims", "claims"),
            (
                "arn:${AWS::Partition}:dynamodb:${AWS::Region}:${AWS::AccountId}:table/claims",
                "claims",
            ),
            (
                "arn:aws:sqs:${AWS::Region}:${AWS::AccountId}:${Queue.QueueName}",
                "${Queue.QueueName}",
            ),
            ("${Queue.Arn}", "${Queue.Arn}"),
            ("arn:aws:dynamodb:us-east-1:1:table/${Table}", "${Table}"),
            ("*", "*"),
        ] {
            assert_eq!(last(arn), name, "{arn}");
        }
    }

    #[test]
    fn a_denial_wins_and_an_inverse_allows_the_rest() {
        let place = Place { name: "q".to_owned(), arn: Some("arn:aws:sqs:r:1:q".to_owned()) };
        let mut policies = Policies::default();
        policies.add(&json!({ "Statement": {
            "Effect": "Allow", "Action": "SQS:Receive*", "Resource": "arn:aws:sqs:*:*:q" } }));
        assert!(policies.allows("sqs:ReceiveMessage", Some(&place)));
        assert!(!policies.allows("sqs:DeleteMessage", Some(&place)));
        let other =
            Place { name: "other".to_owned(), arn: Some("arn:aws:sqs:r:1:other".to_owned()) };
        assert!(!policies.allows("sqs:ReceiveMessage", Some(&other)));
        policies.add(&json!({ "Statement": [{
            "Effect": "Deny", "Action": ["sqs:*"], "Resource": "*" }] }));
        assert!(!policies.allows("sqs:ReceiveMessage", Some(&place)));
        let of = |statements: Value| {
            let mut policies = Policies::default();
            policies.add(&json!({ "Statement": statements }));
            policies
        };
        let all_but = json!({ "Effect": "Allow", "NotAction": "iam:*", "Resource": "*" });
        let inverse = of(all_but.clone());
        assert!(inverse.allows("sqs:ReceiveMessage", Some(&place)));
        assert!(!inverse.allows("iam:PassRole", None));
        let elsewhere = of(json!([{
            "Effect": "Allow", "Action": "sqs:*", "NotResource": "arn:aws:sqs:r:1:q" }]));
        assert!(elsewhere.allows("sqs:ReceiveMessage", Some(&other)));
        assert!(!elsewhere.allows("sqs:ReceiveMessage", Some(&place)));
        let lambda_alone = of(json!([all_but, {
            "Effect": "Deny", "NotAction": "lambda:*", "Resource": "*" }]));
        assert!(!lambda_alone.allows("sqs:ReceiveMessage", Some(&place)));
        assert!(lambda_alone.allows("lambda:InvokeFunction", None));
        let q_alone = of(json!([all_but, {
            "Effect": "Deny", "Action": "*", "NotResource": "arn:aws:sqs:r:1:q" }]));
        assert!(q_alone.allows("sqs:ReceiveMessage", Some(&place)));
        assert!(!q_alone.allows("sqs:ReceiveMessage", Some(&other)));
        // On which function it may be is not asked.
        assert!(q_alone.allows("lambda:InvokeFunction", None));
        let open = of(json!([all_but, {
            "Effect": "Deny", "Action": "*", "NotResource": "${?Queue}" }]));
        assert!(open.is_vague_on("sqs:ReceiveMessage"));
    }
}
