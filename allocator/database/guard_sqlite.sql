-- The guard of allocator on SQLite: the file refuses to lower max_value, and to rename, replace or delete a tag.
-- Run it when few ids are drawn: sqlite3 ids.db < guard.sql. It is safe to repeat.
-- The lines that begin with DROP remove it. The checks know its triggers by name, so change nothing below.

DROP TRIGGER IF EXISTS allocator_guard_fall;
DROP TRIGGER IF EXISTS allocator_guard_rename;
DROP TRIGGER IF EXISTS allocator_guard_delete;
DROP TRIGGER IF EXISTS allocator_guard_replace;

CREATE TRIGGER allocator_guard_fall BEFORE UPDATE ON allocator_segment WHEN NEW.max_value < OLD.max_value
BEGIN SELECT RAISE(ABORT, 'the guard keeps max_value of a tag from falling'); END;

CREATE TRIGGER allocator_guard_rename BEFORE UPDATE ON allocator_segment WHEN NEW.tag IS NOT OLD.tag
BEGIN SELECT RAISE(ABORT, 'the guard keeps tags from being renamed'); END;

CREATE TRIGGER allocator_guard_delete BEFORE DELETE ON allocator_segment
BEGIN SELECT RAISE(ABORT, 'the guard keeps tags from being deleted'); END;

-- REPLACE deletes the row without firing the trigger above, and inserts another.
CREATE TRIGGER allocator_guard_replace BEFORE INSERT ON allocator_segment WHEN EXISTS (SELECT 1 FROM allocator_segment WHERE tag = NEW.tag)
BEGIN SELECT RAISE(ABORT, 'the guard keeps the row of a tag from being replaced by a new one'); END;
