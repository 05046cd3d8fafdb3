#include "common/obs/metrics.h"

#include <prometheus/check_names.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/log.h"

namespace tenure::obs {
namespace {

constexpr absl::string_view kHistogramUnits[] = {
    "_seconds", "_bytes", "_rows", "_events", "_requests", "_items"};

bool EndsWithAny(absl::string_view name,
                 std::initializer_list<absl::string_view> suffixes) {
  return std::any_of(
      suffixes.begin(), suffixes.end(),
      [&](absl::string_view s) { return absl::EndsWith(name, s); });
}

[[noreturn]] void Mistake(absl::string_view name, absl::string_view what) {
  log::Error("metric registered wrongly", {{"metric", name}, {"what", what}});
  std::abort();
}

}  // namespace

const std::vector<double>& LatencyBuckets() {
  static const auto& buckets =
      *new std::vector<double>{0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05,
                               0.1,    0.2,   0.5,   1,     2,    5,    10};
  return buckets;
}

const std::vector<double>& DelayBuckets() {
  static const auto& buckets =
      *new std::vector<double>{0.01, 0.05, 0.1, 0.5, 1,   2,    5,     10,
                               30,   60,   120, 300, 900, 3600, 14400, 86400};
  return buckets;
}

const std::vector<double>& SizeBuckets() {
  static const auto& buckets = *new std::vector<double>{
      1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000};
  return buckets;
}

absl::Status ValidateMetricName(MetricKind kind, absl::string_view service,
                                absl::string_view name) {
  const auto bad = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("metric name \"", name, "\": ", why));
  };
  const std::string prefix = absl::StrCat("tenure_", service, "_");
  if (!absl::StartsWith(name, prefix) || name.size() == prefix.size()) {
    return bad(absl::StrCat("does not start with ", prefix, "<thing>"));
  }
  const bool words = std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_islower(static_cast<unsigned char>(c)) ||
           absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '_';
  });
  if (!words || absl::StrContains(name, "__") || absl::EndsWith(name, "_")) {
    return bad("is not lower-case words joined by single underscores");
  }
  switch (kind) {
    case MetricKind::kCounter:
      if (!absl::EndsWith(name, "_total")) {
        return bad("a counter ends with _total");
      }
      break;
    case MetricKind::kGauge:
      if (EndsWithAny(name, {"_total", "_bucket", "_sum", "_count"})) {
        return bad("a gauge does not end with _total, _bucket, _sum or _count");
      }
      break;
    case MetricKind::kHistogram:
      if (std::none_of(std::begin(kHistogramUnits), std::end(kHistogramUnits),
                       [&](absl::string_view unit) {
                         return absl::EndsWith(name, unit);
                       })) {
        return bad(
            "a histogram ends with its unit: _seconds, _bytes, _rows, _events, "
            "_requests or _items");
      }
      break;
  }
  return absl::OkStatus();
}

Registry::Registry(absl::string_view service)
    : service_(absl::StrReplaceAll(service, {{"-", "_"}})),
      prefix_(absl::StrCat("tenure_", service_, "_")) {}

std::string Registry::Admit(MetricKind kind, absl::string_view name,
                            absl::string_view help,
                            const std::vector<double>& buckets,
                            Labels* labels) {
  const std::string full = absl::StartsWith(name, prefix_)
                               ? std::string(name)
                               : absl::StrCat(prefix_, name);
  const absl::Status valid = ValidateMetricName(kind, service_, full);
  if (!valid.ok()) Mistake(full, valid.message());
  if (help.empty()) Mistake(full, "no help text");
  std::set<std::string> label_names;
  for (const auto& [label, value] : *labels) {
    if (!prometheus::CheckLabelName(label) || label == "le") {
      Mistake(full, absl::StrCat("bad label name \"", label, "\""));
    }
    label_names.insert(label);
  }
  if (std::adjacent_find(buckets.begin(), buckets.end(),
                         std::greater_equal<>()) != buckets.end()) {
    Mistake(full, "buckets are not strictly ascending");
  }

  MutexLock lock(mutex_);
  auto [entry, added] = shapes_.try_emplace(
      full, Shape{kind, std::string(help), label_names, buckets, {}});
  Shape& shape = entry->second;
  if (!added) {
    if (shape.kind != kind) Mistake(full, "two kinds under one name");
    if (shape.help != help) Mistake(full, "two help texts under one name");
    if (shape.label_names != label_names) {
      Mistake(full, "two sets of label names under one name");
    }
    if (shape.buckets != buckets) Mistake(full, "two bucket lists");
  }
  if (shape.series.count(*labels) == 0) {
    if (shape.series.size() + 1 >= kMaxSeriesPerName) {
      for (auto& [label, value] : *labels) value = "other";
      if (shape.series.insert(*labels).second) {
        log::Error("too many series of one metric; the rest count as other",
                   {{"metric", full}});
      }
    } else {
      shape.series.insert(*labels);
    }
  }
  return full;
}

prometheus::Counter& Registry::Counter(absl::string_view name,
                                       absl::string_view help,
                                       const Labels& labels) {
  Labels used = labels;
  const std::string full = Admit(MetricKind::kCounter, name, help, {}, &used);
  return prometheus::BuildCounter()
      .Name(full)
      .Help(std::string(help))
      .Register(registry_)
      .Add(used);
}

prometheus::Gauge& Registry::Gauge(absl::string_view name,
                                   absl::string_view help,
                                   const Labels& labels) {
  Labels used = labels;
  const std::string full = Admit(MetricKind::kGauge, name, help, {}, &used);
  return prometheus::BuildGauge()
      .Name(full)
      .Help(std::string(help))
      .Register(registry_)
      .Add(used);
}

prometheus::Histogram& Registry::Histogram(absl::string_view name,
                                           absl::string_view help,
                                           const Labels& labels,
                                           const std::vector<double>& buckets) {
  Labels used = labels;
  const std::string full =
      Admit(MetricKind::kHistogram, name, help, buckets, &used);
  return prometheus::BuildHistogram()
      .Name(full)
      .Help(std::string(help))
      .Register(registry_)
      .Add(used, buckets);
}

void Registry::OnRender(std::function<void()> refresh) {
  MutexLock lock(mutex_);
  refreshes_.push_back(std::move(refresh));
}

std::string Registry::Render() {
  {
    MutexLock lock(mutex_);
    for (const auto& refresh : refreshes_) {
      try {
        refresh();
      } catch (const std::exception& e) {
        log::Error("exception while refreshing metrics", {{"what", e.what()}});
      }
    }
  }
  return prometheus::TextSerializer().Serialize(registry_.Collect());
}

std::vector<std::string> Registry::Names() const {
  std::vector<std::string> names;
  MutexLock lock(mutex_);
  for (const auto& [name, shape] : shapes_) names.push_back(name);
  return names;
}

}  // namespace tenure::obs
