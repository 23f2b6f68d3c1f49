// ProfileReport: rows by part, pass, module, operation or line, as text, Markdown and JSON.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <map>

#include "nn/placement/paths.h"
#include "nn/report/profile.h"
#include "sharding/base/caller.h"
#include "sharding/base/table.h"

namespace tessera::nn {

using namespace detail;
using tessera::detail::Table;

namespace {

namespace json = boost::json;

constexpr double seconds_of(int64_t nanoseconds) { return 1e-9 * static_cast<double>(nanoseconds); }

constexpr const char* part_names[] = {"forward",     "backward", "recomputation", "update",
                                      "collectives", "input",    "device",        "program"};

std::string part_of(const Slice& slice) {
  return slice.part == TimePart::computation ? name_of(slice.pass) : name_of(slice.part);
}

bool is_step(const Slice& slice) { return slice.parent < 0; }

// Returns the name of the row in which a slice counts.
class Names {
 public:
  Names(const std::vector<ProcessProfile>& processes, ProfileBy key) : key_(key) {
    std::vector<std::string> files;
    for (const ProcessProfile& p : processes)
      for (const StepSlices& step : p.steps)
        for (const Slice& slice : step.slices) files.push_back(p.text(slice.file));
    if (key == ProfileBy::line) short_ = tessera::detail::short_names(files);
  }

  std::string of(const ProcessProfile& profile, const Slice& slice) const {
    if (key_ == ProfileBy::part) return part_of(slice);
    if (key_ == ProfileBy::module) return slice.module ? profile.text(slice.module) : "outside of modules";
    if (is_step(slice)) return name_of(TimePart::program);
    if (key_ == ProfileBy::pass) return name_of(slice.pass);
    if (key_ == ProfileBy::operation || !slice.file) return profile.text(slice.name);
    return tessera::detail::line_name(short_.at(profile.text(slice.file)), static_cast<uint32_t>(slice.line));
  }

 private:
  ProfileBy key_;
  std::map<std::string, std::string> short_;
};

// Adds a module's time to the modules that contain it.
void add_to_outer_modules(std::map<std::string, ProfileRow>& rows) {
  for (const auto& [name, row] : std::map<std::string, ProfileRow>(rows))
    for (size_t dot = name.rfind('.'); dot != std::string::npos && dot > 0; dot = name.rfind('.', dot - 1)) {
      ProfileRow& outer = rows[name.substr(0, dot)];
      outer.name = name.substr(0, dot);
      outer.whole += row.seconds;
    }
}

std::vector<ProfileRow> sorted(const std::map<std::string, ProfileRow>& rows, ProfileBy key) {
  std::vector<ProfileRow> all;
  if (key == ProfileBy::part) {
    for (const char* name : part_names) {
      const auto found = rows.find(name);
      all.push_back(found == rows.end() ? ProfileRow{name} : found->second);
    }
    return all;
  }
  for (const auto& [name, row] : rows) all.push_back(row);
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.whole > b.whole; });
  return all;
}

std::vector<ProfileRow> rows_of(const std::vector<ProcessProfile>& processes, ProfileBy key) {
  const Names names(processes, key);
  std::map<std::string, ProfileRow> rows;
  double steps = 0;
  for (const ProcessProfile& p : processes) steps += static_cast<double>(p.steps.size());
  for (const ProcessProfile& p : processes)
    for (const StepSlices& step : p.steps)
      for (const Slice& slice : step.slices) {
        ProfileRow& row = rows[names.of(p, slice)];
        row.num_calls += !is_step(slice) / steps;
        row.seconds += seconds_of(slice.alone) / steps;
      }
  for (auto& [name, row] : rows) row.name = name, row.whole = row.seconds;
  if (key == ProfileBy::module) add_to_outer_modules(rows);
  return sorted(rows, key);
}

struct Range {
  double mean = 0, least = 0, most = 0;
};

Range range_of(const std::vector<ProcessProfile>& processes) {
  std::vector<double> seconds;
  for (const ProcessProfile& p : processes)
    for (const StepSlices& step : p.steps) seconds.push_back(seconds_of(step.duration()));
  const auto [least, most] = std::minmax_element(seconds.begin(), seconds.end());
  double sum = 0;
  for (const double s : seconds) sum += s;
  return {sum / static_cast<double>(seconds.size()), *least, *most};
}

}  // namespace

ProfileReport::ProfileReport(std::vector<ProcessProfile> processes, const ProfileOptions& options)
    : processes_(std::move(processes)), options_(options) {}

int64_t ProfileReport::steps() const { return std::ssize(processes_[0].steps); }
double ProfileReport::step_seconds() const { return range_of(processes_).mean; }
std::vector<ProfileRow> ProfileReport::by(ProfileBy key) const { return rows_of(processes_, key); }

double ProfileReport::residual_seconds() const {
  int64_t rest = 0;
  for (const ProcessProfile& p : processes_)
    for (const StepSlices& step : p.steps) {
      rest += step.duration();
      for (const Slice& slice : step.slices) rest -= slice.alone;
    }
  return seconds_of(rest);
}

double ProfileReport::mfu() const {
  if (!(options_.flops > 0 && options_.peak_flops_per_second > 0)) return 0;
  return options_.flops / (step_seconds() * options_.peak_flops_per_second);
}

// ---- text and Markdown

namespace {

std::string ms(double seconds) { return fmt::format("{:.3f}", 1e3 * seconds); }

std::string printed(const Table& table, bool markdown) { return markdown ? table.to_markdown() : table.to_text(); }

// Shows modules of repeated layers as one row.
std::vector<ProfileRow> folded(const std::vector<ProfileRow>& rows) {
  std::vector<std::string> paths;
  for (const ProfileRow& row : rows) paths.push_back(row.name);
  std::vector<ProfileRow> result;
  for (const Folded& f : fold_paths(paths, std::vector<std::string>(rows.size()))) {
    ProfileRow& sum = result.emplace_back(ProfileRow{f.path});
    for (const size_t i : f.members)
      sum.num_calls += rows[i].num_calls, sum.seconds += rows[i].seconds, sum.whole += rows[i].whole;
  }
  std::stable_sort(result.begin(), result.end(), [](const auto& a, const auto& b) { return a.whole > b.whole; });
  return result;
}

std::string table_by(const char* title, std::vector<ProfileRow> rows, double step, size_t max_rows, bool markdown) {
  Table table({title, "calls/step", "ms/step", "with inner", "%"}, "<gff%");
  const bool has_inner = std::any_of(rows.begin(), rows.end(), [](const auto& r) { return r.whole != r.seconds; });
  if (rows.size() > max_rows + 1) {
    ProfileRow rest{fmt::format("{} others", rows.size() - max_rows)};
    for (size_t i = max_rows; i < rows.size(); ++i)
      rest.num_calls += rows[i].num_calls, rest.seconds += rows[i].seconds, rest.whole += rows[i].seconds;
    rows.resize(max_rows);
    rows.push_back(rest);
  }
  for (const ProfileRow& row : rows) table.add({row.name, row.num_calls, row.seconds, row.whole, row.seconds / step});
  if (!has_inner) table.drop("with inner");
  return printed(table, markdown);
}

// Lists each part, with the minimum and maximum over processes if there are several.
std::string parts_of(const std::vector<ProcessProfile>& processes, double step, double residual, bool markdown) {
  std::vector<std::vector<ProfileRow>> each;
  for (const ProcessProfile& p : processes) each.push_back(rows_of({p}, ProfileBy::part));
  Table table({"part", "ms/step", "least", "most", "%"}, "<fff%");
  const std::vector<ProfileRow> means = rows_of(processes, ProfileBy::part);
  for (size_t r = 0; r < means.size(); ++r) {
    double least = each[0][r].seconds, most = least;
    for (const auto& rows : each) least = std::min(least, rows[r].seconds), most = std::max(most, rows[r].seconds);
    table.add({means[r].name, means[r].seconds, least, most, means[r].seconds / step});
  }
  const Range range = range_of(processes);
  table.add({"step", range.mean, range.least, range.most, range.mean / step});
  table.add({"residual", residual, residual, residual, residual / step});
  if (processes.size() == 1) table.drop("least"), table.drop("most");
  return printed(table, markdown);
}

std::string heading_of(const ProfileReport& report, const ProfileOptions& options) {
  const Range range = range_of(report.processes());
  std::string text = fmt::format("{} of {} ms ({} to {})", tessera::detail::counted(report.steps(), "step"),
                                 ms(range.mean), ms(range.least), ms(range.most));
  int64_t error = 0;
  for (const ProcessProfile& p : report.processes()) error = std::max(error, p.clock_error);
  if (report.processes().size() > 1)
    text += fmt::format(" on {} processes, whose clocks are known to {:.3g} us", report.processes().size(),
                        1e-3 * static_cast<double>(error));
  if (options.flops > 0) text += fmt::format("; {:.3g} GFLOP/s a device", 1e-9 * options.flops / report.step_seconds());
  if (report.mfu() > 0) text += fmt::format(", MFU {:.1f} %", 100 * report.mfu());
  return text + "\n";
}

std::string text_of(const ProfileReport& report, const ProfileOptions& options, size_t max_rows, bool markdown) {
  const double step = report.step_seconds();
  const auto by = [&](const char* title, const std::vector<ProfileRow>& rows) {
    return "\n" + table_by(title, rows, step, max_rows, markdown);
  };
  return heading_of(report, options) + "\n" + parts_of(report.processes(), step, report.residual_seconds(), markdown) +
         by("module", folded(report.by(ProfileBy::module))) + by("operation", report.by(ProfileBy::operation)) +
         by("line", report.by(ProfileBy::line));
}

json::array array_of(const std::vector<ProfileRow>& rows) {
  json::array all;
  for (const ProfileRow& row : rows)
    all.push_back({{"name", row.name}, {"calls", row.num_calls}, {"seconds", row.seconds}, {"whole", row.whole}});
  return all;
}

json::object object_of(const ProcessProfile& profile) {
  json::array seconds;
  json::object parts;
  for (const StepSlices& step : profile.steps) seconds.push_back(seconds_of(step.duration()));
  for (const ProfileRow& row : rows_of({profile}, ProfileBy::part)) parts[row.name] = row.seconds;
  return {{"process", profile.process},
          {"step_seconds", std::move(seconds)},
          {"parts", std::move(parts)},
          {"clock_ahead", seconds_of(profile.clock_ahead)},
          {"clock_error", seconds_of(profile.clock_error)}};
}

}  // namespace

std::string ProfileReport::to_text(size_t max_rows) const { return text_of(*this, options_, max_rows, false); }
std::string ProfileReport::to_markdown(size_t max_rows) const { return text_of(*this, options_, max_rows, true); }

std::string ProfileReport::to_json() const {
  const Range range = range_of(processes_);
  json::array processes;
  for (const ProcessProfile& p : processes_) processes.push_back(object_of(p));
  const auto known = [](double value) { return value > 0 ? json::value(value) : json::value(nullptr); };
  return json::serialize(
             json::object{{"steps", steps()},
                          {"step_seconds", {{"mean", range.mean}, {"least", range.least}, {"most", range.most}}},
                          {"residual_seconds", residual_seconds()},
                          {"flops", known(options_.flops)},
                          {"mfu", known(mfu())},
                          {"parts", array_of(by(ProfileBy::part))},
                          {"passes", array_of(by(ProfileBy::pass))},
                          {"modules", array_of(by(ProfileBy::module))},
                          {"operations", array_of(by(ProfileBy::operation))},
                          {"lines", array_of(by(ProfileBy::line))},
                          {"processes", std::move(processes)}}) +
         "\n";
}

}  // namespace tessera::nn
