//! `doctor`: what is wrong with a deployment, before it is found out otherwise.
//!
//! What is known of the deployment is gathered first, from AWS (`live`) or from a template
//! (`template`); then rules that ask nobody judge it, the same for both.

mod checklist;
mod command;
mod environment;
mod facts;
mod finding;
mod jobs;
mod known;
mod live;
mod policy;
mod report;
mod rules;
mod template;

pub use command::DoctorArguments;
