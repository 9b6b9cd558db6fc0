"""`python ask.py 40`: send 40 tasks of 25 orders each."""

import sys

from tasks import place

for number in range(int(sys.argv[1])):
    place.delay([f"customer {number}.{one}" for one in range(25)])
