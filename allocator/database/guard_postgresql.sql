-- The guard of allocator on PostgreSQL: the server refuses to lower max_value, and to rename or delete a tag.
-- Run it as a user that may create triggers, when few ids are drawn: psql ids < guard.sql. It is safe to repeat.
-- The lines that begin with DROP remove it. The checks know its triggers by name, so change nothing below.

DROP TRIGGER IF EXISTS allocator_guard_rows ON allocator_segment;
DROP TRIGGER IF EXISTS allocator_guard_truncate ON allocator_segment;
DROP FUNCTION IF EXISTS allocator_guard();

CREATE FUNCTION allocator_guard() RETURNS trigger LANGUAGE plpgsql AS $guard$
BEGIN
  IF TG_OP <> 'UPDATE' THEN
    RAISE EXCEPTION 'the guard keeps tags from being deleted' USING ERRCODE = 'ID001';
  END IF;
  IF NEW.max_value < OLD.max_value THEN
    RAISE EXCEPTION 'the guard keeps max_value of a tag from falling' USING ERRCODE = 'ID001';
  END IF;
  IF NEW.tag <> OLD.tag THEN
    RAISE EXCEPTION 'the guard keeps tags from being renamed' USING ERRCODE = 'ID001';
  END IF;
  RETURN NEW;
END
$guard$;

CREATE TRIGGER allocator_guard_rows BEFORE DELETE OR UPDATE ON allocator_segment
  FOR EACH ROW EXECUTE FUNCTION allocator_guard();
CREATE TRIGGER allocator_guard_truncate BEFORE TRUNCATE ON allocator_segment
  FOR EACH STATEMENT EXECUTE FUNCTION allocator_guard();
