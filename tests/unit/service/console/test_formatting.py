"""Numbers as people read them."""

from __future__ import annotations

from math import inf

from allocator.service.console import formatting


def test_numbers_as_people_read_them():
    for said, words in [
        (formatting.count(1234567), "1 234 567"),
        (formatting.rate(0), formatting.NONE),
        (formatting.rate(0.05), "0.05"),
        (formatting.rate(3.14), "3.1"),
        (formatting.rate(12345.6), "12 346"),
        (formatting.latency(0), formatting.NONE),
        (formatting.latency(0.0034), "3.4 ms"),
        (formatting.latency(0.25), "250 ms"),
        (formatting.latency(2.5), "2.5 s"),
        (formatting.lasting(inf), "idle"),
        (formatting.lasting(None), formatting.NONE),
        (formatting.lasting(2.5), "2.5 s"),
        (formatting.lasting(59.6), "60 s"),
        (formatting.lasting(600), "10 min"),
        (formatting.lasting(7300), "2 h"),
        (formatting.lasting(864000), "10 days"),
        (formatting.days(None), formatting.NONE),
        (formatting.days(3.25), "3.2 days"),
        (formatting.days(400), "400 days"),
        (formatting.days(3653), "10 years"),
        (formatting.days(1e12), "> 100 years"),
        (formatting.part(0, 100), "0 %"),
        (formatting.part(1, 10**9), "< 0.01 %"),
        (formatting.part(25, 100), "25.00 %"),
        (formatting.ago(0.2), "just now"),
        (formatting.ago(30), "30 s ago"),
        (formatting.ago(inf), "never"),
        (formatting.duration(inf), "for ever"),
    ]:
        assert said.replace(formatting.THIN, " ") == words
