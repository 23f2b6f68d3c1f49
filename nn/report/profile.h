// Profile: where the time of training steps goes, by module, operation, line and pass, and what it was waited for.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nn/report/profile_data.h"
#include "nn/transformations/eval_shape.h"
#include "sharding/accounting/forecast.h"
#include "sharding/placement/mesh.h"

namespace tessera::nn {

// Selects the rows of a profile's table. `part`: the computation of each pass, waits for collectives, for input and for
// the device, and the program, which is everything else.
enum class ProfileBy { part, pass, module, operation, line };

// A row of a profile. Seconds are those of one step of one process, on average.
struct ProfileRow {
  std::string name;
  double num_calls = 0;  // in a step
  double seconds = 0;  // that are of no other row: all rows add up to the step
  double whole = 0;    // of a module with all modules in it; else the same
};

// The step of a program in numbers that the profile cannot measure; 0: not known.
struct ProfileOptions {
  double flops = 0;                  // operations of one device in a step: flops_per_device
  double peak_flops_per_second = 0;  // of one device, by its maker's word or as measured
};

// The measurements of a Profile, of this process or of all processes.
class ProfileReport {
 public:
  ProfileReport(std::vector<detail::ProcessProfile> processes, const ProfileOptions& options);

  int64_t steps() const;
  // The mean of a step over steps and processes; the least and most of each.
  double step_seconds() const;
  // By most seconds first; parts in their order, and all of them.
  std::vector<ProfileRow> by(ProfileBy key) const;
  // A step that no row accounts for, of all processes; 0 but for a mistake of the profile's.
  double residual_seconds() const;
  // Model flops utilization: flops / (step_seconds * peak_flops_per_second); 0 if one of them is not known.
  double mfu() const;

  // Tables of parts, modules, operations and lines, with at most so many rows each; modules of repeated layers are one
  // row, layers.{0..11}.mlp.
  std::string to_text(size_t max_rows = 15) const;
  std::string to_markdown(size_t max_rows = 15) const;
  // {"steps", "step_seconds": {"mean", "least", "most"}, "residual_seconds", "flops", "mfu" (null if not known),
  // "parts": [{"name", "calls", "seconds", "whole"}], "passes", "modules", "operations", "lines",
  // "processes": [{"process", "step_seconds": [...], "parts": {name: seconds}, "clock_ahead", "clock_error"}]}
  std::string to_json() const;
  // A trace for chrome://tracing or Perfetto: a process for each process, on the clock of process 0, with a track of
  // its program, on which steps contain operations, and one for each set of mesh axes with its collectives. A flow
  // leads from a collective to the wait for it and, if known, to the operation that reads its result.
  std::string chrome_trace() const;

  const std::vector<detail::ProcessProfile>& processes() const& { return processes_; }
  std::vector<detail::ProcessProfile> processes() && { return std::move(processes_); }

 private:
  std::vector<detail::ProcessProfile> processes_;
  ProfileOptions options_;
};

// Prints to_text().
std::ostream& operator<<(std::ostream& out, const ProfileReport& report);

// Measures what this thread does between its construction and its destruction, step by step:
//   nn::Profile profile;
//   for (int i = 0; i < 5; ++i) {
//     const auto [loss, grads] = nn::value_and_grad(loss_fn)(model, *loader.next());
//     optimizer.update(model, grads);
//     profile.step();
//   }
//   std::cout << profile.report();
// Times are those of the calling thread by its clock; while workers compute a call's blocks, it waits for them and the
// call has the time. On an accelerator an operation has the time that it takes to be begun; the end of each step waits
// for the accelerator ("device"). The first two steps of a program plan, allocate and learn: measure later ones. The
// program's own part has the library's work on plans and graphs, and that of the profile: about a microsecond for an
// operation.
class Profile {
 public:
  explicit Profile(const ProfileOptions& options = {});
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  // A step ends here; it began where the one before ended, or at begin_step.
  void step();
  // A step begins here: what came since the last one is no part of any.
  void begin_step();

  // Returns the report of this process. Error (invalid_argument): no step has ended.
  ProfileReport report() const;
  // Returns the report of all processes, on each; all call it together. Clocks are compared by a few rounds of
  // messages: a moment of another process differs from process 0's by clock_error at most.
  ProfileReport gather() const;

 private:
  class Recorder;
  std::unique_ptr<Recorder> recorder_;
  ProfileOptions options_;
};

// Returns the most bytes that this process has had at once: on accelerators the bytes of tensors on the mesh's device,
// as LibTorch's allocator counts them; on a CPU the resident memory of the whole process. 0: not known.
int64_t peak_bytes(const Mesh& mesh);

// The floating point operations of f(args...) on one device, as a Forecast counts them: f is called with arrays that
// have no data, as by eval_shape.
//   const double flops = nn::flops_per_device(nn::value_and_grad(loss_fn), model, batch);
template <class F, class... Args>
double flops_per_device(const F& f, const Args&... args) {
  const Forecast forecast;
  eval_shape(f, args...);
  return forecast.flops();
}

}  // namespace tessera::nn
