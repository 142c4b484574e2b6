//! What a template's conditions come to.

use serde_json::Value;

use super::parameters::text;
use super::resolve::{DEEPEST, Scope, single};

impl Scope<'_> {
    /// Whether a condition holds; none where that is only known elsewhere.
    pub(super) fn condition(&self, name: &str, depth: usize) -> Option<bool> {
        if let Some(decided) = self.conditions.borrow().get(name) {
            return *decided;
        }
        self.conditions.borrow_mut().insert(name.to_owned(), None);
        let condition = self.template.get("Conditions").and_then(|all| all.get(name));
        let holds = condition.and_then(|condition| self.holds(condition, depth + 1));
        self.conditions.borrow_mut().insert(name.to_owned(), holds);
        holds
    }

    fn holds(&self, condition: &Value, depth: usize) -> Option<bool> {
        if depth > DEEPEST {
            return None;
        }
        let (name, argument) = single(condition.as_object()?)?;
        let all = || {
            let parts = argument.as_array().into_iter().flatten();
            parts.map(|part| self.holds(part, depth + 1)).collect::<Vec<_>>()
        };
        match name {
            "Condition" => self.condition(argument.as_str()?, depth),
            "Fn::Equals" => {
                let [one, other] = [0, 1].map(|at| argument.get(at).map(|it| self.at(it, depth)));
                let (one, other) = (one?, other?);
                let [one, other] = [&one, &other].map(|it| text(it).unwrap_or(it.to_string()));
                // A name of AWS's own, such as a Region, is somewhere else than here.
                let is_open = one.contains("${") || other.contains("${");
                if is_open && one != other { None } else { Some(one == other) }
            }
            "Fn::Not" => all().first().copied().flatten().map(|holds| !holds),
            "Fn::And" => match all() {
                parts if parts.contains(&Some(false)) => Some(false),
                parts if parts.contains(&None) => None,
                _ => Some(true),
            },
            "Fn::Or" => match all() {
                parts if parts.contains(&Some(true)) => Some(true),
                parts if parts.contains(&None) => None,
                _ => Some(false),
            },
            _ => None,
        }
    }
}
