// Fuzzes scalars of a checkpoint: the text is rejected with invalid_file, or the value round-trips.
#include "nn/tree/tree_scalars.h"
#include "sharding/base/error.h"
#include "tests/fuzz/scratch_file.h"

namespace {

template <class T>
void read(std::string_view text, tessera::nn::ScalarKind kind) {
  T value{}, again{};
  try {
    const tessera::nn::Scalar scalar{"input", kind, sizeof(T), &value}, copy{"written", kind, sizeof(T), &again};
    scalar.set_json(text);
    copy.set_json(scalar.to_json());
    if (copy.to_json() != scalar.to_json()) std::abort();
  } catch (const tessera::Error& error) {
    if (error.kind() != tessera::ErrorKind::invalid_file) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using tessera::nn::ScalarKind;
  const std::string_view text = tessera::fuzz::text_of(data, size);
  read<int8_t>(text, ScalarKind::integer);
  read<int64_t>(text, ScalarKind::integer);
  read<float>(text, ScalarKind::floating);
  read<double>(text, ScalarKind::floating);
  read<bool>(text, ScalarKind::boolean);
  read<std::string>(text, ScalarKind::text);
  return 0;
}
