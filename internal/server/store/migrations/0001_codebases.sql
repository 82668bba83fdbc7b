-- Times are nanoseconds since 1970, UTC.
CREATE TABLE codebases (
	id          TEXT PRIMARY KEY NOT NULL,
	name        TEXT NOT NULL,
	owner_id    TEXT NOT NULL,
	linked_path TEXT NOT NULL, -- '' for an uploaded one
	size        INTEGER NOT NULL,
	file_count  INTEGER NOT NULL,
	created_at  INTEGER NOT NULL,
	updated_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX codebases_by_age ON codebases (created_at, id);
CREATE INDEX codebases_by_owner ON codebases (owner_id, created_at, id);

-- An index of the records of the state directory. codebase_id is '' for a
-- sandbox that run made, and may name a codebase that is gone.
CREATE TABLE sandboxes (
	id          TEXT PRIMARY KEY NOT NULL,
	name        TEXT NOT NULL UNIQUE,
	codebase_id TEXT NOT NULL,
	owner_id    TEXT NOT NULL,
	created_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX sandboxes_by_age ON sandboxes (created_at, id);
CREATE INDEX sandboxes_by_owner ON sandboxes (owner_id, created_at, id);
CREATE INDEX sandboxes_by_codebase ON sandboxes (codebase_id, created_at, id);
