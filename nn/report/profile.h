// Profile: the time of training steps by module, operation, source line and pass, and the time of each wait.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nn/report/profile_data.h"
#include "nn/transformations/eval_shape.h"
#include "nn/tree/tree_summary.h"
#include "sharding/accounting/forecast.h"
#include "sharding/placement/mesh.h"

namespace tessera::nn {

// Selects the rows of a profile's table. The rows of `part`: the computation of each pass; the waits for collectives,
// for input and for the device; and "program", the rest of the step.
enum class ProfileBy { part, pass, module, operation, line };

// A row of a profile. Seconds are averages per step and process.
struct ProfileRow {
  std::string name;
  double num_calls = 0;  // per step
  double seconds = 0;    // time that no other row counts: all rows add up to the step
  double whole = 0;      // for a module, including all modules in it; otherwise equal to `seconds`
};

// Properties of a step that the profile cannot measure; 0: not known.
struct ProfileOptions {
  double flops = 0;                  // operations of one device in a step: flops_per_device
  double peak_flops_per_second = 0;  // peak of one device, as specified by its maker or measured
};

// Measurements of a Profile, of this process or of all processes.
class ProfileReport {
 public:
  ProfileReport(std::vector<detail::ProcessProfile> processes, const ProfileOptions& options);

  int64_t steps() const;
  // Returns the mean time of a step over steps and processes.
  double step_seconds() const;
  // Returns rows, most seconds first. Parts are in their own order and complete.
  std::vector<ProfileRow> by(ProfileBy key) const;
  // Returns the time of steps that no row accounts for, of all processes; nonzero only if the profile has a bug.
  double residual_seconds() const;
  // Returns the model flops utilization, flops / (step_seconds * peak_flops_per_second); 0 if one of them is not known.
  double mfu() const;

  // Returns tables of parts, modules, operations and lines, with at most `max_rows` rows each. Modules of repeated
  // layers share one row, layers.{0..11}.mlp.
  std::string to_text(size_t max_rows = 15) const;
  std::string to_markdown(size_t max_rows = 15) const;
  // Returns {"steps", "step_seconds": {"mean", "least", "most"}, "residual_seconds", "flops", "mfu" (null if not
  // known), "parts": [{"name", "calls", "seconds", "whole"}], "passes", "modules", "operations", "lines", "processes":
  // [{"process", "step_seconds": [...], "parts": {name: seconds}, "clock_ahead", "clock_error"}]}
  std::string to_json() const;
  // Returns a trace for chrome://tracing or Perfetto. Each process is a process of the trace, on the clock of process
  // 0. It has a track of its program, with operations inside steps, and a track of collectives per set of mesh axes. A
  // flow connects a collective to the wait for it and, if known, to the operation that reads its result.
  std::string chrome_trace() const;

  const std::vector<detail::ProcessProfile>& processes() const& { return processes_; }
  std::vector<detail::ProcessProfile> processes() && { return std::move(processes_); }

 private:
  std::vector<detail::ProcessProfile> processes_;
  ProfileOptions options_;
};

// Measures the work of this thread between construction and destruction, step by step:
//   nn::Profile profile;
//   for (int i = 0; i < 5; ++i) {
//     const auto [loss, grads] = nn::value_and_grad(loss_fn)(model, *loader.next());
//     optimizer.update(model, grads);
//     profile.step();
//   }
//   std::cout << profile.report();
// Times are wall-clock times of the calling thread. While the thread pool computes a call's blocks, the thread waits,
// and the time counts for the call. On an accelerator, an operation has the time of its launch, and the end of each
// step waits for the accelerator ("device"). The first two steps of a program plan, allocate and record: measure later
// ones. The program's own part includes the library's work on plans and graphs, and the profile's: about one
// microsecond per operation.
class Profile {
 public:
  explicit Profile(const ProfileOptions& options = {});
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  // Ends a step, which began at the end of the previous one or at begin_step.
  void step();
  // Begins a step: time since the previous one belongs to no step.
  void begin_step();

  // Returns the report of this process. Error (invalid_argument): no step has ended.
  ProfileReport report() const;
  // Returns the report of all processes, on each of them. All must call it together. Clocks are compared by a few
  // rounds of messages: a time of another process differs from process 0's by at most clock_error.
  ProfileReport gather() const;

 private:
  class Recorder;
  std::unique_ptr<Recorder> recorder_;
  ProfileOptions options_;
};

// Returns the peak bytes of this process; 0: not known. On accelerators, it counts the bytes of tensors on the mesh's
// device, as reported by LibTorch's allocator. On a CPU, it counts the resident memory of the complete process.
int64_t peak_bytes(const Mesh& mesh);

// Returns the floating point operations of f(args...) on one device, counted as in Forecast: f is called with arrays
// that have no data, as by eval_shape.
//   const double flops = nn::flops_per_device(nn::value_and_grad(loss_fn), model, batch);
template <class F, class... Args>
double flops_per_device(const F& f, const Args&... args) {
  const Forecast forecast;
  eval_shape(f, args...);
  return forecast.flops();
}

}  // namespace tessera::nn
