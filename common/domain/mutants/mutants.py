#!/usr/bin/env python3
"""Mutants of the fold: each is one wrong line, and the tests of the fold have to notice every one.

All of them are compiled into one program, each behind TENURE_MUTANT=<number>, so that they cost one compilation.
"""

import argparse
import os
import re
import subprocess
import sys

# (name, text of fold.cc that stands there exactly once, text with MUTANT for "this mutant runs").
MUTANTS = [
    (
        "every_failure_stamps_grace",
        "if (grace && !s_.has_grace_period_ends_at()) {",
        "if (grace && (MUTANT || !s_.has_grace_period_ends_at())) {",
    ),
    (
        "a_payment_told_twice_counts_twice",
        "if (pb::FoldPayment* known = FindSame(paid)) {",
        "if (pb::FoldPayment* known = MUTANT ? nullptr : FindSame(paid)) {",
    ),
    (
        "the_whole_sum_given_back_is_a_part",
        "std::max(sum, refund.refunded_total_minor()) >= payment.amount_minor();",
        "std::max(sum, refund.refunded_total_minor()) >= payment.amount_minor() + (MUTANT ? 1 : 0);",
    ),
    (
        "a_refund_before_its_payment_is_lost",
        "if (!Names(payment, stray[i].payment_key())) {",
        "if (MUTANT || !Names(payment, stray[i].payment_key())) {",
    ),
    (
        "a_purchase_after_the_end_brings_back_what_was_cut",
        "if (s_.has_ended_at() && from >= s_.ended_at()) {",
        "if (!MUTANT && s_.has_ended_at() && from >= s_.ended_at()) {",
    ),
    (
        "a_read_back_lifts_an_operators_end",
        "// Alive, whatever was said before.\n    s_.clear_ended_at();",
        "s_.clear_ended_at();\n    if (MUTANT) s_.clear_internal_ended_at();",
    ),
    (
        "the_provider_revokes_what_an_operator_gave",
        "if (payment.internal()) continue;",
        "if (!MUTANT && payment.internal()) continue;",
    ),
    (
        "later_terms_do_not_move_left",
        "if (!was_end || !now_end || from < *was_end) return absl::ZeroDuration();",
        "if (MUTANT || !was_end || !now_end || from < *was_end) return absl::ZeroDuration();",
    ),
    (
        "an_extension_outlives_its_term",
        "if (extension.payment_key() == payment_key) extension.set_dropped(true);",
        "if (!MUTANT && extension.payment_key() == payment_key) extension.set_dropped(true);",
    ),
    (
        "leeway_outlives_a_failure",
        "payment.clear_leeway_until();",
        "if (!MUTANT) payment.clear_leeway_until();",
    ),
    (
        "a_plan_of_this_instant_is_not_in_force",
        "if (!s_.has_next_plan() || s_.next_plan().effective_at() > at_) return;",
        "if (!s_.has_next_plan() || s_.next_plan().effective_at() > at_ - (MUTANT ? 1 : 0)) return;",
    ),
    (
        "the_providers_end_cuts_what_an_operator_promised",
        "if (!s.has_internal_cancel()) cut = Earlier(cut, ended);",
        "if (MUTANT || !s.has_internal_cancel()) cut = Earlier(cut, ended);",
    ),
    (
        "a_dispute_that_suspends_nothing_suspends",
        "if (dispute.suspends()) pause = Earlier(",
        "if (MUTANT || dispute.suspends()) pause = Earlier(",
    ),
    (
        "a_lost_dispute_takes_nothing",
        "if (!closed.lost()) return;",
        "if (MUTANT || !closed.lost()) return;",
    ),
    (
        "a_tie_is_forgotten_in_the_next_instant",
        "s_.set_needs_reconcile(true);",
        "if (!MUTANT) s_.set_needs_reconcile(true);",
    ),
    (
        "the_present_instant_is_not_judged_for_ties",
        "s.needs_reconcile() || IsTie(s);",
        "s.needs_reconcile() || (!MUTANT && IsTie(s));",
    ),
    (
        "ties_are_judged_by_fact",
        "said[fact.event_id()].insert(",
        "said[MUTANT ? fact.content().SerializeAsString() : fact.event_id()].insert(",
    ),
    (
        "what_was_replaced_goes_on",
        "if (replacement.by() == payment.payment_key()) continue;",
        "if (MUTANT || replacement.by() == payment.payment_key()) continue;",
    ),
    (
        "a_replacement_is_known_by_one_name_only",
        "if (!Names(payment, replacement.payment_key())) continue;",
        "if (MUTANT ? payment.payment_key() != replacement.payment_key()"
        " : !Names(payment, replacement.payment_key())) continue;",
    ),
    (
        "the_money_of_a_lost_dispute_is_ours",
        "refunded.set_full(true);\n    refunded.set_keeps_access(true);",
        "refunded.set_full(!MUTANT);\n    refunded.set_keeps_access(true);",
    ),
    (
        "the_provider_ends_what_an_operator_extended",
        "if (layout.promised) {",
        "if (!MUTANT && layout.promised) {",
    ),
    (
        "an_older_cancellation_cuts_an_extension",
        "state.internal_cancel().order_at() >= extension.order_at();",
        "(MUTANT || state.internal_cancel().order_at() >= extension.order_at());",
    ),
    (
        "an_operators_end_does_not_cut_an_extension",
        "const auto promised = Earlier(layout.promised, internal_ended);",
        "const auto promised = MUTANT ? layout.promised : Earlier(layout.promised, internal_ended);",
    ),
    (
        "grace_stays_after_the_payment",
        "Recover();\n    s_.clear_grace_period_ends_at();",
        "Recover();\n    if (!MUTANT) s_.clear_grace_period_ends_at();",
    ),
    (
        "the_newest_fact_may_be_added_again",
        "std::cref(last.event_id()),\n                         static_cast<int>(last.ordinal())) <",
        "std::cref(last.event_id()),\n                         static_cast<int>(last.ordinal()) - (MUTANT ? 1 : 0)) <",
    ),
]

SWITCH = """
#include <cstdlib>
static const int kTenureMutant = [] {
  const char* number = std::getenv("TENURE_MUTANT");
  return number == nullptr ? 0 : std::atoi(number);
}();
"""


def generate(source, target):
    with open(source, encoding="utf-8") as file:
        text = file.read()
    for number, (name, find, replace) in enumerate(MUTANTS, start=1):
        count = text.count(find)
        if count != 1:
            sys.exit(f"{source}: the text of mutant {number} ({name}) stands there {count} times:\n{find}")
        text = text.replace(find, replace.replace("MUTANT", f"(kTenureMutant == {number})"))
    head, include, rest = text.partition('#include "common/domain/fold.h"\n')
    with open(target, "w", encoding="utf-8") as file:
        file.write(head + include + SWITCH + rest)


def check(binary, name):
    """The tests fail under the mutant `name`; "none" is the fold as it is, under which they pass."""
    numbers = {n: i for i, (n, _, _) in enumerate(MUTANTS, start=1)}
    environment = dict(
        os.environ,
        TENURE_MUTANT=str(0 if name == "none" else numbers[name]),
        # The same histories in every run, and few: a mutant is caught for good or not at all.
        TENURE_PROPERTY_SEED="1",
        TENURE_PROPERTY_HISTORIES="300",
    )
    # All orders of the long lives take longest and catch nothing that the others miss.
    run = subprocess.run(
        [binary, "--gtest_filter=-*AllOrdersOfHandWrittenLives*"], env=environment, capture_output=True, text=True
    )
    ran = re.search(r"^\[==========\] (\d+) tests? from \d+ test suites? ran\.", run.stdout, re.MULTILINE)
    if not ran:
        sys.exit(f"{name}: the tests did not run to their end:\n{run.stdout[-2000:]}{run.stderr[-2000:]}")
    caught_by = sorted(set(re.findall(r"^\[  FAILED  \] (\S+\.\w+) \(", run.stdout, re.MULTILINE)))
    print(f"{name}: caught by {len(caught_by)} of {ran.group(1)} tests: {', '.join(caught_by)}")
    if (name == "none") == bool(caught_by):
        sys.exit(f"{name}: " + ("the tests fail without a mutant" if caught_by else "no test notices it"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="print the names, separated by semicolons")
    generating = commands.add_parser("generate", help="write fold.cc with all mutants in it")
    generating.add_argument("source")
    generating.add_argument("target")
    checking = commands.add_parser("check", help="run the tests under one mutant")
    checking.add_argument("binary")
    checking.add_argument("name")
    arguments = parser.parse_args()
    if arguments.command == "list":
        print(";".join(name for name, _, _ in MUTANTS))
    elif arguments.command == "generate":
        generate(arguments.source, arguments.target)
    else:
        check(arguments.binary, arguments.name)


if __name__ == "__main__":
    main()
