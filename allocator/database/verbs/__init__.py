"""What is done to the rows, a file for each kind of row: plain functions on a connection.

`Database.run` repeats a verb whose connection was lost, and the first run may have committed. So a verb that is passed
to it is one of these, which a test holds complete:

Changes no row:
    checks.ask columns.read columns.read_shared examination.of_rows fleet_rows.fetch_given
    gapless_number_rows.fetch_counters
    node_rows.fetch_newest schema.check schema.check_sound schema.current schema.problems segments.fetch_page
    segments.fetch_snapshot shard_row.check_owner shard_row.fetch shard_row.fetch_if_made shard_row.has_ids
    token_rows.any_made token_rows.fetch_all worker_number_rows.fetch worker_number_rows.fetch_all
Does another of these, in a transaction:
    store.within
Takes something else; what the first run took stays unused, a lease until its end:
    segments.claim node_rows.register tickets.draw worker_number_rows.take
Finds what the first run wrote, and answers the same:
    gapless_number_rows.forget_rule
    number_commands.raise_counter segments.change segments.close segments.remove segments.reopen segments.make_or_change
    shard_row.begin_alone shard_row.claim_tickets token_rows.add schema.upgrade worker_number_rows.renew
Refuses a row that the first run has changed; the caller reads it, and decides again:
    fleet_rows.join fleet_rows.make fleet_rows.take_slot segments.repair shard_row.move
Reports the first run's change as somebody else's, which the caller may see: the tag exists, the token is revoked, the
number is given back:
    segments.make token_rows.revoke worker_number_rows.release
"""
