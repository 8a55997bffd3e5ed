-- What people and programs are to be notified of. The triggers of the schema write a notice in the commit of the event
-- itself, whoever makes it: the engine, a boot, or a command. The daemon turns notices into triggers, and deletes them.
CREATE TABLE notices (
    seq     INTEGER PRIMARY KEY,
    kind    TEXT NOT NULL,
    subject TEXT NOT NULL,                   -- id of the question or trigger, seq of the occurrence, or the text itself
    at      REAL NOT NULL
) STRICT;

-- The kinds that a rule of the last daemon asks for. Of no other kind a notice is written.
CREATE TABLE notice_kinds (
    kind TEXT NOT NULL PRIMARY KEY
         CHECK (kind IN ('question', 'in_doubt', 'dead', 'failed', 'schedule_missed', 'succeeded', 'unhealthy'))
) STRICT, WITHOUT ROWID;

CREATE TRIGGER questions_are_noticed
AFTER INSERT ON questions
WHEN EXISTS (SELECT 1 FROM notice_kinds WHERE kind = iif(NEW.kind = 'activity', 'in_doubt', 'question'))
BEGIN
    INSERT INTO notices (kind, subject, at)
    VALUES (iif(NEW.kind = 'activity', 'in_doubt', 'question'), NEW.id, NEW.created_at);
END;

CREATE TRIGGER failures_are_noticed
AFTER UPDATE OF status ON triggers
WHEN NEW.status IN ('DEAD', 'FAILED')
 AND OLD.status NOT IN ('DEAD', 'FAILED')
 AND EXISTS (SELECT 1 FROM notice_kinds WHERE kind = lower(NEW.status))
BEGIN
    INSERT INTO notices (kind, subject, at) VALUES (lower(NEW.status), NEW.id, NEW.updated_at);
END;

-- Of scheduled work only: a trigger that is no task, and below a task at its end.
CREATE TRIGGER successes_are_noticed
AFTER UPDATE OF status ON triggers
WHEN NEW.status = 'DONE'
 AND NEW.schedule_id IS NOT NULL
 AND NEW.reason = 'succeeded'
 AND EXISTS (SELECT 1 FROM notice_kinds WHERE kind = 'succeeded')
 AND NOT EXISTS (SELECT 1 FROM tasks WHERE id = NEW.id)
BEGIN
    INSERT INTO notices (kind, subject, at) VALUES ('succeeded', NEW.id, NEW.updated_at);
END;

CREATE TRIGGER task_successes_are_noticed
AFTER UPDATE OF status ON tasks
WHEN NEW.status = 'DONE'
 AND OLD.status <> 'DONE'
 AND NEW.schedule_id IS NOT NULL
 AND EXISTS (SELECT 1 FROM notice_kinds WHERE kind = 'succeeded')
BEGIN
    INSERT INTO notices (kind, subject, at) VALUES ('succeeded', NEW.id, NEW.updated_at);
END;

CREATE TRIGGER misses_are_noticed
AFTER INSERT ON schedule_occurrences
WHEN NEW.outcome = 'skipped'
 AND NEW.reason GLOB 'missed:*'
 AND EXISTS (SELECT 1 FROM notice_kinds WHERE kind = 'schedule_missed')
BEGIN
    INSERT INTO notices (kind, subject, at) VALUES ('schedule_missed', CAST(NEW.seq AS TEXT), NEW.decided_at);
END;
