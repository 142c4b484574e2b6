"""A batch is many messages: one of them never decides for another."""

import json


def test_of_three_only_the_good_one_is_acked(shop, receiver, case):
    for n in (1, 2):
        receiver.answer(f"/charge/{case}-{n}", 503, 503, 200)
    shop.send_together([("charge", f"{case}-{n}", {"case": f"{case}-{n}"}) for n in range(3)])

    receiver.wait_for(f"/charge/{case}-0")
    receiver.wait_for(f"/charge/{case}-1", count=3)
    receiver.wait_for(f"/charge/{case}-2", count=3)
    for n, attempts in enumerate((1, 3, 3)):
        record = shop.wait_record("charge", f"{case}-{n}", "completed")
        assert record["attempt"] == attempts
    shop.wait_drained()

    assert len(receiver.requests(f"/charge/{case}-0")) == 1
    assert shop.dead(lambda message: case in message["Body"]) == []


def test_a_batch_in_which_all_fail_comes_back_whole(shop, receiver, case):
    names = [f"{case}-{n}" for n in range(4)]
    for name in names:
        receiver.answer(f"/notify/{name}", 500, 200)
    shop.send_together([("notify", name, {"case": name}) for name in names])

    for name in names:
        receiver.wait_for(f"/notify/{name}", count=2)
        shop.wait_record("notify", name, "completed")
    shop.wait_drained()


def test_an_s3_test_event_is_acked_and_hurts_no_neighbour(shop, receiver, case):
    event = {
        "Service": "Amazon S3",
        "Event": "s3:TestEvent",
        "Time": "2026-11-29T12:00:00.000Z",
        "Bucket": f"bucket-{case}",
        "RequestId": "5582815E1AEA5ADF",
        "HostId": "8cLeGAmw098X5cv4Zkwcmo8vvZa3eH3eKxsPzbB9wrR+YstdA6Knx4Ip8EXAMPLE",
    }
    inside_sns = {
        "Type": "Notification",
        "MessageId": "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324",
        "TopicArn": "arn:aws:sns:us-east-1:000000000000:uploads",
        "Subject": "Amazon S3 Notification",
        "Message": json.dumps(event),
        "Timestamp": "2026-11-29T12:00:00.000Z",
    }
    shop.send(event)
    shop.send(inside_sns)
    shop.send({"case": case}, job="charge", key=case)

    receiver.wait_for(f"/charge/{case}")
    shop.wait_record("charge", case, "completed")
    shop.wait_drained()

    assert shop.dead(lambda message: f"bucket-{case}" in message["Body"]) == []
