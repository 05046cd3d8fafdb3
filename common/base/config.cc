#include "common/base/config.h"

#include <fcntl.h>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/base/crypto.h"
#include "common/base/proto_time.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/duration.pb.h"
#include "tenure/config/v1/options.pb.h"

namespace tenure {
namespace {

using config::v1::SettingOptions;
using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr char kRedacted[] = "[redacted]";
constexpr char kEnvironmentPrefix[] = "TENURE_";
constexpr char kFileVariable[] = "TENURE_CONFIG";
// A configuration is small; a larger file is a wrong path.
constexpr size_t kMaxFileBytes = 1024 * 1024;
// Room for a catalogue of some ten thousand plans.
constexpr size_t kMaxDocumentBytes = 16 * 1024 * 1024;
// What errors about a file as a whole are about.
constexpr char kWholeFile[] = "configuration file";
constexpr size_t kMaxQuotedBytes = 80;

// -- Fields ------------------------------------------------------------------

bool IsDuration(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
         field.message_type()->full_name() == "google.protobuf.Duration";
}

bool IsSection(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
         !IsDuration(field) && !field.is_repeated();
}

bool IsMessageList(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
         !IsDuration(field) && field.is_repeated();
}

bool IsStringList(const FieldDescriptor& field) {
  return field.is_repeated() &&
         field.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
}

const SettingOptions& Options(const FieldDescriptor& field) {
  return field.options().GetExtension(config::v1::setting);
}

std::string JoinKey(absl::string_view prefix, absl::string_view name) {
  return prefix.empty() ? std::string(name) : absl::StrCat(prefix, ".", name);
}

std::string StemOf(absl::string_view key) {
  return absl::StrReplaceAll(key, {{".", "_"}});
}

std::string VariableOf(absl::string_view stem) {
  return absl::StrCat(kEnvironmentPrefix, absl::AsciiStrToUpper(stem));
}

// "live" for ENVIRONMENT_LIVE of enum Environment.
std::string ShortName(const EnumValueDescriptor& value) {
  std::string prefix;
  for (const char c : value.type()->name()) {
    if (absl::ascii_isupper(static_cast<unsigned char>(c)) && !prefix.empty()) {
      prefix.push_back('_');
    }
    prefix.push_back(absl::ascii_toupper(static_cast<unsigned char>(c)));
  }
  prefix.push_back('_');
  return absl::AsciiStrToLower(absl::StripPrefix(value.name(), prefix));
}

// The names a setting of this enum may have: all but the zero value, which
// means unset.
std::vector<std::string> EnumNames(const EnumDescriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.value_count(); ++i) {
    if (type.value(i)->number() != 0)
      names.push_back(ShortName(*type.value(i)));
  }
  return names;
}

std::string TypeText(const FieldDescriptor& field) {
  if (IsStringList(field)) return "list of texts";
  if (IsDuration(field)) return "duration";
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return "text";
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true|false";
    case FieldDescriptor::CPPTYPE_ENUM:
      return absl::StrJoin(EnumNames(*field.enum_type()), "|");
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return "number";
    default:
      return "whole number";
  }
}

// A leaf of the top-level message that has a flag and a variable.
struct Setting {
  const FieldDescriptor* field;
  std::string key;
  std::string stem;
  std::string variable;
};

absl::Status CheckSupported(const FieldDescriptor& field,
                            absl::string_view key) {
  bool supported = !field.is_map();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      supported = supported && field.type() == FieldDescriptor::TYPE_STRING;
      break;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      supported = supported && !(IsDuration(field) && field.is_repeated());
      break;
    case FieldDescriptor::CPPTYPE_BOOL:
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_INT64:
    case FieldDescriptor::CPPTYPE_UINT32:
    case FieldDescriptor::CPPTYPE_DOUBLE:
    case FieldDescriptor::CPPTYPE_ENUM:
      supported = supported && !field.is_repeated();
      break;
    default:
      supported = false;
  }
  // "[redacted]" must load again.
  if (Options(field).secret() &&
      field.cpp_type() != FieldDescriptor::CPPTYPE_STRING) {
    supported = false;
  }
  if (supported) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      key, ": the configuration schema uses a type that is not supported"));
}

// Lists the settings of `type`, sections in order.
absl::Status CollectSettings(const Descriptor& type, const std::string& prefix,
                             bool in_list, std::vector<Setting>* settings) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const std::string key = JoinKey(prefix, field.name());
    RETURN_IF_ERROR(CheckSupported(field, key));
    if (IsSection(field) || IsMessageList(field)) {
      RETURN_IF_ERROR(CollectSettings(*field.message_type(), key,
                                      in_list || IsMessageList(field),
                                      settings));
    } else if (!in_list) {
      const std::string stem = StemOf(key);
      settings->push_back({&field, key, stem, VariableOf(stem)});
    }
  }
  return absl::OkStatus();
}

absl::Status CheckStems(const std::vector<Setting>& settings) {
  std::set<std::string> stems = {"config", "help", "version", "print_config"};
  for (const Setting& setting : settings) {
    if (!stems.insert(setting.stem).second) {
      return absl::InternalError(absl::StrCat(
          "the configuration schema uses the flag --", setting.stem, " twice"));
    }
  }
  return absl::OkStatus();
}

// -- Near misses -------------------------------------------------------------

size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1,
                         diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

// The nearest of `known` within `most` edits, empty for none.
std::string Nearest(absl::string_view name,
                    const std::vector<std::string>& known, size_t most) {
  std::string best;
  // Hostile names are long; no setting is.
  if (name.size() > 128) return best;
  size_t best_distance = most + 1;
  for (const std::string& candidate : known) {
    const size_t distance = EditDistance(name, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string DidYouMean(absl::string_view name,
                       const std::vector<std::string>& known,
                       absl::string_view before = "") {
  const std::string nearest =
      Nearest(name, known, std::max<size_t>(2, name.size() / 4));
  if (nearest.empty()) return "";
  return absl::StrCat("; did you mean ", before, nearest, "?");
}

// -- Values ------------------------------------------------------------------

// A value as it was written somewhere.
struct RawValue {
  std::string text;
  // For lists of strings; `text` is unused.
  std::vector<std::string> list;
  // "app.yaml:12", "environment variable TENURE_X", "flag --x".
  std::string source;
};

std::string Quoted(absl::string_view text) {
  const bool cut = text.size() > kMaxQuotedBytes;
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, kMaxQuotedBytes)),
                      cut ? "...\"" : "\"");
}

// Errors of one load, in the order found.
class Errors {
 public:
  // For a configuration, or into `document`.
  explicit Errors(Document* document = nullptr) : document_(document) {}

  // "key: what (source)"
  void Add(absl::string_view key, absl::string_view what,
           absl::string_view source) {
    if (document_ == nullptr) {
      lines_.push_back(absl::StrCat(key, ": ", what, " (", source, ")"));
      return;
    }
    DocumentError error;
    // A source without a line is the file itself.
    if (absl::ConsumePrefix(&source, absl::StrCat(document_->file, ":"))) {
      (void)absl::SimpleAtoi(source, &error.line);
    }
    if (key != kWholeFile) error.key = std::string(key);
    error.what = std::string(what);
    document_->errors.push_back(std::move(error));
  }
  void Add(std::string line) { lines_.push_back(std::move(line)); }
  bool empty() const { return lines_.empty(); }

  absl::Status ToStatus(absl::string_view program) const {
    if (lines_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "the configuration of ", program, " has ",
        lines_.size() == 1 ? "an error"
                           : absl::StrCat(lines_.size(), " errors"),
        ":\n  ", absl::StrJoin(lines_, "\n  ")));
  }

 private:
  Document* const document_;
  std::vector<std::string> lines_;
};

// The parsers answer nullopt for anything but the whole text of a value.
template <typename Number>
std::optional<Number> ParseWhole(absl::string_view text) {
  const absl::string_view digits = absl::StripPrefix(text, "-");
  if (digits.empty() ||
      !std::all_of(digits.begin(), digits.end(),
                   [](unsigned char c) { return absl::ascii_isdigit(c); })) {
    return std::nullopt;
  }
  Number value = 0;
  if (!absl::SimpleAtoi(text, &value)) return std::nullopt;
  return value;
}

std::optional<double> ParseNumber(absl::string_view text) {
  double value = 0;
  if (text.empty() || absl::ascii_isspace(text.front()) ||
      absl::ascii_isspace(text.back()) || !absl::SimpleAtod(text, &value) ||
      !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

std::optional<absl::Duration> ParseSpan(absl::string_view text) {
  absl::Duration value;
  if (!absl::ParseDuration(text, &value) || value == absl::InfiniteDuration() ||
      value == -absl::InfiniteDuration()) {
    return std::nullopt;
  }
  return value;
}

// "from 1 to 500", or the half of it that exists.
std::string RangeText(const SettingOptions& options) {
  if (options.min().empty() && options.max().empty()) return "";
  if (options.max().empty()) return absl::StrCat("at least ", options.min());
  if (options.min().empty()) return absl::StrCat("at most ", options.max());
  return absl::StrCat("from ", options.min(), " to ", options.max());
}

// Parses `text` and its bounds with `parse`; nullopt outside.
template <typename Value, typename Parse>
std::optional<Value> ParseBounded(absl::string_view text,
                                  const SettingOptions& options, Parse parse,
                                  absl::string_view kind, std::string* wrong) {
  const std::optional<Value> value = parse(text);
  if (!value.has_value()) {
    const std::string range = RangeText(options);
    *wrong = absl::StrCat("must be ", kind, range.empty() ? "" : " ", range);
    return std::nullopt;
  }
  const std::optional<Value> min =
      options.min().empty() ? std::nullopt : parse(options.min());
  const std::optional<Value> max =
      options.max().empty() ? std::nullopt : parse(options.max());
  if ((min.has_value() && *value < *min) ||
      (max.has_value() && *max < *value)) {
    *wrong = absl::StrCat("must be ", RangeText(options));
    return std::nullopt;
  }
  return value;
}

// Empty when `text` is acceptable as a text setting.
std::string WrongText(absl::string_view text) {
  if (!IsValidUtf8(text)) return "must be valid UTF-8";
  for (const char c : text) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) {
      return "must not contain control characters";
    }
  }
  return "";
}

// Undoes %XX; libpq does so for the names and values of a URI.
std::string PercentDecode(absl::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() &&
        absl::ascii_isxdigit(static_cast<unsigned char>(text[i + 1])) &&
        absl::ascii_isxdigit(static_cast<unsigned char>(text[i + 2]))) {
      decoded += HexDecode(text.substr(i + 1, 2)).value_or("");
      i += 2;
    } else {
      decoded.push_back(text[i]);
    }
  }
  return decoded;
}

// True for a libpq connection string, of either form, with a password in it;
// may be true for some that only look so.
bool HoldsPassword(absl::string_view conninfo) {
  std::string text = absl::AsciiStrToLower(PercentDecode(conninfo));
  text.erase(
      std::remove_if(text.begin(), text.end(),
                     [](unsigned char c) { return absl::ascii_isspace(c); }),
      text.end());
  // Covers sslpassword too.
  if (absl::StrContains(text, "password=")) return true;
  const absl::string_view lowered = absl::StripLeadingAsciiWhitespace(conninfo);
  for (const absl::string_view scheme : {"postgresql://", "postgres://"}) {
    if (!absl::StartsWithIgnoreCase(lowered, scheme)) continue;
    absl::string_view authority = lowered.substr(scheme.size());
    authority = authority.substr(0, authority.find_first_of("/?"));
    const size_t at = authority.rfind('@');
    if (at == absl::string_view::npos) continue;
    if (absl::StrContains(authority.substr(0, at), ":")) return true;
  }
  return false;
}

bool IsConninfo(const FieldDescriptor& field) {
  return field.name() == "conninfo";
}

// Sets `field` of `message` to `raw`. Returns what is wrong with the value,
// empty when it was set.
std::string SetLeaf(const FieldDescriptor& field, const RawValue& raw,
                    Message* message) {
  const Reflection& reflection = *message->GetReflection();
  const SettingOptions& options = Options(field);
  std::string wrong;
  if (IsStringList(field)) {
    for (const std::string& item : raw.list) {
      if (item.empty()) return "must not have an empty element";
      if (wrong = WrongText(item); !wrong.empty()) return wrong;
    }
    reflection.ClearField(message, &field);
    for (const std::string& item : raw.list) {
      reflection.AddString(message, &field, item);
    }
    return "";
  }
  if (IsDuration(field)) {
    const auto value = ParseBounded<absl::Duration>(
        raw.text, options, ParseSpan, "a duration such as 250ms, 5s or 3h",
        &wrong);
    if (value.has_value()) {
      reflection.MutableMessage(message, &field)->CopyFrom(ToProto(*value));
    }
    return wrong;
  }
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      if (wrong = WrongText(raw.text); !wrong.empty()) return wrong;
      if (IsConninfo(field) && HoldsPassword(raw.text)) {
        return "must not hold a password; put the password in password_file";
      }
      reflection.SetString(message, &field, raw.text);
      return "";
    case FieldDescriptor::CPPTYPE_BOOL:
      if (raw.text != "true" && raw.text != "false") {
        return "must be true or false";
      }
      reflection.SetBool(message, &field, raw.text == "true");
      return "";
    case FieldDescriptor::CPPTYPE_INT32:
      if (const auto value =
              ParseBounded<int32_t>(raw.text, options, ParseWhole<int32_t>,
                                    "a whole number", &wrong)) {
        reflection.SetInt32(message, &field, *value);
      }
      return wrong;
    case FieldDescriptor::CPPTYPE_INT64:
      if (const auto value =
              ParseBounded<int64_t>(raw.text, options, ParseWhole<int64_t>,
                                    "a whole number", &wrong)) {
        reflection.SetInt64(message, &field, *value);
      }
      return wrong;
    case FieldDescriptor::CPPTYPE_UINT32:
      if (const auto value = ParseBounded<uint32_t>(
              raw.text, options, ParseWhole<uint32_t>,
              "a whole number that is not negative", &wrong)) {
        reflection.SetUInt32(message, &field, *value);
      }
      return wrong;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      if (const auto value = ParseBounded<double>(
              raw.text, options, ParseNumber, "a number", &wrong)) {
        reflection.SetDouble(message, &field, *value);
      }
      return wrong;
    case FieldDescriptor::CPPTYPE_ENUM: {
      const EnumDescriptor& type = *field.enum_type();
      for (int i = 0; i < type.value_count(); ++i) {
        if (type.value(i)->number() != 0 &&
            ShortName(*type.value(i)) == raw.text) {
          reflection.SetEnum(message, &field, type.value(i));
          return "";
        }
      }
      return absl::StrCat("must be ", absl::StrJoin(EnumNames(type), " or "));
    }
    default:
      return "has a type that is not supported";
  }
}

bool IsQuotable(const FieldDescriptor& field) {
  return !Options(field).secret() && !IsConninfo(field) && !IsStringList(field);
}

// -- YAML --------------------------------------------------------------------

// A parsed file with its name, for messages.
struct YamlFile {
  std::string path;
  YAML::Node root;
};

std::string SourceOf(const YamlFile& file, const YAML::Node& node) {
  const YAML::Mark mark = node.Mark();
  if (mark.line < 0) return file.path;
  return absl::StrCat(file.path, ":", mark.line + 1);
}

std::string KindOf(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Map:
      return "a mapping";
    case YAML::NodeType::Sequence:
      return "a list";
    case YAML::NodeType::Null:
      return "nothing";
    default:
      return "a single value";
  }
}

std::optional<std::string> ReadFile(const std::string& path, size_t max_bytes,
                                    std::string* wrong) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    *wrong = absl::StrCat("cannot open ", Quoted(path), ": ", strerror(errno));
    return std::nullopt;
  }
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t n = ::read(fd, buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      *wrong =
          absl::StrCat("cannot read ", Quoted(path), ": ", strerror(errno));
      ::close(fd);
      return std::nullopt;
    }
    if (n == 0) break;
    text.append(buffer, static_cast<size_t>(n));
    if (text.size() > max_bytes) {
      *wrong =
          absl::StrCat(Quoted(path), " is larger than ", max_bytes, " bytes");
      ::close(fd);
      return std::nullopt;
    }
  }
  ::close(fd);
  return text;
}

// Reads the file; nullopt after adding an error.
std::optional<YamlFile> LoadYaml(const std::string& path, size_t max_bytes,
                                 absl::string_view named_by, Errors* errors) {
  std::string wrong;
  const std::optional<std::string> text = ReadFile(path, max_bytes, &wrong);
  if (!text.has_value()) {
    errors->Add(kWholeFile, wrong, named_by);
    return std::nullopt;
  }
  YamlFile file{path, YAML::Node()};
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(*text);
    if (documents.size() > 1) {
      errors->Add(kWholeFile, "must hold one YAML document", path);
      return std::nullopt;
    }
    if (!documents.empty()) file.root = documents.front();
  } catch (const YAML::Exception& error) {
    errors->Add(kWholeFile,
                absl::StrCat("is not YAML: ", absl::CHexEscape(error.msg)),
                absl::StrCat(path, ":", error.mark.line + 1));
    return std::nullopt;
  }
  return file;
}

// -- Loading -----------------------------------------------------------------

// Applies the sources to a message, walking its fields.
class Loader {
 public:
  Loader(const std::map<std::string, RawValue>& flags,
         const std::map<std::string, RawValue>& variables, const YamlFile* file,
         bool flags_complete, Document* document, Errors* errors)
      : flags_(flags),
        variables_(variables),
        file_(file),
        flags_complete_(flags_complete),
        document_(document),
        errors_(*errors) {}

  // `node` is the mapping for `message` in the file, absent or null for none.
  // Inside lists (`in_list`) only the file and defaults count.
  void Apply(const std::string& prefix, bool in_list,
             const std::optional<YAML::Node>& node, Message* message) {
    const Descriptor& type = *message->GetDescriptor();
    const std::map<std::string, YAML::Node> children =
        Children(prefix, type, node);
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      const std::string key = JoinKey(prefix, field.name());
      std::optional<YAML::Node> child;
      if (const auto found = children.find(field.name());
          found != children.end()) {
        child.emplace(found->second);
      }
      if (IsSection(field)) {
        // A document tells a section that it leaves out from an empty one.
        if (document_ != nullptr && (!child.has_value() || child->IsNull())) {
          continue;
        }
        Apply(key, in_list, child,
              message->GetReflection()->MutableMessage(message, &field));
      } else if (IsMessageList(field)) {
        ApplyList(key, field, child, message);
      } else {
        ApplyLeaf(key, in_list, field, child,
                  node.has_value() ? SourceOf(*file_, *node) : "", message);
      }
    }
  }

 private:
  static std::string NameOf(const std::string& prefix) {
    return prefix.empty() ? std::string(kWholeFile) : prefix;
  }

  void RecordLine(const std::string& key, const YAML::Node& node) {
    if (document_ != nullptr) {
      document_->lines.emplace(key, node.Mark().line + 1);
    }
  }

  // Of a choice between keys, one is given.
  void CheckOneOf(const std::string& key, const FieldDescriptor& field,
                  const std::map<std::string, YAML::Node>& earlier,
                  const std::string& source) {
    const auto* oneof = field.real_containing_oneof();
    if (oneof == nullptr) return;
    for (int i = 0; i < oneof->field_count(); ++i) {
      const std::string& other = oneof->field(i)->name();
      if (other == field.name() || earlier.count(other) == 0) continue;
      errors_.Add(key, absl::StrCat("cannot be given together with ", other),
                  source);
      return;
    }
  }

  // The entries of a mapping; unknown and repeated keys become errors.
  std::map<std::string, YAML::Node> Children(
      const std::string& prefix, const Descriptor& type,
      const std::optional<YAML::Node>& node) {
    std::map<std::string, YAML::Node> children;
    // A section whose keys are all commented out reads as null.
    if (!node.has_value() || node->IsNull()) return children;
    if (!node->IsMap()) {
      errors_.Add(
          NameOf(prefix),
          absl::StrCat("must be a mapping of settings, found ", KindOf(*node)),
          SourceOf(*file_, *node));
      return children;
    }
    std::vector<std::string> known;
    for (int i = 0; i < type.field_count(); ++i) {
      known.push_back(type.field(i)->name());
    }
    for (const auto& entry : *node) {
      const std::string source = SourceOf(*file_, entry.first);
      if (!entry.first.IsScalar()) {
        errors_.Add(
            NameOf(prefix),
            absl::StrCat("a key must be a name, found ", KindOf(entry.first)),
            source);
        continue;
      }
      const std::string& name = entry.first.Scalar();
      const std::string key = JoinKey(
          prefix, absl::CHexEscape(absl::string_view(name).substr(0, 100)));
      if (std::find(known.begin(), known.end(), name) == known.end()) {
        errors_.Add(key, absl::StrCat("unknown key", DidYouMean(name, known)),
                    source);
        continue;
      }
      CheckOneOf(key, *type.FindFieldByName(name), children, source);
      const auto [first, inserted] = children.emplace(name, entry.second);
      if (!inserted) {
        errors_.Add(key, "is set twice in the file", source);
        continue;
      }
      RecordLine(key, entry.first);
    }
    return children;
  }

  void ApplyList(const std::string& key, const FieldDescriptor& field,
                 const std::optional<YAML::Node>& node, Message* message) {
    if (node.has_value() && !node->IsNull() && !node->IsSequence()) {
      errors_.Add(key, absl::StrCat("must be a list, found ", KindOf(*node)),
                  SourceOf(*file_, *node));
      return;
    }
    if (!node.has_value() || node->size() == 0) {
      if (Options(field).required()) {
        errors_.Add(key, "needs at least one entry",
                    file_ != nullptr ? file_->path
                                     : "set only in the YAML file; name one "
                                       "with --config or TENURE_CONFIG");
      }
      return;
    }
    for (size_t i = 0; i < node->size(); ++i) {
      const std::string entry = absl::StrCat(key, "[", i, "]");
      RecordLine(entry, (*node)[i]);
      Apply(entry, true, std::optional<YAML::Node>((*node)[i]),
            message->GetReflection()->AddMessage(message, &field));
    }
  }

  // The value of a leaf in the file; nullopt after adding an error.
  std::optional<RawValue> FromYaml(const std::string& key,
                                   const FieldDescriptor& field,
                                   const YAML::Node& node) {
    RawValue raw;
    raw.source = SourceOf(*file_, node);
    if (node.IsNull()) {
      errors_.Add(key,
                  absl::StrCat("has no value, expected ", TypeText(field),
                               "; remove the key or give it one"),
                  raw.source);
      return std::nullopt;
    }
    if (IsStringList(field)) {
      if (!node.IsSequence()) {
        errors_.Add(key, absl::StrCat("must be a list, found ", KindOf(node)),
                    raw.source);
        return std::nullopt;
      }
      for (const YAML::Node& item : node) {
        if (!item.IsScalar()) {
          errors_.Add(key,
                      absl::StrCat("must be a list of texts, found ",
                                   KindOf(item), " in it"),
                      SourceOf(*file_, item));
          return std::nullopt;
        }
        raw.list.push_back(item.Scalar());
      }
      return raw;
    }
    if (!node.IsScalar()) {
      errors_.Add(
          key,
          absl::StrCat("must be a ", TypeText(field), ", found ", KindOf(node)),
          raw.source);
      return std::nullopt;
    }
    raw.text = node.Scalar();
    const bool is_text = field.cpp_type() == FieldDescriptor::CPPTYPE_STRING ||
                         field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM ||
                         IsDuration(field);
    // "!" is the tag of a quoted scalar.
    if (!is_text && node.Tag() == "!") {
      errors_.Add(key,
                  absl::StrCat("must be a ", TypeText(field),
                               ", found a quoted text; remove the quotes"),
                  raw.source);
      return std::nullopt;
    }
    return raw;
  }

  static const RawValue* FindValue(
      const std::map<std::string, RawValue>& values, const std::string& key) {
    const auto found = values.find(key);
    return found == values.end() ? nullptr : &found->second;
  }

  void ApplyLeaf(const std::string& key, bool in_list,
                 const FieldDescriptor& field,
                 const std::optional<YAML::Node>& node,
                 const std::string& parent_source, Message* message) {
    const SettingOptions& options = Options(field);
    // Every source is checked, not only the one that wins: a bad value that
    // is hidden today is an outage on the day the other one is removed.
    std::vector<RawValue> values;
    bool broken = false;
    if (!options.default_value().empty()) {
      RawValue raw;
      raw.text = options.default_value();
      raw.source = "its default";
      if (IsStringList(field)) raw.list = absl::StrSplit(raw.text, ',');
      values.push_back(std::move(raw));
    }
    if (node.has_value()) {
      std::optional<RawValue> raw = FromYaml(key, field, *node);
      if (raw.has_value()) {
        values.push_back(*std::move(raw));
      } else {
        broken = true;
      }
    }
    if (!in_list) {
      for (const auto* source : {&variables_, &flags_}) {
        if (const RawValue* raw = FindValue(*source, key); raw != nullptr) {
          values.push_back(*raw);
        }
      }
    }
    for (const RawValue& raw : values) {
      std::string wrong = SetLeaf(field, raw, message);
      if (wrong.empty()) continue;
      broken = true;
      if (IsQuotable(field)) {
        absl::StrAppend(&wrong, ", found ", Quoted(raw.text));
      }
      errors_.Add(key, wrong, raw.source);
    }
    if (broken || !options.required()) return;
    if (values.empty()) {
      if (!flags_complete_) return;
      std::string where;
      if (in_list) {
        where = absl::StrCat("in the entry at ", parent_source);
      } else {
        const std::string stem = StemOf(key);
        where = absl::StrCat("set it in the YAML file, or by ",
                             VariableOf(stem), " or --", stem);
      }
      errors_.Add(
          key,
          absl::StrCat("is required: ", TypeText(field),
                       options.help().empty() ? "" : ", ", options.help()),
          where);
      return;
    }
    const RawValue& last = values.back();
    const bool is_empty =
        IsStringList(field) ? last.list.empty() : last.text.empty();
    if (is_empty) {
      errors_.Add(
          key,
          absl::StrCat("is required and must not be empty",
                       options.help().empty() ? "" : ": ", options.help()),
          last.source);
    }
  }

  const std::map<std::string, RawValue>& flags_;
  const std::map<std::string, RawValue>& variables_;
  const YamlFile* const file_;
  // False when the command line could not be read to its end, so that a value
  // that seems to be missing may stand there.
  const bool flags_complete_;
  // Set when the file is a document and no configuration.
  Document* const document_;
  Errors& errors_;
};

RawValue FromText(const FieldDescriptor& field, std::string text,
                  std::string source) {
  RawValue raw;
  raw.source = std::move(source);
  if (IsStringList(field) && !text.empty()) {
    for (const absl::string_view item : absl::StrSplit(text, ',')) {
      raw.list.emplace_back(absl::StripAsciiWhitespace(item));
    }
  }
  raw.text = std::move(text);
  return raw;
}

// -- Command line ------------------------------------------------------------

struct CommandLine {
  bool help = false;
  bool version = false;
  bool print_config = false;
  std::optional<std::string> file;
  std::map<std::string, RawValue> values;
  bool complete = true;
};

CommandLine ReadCommandLine(int argc, const char* const* argv,
                            const std::vector<Setting>& settings,
                            Errors* errors) {
  CommandLine line;
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  app.add_flag("--help,-h", line.help);
  app.add_flag("--version", line.version);
  app.add_flag("--print-config", line.print_config);

  std::map<std::string, std::string> texts;
  std::map<std::string, CLI::Option*> options;
  std::vector<std::string> known = {"config", "help", "version",
                                    "print-config"};
  options["config"] = app.add_option("--config", texts["config"]);
  for (const Setting& setting : settings) {
    options[setting.stem] =
        app.add_option(absl::StrCat("--", setting.stem), texts[setting.stem]);
    known.push_back(setting.stem);
  }

  // The library takes the argument after "--x=" for the value of x; an empty
  // value is meant.
  std::set<std::string> set_empty;
  std::vector<std::string> arguments;
  for (int i = argc - 1; i >= 1; --i) {
    const absl::string_view argument = argv[i];
    absl::string_view name = argument;
    if (absl::ConsumePrefix(&name, "--") && absl::ConsumeSuffix(&name, "=") &&
        options.count(std::string(name)) > 0) {
      set_empty.insert(std::string(name));
      continue;
    }
    arguments.emplace_back(argument);
  }
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    errors->Add(absl::StrCat("command line: ", absl::CHexEscape(error.what())));
    line.complete = false;
  }

  const std::vector<std::string> remaining = app.remaining();
  for (size_t i = 0; i < remaining.size(); ++i) {
    const std::string& extra = remaining[i];
    absl::string_view name = extra;
    if (!absl::ConsumePrefix(&name, "-")) {
      errors->Add(
          absl::StrCat("command line: unexpected argument ", Quoted(extra)));
      continue;
    }
    absl::ConsumePrefix(&name, "-");
    const bool has_value = absl::StrContains(name, "=");
    name = name.substr(0, name.find('='));
    errors->Add(absl::StrCat(
        "command line: unknown flag ",
        Quoted(absl::string_view(extra).substr(0, extra.find('='))),
        DidYouMean(name, known, "--")));
    // The next word is its value.
    if (!has_value && i + 1 < remaining.size() &&
        !absl::StartsWith(remaining[i + 1], "-")) {
      ++i;
    }
  }

  const auto read = [&](const std::string& name) -> std::optional<std::string> {
    const bool given = options[name]->count() > 0;
    if (set_empty.count(name) > 0) {
      if (!given) return "";
      errors->Add(absl::StrCat("command line: --", name, " is given twice"));
      return std::nullopt;
    }
    if (!given) return std::nullopt;
    if (absl::StartsWith(texts[name], "--")) {
      errors->Add(absl::StrCat("command line: --", name,
                               " needs a value, found the flag ",
                               Quoted(texts[name])));
      line.complete = false;
      return std::nullopt;
    }
    return texts[name];
  };
  line.file = read("config");
  for (const Setting& setting : settings) {
    std::optional<std::string> text = read(setting.stem);
    if (!text.has_value()) continue;
    line.values[setting.key] = FromText(*setting.field, *std::move(text),
                                        absl::StrCat("flag --", setting.stem));
  }
  return line;
}

// -- Environment -------------------------------------------------------------

struct Variables {
  std::optional<std::string> file;
  std::map<std::string, RawValue> values;
};

Variables ReadEnvironment(const char* const* environment,
                          const std::vector<Setting>& settings, Errors* errors,
                          std::vector<std::string>* warnings) {
  Variables result;
  std::vector<std::string> known = {kFileVariable};
  std::map<std::string, const Setting*> by_name;
  for (const Setting& setting : settings) {
    by_name[setting.variable] = &setting;
    known.push_back(setting.variable);
  }
  std::vector<std::string> unknown;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const absl::string_view entry = *environment;
    const size_t equals = entry.find('=');
    if (equals == absl::string_view::npos) continue;
    const std::string name(entry.substr(0, equals));
    if (!absl::StartsWith(name, kEnvironmentPrefix)) continue;
    std::string text(entry.substr(equals + 1));
    if (name == kFileVariable) {
      result.file = std::move(text);
    } else if (const auto found = by_name.find(name); found != by_name.end()) {
      result.values[found->second->key] =
          FromText(*found->second->field, std::move(text),
                   absl::StrCat("environment variable ", name));
    } else if (const std::string nearest = Nearest(name, known, 2);
               !nearest.empty()) {
      errors->Add(absl::StrCat("environment variable ", absl::CHexEscape(name),
                               ": no such setting; did you mean ", nearest,
                               "?"));
    } else {
      unknown.push_back(absl::CHexEscape(name));
    }
  }
  if (!unknown.empty()) {
    std::sort(unknown.begin(), unknown.end());
    warnings->push_back(
        absl::StrCat("environment variables that are no settings of this "
                     "program: ",
                     absl::StrJoin(unknown, ", ")));
  }
  return result;
}

// -- Output ------------------------------------------------------------------

// A double-quoted YAML scalar; settings hold no control characters.
std::string YamlText(absl::string_view text) {
  return absl::StrCat(
      "\"", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}}), "\"");
}

std::string LeafText(const FieldDescriptor& field, const Message& message) {
  const Reflection& reflection = *message.GetReflection();
  if (IsDuration(field)) {
    google::protobuf::Duration duration;
    duration.CopyFrom(reflection.GetMessage(message, &field));
    return absl::FormatDuration(FromProto(duration));
  }
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING: {
      const std::string text = reflection.GetString(message, &field);
      if (Options(field).secret() && !text.empty()) return YamlText(kRedacted);
      return YamlText(text);
    }
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(message, &field) ? "true" : "false";
    case FieldDescriptor::CPPTYPE_INT32:
      return absl::StrCat(reflection.GetInt32(message, &field));
    case FieldDescriptor::CPPTYPE_INT64:
      return absl::StrCat(reflection.GetInt64(message, &field));
    case FieldDescriptor::CPPTYPE_UINT32:
      return absl::StrCat(reflection.GetUInt32(message, &field));
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      // Enough digits to read the same value back.
      char text[32];
      std::snprintf(text, sizeof(text), "%.17g",
                    reflection.GetDouble(message, &field));
      return text;
    }
    case FieldDescriptor::CPPTYPE_ENUM:
      return ShortName(*reflection.GetEnum(message, &field));
    default:
      return "";
  }
}

// A value worth printing: set, or zero where zero is what the operator gets.
bool HasValue(const FieldDescriptor& field, const Message& message) {
  const Reflection& reflection = *message.GetReflection();
  if (IsDuration(field)) return reflection.HasField(message, &field);
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
    return reflection.GetEnumValue(message, &field) != 0;
  }
  if (reflection.HasField(message, &field)) return true;
  return field.cpp_type() != FieldDescriptor::CPPTYPE_STRING &&
         !Options(field).default_value().empty();
}

void AppendYaml(const Message& message, size_t indent, bool in_list,
                std::string* out) {
  const Descriptor& type = *message.GetDescriptor();
  const Reflection& reflection = *message.GetReflection();
  bool first = true;
  const auto start = [&](const FieldDescriptor& field) {
    if (in_list && first) {
      out->append(indent - 2, ' ');
      out->append("- ");
    } else {
      out->append(indent, ' ');
    }
    first = false;
    absl::StrAppend(out, field.name(), ":");
  };
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (IsSection(field)) {
      // Only a document leaves one out.
      if (!reflection.HasField(message, &field)) continue;
      std::string section;
      AppendYaml(reflection.GetMessage(message, &field), indent + 2, false,
                 &section);
      if (section.empty()) continue;
      start(field);
      absl::StrAppend(out, "\n", section);
    } else if (IsMessageList(field)) {
      const int size = reflection.FieldSize(message, &field);
      if (size == 0) continue;
      start(field);
      out->push_back('\n');
      for (int k = 0; k < size; ++k) {
        AppendYaml(reflection.GetRepeatedMessage(message, &field, k),
                   indent + 4, true, out);
      }
    } else if (IsStringList(field)) {
      const int size = reflection.FieldSize(message, &field);
      if (size == 0) continue;
      start(field);
      out->push_back('\n');
      for (int k = 0; k < size; ++k) {
        out->append(indent + 2, ' ');
        absl::StrAppend(
            out, "- ",
            YamlText(Options(field).secret()
                         ? kRedacted
                         : reflection.GetRepeatedString(message, &field, k)),
            "\n");
      }
    } else if (HasValue(field, message)) {
      start(field);
      absl::StrAppend(out, " ", LeafText(field, message), "\n");
    }
  }
  if (in_list && first) {
    out->append(indent - 2, ' ');
    out->append("- {}\n");
  }
}

std::string Facts(const FieldDescriptor& field) {
  const SettingOptions& options = Options(field);
  std::vector<std::string> facts = {TypeText(field)};
  if (const std::string range = RangeText(options); !range.empty()) {
    facts.push_back(range);
  }
  if (!options.default_value().empty()) {
    facts.push_back(absl::StrCat("default ", options.default_value()));
  } else if (options.required()) {
    facts.push_back("required");
  }
  return absl::StrJoin(facts, ", ");
}

void AppendListHelp(const Descriptor& type, const std::string& prefix,
                    bool in_list, std::string* out) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const std::string key = JoinKey(prefix, field.name());
    if (IsSection(field)) {
      AppendListHelp(*field.message_type(), key, in_list, out);
    } else if (IsMessageList(field)) {
      AppendListHelp(*field.message_type(), absl::StrCat(key, "[]"), true, out);
    } else if (in_list) {
      absl::StrAppend(out, "  ", key, "  (", Facts(field), ")\n");
      if (!Options(field).help().empty()) {
        absl::StrAppend(out, "      ", Options(field).help(), "\n");
      }
    }
  }
}

std::string HelpText(absl::string_view program, absl::string_view description,
                     const Descriptor& type,
                     const std::vector<Setting>& settings) {
  std::string out = absl::StrCat(
      program, ": ", description, "\n\nUsage: ", program,
      " [--config FILE] [--SETTING VALUE]...\n\n"
      "Options:\n"
      "  --config FILE     YAML file with settings (environment: ",
      kFileVariable,
      ")\n"
      "  --print-config    print the settings in effect as YAML, secrets "
      "redacted, and exit\n"
      "  --version         print the version and exit\n"
      "  --help, -h        print this text and exit\n\n"
      "Settings (a flag wins over the environment, that over the file, that "
      "over the default):\n");
  for (const Setting& setting : settings) {
    absl::StrAppend(&out, "  --", setting.stem, "  (", Facts(*setting.field),
                    ")\n");
    if (const std::string& help = Options(*setting.field).help();
        !help.empty()) {
      absl::StrAppend(&out, "      ", help, "\n");
    }
    absl::StrAppend(&out, "      file: ", setting.key,
                    "   environment: ", setting.variable, "\n");
  }
  std::string lists;
  AppendListHelp(type, "", false, &lists);
  if (!lists.empty()) {
    absl::StrAppend(&out, "\nLists, set in the YAML file alone:\n", lists);
  }
  return out;
}

absl::Status Load(int argc, const char* const* argv,
                  const char* const* environment, absl::string_view program,
                  absl::string_view description, Message* config,
                  LoadedFrom* how) {
  const Descriptor& type = *config->GetDescriptor();
  std::vector<Setting> settings;
  RETURN_IF_ERROR(CollectSettings(type, "", false, &settings));
  RETURN_IF_ERROR(CheckStems(settings));

  Errors errors;
  const CommandLine line = ReadCommandLine(argc, argv, settings, &errors);
  if (line.help) {
    how->print_and_exit = true;
    how->output = HelpText(program, description, type, settings);
    return absl::OkStatus();
  }
  if (line.version) {
    how->print_and_exit = true;
    how->output = absl::StrCat(program, " ", TENURE_VERSION, "\n");
    return absl::OkStatus();
  }
  const Variables variables =
      ReadEnvironment(environment, settings, &errors, &how->warnings);

  const std::string named_by =
      line.file.has_value()
          ? "flag --config"
          : absl::StrCat("environment variable ", kFileVariable);
  const std::optional<std::string>& path =
      line.file.has_value() ? line.file : variables.file;
  std::optional<YamlFile> file;
  bool complete = line.complete;
  if (path.has_value()) {
    if (path->empty()) {
      errors.Add(kWholeFile, "its name is empty", named_by);
    } else {
      file = LoadYaml(*path, kMaxFileBytes, named_by, &errors);
      how->file = *path;
    }
    // What stands in an unreadable file cannot be called missing.
    if (!file.has_value()) complete = false;
  }

  Loader loader(line.values, variables.values,
                file.has_value() ? &*file : nullptr, complete, nullptr,
                &errors);
  std::optional<YAML::Node> root;
  if (file.has_value()) root.emplace(file->root);
  loader.Apply("", false, root, config);
  RETURN_IF_ERROR(errors.ToStatus(program));

  if (line.print_config) {
    how->print_and_exit = true;
    how->output = PrintConfig(*config);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status LoadConfig(int argc, const char* const* argv,
                        const char* const* environment,
                        absl::string_view program,
                        absl::string_view description, Message* config,
                        LoadedFrom* how) {
  config->Clear();
  *how = LoadedFrom();
  try {
    return Load(argc, argv, environment, program, description, config, how);
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat(
        "reading the configuration failed: ", absl::CHexEscape(error.what())));
  }
}

absl::Status LoadConfig(int argc, const char* const* argv,
                        absl::string_view program,
                        absl::string_view description, Message* config,
                        LoadedFrom* how) {
  return LoadConfig(argc, argv, environ, program, description, config, how);
}

int Document::LineOf(absl::string_view key) const {
  while (!key.empty()) {
    const auto found = lines.find(std::string(key));
    if (found != lines.end()) return found->second;
    const size_t end = key.find_last_of(".[");
    key = key.substr(0, end == absl::string_view::npos ? 0 : end);
  }
  return 0;
}

absl::Status Document::ToStatus() const {
  if (errors.empty()) return absl::OkStatus();
  std::vector<DocumentError> sorted = errors;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const DocumentError& a, const DocumentError& b) {
                     return a.line < b.line;
                   });
  std::string text = absl::StrCat(
      file, " has ",
      sorted.size() == 1 ? "an error" : absl::StrCat(sorted.size(), " errors"),
      ":");
  for (const DocumentError& error : sorted) {
    absl::StrAppend(&text, "\n", file,
                    error.line > 0 ? absl::StrCat(":", error.line) : "", ": ",
                    error.key, error.key.empty() ? "" : ": ", error.what);
  }
  return absl::InvalidArgumentError(text);
}

Document LoadDocument(absl::string_view path, Message* message) {
  message->Clear();
  Document document;
  document.file = std::string(path);
  Errors errors(&document);
  try {
    std::vector<Setting> fields;
    if (const absl::Status status =
            CollectSettings(*message->GetDescriptor(), "", false, &fields);
        !status.ok()) {
      errors.Add(kWholeFile, status.message(), document.file);
      return document;
    }
    const std::optional<YamlFile> file =
        LoadYaml(document.file, kMaxDocumentBytes, document.file, &errors);
    if (!file.has_value()) return document;
    const std::map<std::string, RawValue> none;
    Loader loader(none, none, &*file, true, &document, &errors);
    loader.Apply("", true, std::optional<YAML::Node>(file->root), message);
  } catch (const std::exception& error) {
    errors.Add(kWholeFile,
               absl::StrCat("cannot be read: ", absl::CHexEscape(error.what())),
               document.file);
  }
  return document;
}

std::string PrintConfig(const Message& config) {
  std::string out;
  AppendYaml(config, 0, false, &out);
  return out;
}

}  // namespace tenure
