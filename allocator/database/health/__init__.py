"""What a database can be asked about its own health, and what the answers lead to.

asking        a question, and what becomes of one that is refused
tables        columns, keys, engines, triggers: for all databases
postgresql, mysql, sqlite    the questions of each
rules_of_…    from the answers to findings: pure, and here since the mends are SQL
rights        the least rights that a user needs, as SQL
"""
