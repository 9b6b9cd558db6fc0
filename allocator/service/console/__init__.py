"""Pages for people: what the service serves, how fast, for how long, and what to change.

history   the last minutes of a rate and of refills, in a ring           pure
rows      what is listed, from plain numbers                             pure
words     numbers as people read them                                    pure
bits      where the fields of an id stand                                pure
access    sessions, and what a change must show                          pure, with the threat model

pulse     what this worker measures once a second
peers     what the workers of one service tell each other
cached    what is read from the databases, for a while
fleet     shards, nodes and leases as they are now
board     all of these, brought together for a page

visitors  whose request it is, and what may be shown to it
assets    scripts and styles, under versioned names
screen    a template, with the headers that every page has
frames    what all pages have in common, and how a refusal looks
views     the pages that show, by GET
changes   what is changed, by POST
signing   in and out
routes    the table of all of these
"""
