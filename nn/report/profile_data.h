// ProcessProfile: what one process did in the steps of a profile, as nested slices of time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::nn::detail {

// The use of a slice of time. program: everything else, which is the host's own work.
enum class TimePart : uint8_t { computation, collectives, input, device, program };
enum class Pass : uint8_t { forward, backward, recomputation, update };
const char* name_of(TimePart part);
const char* name_of(Pass pass);

// Moments are nanoseconds of the process's steady clock. Texts are numbers in ProcessProfile::texts.
struct Slice {
  int64_t begin = 0, end = 0;
  TimePart part = TimePart::computation;
  Pass pass = Pass::forward;
  int name = 0, module = 0, file = 0, line = 0;
  bool is_scope = false;  // of a whole pass, which contains operations
  int parent = -1;
  int64_t alone = 0;  // of its time, what no slice in it has
};

// A collective. The program went on no further without it from `awaited` to `arrived`.
struct Transfer {
  int64_t begin = 0, awaited = 0, arrived = 0;
  Pass pass = Pass::forward;
  int kind = 0, axes = 0, operation = 0, path = 0, reason = 0, file = 0, line = 0;
  int64_t bytes = 0, devices = 1;
};

// The first slice is the step itself, the others are in the order of their begins. Their times alone add up to it.
struct StepSlices {
  std::vector<Slice> slices;
  std::vector<Transfer> transfers;
  std::vector<int> waits;      // of each transfer, the slice of the wait for it; -1 if there is none in this step
  std::vector<int> consumers;  // and the operation that it brought an operand to; -1 if that is not known

  int64_t duration() const { return slices[0].end - slices[0].begin; }
};

// Nests the slices of a step, which come in any order, and finds the passes of inner slices. A slice that extends
// beyond the slice around it begins where that one ends.
StepSlices nested(const Slice& step, std::vector<Slice> slices, std::vector<Transfer> transfers);

struct ProcessProfile {
  int process = 0;
  int64_t clock_ahead = 0;  // nanoseconds, of the clock of process 0
  int64_t clock_error = 0;  // at most this far from it
  std::vector<std::string> texts = {""};
  std::vector<StepSlices> steps;

  int number_of(std::string_view text);
  const std::string& text(int number) const { return texts[static_cast<size_t>(number)]; }
  // "matmul", "all_reduce for sum"
  std::string label(const Transfer& transfer) const { return text(transfer.kind) + " for " + text(transfer.operation); }

 private:
  std::map<std::string, int, std::less<>> numbers_;
};

// A profile as a text for another process, and the profile that `process` has sent. Error (other), which names the
// process, if the text is not of that form or has an index outside what it refers to.
std::string packed(const ProcessProfile& profile);
ProcessProfile unpacked(std::string_view text, int process);

}  // namespace tessera::nn::detail
