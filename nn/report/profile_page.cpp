// One step of a profile for the page of a report, small enough to be sent.
#include "nn/report/profile_page.h"

#include <algorithm>
#include <boost/json.hpp>
#include <map>

namespace tessera::nn::detail {
namespace {

namespace json = boost::json;

constexpr size_t max_processes = 8, max_slices = 3000, max_rows = 200;

size_t median_step(const ProcessProfile& profile) {
  std::vector<size_t> order(profile.steps.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto middle = order.begin() + static_cast<ptrdiff_t>((order.size() - 1) / 2);
  std::nth_element(order.begin(), middle, order.end(),
                   [&](size_t a, size_t b) { return profile.steps[a].duration() < profile.steps[b].duration(); });
  return *middle;
}

// To a tenth of a microsecond.
double rounded_seconds(int64_t nanoseconds) { return 1e-7 * static_cast<double>((nanoseconds + 50) / 100); }

json::array rows_of(const std::vector<ProfileRow>& rows) {
  json::array all;
  for (size_t i = 0; i < std::min(rows.size(), max_rows); ++i)
    all.push_back(json::array{rows[i].name, rows[i].num_calls, rows[i].seconds, rows[i].whole});
  return all;
}

// Texts of several processes, each once.
class Texts {
 public:
  int number_of(const std::string& text) {
    const auto [place, fresh] = numbers_.emplace(text, static_cast<int>(texts_.size()));
    if (fresh) texts_.emplace_back(text);
    return place->second;
  }
  json::array take() { return std::move(texts_); }

 private:
  std::map<std::string, int> numbers_;
  json::array texts_;
};

std::vector<int> depths_of(const std::vector<Slice>& slices) {
  std::vector<int> depths(slices.size());
  for (size_t i = 1; i < slices.size(); ++i) depths[i] = 1 + depths[static_cast<size_t>(slices[i].parent)];
  return depths;
}

// The shortest that is kept.
int64_t least_duration(const std::vector<Slice>& slices) {
  if (slices.size() <= max_slices) return 0;
  std::vector<int64_t> durations;
  for (const Slice& s : slices) durations.push_back(s.end - s.begin);
  std::nth_element(durations.begin(), durations.begin() + max_slices, durations.end(), std::greater());
  return durations[max_slices] + 1;
}

int part_number(const Slice& slice) {
  return slice.part == TimePart::computation ? static_cast<int>(slice.pass) : 3 + static_cast<int>(slice.part);
}

json::object step_of(const ProcessProfile& profile, const StepSlices& step, int64_t origin, Texts& texts) {
  json::array slices, transfers;
  const std::vector<int> depths = depths_of(step.slices);
  const int64_t least = least_duration(step.slices);
  for (size_t i = 1; i < step.slices.size(); ++i) {
    const Slice& s = step.slices[i];
    if (s.end - s.begin < least) continue;
    slices.push_back(json::array{rounded_seconds(s.begin - origin), rounded_seconds(s.end - s.begin), depths[i] - 1,
                                 part_number(s), texts.number_of(profile.text(s.name)),
                                 texts.number_of(profile.text(s.module)), texts.number_of(profile.text(s.file)),
                                 s.line});
  }
  for (const Transfer& t : step.transfers)
    transfers.push_back(json::array{rounded_seconds(t.begin - origin), rounded_seconds(t.arrived - t.begin),
                                    rounded_seconds(t.arrived - t.awaited), texts.number_of(profile.text(t.kind)),
                                    texts.number_of(profile.label(t)), texts.number_of(profile.text(t.axes)),
                                    texts.number_of(profile.text(t.path)), t.bytes});
  return {{"process", profile.process},
          {"seconds", rounded_seconds(step.duration())},
          {"slices", std::move(slices)},
          {"transfers", std::move(transfers)}};
}

}  // namespace

json::object page_of(const ProfileReport& report) {
  Texts texts;
  json::array processes;
  const std::vector<ProcessProfile>& all = report.processes();
  const size_t number = median_step(all[0]);
  const int64_t origin = all[0].steps[number].slices[0].begin;
  for (size_t p = 0; p < std::min(all.size(), max_processes); ++p)
    if (number < all[p].steps.size())
      processes.push_back(step_of(all[p], all[p].steps[number], origin + all[p].clock_ahead, texts));
  return {{"seconds", report.step_seconds()},
          {"steps", report.steps()},
          {"mfu", report.mfu()},
          {"parts", rows_of(report.by(ProfileBy::part))},
          {"modules", rows_of(report.by(ProfileBy::module))},
          {"operations", rows_of(report.by(ProfileBy::operation))},
          {"lines", rows_of(report.by(ProfileBy::line))},
          {"texts", texts.take()},
          {"processes", std::move(processes)}};
}

}  // namespace tessera::nn::detail
