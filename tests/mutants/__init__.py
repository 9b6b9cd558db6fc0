"""Deliberately wrong variants of the library, each of which the suite must find: `make mutants`.

A test that passes says little of what it would notice. Here each rule that keeps the promise (design.md, section 4) is
broken on purpose, in a copy, and the tests named for it must fail there. One that passes is a hole in the suite.
"""
