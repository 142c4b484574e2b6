//! One key's story as a picture: a lane for the queue, one for each claim.

use std::fmt::Write as _;

use super::report::{Happened, KeyReport, Moment, is_done};
use crate::drill::Event;

const WIDTH: f64 = 960.0;
const LABELS: f64 = 92.0;
const RIGHT: f64 = 64.0;
/// What is between two marks of a lane at least: what happens within a millisecond is told apart.
const APART: f64 = 13.0;
const LANE: f64 = 26.0;
const TOP: f64 = 8.0;
const AXIS: f64 = 22.0;

/// Where a lane's bar begins and ends, and how.
struct Bar<'a> {
    token: u64,
    worker: &'a str,
    from: u64,
    to: Option<u64>,
    class: &'static str,
    lease_until: u64,
    stalled: Option<(u64, u64)>,
}

/// The drawing of a key.
pub(super) fn draw(key: &KeyReport) -> String {
    let bars = bars(&key.events);
    let began = key.events.first().map_or(0, |first| first.at_ms);
    let last = key.events.last().map_or(0, |last| last.at_ms);
    let span = to_f64((last.saturating_sub(began)).max(1000)) * 1.03;
    let x = |at: u64| {
        let along = to_f64(at.saturating_sub(began)) / span;
        LABELS + (WIDTH - LABELS - RIGHT) * along.min(1.0)
    };
    let height = TOP + LANE * (to_f64(len(&bars)) + 1.0) + AXIS;
    let mut out = String::new();
    let _ = write!(
        out,
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"timeline of {}\">",
        key.key
    );
    axis(&mut out, &x, span, began, height);
    let _ = write!(out, "<text class=\"label\" x=\"0\" y=\"{}\">queue</text>", middle(0) + 4.0);
    let _ = write!(
        out,
        "<line class=\"rail\" x1=\"{LABELS}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\"/>",
        WIDTH - RIGHT,
        y = middle(0)
    );
    // Marks of a lane are drawn in their order, and never on top of one another.
    let mut taken = vec![f64::MIN; bars.len() + 1];
    let mut places = Vec::with_capacity(key.events.len());
    for moment in &key.events {
        let lane = lane_of(moment, &bars);
        let at = x(moment.at_ms);
        let place = match taken.get_mut(lane) {
            Some(last) if is_drawn(moment) => {
                *last = at.max(*last + APART);
                *last
            }
            _ => at,
        };
        places.push((moment, lane, place));
    }
    for (n, bar) in bars.iter().enumerate() {
        let reach = taken.get(n + 1).copied().unwrap_or_default();
        lane(&mut out, bar, middle(n + 1), &x, (last.max(began + 1), reach));
    }
    for (moment, lane, place) in places {
        mark(&mut out, moment, place, middle(lane));
    }
    out.push_str("</svg>");
    out
}

fn middle(lane: usize) -> f64 {
    TOP + LANE * (to_f64(u64::try_from(lane).unwrap_or(0)) + 0.5)
}

fn len<T>(of: &[T]) -> u64 {
    u64::try_from(of.len()).unwrap_or(0)
}

#[allow(clippy::cast_precision_loss, reason = "milliseconds of a run, and lanes")]
fn to_f64(n: u64) -> f64 {
    n as f64
}

/// One bar for each claim, in the order in which they were made.
fn bars(events: &[Moment]) -> Vec<Bar<'_>> {
    let mut bars: Vec<Bar<'_>> = Vec::new();
    for Moment { at_ms, event, worker, lease_ms, .. } in events {
        let Happened::Did(event) = event else { continue };
        let at = *at_ms;
        let worker = worker.as_deref().unwrap_or_default();
        if let Event::Claimed { token, .. } = event {
            bars.push(Bar {
                token: *token,
                worker,
                from: at,
                to: None,
                class: "open",
                lease_until: lease_ms.unwrap_or(at),
                stalled: None,
            });
            continue;
        }
        let token = match event {
            Event::Renewed { token, .. }
            | Event::Settled { token, .. }
            | Event::Refused { token }
            | Event::Stalled { token }
            | Event::WentOn { token } => Some(*token),
            _ => None,
        };
        let of_it = |bar: &&mut Bar<'_>| match token {
            Some(token) => bar.token == token,
            None => bar.worker == worker && bar.to.is_none(),
        };
        let Some(bar) = bars.iter_mut().rev().find(of_it) else { continue };
        match event {
            Event::Renewed { .. } => bar.lease_until = lease_ms.unwrap_or(bar.lease_until),
            Event::Settled { status, .. } => {
                bar.to = Some(at);
                bar.class = match status.as_str() {
                    status if is_done(status) => "done",
                    "released" => "released",
                    _ => "failed",
                };
            }
            Event::Refused { .. } => {
                bar.to = Some(at);
                bar.class = "refused";
            }
            Event::Crash { .. } => {
                bar.to = Some(at);
                bar.class = "crashed";
            }
            Event::Stalled { .. } => bar.stalled = Some((at, at)),
            Event::WentOn { .. } => bar.stalled = bar.stalled.map(|(from, _)| (from, at)),
            _ => {}
        }
    }
    bars
}

fn axis(out: &mut String, x: &impl Fn(u64) -> f64, span: f64, began: u64, height: f64) {
    let every = match span {
        span if span <= 4_000.0 => 500,
        span if span <= 12_000.0 => 1_000,
        span if span <= 30_000.0 => 2_000,
        span if span <= 120_000.0 => 10_000,
        _ => 60_000,
    };
    let mut at = 0;
    while to_f64(at) <= span {
        let left = x(began + at);
        let bottom = height - AXIS;
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{left:.1}\" x2=\"{left:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\
             <text class=\"tick\" x=\"{left:.1}\" y=\"{}\">{}.{} s</text>",
            height - 6.0,
            at / 1000,
            at % 1000 / 100
        );
        at += every;
    }
}

/// `end` is the last instant there is, `reach` where the last mark of the lane was put.
fn lane(
    out: &mut String,
    bar: &Bar<'_>,
    y: f64,
    x: &impl Fn(u64) -> f64,
    (end, reach): (u64, f64),
) {
    let (from, to) = (x(bar.from), x(bar.to.unwrap_or(end)).max(reach));
    if bar.class == "crashed" || bar.class == "open" {
        // Nobody may take over before it is over.
        let lease = x(bar.lease_until.min(end));
        let _ = write!(
            out,
            "<line class=\"lease\" x1=\"{to:.1}\" x2=\"{:.1}\" y1=\"{y}\" y2=\"{y}\"><title>its lease is \
             believed until {} ms</title></line>",
            lease.max(to),
            bar.lease_until
        );
    }
    let _ = write!(
        out,
        "<text class=\"label\" x=\"0\" y=\"{}\">token {}</text>\
         <text class=\"worker\" x=\"50\" y=\"{}\">{}</text>",
        y + 4.0,
        bar.token,
        y + 4.0,
        bar.worker.get(..4).unwrap_or(bar.worker)
    );
    let _ = write!(
        out,
        "<rect class=\"bar {}\" x=\"{from:.1}\" y=\"{}\" width=\"{:.1}\" height=\"14\" rx=\"4\"/>",
        bar.class,
        y - 7.0,
        (to - from).max(3.0)
    );
    if let Some((since, until)) = bar.stalled {
        let (since, until) = (x(since), x(until));
        let _ = write!(
            out,
            "<rect class=\"stalled\" x=\"{since:.1}\" y=\"{}\" width=\"{:.1}\" height=\"6\">\
             <title>stands still</title></rect>",
            y - 3.0,
            (until - since).max(1.0)
        );
    }
}

/// The lane of what happened: that of its claim, or the queue's.
fn lane_of(moment: &Moment, bars: &[Bar<'_>]) -> usize {
    let Happened::Did(event) = &moment.event else { return 0 };
    let worker = moment.worker.as_deref().unwrap_or_default();
    let token = match event {
        Event::Met { .. } => return 0,
        Event::Claimed { token, .. }
        | Event::Renewed { token, .. }
        | Event::Called { token, .. }
        | Event::Answered { token, .. }
        | Event::Settled { token, .. }
        | Event::Refused { token }
        | Event::Stalled { token }
        | Event::WentOn { token } => Some(*token),
        Event::Crash { .. } | Event::AnswerLost { .. } => None,
    };
    let of_it = |bar: &Bar<'_>| match token {
        Some(token) => bar.token == token,
        None => bar.worker == worker && bar.from <= moment.at_ms,
    };
    bars.iter().rposition(of_it).map_or(0, |lane| lane + 1)
}

fn is_drawn(moment: &Moment) -> bool {
    let Happened::Did(event) = &moment.event else { return true };
    !matches!(event, Event::Claimed { .. } | Event::Stalled { .. } | Event::WentOn { .. })
}

fn mark(out: &mut String, moment: &Moment, x: f64, y: f64) {
    let title = format!("{} ms: {}", moment.at_ms, moment.text);
    let triangle = |class: &str| {
        let (left, right, top, low) = (x - 5.0, x + 5.0, y - 6.0, y + 4.0);
        format!(
            "<path class=\"{class}\" d=\"M{left:.1} {top:.1}L{right:.1} {top:.1}L{x:.1} {low:.1}Z\">"
        )
    };
    let round = |class: &str, r: f64| {
        format!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r}\">")
    };
    let diamond = |class: &str| {
        format!("<path class=\"{class}\" d=\"M{x:.1} {:.1}l6 6l-6 6l-6 -6Z\">", y - 6.0)
    };
    let cross = |class: &str| {
        format!("<path class=\"{class}\" d=\"M{:.1} {:.1}l12 12m0 -12l-12 12\">", x - 6.0, y - 6.0)
    };
    let (open, close) = match &moment.event {
        Happened::Sent { what: "other payload sent" } => (triangle("other"), "path"),
        Happened::Sent { what: "redriven" } => (triangle("redriven"), "path"),
        Happened::Sent { what: "acknowledged" } => (round("acked", 5.0), "circle"),
        Happened::Sent { .. } => (triangle("sent"), "path"),
        Happened::Did(event) => match event {
            Event::Claimed { .. } | Event::Stalled { .. } | Event::WentOn { .. } => return,
            Event::Met { status } if is_done(status) => (round("met done", 4.5), "circle"),
            Event::Met { .. } => (round("met", 4.5), "circle"),
            Event::Renewed { .. } => (
                format!(
                    "<rect class=\"renewed\" x=\"{:.1}\" y=\"{:.1}\" width=\"2\" height=\"14\">",
                    x - 1.0,
                    y - 7.0
                ),
                "rect",
            ),
            Event::Called { .. } => (round("called", 4.0), "circle"),
            Event::Answered { is_first: true, .. } => (diamond("did"), "path"),
            Event::Answered { .. } => (diamond("knew"), "path"),
            Event::Settled { status, .. } if is_done(status) => (round("completed", 6.0), "circle"),
            Event::Settled { .. } => (round("settled", 5.0), "circle"),
            Event::Refused { .. } => (cross("late"), "path"),
            Event::Crash { .. } => (cross("crash"), "path"),
            Event::AnswerLost { .. } => (round("lost", 6.5), "circle"),
        },
    };
    let _ = write!(out, "{open}<title>{title}</title></{close}>");
}
