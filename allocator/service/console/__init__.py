"""The web console, at `/` of the service.

views       the paths and pages: read by GET, change by POST
sign_in     sessions and users, with the threat model
rendering   templates, headers, static files, error pages
formatting  numbers and ids for people                        pure
rows        rows of tags and keys, with search, order, pages  pure
tag_data    tags from the databases, with their rates
live_rates  rates and refills of the last minutes, from the metrics
reads       queries of the other pages
cache       cached results of the databases
"""
