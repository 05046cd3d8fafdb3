#include "common/store/catalog_definition.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/base/error.h"
#include "common/base/proto_time.h"
#include "common/domain/calendar.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/util/json_util.h"

namespace tenure::store {
namespace {

using catalog::v1::Catalog;
using catalog::v1::Feature;
using catalog::v1::Plan;
using catalog::v1::ProviderProduct;
using catalog::v1::Quota;
using catalog::v1::Term;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr size_t kMaxNameBytes = 127;
constexpr size_t kMaxRouteBytes = 64;
constexpr size_t kMaxProductBytes = 255;
constexpr int kMaxTermCount = 1200;
// Longer than any period that is sold, short enough to be added to any instant
// that is stored.
constexpr absl::Duration kMaxSpan = absl::Hours(24 * 3660);

// -- Errors ------------------------------------------------------------------

class Checker {
 public:
  std::vector<CatalogError> Take() { return std::move(errors_); }

  void CheckCatalog(const Catalog& catalog) {
    std::set<std::string> names;
    for (int i = 0; i < catalog.plans_size(); ++i) {
      const std::string key = absl::StrCat("plans[", i, "]");
      CheckName(absl::StrCat(key, ".name"), catalog.plans(i).name(),
                kMaxNameBytes, &names);
      CheckPlan(key, catalog.plans(i));
    }
    const std::string& standard = catalog.default_plan();
    if (!standard.empty() && names.count(standard) == 0) {
      Add("default_plan",
          absl::StrCat("no plan of this catalogue has the name ", standard));
    }
  }

 private:
  void Add(std::string key, std::string what) {
    errors_.push_back({std::move(key), std::move(what), false});
  }

  // False when the text is not acceptable.
  bool CheckText(const std::string& key, const std::string& text, size_t max) {
    const absl::Status status = ValidateText("", text, max);
    if (status.ok()) return true;
    const bool missing = text.empty();
    absl::string_view what = status.message();
    // "<field>: what" with an empty field.
    if (!missing) what.remove_prefix(std::min<size_t>(2, what.size()));
    errors_.push_back(
        {key, missing ? "is required" : std::string(what), missing});
    return false;
  }

  void CheckName(const std::string& key, const std::string& name, size_t max,
                 std::set<std::string>* names) {
    if (!CheckText(key, name, max)) return;
    if (!names->insert(name).second) {
      Add(key, absl::StrCat(name, " is given twice"));
    }
  }

  void CheckTerm(const std::string& key, const Term& term) {
    if (!catalog::v1::TermUnit_IsValid(term.unit())) {
      Add(absl::StrCat(key, ".unit"), "must be day, week, month or year");
    }
    if (term.has_count() &&
        (term.count() < 1 || term.count() > kMaxTermCount)) {
      Add(absl::StrCat(key, ".count"),
          absl::StrCat("must be from 1 to ", kMaxTermCount));
    }
  }

  void CheckZone(const std::string& key, bool given, const std::string& name) {
    if (given && !domain::LoadZone(name).ok()) {
      Add(key, absl::StrCat("must be the IANA name of a time zone, found \"",
                            name, "\""));
    }
  }

  void CheckSpan(const std::string& key,
                 const google::protobuf::Duration& proto) {
    const absl::Duration span = FromProto(proto);
    if (span < absl::ZeroDuration()) {
      Add(key, "must not be negative");
    } else if (span > kMaxSpan) {
      Add(key,
          absl::StrCat("must be at most ", absl::FormatDuration(kMaxSpan)));
    }
  }

  void CheckPlan(const std::string& key, const Plan& plan) {
    std::set<std::string> features;
    for (int k = 0; k < plan.features_size(); ++k) {
      const std::string at = absl::StrCat(key, ".features[", k, "]");
      const Feature& feature = plan.features(k);
      CheckName(absl::StrCat(at, ".name"), feature.name(), kMaxNameBytes,
                &features);
      if (feature.limit() < 0) {
        Add(absl::StrCat(at, ".limit"), "must not be negative");
      }
      if (feature.quantity() < 0) {
        Add(absl::StrCat(at, ".quantity"), "must not be negative");
      }
    }
    for (int k = 0; k < plan.provider_products_size(); ++k) {
      CheckProduct(absl::StrCat(key, ".provider_products[", k, "]"),
                   plan.lifetime(), plan.provider_products(k));
    }
    if (plan.has_term()) {
      CheckTerm(absl::StrCat(key, ".term"), plan.term());
      if (plan.lifetime()) {
        Add(absl::StrCat(key, ".term"), "a lifetime plan has no term");
      }
    }
    CheckZone(absl::StrCat(key, ".billing_time_zone"),
              plan.has_billing_time_zone(), plan.billing_time_zone());
    CheckZone(absl::StrCat(key, ".release_time_zone"),
              plan.has_release_time_zone(), plan.release_time_zone());
    CheckSpan(absl::StrCat(key, ".grace_period"), plan.grace_period());
    CheckSpan(absl::StrCat(key, ".charge_lead"), plan.charge_lead());
    if (!catalog::v1::RefundPolicy_IsValid(plan.refund_policy())) {
      Add(absl::StrCat(key, ".refund_policy"), "must be revoke or keep_access");
    }
    if (!catalog::v1::DisputePolicy_IsValid(plan.dispute_policy())) {
      Add(absl::StrCat(key, ".dispute_policy"),
          "must be keep_access or suspend");
    }
    if (plan.lifetime() && plan.quotas_size() > 0) {
      Add(absl::StrCat(key, ".quotas"),
          "a lifetime plan has no quotas: a monthly quota needs an end");
    }
    std::set<std::string> meters;
    for (int k = 0; k < plan.quotas_size(); ++k) {
      const std::string at = absl::StrCat(key, ".quotas[", k, "]");
      const Quota& quota = plan.quotas(k);
      CheckName(absl::StrCat(at, ".meter"), quota.meter(), kMaxNameBytes,
                &meters);
      if (quota.amount() <= 0) {
        Add(absl::StrCat(at, ".amount"), "must be positive");
      }
      if (!catalog::v1::QuotaSchedule_IsValid(quota.schedule())) {
        Add(absl::StrCat(at, ".schedule"),
            "must be anniversary or first_of_month");
      }
    }
  }

  void CheckProduct(const std::string& key, bool lifetime,
                    const ProviderProduct& product) {
    const bool named = CheckText(absl::StrCat(key, ".route"), product.route(),
                                 kMaxRouteBytes) &
                       CheckText(absl::StrCat(key, ".product_id"),
                                 product.product_id(), kMaxProductBytes);
    if (named &&
        !products_.insert({product.route(), product.product_id()}).second) {
      Add(key, absl::StrCat(product.product_id(), " of route ", product.route(),
                            " is given twice"));
    }
    if (!product.has_term()) return;
    CheckTerm(absl::StrCat(key, ".term"), product.term());
    if (lifetime) {
      Add(absl::StrCat(key, ".term"), "a lifetime plan has no term");
    }
  }

  std::vector<CatalogError> errors_;
  std::set<std::pair<std::string, std::string>> products_;
};

// -- Normal form -------------------------------------------------------------

void NormalizeTerm(Term* term) {
  if (term->unit() == catalog::v1::TERM_UNIT_UNSPECIFIED) {
    term->set_unit(catalog::v1::TERM_UNIT_MONTH);
  }
  if (!term->has_count()) term->set_count(1);
}

template <typename Entries, typename Key>
void SortBy(Entries* entries, Key key) {
  std::stable_sort(
      entries->begin(), entries->end(),
      [&](const auto& a, const auto& b) { return key(a) < key(b); });
}

// -- Differences -------------------------------------------------------------

using Flat = std::map<std::string, std::string>;

bool IsDuration(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
         field.message_type()->full_name() == "google.protobuf.Duration";
}

// "month" for TERM_UNIT_MONTH, as the file says it.
std::string ShortName(const google::protobuf::EnumValueDescriptor& value) {
  absl::string_view prefix = value.type()->value(0)->name();
  absl::ConsumeSuffix(&prefix, "UNSPECIFIED");
  return absl::AsciiStrToLower(absl::StripPrefix(value.name(), prefix));
}

std::string LeafText(const Message& message, const FieldDescriptor& field) {
  const auto& reflection = *message.GetReflection();
  if (IsDuration(field)) {
    google::protobuf::Duration duration;
    duration.CopyFrom(reflection.GetMessage(message, &field));
    return absl::FormatDuration(FromProto(duration));
  }
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(message, &field) ? "true" : "false";
    case FieldDescriptor::CPPTYPE_INT32:
      return absl::StrCat(reflection.GetInt32(message, &field));
    case FieldDescriptor::CPPTYPE_INT64:
      return absl::StrCat(reflection.GetInt64(message, &field));
    case FieldDescriptor::CPPTYPE_ENUM:
      return ShortName(*reflection.GetEnum(message, &field));
    default:
      return reflection.GetString(message, &field);
  }
}

// Every value of a message under its key; an entry of a list by its first
// field, which is its name. By reflection, so that no field of the catalogue
// can be changed without being shown.
void Flatten(const Message& message, const std::string& prefix, Flat* flat,
             int first_field = 0) {
  const auto& descriptor = *message.GetDescriptor();
  const auto& reflection = *message.GetReflection();
  for (int i = first_field; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    const std::string key = absl::StrCat(prefix, field.name());
    if (field.is_repeated()) {
      for (int k = 0; k < reflection.FieldSize(message, &field); ++k) {
        const Message& entry =
            reflection.GetRepeatedMessage(message, &field, k);
        Flatten(entry,
                absl::StrCat(key, ".",
                             LeafText(entry, *entry.GetDescriptor()->field(0)),
                             "."),
                flat, 1);
      }
    } else if (field.has_presence() && !reflection.HasField(message, &field)) {
      continue;
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
               !IsDuration(field)) {
      Flatten(reflection.GetMessage(message, &field), absl::StrCat(key, "."),
              flat);
    } else {
      (*flat)[key] = LeafText(message, field);
    }
  }
}

// A plan's own values: all but its name and products.
Flat FlattenDefinition(const Plan& plan) {
  Plan definition = plan;
  definition.clear_provider_products();
  Flat flat;
  Flatten(definition, "", &flat);
  flat.erase("name");
  return flat;
}

void DiffFlat(const std::string& thing, const Flat& stored, const Flat& wanted,
              std::vector<CatalogDifference>* out) {
  std::set<std::string> keys;
  for (const auto& [key, value] : stored) keys.insert(key);
  for (const auto& [key, value] : wanted) keys.insert(key);
  for (const std::string& key : keys) {
    CatalogDifference difference;
    difference.thing = thing;
    difference.key = key;
    if (const auto at = stored.find(key); at != stored.end()) {
      difference.stored = at->second;
    }
    if (const auto at = wanted.find(key); at != wanted.end()) {
      difference.wanted = at->second;
    }
    if (difference.stored != difference.wanted) {
      out->push_back(std::move(difference));
    }
  }
}

std::map<std::string, const Plan*> PlansByName(const Catalog& catalog) {
  std::map<std::string, const Plan*> plans;
  for (const Plan& plan : catalog.plans()) plans[plan.name()] = &plan;
  return plans;
}

// "pro" or "pro, 3 month", by "route/product".
std::map<std::string, std::string> ProductsByName(const Catalog& catalog) {
  std::map<std::string, std::string> products;
  for (const Plan& plan : catalog.plans()) {
    for (const ProviderProduct& product : plan.provider_products()) {
      std::string meaning = absl::StrCat("plan ", plan.name());
      if (product.has_term()) {
        absl::StrAppend(
            &meaning, ", ", product.term().count(), " ",
            domain::CalendarUnitName(ToDomain(product.term()).unit));
      }
      products[absl::StrCat(product.route(), "/", product.product_id())] =
          std::move(meaning);
    }
  }
  return products;
}

CatalogDifference Stays(std::string thing) {
  CatalogDifference difference;
  difference.thing = std::move(thing);
  difference.stays = true;
  return difference;
}

std::string Shown(const std::optional<std::string>& value) {
  return value.has_value() ? *value : "(none)";
}

}  // namespace

std::vector<CatalogError> FindCatalogErrors(const Catalog& catalog) {
  Checker checker;
  checker.CheckCatalog(catalog);
  return checker.Take();
}

Plan NormalizePlan(Plan plan) {
  for (Feature& feature : *plan.mutable_features()) {
    if (feature.value_case() == Feature::VALUE_NOT_SET) {
      feature.set_enabled(true);
    }
  }
  for (ProviderProduct& product : *plan.mutable_provider_products()) {
    if (product.has_term()) NormalizeTerm(product.mutable_term());
  }
  if (!plan.lifetime()) NormalizeTerm(plan.mutable_term());
  const domain::Plan standard;
  if (!plan.has_billing_time_zone()) {
    plan.set_billing_time_zone(standard.billing_time_zone);
  }
  if (!plan.has_release_time_zone()) {
    plan.set_release_time_zone(standard.release_time_zone);
  }
  if (!plan.has_grace_period()) {
    *plan.mutable_grace_period() = ToProto(standard.policy.grace_period);
  }
  if (plan.refund_policy() == catalog::v1::REFUND_POLICY_UNSPECIFIED) {
    plan.set_refund_policy(catalog::v1::REFUND_POLICY_REVOKE);
  }
  if (plan.dispute_policy() == catalog::v1::DISPUTE_POLICY_UNSPECIFIED) {
    plan.set_dispute_policy(catalog::v1::DISPUTE_POLICY_KEEP_ACCESS);
  }
  if (!plan.has_charge_lead()) {
    *plan.mutable_charge_lead() = ToProto(standard.policy.charge_lead);
  }
  for (Quota& quota : *plan.mutable_quotas()) {
    if (quota.schedule() == catalog::v1::QUOTA_SCHEDULE_UNSPECIFIED) {
      quota.set_schedule(catalog::v1::QUOTA_SCHEDULE_ANNIVERSARY);
    }
  }
  SortBy(plan.mutable_features(), [](const Feature& f) { return f.name(); });
  SortBy(plan.mutable_quotas(), [](const Quota& q) { return q.meter(); });
  SortBy(plan.mutable_provider_products(), [](const ProviderProduct& p) {
    return std::make_pair(p.route(), p.product_id());
  });
  return plan;
}

Catalog NormalizeCatalog(Catalog catalog) {
  for (Plan& plan : *catalog.mutable_plans()) {
    plan = NormalizePlan(std::move(plan));
  }
  SortBy(catalog.mutable_plans(), [](const Plan& p) { return p.name(); });
  return catalog;
}

std::vector<CatalogDifference> DiffCatalogs(const Catalog& stored,
                                            const Catalog& wanted) {
  std::vector<CatalogDifference> differences;
  const auto old_plans = PlansByName(stored);
  const auto new_plans = PlansByName(wanted);
  std::set<std::string> names;
  for (const auto& [name, plan] : old_plans) names.insert(name);
  for (const auto& [name, plan] : new_plans) names.insert(name);
  for (const std::string& name : names) {
    const std::string thing = absl::StrCat("plan ", name);
    const auto old_plan = old_plans.find(name);
    const auto new_plan = new_plans.find(name);
    if (new_plan == new_plans.end()) {
      differences.push_back(Stays(thing));
      continue;
    }
    if (old_plan == old_plans.end()) {
      CatalogDifference added;
      added.thing = thing;
      added.wanted = "new";
      differences.push_back(std::move(added));
    }
    DiffFlat(thing,
             old_plan == old_plans.end() ? Flat()
                                         : FlattenDefinition(*old_plan->second),
             FlattenDefinition(*new_plan->second), &differences);
  }

  const auto old_products = ProductsByName(stored);
  const auto new_products = ProductsByName(wanted);
  names.clear();
  for (const auto& [name, meaning] : old_products) names.insert(name);
  for (const auto& [name, meaning] : new_products) names.insert(name);
  for (const std::string& name : names) {
    CatalogDifference difference;
    difference.thing = absl::StrCat("product ", name);
    const auto old_product = old_products.find(name);
    const auto new_product = new_products.find(name);
    if (new_product == new_products.end()) {
      differences.push_back(Stays(difference.thing));
      continue;
    }
    if (old_product != old_products.end()) {
      difference.stored = old_product->second;
    }
    difference.wanted = new_product->second;
    if (difference.stored != difference.wanted) {
      differences.push_back(std::move(difference));
    }
  }

  if (stored.default_plan() != wanted.default_plan()) {
    CatalogDifference difference = Stays("default_plan");
    difference.stays = !wanted.has_default_plan();
    if (!difference.stays) {
      if (!stored.default_plan().empty()) {
        difference.stored = stored.default_plan();
      }
      if (!wanted.default_plan().empty()) {
        difference.wanted = wanted.default_plan();
      }
    }
    differences.push_back(std::move(difference));
  }
  return differences;
}

bool HasChanges(const std::vector<CatalogDifference>& differences) {
  return std::any_of(differences.begin(), differences.end(),
                     [](const CatalogDifference& d) { return !d.stays; });
}

std::string FormatDifferences(
    const std::vector<CatalogDifference>& differences) {
  std::string text;
  std::string heading;
  for (const CatalogDifference& d : differences) {
    if (d.stays) {
      absl::StrAppend(&text, d.thing, ": only in the database, stays\n");
    } else if (d.key.empty()) {
      absl::StrAppend(
          &text, d.thing, ": ",
          d.stored.has_value() || d.wanted != "new"
              ? absl::StrCat(Shown(d.stored), " -> ", Shown(d.wanted))
              : "new",
          "\n");
    } else {
      if (heading != d.thing) absl::StrAppend(&text, d.thing, ":\n");
      absl::StrAppend(&text, "  ", d.key, ": ", Shown(d.stored), " -> ",
                      Shown(d.wanted), "\n");
    }
    heading = d.thing;
  }
  return text;
}

std::string DefinitionJson(const Plan& plan) {
  Plan definition = plan;
  definition.clear_name();
  definition.clear_provider_products();
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  // Fails only for a Timestamp or Duration out of range, which the catalogue
  // check refuses.
  if (!google::protobuf::util::MessageToJsonString(definition, &json, options)
           .ok()) {
    return "";
  }
  return json;
}

absl::StatusOr<Plan> PlanFromDefinition(absl::string_view name,
                                        absl::string_view json) {
  google::protobuf::util::JsonParseOptions options;
  // A newer binary may have written more.
  options.ignore_unknown_fields = true;
  Plan plan;
  if (!google::protobuf::util::JsonStringToMessage(std::string(json), &plan,
                                                   options)
           .ok()) {
    return InternalError(
        absl::StrCat("the stored definition of plan ", name, " is unreadable"));
  }
  plan.set_name(std::string(name));
  return NormalizePlan(std::move(plan));
}

domain::Term ToDomain(const Term& term) {
  domain::Term value;
  switch (term.unit()) {
    case catalog::v1::TERM_UNIT_DAY:
      value.unit = domain::CalendarUnit::kDay;
      break;
    case catalog::v1::TERM_UNIT_WEEK:
      value.unit = domain::CalendarUnit::kWeek;
      break;
    case catalog::v1::TERM_UNIT_YEAR:
      value.unit = domain::CalendarUnit::kYear;
      break;
    default:
      value.unit = domain::CalendarUnit::kMonth;
  }
  value.count = term.count();
  return value;
}

domain::Plan ToDomain(const Plan& plan) {
  domain::Plan value;
  value.name = plan.name();
  value.lifetime = plan.lifetime();
  if (plan.has_term()) value.term = ToDomain(plan.term());
  value.billing_time_zone = plan.billing_time_zone();
  value.release_time_zone = plan.release_time_zone();
  value.policy.grace_period = FromProto(plan.grace_period());
  value.policy.refund_keeps_access =
      plan.refund_policy() == catalog::v1::REFUND_POLICY_KEEP_ACCESS;
  value.policy.dispute_suspends =
      plan.dispute_policy() == catalog::v1::DISPUTE_POLICY_SUSPEND;
  value.policy.charge_lead = FromProto(plan.charge_lead());
  for (const Quota& quota : plan.quotas()) {
    domain::QuotaRule rule;
    rule.meter = quota.meter();
    rule.amount = quota.amount();
    if (quota.schedule() == catalog::v1::QUOTA_SCHEDULE_FIRST_OF_MONTH) {
      rule.release_day = domain::ReleaseDay::kFirstOfMonth;
    }
    value.quotas.push_back(std::move(rule));
  }
  return value;
}

}  // namespace tenure::store
