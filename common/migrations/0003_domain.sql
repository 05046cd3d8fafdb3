-- What the whole domain stores: the running fold, occurrences, prepaid orders, quota with its ledger, first answers.

-- The sum of the facts so far, so that the newest one is added without reading the others. A cache: never the only copy.
CREATE TABLE subscription_fold (
  subscription_id bigint PRIMARY KEY REFERENCES subscription,
  revision        integer NOT NULL,
  state           bytea NOT NULL
) WITH (fillfactor = 70);

ALTER TABLE subscription
  -- Two provider facts of one instant contradict each other and no read-back has settled it (C009).
  ADD COLUMN needs_reconcile boolean NOT NULL DEFAULT false,
  -- Paid by single orders that stack, not by a subscription at the provider.
  ADD COLUMN prepaid boolean NOT NULL DEFAULT false;
CREATE INDEX subscription_needs_reconcile ON subscription (id) WHERE needs_reconcile;
-- Changes that time alone brings about before the end (Lapse).
CREATE INDEX subscription_pause_due ON subscription (pause_at, id)
  WHERE status IN ('TRIALING', 'ACTIVE', 'PAST_DUE') AND pause_at IS NOT NULL;
CREATE INDEX subscription_next_plan_due ON subscription (next_plan_at, id) WHERE next_plan_at IS NOT NULL;

-- Who said it and why, for facts of people and services.
ALTER TABLE subscription_fact
  ADD COLUMN actor  text NOT NULL DEFAULT '',
  ADD COLUMN reason text NOT NULL DEFAULT '';

-- Whose event it is, by the provider's name for him: to find what an erasure has to empty, and what waits for a link.
-- NULL in rows of earlier versions and where an event names nobody.
ALTER TABLE provider_event ADD COLUMN customer_id text COLLATE "C" CHECK (octet_length(customer_id) <= 255);
CREATE INDEX provider_event_customer ON provider_event (route_id, account, customer_id) WHERE customer_id IS NOT NULL;

-- Names the occurrence: one subscription announces each once (R6). Rows of earlier versions have a random one.
ALTER TABLE subscription_event
  ADD COLUMN business_key     text COLLATE "C" NOT NULL DEFAULT gen_random_uuid()::text,
  ADD COLUMN old_access_until timestamptz CHECK (isfinite(old_access_until));
CREATE UNIQUE INDEX subscription_event_occurrence ON subscription_event (subscription_id, business_key);

-- A purchase for ever has no end.
ALTER TABLE payment ALTER COLUMN period_ends_at DROP NOT NULL;

-- Locked before anything of a subject's prepaid orders of one plan is looked at: two concurrent first orders would
-- otherwise make two rows (60 days bought, 30 days of access).
CREATE TABLE prepaid_chain (
  subject_id bigint NOT NULL REFERENCES subject,
  plan_name  text COLLATE "C" NOT NULL,
  PRIMARY KEY (subject_id, plan_name)
);

-- Orders that we made for providers that know no subscription; their notice names the order.
CREATE TABLE payment_order (
  route_id     smallint NOT NULL REFERENCES route,
  order_id     text COLLATE "C" NOT NULL CHECK (octet_length(order_id) BETWEEN 1 AND 64),
  subject_id   bigint NOT NULL REFERENCES subject,
  plan_name    text COLLATE "C" NOT NULL,
  term_unit    text NOT NULL CHECK (term_unit IN ('day', 'week', 'month', 'year')),
  term_count   integer NOT NULL CHECK (term_count BETWEEN 1 AND 1200),
  amount_minor bigint NOT NULL CHECK (amount_minor >= 0),
  currency     text NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
  status       text NOT NULL DEFAULT 'OPEN' CHECK (status IN ('OPEN', 'PAID', 'CLOSED')),
  payment_key  text COLLATE "C",
  created_at   timestamptz NOT NULL DEFAULT tenure_now(),
  CHECK ((status = 'PAID') = (payment_key IS NOT NULL)),
  PRIMARY KEY (route_id, order_id)
);

-- A term is known by its payment: its number and its instants can change, the payment cannot.
ALTER TABLE quota_schedule ADD COLUMN term_key text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE quota_schedule ALTER COLUMN term_key DROP DEFAULT;
DROP INDEX quota_schedule_period;
CREATE UNIQUE INDEX quota_schedule_period ON quota_schedule (subscription_id, meter, term_key, period_no)
  WHERE status <> 'CANCELLED';
-- The whole schedule of one subscription, which every payment reads.
CREATE INDEX quota_schedule_subscription ON quota_schedule (subscription_id, id);

-- What was released and is left. It counts while its subscription gives access.
CREATE TABLE quota_grant (
  id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  subscription_id bigint NOT NULL REFERENCES subscription,
  meter           text COLLATE "C" NOT NULL,
  schedule_id     bigint NOT NULL UNIQUE REFERENCES quota_schedule,
  amount          bigint NOT NULL CHECK (amount > 0),
  remaining       bigint NOT NULL CHECK (remaining BETWEEN 0 AND amount),
  granted_at      timestamptz NOT NULL DEFAULT tenure_now()
);
CREATE INDEX quota_grant_subscription ON quota_grant (subscription_id, meter, id);

-- The ledger: append-only. biz_id names what moved: for a release subscription/meter/term/period, whatever schedule row
-- carried it, so that a period that was cancelled and made again is paid once (S4-15, C074).
CREATE TABLE quota_transaction (
  id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  subject_id      bigint NOT NULL REFERENCES subject,
  subscription_id bigint NOT NULL REFERENCES subscription,
  meter           text COLLATE "C" NOT NULL,
  biz_type        text NOT NULL CHECK (biz_type IN ('monthly_release', 'consumption')),
  biz_id          text COLLATE "C" NOT NULL CHECK (biz_id <> ''),
  delta           bigint NOT NULL CHECK (delta <> 0),
  due_at          timestamptz NOT NULL CHECK (isfinite(due_at)),
  created_at      timestamptz NOT NULL DEFAULT tenure_now(),
  UNIQUE (subject_id, meter, biz_type, biz_id)
);
-- Also over a transfer to another subject.
CREATE UNIQUE INDEX quota_transaction_release_once ON quota_transaction (biz_id) WHERE biz_type = 'monthly_release';

CREATE TABLE quota_allocation (
  transaction_id bigint NOT NULL REFERENCES quota_transaction,
  grant_id       bigint NOT NULL REFERENCES quota_grant,
  delta          bigint NOT NULL CHECK (delta <> 0),
  PRIMARY KEY (transaction_id, grant_id)
);

-- The first answer to each write, given again to a repeat. subject_id: whose data the answer holds, for erasure.
CREATE TABLE request_log (
  method         text COLLATE "C" NOT NULL,
  request_id     text COLLATE "C" NOT NULL CHECK (octet_length(request_id) BETWEEN 1 AND 128),
  request_sha256 bytea NOT NULL CHECK (octet_length(request_sha256) = 32),
  response       bytea,
  subject_id     bigint REFERENCES subject,
  actor          text NOT NULL,
  reason         text NOT NULL,
  created_at     timestamptz NOT NULL DEFAULT tenure_now(),
  PRIMARY KEY (method, request_id)
);
CREATE INDEX request_log_subject ON request_log (subject_id) WHERE subject_id IS NOT NULL;
