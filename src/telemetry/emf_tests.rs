use std::collections::BTreeMap;
use std::time::Duration;

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_900_000_000_123);

fn lines(emf: &Emf, meter: &Meter) -> Vec<Value> {
    let mut written = Vec::new();
    emf.write(meter, NOW, &mut written);
    let text = String::from_utf8(written).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "a line has an end");
    text.lines().map(checked).collect()
}

/// One line, by the rules of the format's published schema and by CloudWatch's limits.
fn checked(line: &str) -> Value {
    assert!(line.len() <= 256 * 1024, "an event has at most 256 KB");
    let event: Value = serde_json::from_str(line).unwrap();
    let about = event["_aws"].as_object().unwrap();
    assert_eq!(about["Timestamp"].as_u64(), Some(NOW.millis()));
    let directives = about["CloudWatchMetrics"].as_array().unwrap();
    assert!(!directives.is_empty());
    for directive in directives {
        let namespace = directive["Namespace"].as_str().unwrap();
        assert!((1..=1024).contains(&namespace.len()));
        let sets = directive["Dimensions"].as_array().unwrap();
        assert!(!sets.is_empty());
        for set in sets {
            let set = set.as_array().unwrap();
            assert!((1..=30).contains(&set.len()));
            for name in set {
                let value = event[name.as_str().unwrap()].as_str().unwrap();
                assert!((1..=1024).contains(&value.len()), "a dimension has a text as its value");
            }
        }
        let metrics = directive["Metrics"].as_array().unwrap();
        assert!((1..=100).contains(&metrics.len()));
        for metric in metrics {
            assert!(matches!(metric["Unit"].as_str(), Some("Count" | "Milliseconds")));
            match &event[metric["Name"].as_str().unwrap()] {
                Value::Array(values) => {
                    assert!((1..=100).contains(&values.len()));
                    assert!(values.iter().all(Value::is_number));
                }
                value => assert!(value.is_number(), "{value}"),
            }
        }
    }
    event
}

/// What CloudWatch would sum up of a metric, by its dimensions.
fn sums(lines: &[Value], name: &str) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for event in lines {
        for directive in event["_aws"]["CloudWatchMetrics"].as_array().unwrap() {
            let metrics = directive["Metrics"].as_array().unwrap();
            if !metrics.iter().any(|metric| metric["Name"] == name) {
                continue;
            }
            for set in directive["Dimensions"].as_array().unwrap() {
                let names = set.as_array().unwrap().iter().map(|name| name.as_str().unwrap());
                let key: Vec<_> = names.map(|name| event[name].as_str().unwrap()).collect();
                let sum = match &event[name] {
                    Value::Array(values) => values.iter().map(|it| it.as_u64().unwrap()).sum(),
                    value => value.as_u64().unwrap(),
                };
                *sums.entry(key.join(",")).or_default() += sum;
            }
        }
    }
    sums
}

#[test]
fn nothing_noted_is_no_line() {
    assert_eq!(lines(&Emf::new("shop"), &Meter::new()), Vec::<Value>::new());
}

#[test]
fn a_batch_is_one_line_and_is_told_once() {
    let (emf, meter) = (Emf::new("shop"), Meter::new());
    meter.count(Count::Claimed);
    meter.count(Count::Claimed);
    meter.count(Count::Completed);
    meter.count(Count::QuarantinedFailed);
    meter.measure(Latency::Store, Duration::from_millis(4));
    meter.measure(Latency::Store, Duration::from_millis(3));
    meter.measure(Latency::Age, Duration::from_millis(900));
    let told = lines(&emf, &meter);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["Service"], "shop");
    assert_eq!(told[0]["Claimed"], 2);
    assert_eq!(told[0]["Completed"], 1);
    assert_eq!(told[0]["StoreLatency"], json!([3, 4]));
    assert!(told[0].get("Retried").is_none(), "what did not happen is not told");
    assert_eq!(sums(&told, "Quarantined"), [("shop", 1), ("shop,failed", 1)].map(owned).into());
    assert_eq!(lines(&emf, &meter), Vec::<Value>::new());

    meter.count(Count::Claimed);
    assert_eq!(lines(&emf, &meter)[0]["Claimed"], 1, "what has come since");
    assert_eq!(meter.counts()[Count::Claimed as usize], 3, "all of it");
}

#[test]
fn more_than_a_line_takes_is_in_more_lines_and_none_of_it_is_lost() {
    let (emf, meter) = (Emf::new("shop"), Meter::new());
    for n in 0..1050u64 {
        meter.count(Count::Completed);
        meter.measure(Latency::Age, Duration::from_millis(n % 100));
    }
    meter.measure(Latency::Effect, Duration::from_millis(17));
    for count in [
        Count::QuarantinedFailed,
        Count::QuarantinedFailed,
        Count::QuarantinedMismatch,
        Count::QuarantinedUnknown,
        Count::QuarantinedUndecodable,
    ] {
        meter.count(count);
    }
    let told = lines(&emf, &meter);
    assert_eq!(told.len(), 11);
    assert_eq!(sums(&told, "Completed"), [("shop", 1050)].map(owned).into());
    let values = told.iter().filter_map(|line| line.get("Age")?.as_array()).map(Vec::len);
    assert_eq!(values.sum::<usize>(), 1050);
    let all: u64 = (0..1050).map(|n| n % 100).sum();
    assert_eq!(sums(&told, "Age"), [("shop", all)].map(owned).into());
    assert_eq!(sums(&told, "EffectLatency"), [("shop", 17)].map(owned).into());
    let quarantined = [
        ("shop", 5),
        ("shop,failed", 2),
        ("shop,mismatch", 1),
        ("shop,undecodable", 1),
        ("shop,unknown", 1),
    ];
    assert_eq!(sums(&told, "Quarantined"), quarantined.map(owned).into());
}

fn owned((name, sum): (&str, u64)) -> (String, u64) {
    (name.to_owned(), sum)
}
