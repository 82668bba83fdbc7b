CREATE TABLE tokens (
	hash       BLOB PRIMARY KEY NOT NULL, -- SHA-256 of the token
	name       TEXT NOT NULL UNIQUE,
	owner_id   TEXT NOT NULL, -- '' for a token that may name any owner
	scopes     TEXT NOT NULL, -- words, with commas between
	created_at INTEGER NOT NULL,
	expires_at INTEGER NOT NULL -- 0: never
) STRICT, WITHOUT ROWID;
