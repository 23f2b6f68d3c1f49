// ProcessProfile: the work of one process in the steps of a profile, as nested slices of time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::nn::detail {

// The use of a slice of time. Waiting for a batch is `input`, waiting for an accelerator `device`, and all other work
// of the host `program`.
enum class TimePart : uint8_t { computation, collectives, input, device, program };
enum class Pass : uint8_t { forward, backward, recomputation, update };
const char* name_of(TimePart part);
const char* name_of(Pass pass);

// Times are nanoseconds of the process's steady clock. Texts are indices into ProcessProfile::texts.
struct Slice {
  int64_t begin = 0, end = 0;
  TimePart part = TimePart::computation;
  Pass pass = Pass::forward;
  int name = 0, module = 0, file = 0, line = 0;
  bool is_scope = false;  // covers a complete pass, which contains operations
  int parent = -1;
  int64_t alone = 0;  // its time that no inner slice covers
};

// A collective. The program waited for it from `awaited` to `arrived`.
struct Transfer {
  int64_t begin = 0, awaited = 0, arrived = 0;
  Pass pass = Pass::forward;
  int kind = 0, axes = 0, operation = 0, path = 0, reason = 0, file = 0, line = 0;
  int64_t bytes = 0, devices = 1;
};

// Slices of one step. The first is the step itself, the others are in the order of their begins. Their `alone` times
// add up to the step.
struct StepSlices {
  std::vector<Slice> slices;
  std::vector<Transfer> transfers;
  std::vector<int> waits;      // per transfer, the slice of the wait for it; -1 if this step has none
  std::vector<int> consumers;  // per transfer, the operation that reads its result; -1 if not known

  int64_t duration() const { return slices[0].end - slices[0].begin; }
};

// Nests the slices of a step, which come in any order, and finds the passes of inner slices. If a slice extends beyond
// the slice that contains its begin, it is changed to begin where that slice ends.
StepSlices nested(const Slice& step, std::vector<Slice> slices, std::vector<Transfer> transfers);

struct ProcessProfile {
  int process = 0;
  int64_t clock_ahead = 0;  // nanoseconds ahead of the clock of process 0
  int64_t clock_error = 0;  // maximum error of clock_ahead
  std::vector<std::string> texts = {""};
  std::vector<StepSlices> steps;

  int number_of(std::string_view text);
  const std::string& text(int number) const { return texts[static_cast<size_t>(number)]; }
  // Returns, for example, "all_reduce for sum".
  std::string label(const Transfer& transfer) const { return text(transfer.kind) + " for " + text(transfer.operation); }

 private:
  std::map<std::string, int, std::less<>> numbers_;
};

// Convert a profile to a text for another process, and back to the profile that `process` has sent. Error (other),
// which names the process: the text does not have that form, or has an index out of range.
std::string packed(const ProcessProfile& profile);
ProcessProfile unpacked(std::string_view text, int process);

}  // namespace tessera::nn::detail
