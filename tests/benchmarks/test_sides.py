"""A worker of this project: it trains, infers, and says how much memory it took."""

from benchmarks import sides


def test_a_worker_trains_infers_and_says_how_much_memory_it_took():
    with sides.Worker("ours", "lenet") as worker:
        assert worker.ask("on_cpu") is True
        assert worker.ask("steps", 2) > 0
        assert worker.ask("infer", 4) > 0
        assert worker.ask("memory") > 2 * 60_000 * 28 * 28
        # Convolutions 2·(28²·25·32 + 14²·800·64), dense 2·3136·1024, three times, of 256 images.
        assert 18e9 < worker.ask("flops") < 22e9
