//! What a function's role may do.

use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::{Account, untold};
use crate::ops::doctor::known::{Known, Untold};
use crate::ops::doctor::policy::Policies;

/// A role has ten managed policies, twenty where AWS has raised it, and few of its own.
const MOST: usize = 50;

impl Account<'_> {
    /// The policies of the role with this ARN.
    pub async fn role(&self, arn: &Known<String>) -> Known<Policies> {
        let arn = match arn {
            Known::Is(arn) => arn,
            Known::Absent => return Known::Absent,
            Known::Untold(why) => return Known::Untold(why.clone()),
        };
        // After the path that a role may be in.
        let role = arn.rsplit('/').next().unwrap_or_default();
        match self.policies(role).await {
            Ok(policies) => Known::Is(policies),
            Err(why) => Known::Untold(why),
        }
    }

    async fn policies(&self, role: &str) -> Result<Policies, Untold> {
        let mut policies = Policies::default();
        let listed = self.roles.list_role_policies().role_name(role).send().await;
        let listed = listed.map_err(|error| untold("iam:ListRolePolicies", &error))?;
        for name in listed.policy_names().iter().take(MOST) {
            let ask = self.roles.get_role_policy().role_name(role).policy_name(name);
            match ask.send().await {
                Ok(policy) => add(&mut policies, name, policy.policy_document()),
                Err(error) => policies.unread.push(untold("iam:GetRolePolicy", &error).0),
            }
        }
        let attached = self.roles.list_attached_role_policies().role_name(role).send().await;
        let attached = attached.map_err(|error| untold("iam:ListAttachedRolePolicies", &error))?;
        for attached in attached.attached_policies().iter().take(MOST) {
            let arn = attached.policy_arn().unwrap_or_default();
            match self.managed(arn).await {
                Ok(text) => add(&mut policies, arn, &text),
                Err(Untold(why)) => policies.unread.push(why),
            }
        }
        if listed.is_truncated() {
            policies.unread.push(format!("role {role} has more policies than are read here"));
        }
        Ok(policies)
    }

    async fn managed(&self, arn: &str) -> Result<String, Untold> {
        let policy = self.roles.get_policy().policy_arn(arn).send().await;
        let policy = policy.map_err(|error| untold("iam:GetPolicy", &error))?;
        let version = policy.policy().and_then(|it| it.default_version_id()).unwrap_or("v1");
        let ask = self.roles.get_policy_version().policy_arn(arn).version_id(version);
        let version = ask.send().await.map_err(|error| untold("iam:GetPolicyVersion", &error))?;
        let text = version.policy_version().and_then(|it| it.document()).unwrap_or_default();
        Ok(text.to_owned())
    }
}

/// A document comes as a part of a URL does.
fn add(policies: &mut Policies, name: &str, document: &str) {
    let text = percent_decode_str(document).decode_utf8_lossy();
    match serde_json::from_str::<Value>(&text) {
        Ok(document) => policies.add(&document),
        Err(_) => policies.unread.push(format!("policy {name} cannot be read")),
    }
}
