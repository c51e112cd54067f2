"""What the first workers measured when nothing else ran is what their successors go by."""

from unifiedserve.engine.learned import Learned
from unifiedserve.messages.wire import Ready


def test_what_was_found_first_stays_and_another_host_of_decode_goes_by_the_slowest() -> None:
    learned = Learned()
    assert learned.decode_step("decode-1") is None
    learned.take_in(Ready("decode-1", decode_step=0.01, weights_sum=3), "mem0")
    learned.take_in(Ready("decode-2", decode_step=0.03, weights_sum=5), "mem1")
    learned.take_in(Ready("prefill"), "mem0")
    learned.take_in(Ready("decode-1", decode_step=0.5, weights_sum=4), "mem0")
    assert learned.weights_sums == {"mem0": 3, "mem1": 5}
    assert [learned.decode_step(name) for name in ("decode-1", "decode-2", "prefill")] == [0.01, 0.03, 0.03]
