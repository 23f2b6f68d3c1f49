// Records values, the modules that make them, and the modules that read them.
#include "nn/report/dataflow.h"

#include <algorithm>

#include "nn/report/activations.h"
#include "sharding/base/caller.h"
#include "sharding/base/text.h"

namespace tessera::nn::detail {

namespace {

// Returns true for parameters, and for arrays that are computed from parameters alone.
bool is_weight(const ArrayImpl& x) { return x.weight || tessera::detail::is_tape_parameter(x); }

const c10::StorageImpl* memory_of(const ArrayImpl& x) { return x.local[0].storage().unsafeGetStorageImpl(); }

void add_once(std::vector<size_t>& numbers, size_t number) {
  if (std::find(numbers.begin(), numbers.end(), number) == numbers.end()) numbers.push_back(number);
}

}  // namespace

std::vector<std::string> modules_around(const std::string& module) {
  std::vector<std::string> all{module};
  while (!all.back().empty()) {
    const size_t dot = all.back().rfind('.');
    all.push_back(dot == std::string::npos ? "" : all.back().substr(0, dot));
  }
  return all;
}

std::string path_in(const tessera::detail::Text& module) { return module ? *module : ""; }

std::string common_module(const std::string& paths) {
  if (paths.find(" and ") != std::string::npos) return "";
  const std::vector<std::string_view> all = tessera::detail::split_text(paths, ", ");
  const std::vector<std::string> modules = modules_around(std::string(all[0]));
  return *std::find_if(modules.begin(), modules.end(), [&](const std::string& module) {
    return std::all_of(all.begin(), all.end(), [&](std::string_view path) { return is_below(path, module); });
  });
}

ModuleDataflow::ModuleDataflow(std::function<bool(const std::string&)> keeps) : keeps_(std::move(keeps)) {}

void ModuleDataflow::add(std::optional<std::string> maker, const Array& x) {
  if (x.is_absent() || is_weight(*x.impl())) return;
  const ArrayImpl& a = *x.impl();
  const size_t number = values_.size();
  values_.push_back({a.type, std::move(maker), x.impl()});
  Value& value = values_.back();
  by_array_[&a] = number;
  if (a.is_ready()) {
    value.memory = a.local[0].storage().getWeakStorageImpl();
    by_memory_[{memory_of(a), a.type}] = number;
  }
  if (!value.maker) return;
  if (keeps_ && keeps_(*value.maker)) value.kept = x;
  for (const std::string& module : modules_around(*value.maker)) ends_[module].last = number;
}

void ModuleDataflow::begin(const Array& argument) { add(std::nullopt, argument); }
void ModuleDataflow::computed(const tessera::detail::OperationCall& call,
                              const tessera::detail::OperationArrays& arrays) {
  const std::string module = path_in(call.module);
  for (const ArrayImpl* x : arrays.given) read(module, *x);
  for (const Array& x : arrays.results) add(module, x);
}

void ModuleDataflow::moved(const ArrayImpl& from, const Array& to) {
  if (to.impl().get() == &from) return;
  const std::string module = path_in(tessera::detail::current_module_path());
  read(module, from);
  add(module, to);
}

std::optional<size_t> ModuleDataflow::find(const ArrayImpl& x) const {
  if (const auto known = by_array_.find(&x); known != by_array_.end()) return known->second;
  if (!x.is_ready()) return std::nullopt;
  const auto known = by_memory_.find({memory_of(x), x.type});
  return known == by_memory_.end() ? std::nullopt : std::optional(known->second);
}

void ModuleDataflow::read(const std::string& module, const ArrayImpl& x) {
  const std::optional<size_t> number = is_weight(x) ? std::nullopt : find(x);
  if (!number) return;
  const std::optional<std::string>& maker = values_[*number].maker;
  for (const std::string& reader : modules_around(module))
    if (!maker || !is_below(*maker, reader)) add_once(ends_[reader].inputs, *number);
  if (!maker) return;
  for (const std::string& made_in : modules_around(*maker))
    if (!is_below(module, made_in)) add_once(ends_[made_in].outputs, *number);
}

void ModuleDataflow::returned(const Array& x) {
  const std::optional<size_t> number = x.is_absent() ? std::nullopt : find(*x.impl());
  if (!number || !values_[*number].maker) return;
  for (const std::string& module : modules_around(*values_[*number].maker)) add_once(ends_[module].outputs, *number);
}

std::map<std::string, ModuleDataflow::Ends> ModuleDataflow::ends() const {
  std::map<std::string, Ends> all = ends_;
  for (auto& [module, ends] : all)
    if (ends.outputs.empty() && ends.last) ends.outputs.push_back(*ends.last);
  return all;
}

}  // namespace tessera::nn::detail
