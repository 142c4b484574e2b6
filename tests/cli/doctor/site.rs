//! A deployment on the emulator, as it is planned.

use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, CreateReplicationGroupMemberAction, GlobalSecondaryIndex,
    KeySchemaElement, KeyType, PointInTimeRecoverySpecification, Projection, ProjectionType,
    ReplicationGroupUpdate, ScalarAttributeType, TimeToLiveSpecification,
};
use aws_sdk_lambda::primitives::Blob;
use aws_sdk_lambda::types::{
    Environment, FunctionCode, FunctionResponseType, Runtime, ScalingConfig,
};
use aws_sdk_sqs::types::QueueAttributeName;
use onlyonce::sdk::{self, SdkConfig};
use serde_json::{Value, json};

/// What is deployed; by default all is right.
pub struct Plan {
    pub visibility: u32,
    pub retention: u32,
    /// The KMS key that the queue is encrypted with.
    pub encrypted_by: Option<&'static str>,
    pub max_receive: u32,
    pub has_dlq: bool,
    pub dlq_retention: u32,
    /// Whether ONLYONCE_DLQ_URL names the dead-letter queue, another one, or nothing.
    pub quarantine: Option<&'static str>,
    pub timeout: i32,
    pub batch: i32,
    pub window: i32,
    pub reports_failures: bool,
    pub maximum: Option<i32>,
    pub reserved: Option<i32>,
    pub has_table: bool,
    pub key: &'static [(&'static str, KeyType, ScalarAttributeType)],
    pub index: Option<(&'static str, ProjectionType)>,
    pub ttl: Option<&'static str>,
    pub is_restorable: bool,
    pub has_replica: bool,
    /// Changes what infra/iam/worker.json says.
    pub policy: fn(&mut Value),
    pub managed: Option<&'static str>,
    pub variables: &'static [(&'static str, &'static str)],
    /// Whether another function serves another queue with other code and the same records.
    pub has_sharer: bool,
}

const WEEKS: u32 = 14 * 24 * 3600;

impl Default for Plan {
    fn default() -> Self {
        Self {
            visibility: 180,
            retention: WEEKS,
            encrypted_by: None,
            max_receive: 10,
            has_dlq: true,
            dlq_retention: WEEKS,
            quarantine: Some("dead"),
            timeout: 30,
            batch: 10,
            window: 0,
            reports_failures: true,
            maximum: None,
            reserved: None,
            has_table: true,
            key: &[("pk", KeyType::Hash, ScalarAttributeType::S)],
            index: Some(("updated_at", ProjectionType::All)),
            ttl: Some("expires_at"),
            is_restorable: true,
            has_replica: false,
            policy: |_| (),
            managed: None,
            variables: &[],
            has_sharer: false,
        }
    }
}

/// What was made.
pub struct Site {
    pub function: String,
    pub queue_url: String,
    name: String,
    sdk: SdkConfig,
    queues: aws_sdk_sqs::Client,
}

impl Site {
    pub async fn new(plan: &Plan) -> Self {
        let sdk = sdk::load().await;
        let name = format!("doctor-{:016x}", fastrand::Rng::new().u64(..));
        let queues = aws_sdk_sqs::Client::new(&sdk);
        let mut site = Self { function: name.clone(), queue_url: String::new(), name, sdk, queues };
        let (dead_url, dead_arn) =
            site.queue("dead", &[("MessageRetentionPeriod", plan.dlq_retention.to_string())]).await;
        let mut attributes = vec![
            ("VisibilityTimeout", plan.visibility.to_string()),
            ("MessageRetentionPeriod", plan.retention.to_string()),
        ];
        if let Some(key) = plan.encrypted_by {
            attributes.push(("KmsMasterKeyId", key.to_owned()));
        }
        if plan.has_dlq {
            let policy =
                json!({ "deadLetterTargetArn": dead_arn, "maxReceiveCount": plan.max_receive });
            attributes.push(("RedrivePolicy", policy.to_string()));
        }
        let (queue_url, queue_arn) = site.queue("jobs", &attributes).await;
        site.queue_url = queue_url;
        let mut variables =
            vec![("ONLYONCE_STORE".to_owned(), format!("dynamodb://{}", site.name))];
        match plan.quarantine {
            Some("dead") => variables.push(("ONLYONCE_DLQ_URL".to_owned(), dead_url)),
            Some(other) => {
                let (url, _) = site.queue(other, &[]).await;
                variables.push(("ONLYONCE_DLQ_URL".to_owned(), url));
            }
            None => {}
        }
        variables
            .extend(plan.variables.iter().map(|(name, value)| ((*name).into(), (*value).into())));
        if plan.has_table {
            site.table(plan).await;
        }
        let role = site.role(plan).await;
        site.serve(&site.function, &role, "one", &variables, &queue_arn, plan).await;
        if plan.has_sharer {
            let (_, arn) = site.queue("others", &[]).await;
            let function = format!("{}-other", site.name);
            site.serve(&function, &role, "other", &variables, &arn, plan).await;
        }
        site
    }

    /// Takes the dead-letter queue away under the redrive policy.
    pub async fn lose_dlq(&self) {
        let name = format!("{}-dead", self.name);
        let url =
            self.queues.get_queue_url().queue_name(name).send().await.unwrap().queue_url.unwrap();
        self.queues.delete_queue().queue_url(url).send().await.unwrap();
    }

    async fn queue(&self, name: &str, attributes: &[(&str, String)]) -> (String, String) {
        let mut create = self.queues.create_queue().queue_name(format!("{}-{name}", self.name));
        for (name, value) in attributes {
            create = create.attributes(QueueAttributeName::from(*name), value);
        }
        let url = create.send().await.unwrap().queue_url.unwrap();
        let ask = self.queues.get_queue_attributes().queue_url(&url);
        let found = ask.attribute_names(QueueAttributeName::QueueArn).send().await.unwrap();
        let arn = found.attributes.unwrap().remove(&QueueAttributeName::QueueArn).unwrap();
        (url, arn)
    }

    async fn table(&self, plan: &Plan) {
        let client = aws_sdk_dynamodb::Client::new(&self.sdk);
        let attribute = |name: &str, kind| {
            AttributeDefinition::builder()
                .attribute_name(name)
                .attribute_type(kind)
                .build()
                .unwrap()
        };
        let key = |name: &str, role| {
            KeySchemaElement::builder().attribute_name(name).key_type(role).build().unwrap()
        };
        let mut create = client.create_table().table_name(&self.name);
        create = create.billing_mode(BillingMode::PayPerRequest);
        for (name, role, kind) in plan.key {
            create = create.attribute_definitions(attribute(name, kind.clone()));
            create = create.key_schema(key(name, role.clone()));
        }
        if let Some((range, projection)) = &plan.index {
            let projection = Projection::builder().projection_type(projection.clone()).build();
            let index = GlobalSecondaryIndex::builder().index_name("parked").projection(projection);
            let index = index.key_schema(key("parked", KeyType::Hash));
            let index = index.key_schema(key(range, KeyType::Range)).build().unwrap();
            create = create
                .attribute_definitions(attribute("parked", ScalarAttributeType::S))
                .attribute_definitions(attribute(range, ScalarAttributeType::N))
                .global_secondary_indexes(index);
        }
        create.send().await.unwrap();
        if let Some(attribute) = plan.ttl {
            let ttl = TimeToLiveSpecification::builder().attribute_name(attribute).enabled(true);
            let update = client.update_time_to_live().table_name(&self.name);
            update.time_to_live_specification(ttl.build().unwrap()).send().await.unwrap();
        }
        if plan.is_restorable {
            let on = PointInTimeRecoverySpecification::builder();
            let on = on.point_in_time_recovery_enabled(true).build().unwrap();
            let update = client.update_continuous_backups().table_name(&self.name);
            update.point_in_time_recovery_specification(on).send().await.unwrap();
        }
        if plan.has_replica {
            let region = CreateReplicationGroupMemberAction::builder().region_name("eu-central-1");
            let region = ReplicationGroupUpdate::builder().create(region.build().unwrap()).build();
            let update = client.update_table().table_name(&self.name);
            update.replica_updates(region).send().await.unwrap();
        }
    }

    async fn role(&self, plan: &Plan) -> String {
        let client = aws_sdk_iam::Client::new(&self.sdk);
        let trust = json!({ "Version": "2012-10-17", "Statement": [] });
        let create = client.create_role().role_name(&self.name);
        let made = create.assume_role_policy_document(trust.to_string()).send().await.unwrap();
        let text = include_str!("../../../infra/iam/worker.json");
        let text = text.replace("REGION", "us-east-1").replace("ACCOUNT", "000000000000");
        let text = text.replace("TABLE", &self.name);
        let text = text.replace("DEAD_LETTER_QUEUE", &format!("{}-dead", self.name));
        let text = text.replace(":QUEUE", &format!(":{}-jobs", self.name));
        let mut policy = serde_json::from_str(&text).unwrap();
        (plan.policy)(&mut policy);
        let put = client.put_role_policy().role_name(&self.name).policy_name("worker");
        put.policy_document(policy.to_string()).send().await.unwrap();
        if let Some(arn) = plan.managed {
            let attach = client.attach_role_policy().role_name(&self.name).policy_arn(arn);
            attach.send().await.unwrap();
        }
        made.role.unwrap().arn
    }

    async fn serve(
        &self,
        function: &str,
        role: &str,
        code: &str,
        variables: &[(String, String)],
        queue: &str,
        plan: &Plan,
    ) {
        let client = aws_sdk_lambda::Client::new(&self.sdk);
        let variables = variables.iter().cloned().collect();
        let code = FunctionCode::builder().zip_file(Blob::new(archive(code))).build();
        let create = client.create_function().function_name(function).role(role).code(code);
        let create =
            create.runtime(Runtime::Providedal2023).handler("bootstrap").timeout(plan.timeout);
        let environment = Environment::builder().set_variables(Some(variables)).build();
        create.environment(environment).send().await.unwrap();
        if let Some(reserved) = plan.reserved {
            let put = client.put_function_concurrency().function_name(function);
            put.reserved_concurrent_executions(reserved).send().await.unwrap();
        }
        let mut map = client.create_event_source_mapping().function_name(function);
        map = map.event_source_arn(queue).batch_size(plan.batch);
        map = map.maximum_batching_window_in_seconds(plan.window);
        if plan.reports_failures {
            map = map.function_response_types(FunctionResponseType::ReportBatchItemFailures);
        }
        if let Some(maximum) = plan.maximum {
            map = map.scaling_config(ScalingConfig::builder().maximum_concurrency(maximum).build());
        }
        map.send().await.unwrap();
    }
}

/// An archive of nothing, which this comment makes different from others.
fn archive(comment: &str) -> Vec<u8> {
    let length = u16::try_from(comment.len()).unwrap().to_le_bytes();
    [b"PK\x05\x06", &[0; 16][..], &length, comment.as_bytes()].concat()
}
