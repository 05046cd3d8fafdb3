#include "services/entitlement/quota_balances.h"

#include "common/base/status_macros.h"
#include "services/entitlement/statements.h"

namespace tenure::entitlement {

absl::StatusOr<QuotaAnswer> QuotaBalances::Read(absl::string_view subject,
                                                absl::string_view meter) {
  ASSIGN_OR_RETURN(const db::Result rows,
                   pool_.Execute(kSelectQuotaBalances,
                                 db::MakeParams(subject, environment_, meter)));
  QuotaAnswer answer;
  answer.decided_at = rows[0].Time("now");
  for (size_t i = 0; i < rows.size(); ++i) {
    const db::Row row = rows[i];
    // The row that only carries the clock.
    if (row.IsNull("meter")) continue;
    QuotaBalance balance;
    balance.meter = row.Text("meter");
    balance.remaining = row.Int64("remaining");
    balance.released = row.Int64("released");
    balance.next_release_at = row.OptionalTime("next_release_at");
    balance.next_release_amount =
        row.OptionalInt64("next_release_amount").value_or(0);
    answer.balances.push_back(std::move(balance));
  }
  RETURN_IF_ERROR(rows.status());
  if (!meter.empty() && answer.balances.empty()) {
    QuotaBalance none;
    none.meter = std::string(meter);
    answer.balances.push_back(std::move(none));
  }
  return answer;
}

}  // namespace tenure::entitlement
