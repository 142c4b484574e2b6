//! What goes in one request.

use std::collections::HashSet;

use super::parcel::{MAX_SIZE, Parcel};

/// Messages in one request.
const MAX_ENTRIES: usize = 10;

/// A message and its place in the caller's list.
pub(super) type Placed = (usize, Parcel);

/// Fills requests in the given order: ten messages, and 1 MiB in all. Of a FIFO queue's group there
/// is one in each request: SQS may refuse one entry and take the next, which must not overtake it.
pub(super) fn pack(parcels: Vec<Placed>, is_fifo: bool) -> Vec<Vec<Placed>> {
    let mut batches = Vec::new();
    let (mut batch, mut size, mut groups) = (Vec::new(), 0, HashSet::new());
    for (at, parcel) in parcels {
        let group = parcel.group.clone().filter(|_| is_fifo);
        let is_full = batch.len() == MAX_ENTRIES || size + parcel.size() > MAX_SIZE;
        if is_full || group.as_ref().is_some_and(|group| groups.contains(group)) {
            batches.push(std::mem::take(&mut batch));
            size = 0;
            groups.clear();
        }
        size += parcel.size();
        groups.extend(group);
        batch.push((at, parcel));
    }
    batches.push(batch);
    batches.retain(|batch| !batch.is_empty());
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parcels(messages: &[(usize, &str)]) -> Vec<Placed> {
        let parcel = |(size, group): &(usize, &str)| Parcel {
            id: None,
            job: None,
            body: "x".repeat(*size),
            attributes: Vec::new(),
            group: Some((*group).to_owned()),
            delay: None,
        };
        messages.iter().map(parcel).enumerate().collect()
    }

    fn places(batches: Vec<Vec<Placed>>) -> Vec<Vec<usize>> {
        batches.into_iter().map(|batch| batch.into_iter().map(|(at, _)| at).collect()).collect()
    }

    #[test]
    fn a_request_has_ten_messages_at_most() {
        let sizes: Vec<_> = pack(parcels(&[(1, "g"); 25]), false).iter().map(Vec::len).collect();
        assert_eq!(sizes, [10, 10, 5]);
        assert!(pack(Vec::new(), false).is_empty());
    }

    #[test]
    fn a_request_has_a_mebibyte_at_most() {
        let half = MAX_SIZE / 2;
        let messages = [(half, "a"), (half, "b"), (1, "c"), (MAX_SIZE, "d"), (1, "e")];
        let batches = places(pack(parcels(&messages), false));
        assert_eq!(batches, [vec![0, 1], vec![2], vec![3], vec![4]]);
    }

    #[test]
    fn a_fifo_request_has_one_message_of_each_group() {
        let messages = [(1, "a"), (1, "b"), (1, "a"), (1, "c"), (1, "b"), (1, "a")];
        let batches = places(pack(parcels(&messages), true));
        assert_eq!(batches, [vec![0, 1], vec![2, 3, 4], vec![5]]);
        assert_eq!(places(pack(parcels(&messages), false)), [vec![0, 1, 2, 3, 4, 5]]);
    }
}
