"""Pages for people, at `/` of the service.

page_routes the table of paths, and what runs beside them
views       pages that show something, by GET
actions     changes, by POST
sign_in     sessions and users, with the threat model
rendering   templates, headers, static files, refusals
formatting  numbers and ids as people read them           pure
tag_table   rows, search, order, pages of the tags        pure
tag_data    tags from the databases, with their rates
live_rates  the last minutes, from the service's metrics
cache       answers of the databases, kept for a while
"""
