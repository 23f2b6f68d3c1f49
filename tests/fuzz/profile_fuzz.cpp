// Fuzzes another process's profile: it is rejected with an Error, or it round-trips and its indices are valid.
#include "nn/report/profile_data.h"
#include "sharding/base/error.h"
#include "tests/fuzz/scratch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  try {
    const auto profile = nn::detail::unpacked(fuzz::text_of(data, size), 1);
    for (const auto& step : profile.steps) {
      for (const auto& slice : step.slices) profile.text(slice.name), name_of(slice.part), name_of(slice.pass);
      for (const auto& transfer : step.transfers) profile.label(transfer);
      for (const int wait : step.waits)
        if (wait < -1 || wait >= static_cast<int>(step.slices.size())) std::abort();
    }
    const std::string written = nn::detail::packed(profile);
    if (nn::detail::packed(nn::detail::unpacked(written, 1)) != written) std::abort();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::other) std::abort();
  }
  return 0;
}
