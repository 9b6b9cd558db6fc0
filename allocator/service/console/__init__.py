"""Pages for people: what the service serves, how fast, for how long, and what to change.

history   the last minutes of a rate and of refills, in a ring           pure
rows      what is listed, from plain numbers                             pure
words     numbers as people read them                                    pure
access    sessions, and who may change something from where              pure, with the threat model
pulse     what this worker measures once a second
peers     what the workers of one service tell each other
cached    what is read from the databases, for a while
fleet     shards, nodes and leases as they are now
assets    scripts and styles, under versioned names
screen    a template, with the headers that every page has
views     the pages that show, by GET
changes   what is changed, by POST
signing   in and out
routes    the table of all of these
"""
