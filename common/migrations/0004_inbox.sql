-- Looking after the inbox: who did what to which event, and the lists of events that need somebody.

-- What people and services did to stored things by hand, in the transaction that did it. Append-only.
CREATE TABLE audit (
  id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at          timestamptz NOT NULL DEFAULT tenure_now() CHECK (isfinite(at)),
  actor       text NOT NULL CHECK (octet_length(actor) BETWEEN 1 AND 255),
  action      text NOT NULL CHECK (action ~ '^[a-z][a-z_]{0,63}$'),
  object_kind text NOT NULL CHECK (object_kind ~ '^[a-z][a-z_]{0,63}$'),
  object_id   text COLLATE "C" NOT NULL CHECK (octet_length(object_id) BETWEEN 1 AND 255),
  -- As far as the action changes it; NULL where it only looked.
  before      jsonb CHECK (jsonb_typeof(before) = 'object'),
  after       jsonb CHECK (jsonb_typeof(after) = 'object'),
  reason      text NOT NULL CHECK (octet_length(reason) <= 1000),
  request_id  text COLLATE "C" NOT NULL DEFAULT '' CHECK (octet_length(request_id) <= 128)
);
CREATE INDEX audit_object ON audit (object_kind, object_id, id);

-- Lists by state, newest first, and how long they are. An event that is applied at once is never in it, not even while
-- its transaction runs: 'received' is left to provider_event_waiting.
CREATE INDEX provider_event_set_aside ON provider_event (status, id)
  WHERE status IN ('parked', 'failed', 'quarantined', 'dead');
