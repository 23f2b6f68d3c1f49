// Fuzzes the loader's state: the text is rejected with invalid_file, or the state round-trips.
#include "data/loader/loader_state.h"
#include "sharding/base/error.h"
#include "tests/fuzz/scratch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace tessera;
  try {
    const auto state = data::LoaderState::from_json(fuzz::text_of(bytes, size));
    if (data::LoaderState::from_json(state.to_json()) != state || state.global_next_index < 0) std::abort();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid_file) std::abort();
  }
  return 0;
}
