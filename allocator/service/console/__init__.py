"""The web console, at `/` of the service.

views       the paths and pages, which only read
sign_in     sessions and users, with the threat model
rendering   templates, headers, static files, error pages
formatting  numbers for people                                  pure
rows        rows of tags, with search, order, pages             pure
tag_metrics totals and rates, from the metrics   pure
tag_data    tags from the databases, with their rates
fleet_status what the page of the fleet reads
cache       cached results of the databases
"""
