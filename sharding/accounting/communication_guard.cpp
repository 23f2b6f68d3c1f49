// Guards and budgets: observers that may forbid communication.
#include "sharding/accounting/communication_guard.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <string_view>
#include <utility>

#include "sharding/accounting/communication_event.h"
#include "sharding/base/caller.h"
#include "sharding/base/fail.h"
#include "sharding/base/thread_state.h"

namespace tessera {

using namespace detail;

// ---- guards

class CommunicationGuard::Watch : public Observer {
 public:
  explicit Watch(CommunicationGuardOptions allowed, bool forbids)
      : Observer(Events::communication | Events::permissions),
        allowed_(std::move(allowed)),
        forbids_(forbids),
        innermost_(innermost_guard(), this) {}

  void check(const Communication& c) override {
    if (this == innermost_guard() && forbids_ && !is_explicit(c.cause) && !is_allowed(c)) refuse(c);
  }

 private:
  bool is_allowed(const Communication& c) const {
    if (allowed_.backward && (c.backward || c.cause.operation == std::string_view(gradients_operation))) return true;
    AxisSet others = c.axes;
    for (const std::string& name : allowed_.mesh_axes)
      if (const int axis = c.mesh->find(name); axis >= 0) others &= ~(AxisSet{1} << axis);
    return others == 0;
  }

  // Returns the advice of the message. A constraint cannot replace the sum of gradients, so the advice for gradients is
  // different.
  static const char* advice_for(const CommRecord& r) {
    if (r.operation == gradients_operation)
      return "Shard the computation differently, or allow it (forbid_implicit_communication's options: backward, "
             "mesh_axes).";
    return "Move it with with_sharding_constraint or device_put, shard it differently, or allow it "
           "(forbid_implicit_communication's options).";
  }

  // Returns a sentence about an allowed axis that the mesh does not have, for example a misspelled one.
  std::string misspelled(const MeshImpl* mesh) const {
    for (const std::string& name : allowed_.mesh_axes)
      if (mesh->find(name) < 0)
        return fmt::format(" The scope allows \"{}\", which is not an axis of this mesh.", name);
    return "";
  }

  [[noreturn]] void refuse(const Communication& c) const {
    const CommRecord r = record_of(c);
    fail(ErrorKind::forbidden, r.operation,
         "{}: {}{} of {} to {}, {} bytes over {}{}, which was not requested and is forbidden in this scope. Reason: "
         "{}. {}{}",
         line_name(r.where), r.path.empty() ? "" : r.path + ": ", r.kind, r.operand, r.result, r.bytes, r.mesh_axes,
         r.backward ? " in the backward pass" : "", r.reason.empty() ? "none given" : r.reason, advice_for(r),
         misspelled(c.mesh));
  }

  CommunicationGuardOptions allowed_;
  bool forbids_;
  ScopedValue<const Observer*> innermost_;
};

CommunicationGuard::CommunicationGuard(std::unique_ptr<Watch> watch) : watch_(std::move(watch)) {}
CommunicationGuard::CommunicationGuard(CommunicationGuard&&) noexcept = default;
CommunicationGuard::~CommunicationGuard() = default;

CommunicationGuard forbid_implicit_communication(CommunicationGuardOptions allowed) {
  return CommunicationGuard(std::make_unique<CommunicationGuard::Watch>(std::move(allowed), true));
}
CommunicationGuard allow_implicit_communication() {
  return CommunicationGuard(std::make_unique<CommunicationGuard::Watch>(CommunicationGuardOptions{}, false));
}

// ---- budgets

class CommBudget::Watch : public Observer {
 public:
  Watch(int64_t most, CommBudgetOptions options)
      : Observer(Events::communication | (options.throw_on_exceed ? Events::permissions : Events::none)),
        most_(most),
        options_(std::move(options)) {}

  void check(const Communication& c) override {
    if (bytes_ + c.bytes <= most_) return;
    Contributors with = contributors_;
    with[name_of(c)] += c.bytes;
    fail(ErrorKind::forbidden, "CommBudget",
         message(bytes_ + c.bytes, with) + ". Communicate less, or raise the budget.");
  }

  void communicated(const Communication& c) override {
    const bool was_within = bytes_ <= most_;
    bytes_ += c.bytes;
    contributors_[name_of(c)] += c.bytes;
    if (was_within && bytes_ > most_) report("[CommBudget] " + message(bytes_, contributors_));
  }

  int64_t bytes() const { return bytes_; }

 private:
  using Contributors = std::map<std::string, int64_t>;

  static std::string name_of(const Communication& c) {
    return fmt::format("{} ({} over {} for {})", line_name(c.cause.where), c.kind, c.mesh->names(c.axes),
                       c.cause.operation);
  }

  std::string message(int64_t bytes, const Contributors& contributors) const {
    constexpr size_t max_named = 3;
    std::vector<std::pair<std::string, int64_t>> largest(contributors.begin(), contributors.end());
    std::stable_sort(largest.begin(), largest.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    if (largest.size() > max_named) largest.resize(max_named);
    std::vector<std::string> names;
    for (const auto& [name, part] : largest) names.push_back(fmt::format("{} at {}", part, name));
    return fmt::format("{} bytes a device, {} allowed: {}", bytes, most_, fmt::join(names, ", "));
  }

  void report(const std::string& text) const {
    if (options_.report)
      options_.report(text);
    else
      std::clog << text << '\n';
  }

  int64_t most_, bytes_ = 0;
  CommBudgetOptions options_;
  Contributors contributors_;
};

CommBudget::CommBudget(int64_t bytes, CommBudgetOptions options) {
  if (bytes < 0) fail(ErrorKind::invalid_argument, "CommBudget", "{} bytes given, expected 0 or more.", bytes);
  watch_ = std::make_unique<Watch>(bytes, std::move(options));
}
CommBudget::~CommBudget() = default;
int64_t CommBudget::bytes() const { return watch_->bytes(); }

}  // namespace tessera
