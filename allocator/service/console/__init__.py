"""The web console, at `/` of the service.

page_routes the table of paths, and the background task
views       read-only pages, by GET
actions     changes, by POST
sign_in     sessions and users, with the threat model
rendering   templates, headers, static files, error pages
formatting  numbers and ids for people                    pure
tag_table   rows, search, order, pages of the tags        pure
key_table   rows of the integer keys of other tables      pure
tag_data    tags from the databases, with their rates
history     rates and refills of the last minutes         pure
live_rates  reads them from the metrics once a second
cache       cached results of the databases
"""
