//! The AWS SDK's settings, made once and shared by every client.

use std::time::Duration;

pub use aws_config::SdkConfig;
use aws_config::retry::RetryConfig;
#[cfg(feature = "aws-effects")]
use aws_config::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_config::timeout::TimeoutConfig;

use aws_config::BehaviorVersion;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};

const TLS: Provider = Provider::Rustls(CryptoMode::Ring);

/// How long a connection may take to be made.
const CONNECTING: Duration = Duration::from_secs(1);

/// The environment's region, credentials and endpoint, with what the SDK leaves open made
/// explicit: three attempts, each with a time limit. A pooled connection that died while the
/// process was frozen then costs one attempt, not the invocation.
pub async fn load() -> SdkConfig {
    let http = aws_smithy_http_client::Builder::new().tls_provider(TLS);
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(CONNECTING)
        .operation_attempt_timeout(Duration::from_secs(2))
        .operation_timeout(Duration::from_secs(8))
        .build();
    let load = aws_config::defaults(BehaviorVersion::latest())
        .http_client(http.build_https())
        .timeout_config(timeouts)
        .retry_config(RetryConfig::standard().with_max_attempts(3))
        .load();
    // Tens of KB, which each caller's future would hold.
    Box::pin(load).await
}

/// The same settings for calls that have effects: one attempt, which whoever calls limits in time.
/// With `is_fresh` each call has a connection of its own: one that died while the process was
/// frozen would leave open whether the call arrived.
#[cfg(feature = "aws-effects")]
pub fn for_effects(settings: &SdkConfig, is_fresh: bool) -> SdkConfig {
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(CONNECTING)
        .disable_operation_attempt_timeout()
        .disable_operation_timeout()
        .build();
    let mut settings = settings
        .to_builder()
        .timeout_config(timeouts)
        .retry_config(RetryConfig::disabled())
        // It would break off answers that are merely slow.
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
    if is_fresh {
        let http = aws_smithy_http_client::Builder::new().pool_max_idle_per_host(0);
        settings = settings.http_client(http.tls_provider(TLS).build_https());
    }
    settings.build()
}

/// The region of a queue: `https://sqs.REGION.amazonaws.com/..`
#[cfg(any(feature = "producer", feature = "aws-effects"))]
pub(crate) fn region_of(queue_url: &str) -> Option<&str> {
    let host = queue_url.split_once("://sqs.")?.1.split('/').next()?;
    host.split_once(".amazonaws.com").map(|(region, _)| region).filter(|r| !r.contains('.'))
}

#[cfg(all(test, any(feature = "producer", feature = "aws-effects")))]
mod tests {
    use super::*;

    #[test]
    fn a_queues_url_names_its_region_where_it_is_one_of_aws() {
        let region = region_of;
        assert_eq!(region("https://sqs.eu-west-1.amazonaws.com/1/q"), Some("eu-west-1"));
        assert_eq!(region("https://sqs.cn-north-1.amazonaws.com.cn/1/q"), Some("cn-north-1"));
        assert_eq!(region("http://127.0.0.1:4566/000000000000/q"), None);
        assert_eq!(region("https://vpce-1.sqs.eu-west-1.vpce.amazonaws.com/1/q"), None);
    }
}
