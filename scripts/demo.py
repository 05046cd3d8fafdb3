#!/usr/bin/env python3
"""Shows Tenure's whole path on a running cluster: a signed payment webhook becomes access that ends by itself.

It talks to the three processes only over HTTP, gRPC (through tenurectl) and SQL (through psql), and pauses the
scheduler with SIGSTOP to show that no job is needed for access to end. Each step checks what it prints. Ends with
"demo: ok" and exit status 0, or says what differed and ends with 1.

Settings come from the environment, then from the file given with --state (lines NAME=VALUE):
  TENURE_DEMO_HTTP           webhook-ingest, http://host:port
  TENURE_DEMO_ENTITLEMENT    entitlement, host:port (gRPC)
  TENURE_DEMO_INGEST         webhook-ingest, host:port (gRPC)
  TENURE_DEMO_SCHEDULER      scheduler, host:port (gRPC)
  TENURE_DEMO_SCHEDULER_PID  process id of the scheduler
  TENURE_DEMO_CONNINFO       libpq connection string of the database
  TENURE_DEMO_TENURECTL      path of tenurectl
  TENURE_DEMO_SECRET_FILE    file with the signing secret of the route
  TENURE_DEMO_CATALOG        catalogue file with plan pro, feature api, price price_demo_pro
  TENURE_DEMO_ROUTE          name of the webhook route (default stripe)
  TENURE_DEMO_LIVEMODE       true when the route is for live money (default false)
  TENURE_DEMO_SECONDS        length of the paid period (default 8)
  TENURE_DEMO_SWEEP_SECONDS  longest wait for the scheduler to sweep (default 60)
The route must have renewal_leeway 0s, else access lasts that much longer.
"""

import argparse
import datetime
import hashlib
import hmac
import json
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

DEFAULTS = {
    "TENURE_DEMO_ROUTE": "stripe",
    "TENURE_DEMO_LIVEMODE": "false",
    "TENURE_DEMO_SECONDS": "8",
    "TENURE_DEMO_SWEEP_SECONDS": "60",
}


class Differs(Exception):
    """What was seen is not what Tenure promises, or a process could not be asked."""


class Demo:
    def __init__(self, settings):
        self.settings = settings
        run = secrets.token_hex(6)
        self.subject = f"demo-user-{run}"
        self.subscription = f"sub_demo{run}"
        self.event = f"evt_demo{run}"
        self.run = run
        self.step_no = 0
        self.scheduler = int(self.get("SCHEDULER_PID"))
        self.period = float(self.get("SECONDS"))

    def get(self, name):
        name = "TENURE_DEMO_" + name
        value = self.settings.get(name, "")
        if not value:
            raise Differs(f"{name} is not set. Start a cluster with ./dev up --detach, which sets it.")
        return value

    # --- printing and checking ---

    def step(self, text):
        self.step_no += 1
        print(f"\n{self.step_no}. {text}", flush=True)

    def show(self, text):
        print(f"   {text}", flush=True)

    def expect(self, what, expected, got):
        if expected != got:
            raise Differs(f"{what}: expected {expected}, got {got}")

    # --- the three ways to talk ---

    def run_tool(self, *command, what):
        try:
            # The cluster is on this machine, whatever proxy the environment names.
            environment = dict(os.environ, no_grpc_proxy="127.0.0.1,localhost")
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, env=environment)
        except FileNotFoundError:
            raise Differs(f"{what}: {command[0]} is missing. Run ./dev up --detach.") from None
        except subprocess.TimeoutExpired:
            raise Differs(f"{what}: no answer within 30 s ({' '.join(command[:3])} ...)") from None
        if done.returncode != 0:
            raise Differs(f"{what} failed: {(done.stderr or done.stdout).strip()}")
        return done.stdout.strip()

    def tenurectl(self, *arguments, what):
        return self.run_tool(self.get("TENURECTL"), *arguments, what=what)

    def sql(self, query):
        command = ("psql", "-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-d", self.get("CONNINFO"), "-c", query)
        return self.run_tool(*command, what="SQL")

    def check(self):
        """The answer of Entitlement.Check: (has_access, reason, access_until or None)."""
        text = self.tenurectl(
            "check", "--address", self.get("ENTITLEMENT"), "--subject", self.subject, "--feature", "api", what="Check"
        )
        try:
            answer = json.loads(text)
        except ValueError:
            raise Differs(f"Check: expected one JSON object, got {text[:200]!r}") from None
        until = field(answer, "access_until")
        return bool(field(answer, "has_access")), str(field(answer, "reason") or ""), until and parse_instant(until)

    def post(self, body):
        """Posts a signed event: (HTTP status, answer as a dict)."""
        with open(self.get("SECRET_FILE"), encoding="utf-8") as file:
            secret = file.read().strip()
        now = int(time.time())
        digest = hmac.new(secret.encode(), f"{now}.".encode() + body, hashlib.sha256).hexdigest()
        url = f"{self.get('HTTP')}/v1/webhooks/{self.get('ROUTE')}"
        request = urllib.request.Request(
            url,
            data=body,
            headers={"Content-Type": "application/json; charset=utf-8", "Stripe-Signature": f"t={now},v1={digest}"},
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=20) as response:
                status, text = response.status, response.read()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read()
        except (urllib.error.URLError, OSError) as error:
            raise Differs(f"nothing answers at {url} ({error}). Start the cluster with ./dev up --detach.") from None
        try:
            answer = json.loads(text)
        except ValueError:
            answer = {}
        if status != 200:
            raise Differs(f"the webhook: expected HTTP 200, got {status} {text.decode(errors='replace')[:300].strip()}")
        return status, answer if isinstance(answer, dict) else {}

    # --- the scheduler ---

    def pause_scheduler(self):
        try:
            # Not /proc/PID/exe, which shows the linker's temporary name after a rebuild.
            with open(f"/proc/{self.scheduler}/cmdline", encoding="utf-8", errors="replace") as file:
                program = os.path.basename(file.read().split("\0")[0])
        except OSError as error:
            raise Differs(f"the scheduler (pid {self.scheduler}) is not running: {error.strerror}") from None
        if "scheduler" not in program:
            raise Differs(f"pid {self.scheduler} is {program}, not the scheduler. Run ./dev down and ./dev up --detach.")
        os.kill(self.scheduler, signal.SIGSTOP)
        deadline = time.monotonic() + 5
        while self.scheduler_state() != "T":
            if time.monotonic() > deadline:
                raise Differs("the scheduler did not stop on SIGSTOP")
            time.sleep(0.01)

    def scheduler_state(self):
        with open(f"/proc/{self.scheduler}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]

    def resume_scheduler(self):
        try:
            os.kill(self.scheduler, signal.SIGCONT)
        except OSError:
            pass

    # --- what SQL says ---

    def counts(self):
        """Everything that the event left behind, as one line; a second delivery must not change it."""
        return self.sql(
            f"""
            WITH mine AS (SELECT s.* FROM subscription s JOIN subject u ON u.id = s.subject_id
                          WHERE u.external_id = '{self.subject}')
            SELECT 'events ' || (SELECT count(*) FROM provider_event WHERE external_event_id = '{self.event}')
              || ', facts ' || (SELECT count(*) FROM subscription_fact WHERE subscription_id IN (SELECT id FROM mine))
              || ', payments ' || (SELECT count(*) FROM payment WHERE subscription_id IN (SELECT id FROM mine))
              || ', subscriptions ' || (SELECT count(*) FROM mine)
              || ' (version ' || coalesce((SELECT max(version) FROM mine), 0) || ')'
              || ', history ' || (SELECT count(*) FROM subscription_event WHERE subscription_id IN (SELECT id FROM mine))"""
        )

    def row(self):
        """(status, number of subscription.expired events) of the demo's subscription."""
        text = self.sql(
            f"""
            SELECT s.status, (SELECT count(*) FROM subscription_event e
                              WHERE e.subscription_id = s.id AND e.event_type = 'subscription.expired')
            FROM subscription s JOIN subject u ON u.id = s.subject_id WHERE u.external_id = '{self.subject}'"""
        )
        rows = text.splitlines()
        self.expect("subscriptions of the demo's user", 1, len(rows))
        status, expired = rows[0].split("|")
        return status, int(expired)

    # --- the story ---

    def play(self):
        print("Tenure demo: a payment becomes access, and access ends by itself.")

        self.step("The catalogue says what is sold: plan `pro` grants the feature `api`.")
        self.show(self.tenurectl("catalog", "apply", self.get("CATALOG"), "--conninfo", self.get("CONNINFO"), what="catalog apply"))

        self.step(f"Before any payment, may {self.subject} use `api`?")
        has_access, reason, _ = self.check()
        self.show(f"Check = {yes(has_access)} ({reason})")
        self.expect("access before any payment", "no", yes(has_access))

        start = int(time.time())
        end = start + max(1, round(self.period))
        body = self.invoice_paid(start, end)
        self.step(f"Stripe reports a paid invoice (signed webhook, event {self.event}); the paid period ends in {end - start} s.")
        status, answer = self.post(body)
        self.show(f"webhook-ingest answered HTTP {status}" + described(answer))
        self.expect("duplicate on the first delivery", False, bool(field(answer, "duplicate")))

        self.step(f"May {self.subject} use `api` now?")
        has_access, reason, until = self.check()
        self.show(f"Check = {yes(has_access)} ({reason}), access_until = {instant(until)}")
        self.expect("access while the paid period runs", "yes", yes(has_access))
        self.expect("access_until (the end of the paid period)", instant(float(end)), instant(until))

        self.step("Providers deliver more than once. The same event again:")
        before = self.counts()
        status, answer = self.post(body)
        after = self.counts()
        self.show(f"webhook-ingest answered HTTP {status}" + described(answer))
        self.show(f"in the database before: {before}")
        self.show(f"in the database after:  {after}")
        self.expect("duplicate on the second delivery", True, bool(field(answer, "duplicate")))
        self.expect("the rows after the second delivery", before, after)

        self.step("The scheduler is paused (SIGSTOP), so no job can end the subscription. Waiting past the end.")
        self.pause_scheduler()
        if time.time() >= end:
            raise Differs(
                f"the steps so far took longer than the paid period of {self.period:g} s, so nothing can be shown. "
                "Run the demo again with a larger TENURE_DEMO_SECONDS."
            )
        while time.time() < end + 0.1:
            time.sleep(min(1.0, max(0.05, end + 0.1 - time.time())))

        self.step(f"May {self.subject} still use `api`?")
        has_access, reason, _ = self.check()
        row_status, expired = self.row()
        self.show(f"Check = {yes(has_access)} ({reason}), asked at {instant(time.time())}")
        self.show(f"the row still says {row_status}: access is computed from the stored end, not from the status")
        self.expect("access after the end, with the scheduler paused", "no", yes(has_access))
        self.expect("the row's status while the scheduler is paused", "ACTIVE", row_status)
        self.expect("subscription.expired events while the scheduler is paused", 0, expired)

        self.step("The scheduler goes on (SIGCONT) and sweeps: the books follow.")
        self.resume_scheduler()
        began = time.monotonic()
        limit = float(self.get("SWEEP_SECONDS"))
        while True:
            row_status, expired = self.row()
            if row_status == "EXPIRED" or time.monotonic() - began > limit:
                break
            time.sleep(0.2)
        self.show(f"after {time.monotonic() - began:.1f} s the row says {row_status}; subscription.expired events: {expired}")
        self.expect(f"the row's status within {limit:g} s after the scheduler went on", "EXPIRED", row_status)
        self.expect("subscription.expired events", 1, expired)
        has_access, reason, _ = self.check()
        self.show(f"Check = {yes(has_access)} ({reason})")
        self.expect("access after the sweep", "no", yes(has_access))

    def invoice_paid(self, start, end):
        """A Stripe event of the 2025 ("basil") API: the subscription stands under parent.subscription_details."""
        livemode = self.get("LIVEMODE") == "true"
        line = {
            "id": f"il_demo{self.run}",
            "object": "line_item",
            "amount": 2000,
            "currency": "usd",
            "description": "1 x Pro",
            "livemode": livemode,
            "metadata": {"tenure_subject": self.subject},
            "parent": {
                "type": "subscription_item_details",
                "subscription_item_details": {
                    "proration": False,
                    "subscription": self.subscription,
                    "subscription_item": f"si_demo{self.run}",
                },
            },
            "period": {"start": start, "end": end},
            "pricing": {
                "type": "price_details",
                "price_details": {"price": "price_demo_pro", "product": "prod_demo"},
                "unit_amount_decimal": "2000",
            },
            "quantity": 1,
        }
        invoice = {
            "id": f"in_demo{self.run}",
            "object": "invoice",
            "amount_due": 2000,
            "amount_paid": 2000,
            "amount_remaining": 0,
            "billing_reason": "subscription_create",
            "collection_method": "charge_automatically",
            "created": start,
            "currency": "usd",
            "customer": f"cus_demo{self.run}",
            "lines": {"object": "list", "data": [line], "has_more": False, "total_count": 1},
            "livemode": livemode,
            "metadata": {},
            "parent": {
                "type": "subscription_details",
                "quote_details": None,
                "subscription_details": {
                    "metadata": {"tenure_subject": self.subject},
                    "subscription": self.subscription,
                },
            },
            "period_start": start,
            "period_end": start,
            "status": "paid",
            "status_transitions": {"finalized_at": start, "paid_at": start, "marked_uncollectible_at": None, "voided_at": None},
            "total": 2000,
        }
        event = {
            "id": self.event,
            "object": "event",
            "api_version": "2025-03-31.basil",
            "created": start,
            "data": {"object": invoice},
            "livemode": livemode,
            "pending_webhooks": 1,
            "request": {"id": None, "idempotency_key": None},
            "type": "invoice.paid",
        }
        return json.dumps(event, indent=2).encode()


def field(message, name):
    """A field of a message in proto JSON, whichever of its two spellings was printed."""
    camel = name.split("_")[0] + "".join(part.capitalize() for part in name.split("_")[1:])
    return message.get(name, message.get(camel))


def parse_instant(text):
    """Seconds since 1970 of an RFC 3339 instant in UTC with up to nine fractional digits."""
    whole, _, fraction = text.rstrip("Z").partition(".")
    try:
        parsed = datetime.datetime.strptime(whole, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=datetime.timezone.utc)
        return parsed.timestamp() + float("0." + (fraction or "0"))
    except ValueError:
        raise Differs(f"expected an RFC 3339 instant in UTC, got {text!r}") from None


def instant(seconds):
    if seconds is None:
        return "none"
    moment = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%S") + (f".{moment.microsecond // 1000:03}" if moment.microsecond else "") + "Z"


def yes(has_access):
    return "yes" if has_access else "no"


def described(answer):
    return " " + json.dumps(answer) if answer else ""


def read_settings(state):
    settings = dict(DEFAULTS)
    if state:
        try:
            with open(state, encoding="utf-8") as file:
                for line in file:
                    name, _, value = line.rstrip("\n").partition("=")
                    settings[name] = value
        except OSError as error:
            raise Differs(f"no cluster is known ({error}). Start one with ./dev up --detach.") from None
    settings.update({name: value for name, value in os.environ.items() if name.startswith("TENURE_DEMO_")})
    return settings


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--state", help="file with settings, as ./dev up writes it")
    args = parser.parse_args()
    # A stopped demo must not leave the scheduler stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    demo = None
    try:
        demo = Demo(read_settings(args.state))
        demo.play()
    except Differs as difference:
        print(f"\ndemo: failed. {difference}", flush=True)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        if demo:
            demo.resume_scheduler()
    print("\ndemo: ok", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
