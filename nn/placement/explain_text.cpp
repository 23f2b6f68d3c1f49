// An explanation as text and JSON.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <boost/json.hpp>
#include <ostream>

#include "nn/placement/explain.h"
#include "nn/placement/path_folding.h"
#include "sharding/base/table.h"

namespace tessera::nn {

using tessera::detail::with_commas;

namespace {

std::string names_of(const ExplainedArray& a) { return a.axes ? fmt::format("({}) ", fmt::join(*a.axes, ", ")) : ""; }

std::string dim_of(const ExplainedArray& a, int dim) {
  if (dim < 0) return "all dims";
  return fmt::format("dim {} = {}", dim, a.shape[dim]);
}

std::string line_of(const ExplainedArray& a, const RuleResolution::Decision& d) {
  if (d.matched) return fmt::format("    {}: {}\n", dim_of(a, d.dim), d.rule);
  return fmt::format("    {}: not {}: {}\n", dim_of(a, d.dim), d.rule, d.reason);
}

// All that an entry shows below its path.
std::string entry_of(const ExplainedArray& a) {
  std::string text = fmt::format("  {}{} {}: {}{}{}\n", names_of(a), name_of(a.dtype), to_string(a.shape),
                                 a.error.empty() ? a.spec.to_string() : "an error, below",
                                 a.stage.empty() ? "" : " on ", a.stage);
  for (const RuleResolution::Decision& d : a.decisions) text += line_of(a, d);
  if (a.error.empty() && a.decisions.empty()) text += "    no rule applies to it\n";
  return text;
}

// Lines of a section under its title; nothing without any.
std::string section(const std::string& title, const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  return fmt::format("\n{}\n  {}\n", title, fmt::join(lines, "\n  "));
}

// A line for each array that has one, repeated layers in one.
template <class LineOf>
std::vector<std::string> folded_lines(const std::vector<ExplainedArray>& arrays, LineOf line_of) {
  std::vector<std::string> paths, looks;
  for (const ExplainedArray& a : arrays)
    if (const std::string line = line_of(a); !line.empty()) paths.push_back(a.path), looks.push_back(line);
  std::vector<std::string> lines;
  for (const detail::Folded& f : detail::fold_paths(paths, looks)) lines.push_back(f.path + looks[f.members[0]]);
  return lines;
}

std::string whole_line(const ExplainedArray& a) {
  return fmt::format(": {} bytes on every device{}{}; {}", with_commas(a.bytes), a.stage.empty() ? "" : " of ", a.stage,
                     a.could_use.empty() ? "no mesh axis divides it"
                                         : fmt::format("could use \"{}\"", fmt::join(a.could_use, "\" or \"")));
}

boost::json::object to_object(const ExplainedArray& a) {
  boost::json::array decisions;
  for (const RuleResolution::Decision& d : a.decisions)
    decisions.push_back({{"dim", d.dim < 0 ? boost::json::value(nullptr) : boost::json::value(d.dim)},
                         {"rule", d.rule},
                         {"matched", d.matched},
                         {"reason", d.reason}});
  boost::json::object object{{"path", a.path}, {"axes", nullptr}};
  if (a.axes) object["axes"] = boost::json::array(a.axes->begin(), a.axes->end());
  object["shape"] = boost::json::array(a.shape.begin(), a.shape.end());
  object["dtype"] = name_of(a.dtype);
  object["bytes"] = a.bytes;
  object["spec"] = a.error.empty() ? boost::json::value(a.spec.to_string()) : boost::json::value(nullptr);
  object["stage"] = a.stage;
  object["error"] = a.error.empty() ? boost::json::value(nullptr) : boost::json::value(a.error);
  object["lies"] = a.lies ? boost::json::value(a.lies->to_string()) : boost::json::value(nullptr);
  object["whole"] = a.is_whole;
  object["could_use"] = boost::json::array(a.could_use.begin(), a.could_use.end());
  object["decisions"] = std::move(decisions);
  return object;
}

}  // namespace

std::string Explanation::to_text() const {
  std::vector<std::string> paths, looks, idle;
  for (const ExplainedArray& a : arrays_) paths.push_back(a.path), looks.push_back(entry_of(a));
  std::string text =
      fmt::format("{} on the mesh ({})\n\n", tessera::detail::counted(std::ssize(arrays_), "array"), mesh_);
  for (const detail::Folded& f : detail::fold_paths(paths, looks)) text += f.path + '\n' + looks[f.members[0]];
  for (const IdleRule& rule : idle_) idle.push_back(fmt::format("{}: {}", rule.rule, rule.reason));
  std::vector<std::string> errors;
  for (const ExplainedArray& a : arrays_)
    if (!a.error.empty()) errors.push_back(a.error);
  const auto elsewhere = folded_lines(arrays_, [](const ExplainedArray& a) {
    return a.lies ? fmt::format(": {}, the rules give {}", a.lies->to_string(), a.spec.to_string()) : "";
  });
  return text + section("Errors", errors) + section("Moved", elsewhere) + section("Rules that did nothing", idle) +
         section("Whole although large", folded_lines(large_whole(), whole_line));
}

std::string Explanation::to_json() const {
  boost::json::array arrays, idle, large;
  for (const ExplainedArray& a : arrays_) arrays.push_back(to_object(a));
  for (const IdleRule& rule : idle_) idle.push_back({{"rule", rule.rule}, {"reason", rule.reason}});
  for (const ExplainedArray& a : large_whole()) large.push_back(boost::json::value(a.path));
  return boost::json::serialize(boost::json::object{{"mesh", mesh_},
                                                    {"arrays", std::move(arrays)},
                                                    {"idle_rules", std::move(idle)},
                                                    {"large_whole", std::move(large)}});
}

std::ostream& operator<<(std::ostream& out, const Explanation& explanation) { return out << explanation.to_text(); }

}  // namespace tessera::nn
