// Runs a program and keeps the outputs of modules that match a pattern.
#include "nn/report/capture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "nn/report/dataflow.h"
#include "sharding/accounting/operation_event.h"
#include "sharding/base/fail.h"
#include "sharding/base/text.h"

namespace tessera::nn::detail {

namespace {

class Capture : tessera::detail::Observer {
 public:
  explicit Capture(std::string_view pattern)
      : Observer(tessera::detail::Events::operations), pattern_(pattern), flow_([this](const std::string& maker) {
          const std::vector<std::string> modules = modules_around(maker);
          return std::any_of(modules.begin(), modules.end(), [this](const auto& module) { return takes(module); });
        }) {}

  void computed(const tessera::detail::OperationCall& call, const tessera::detail::OperationArrays& arrays) override {
    flow_.computed(call, arrays);
  }
  void moved(const ArrayImpl& from, const Array& to) override { flow_.moved(from, to); }

  CapturedArrays outputs(const std::vector<Array>& returned) {
    for (const Array& x : returned)
      if (!x.is_absent()) flow_.returned(x);
    CapturedArrays all;
    std::vector<std::string> paths;
    for (const auto& [module, ends] : flow_.ends()) {
      paths.push_back(module);
      if (!takes(module)) continue;
      for (const size_t number : ends.outputs) all[module].push_back(flow_.value(number).kept);
    }
    if (all.empty()) fail_without_match(paths);
    return all;
  }

 private:
  bool takes(const std::string& module) const { return !module.empty() && path_matches(module, pattern_); }

  [[noreturn]] void fail_without_match(const std::vector<std::string>& paths) const {
    const std::vector<std::string> near = tessera::detail::closest_matches(pattern_, paths);
    if (near.empty())
      fail(ErrorKind::invalid_argument, "capture",
           "\"{}\" given, and no module computed. Place the model with filter_shard, which stamps its paths, and open "
           "a ModuleScope in custom modules.",
           pattern_);
    fail(ErrorKind::invalid_argument, "capture",
         "\"{}\" given, expected the path of a module that computes. Nearest: {}.", pattern_, fmt::join(near, ", "));
  }

  std::string pattern_;
  ModuleDataflow flow_;
};

}  // namespace

CapturedArrays captured(std::string_view pattern, const std::function<std::vector<Array>()>& program) {
  Capture capture(pattern);
  return capture.outputs(program());
}

}  // namespace tessera::nn::detail
