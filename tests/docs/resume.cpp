// The program of docs/data.md that goes on where its last run stopped.
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include <tessera/data/batches.h>
#include <tessera/data/loader.h>

using namespace tessera;

int main() {
  const auto bytes = data::ByteSource::open({"books"}, {.extensions = {".txt"}});
  const auto tokens = data::windows(bytes, 257).shuffle(42).repeat();
  data::Loader loader(tokens, data::token_batch, {.batch_size = 32});

  if (std::ifstream saved("input.json"); saved) {
    const std::string text(std::istreambuf_iterator<char>(saved), {});
    loader.restore(data::LoaderState::from_json(text));
  }
  for (int step = 0; step < 100; ++step) {
    const data::TokenBatch batch = *loader.next();  // int32[32,256] twice: inputs, targets
    if (step == 0) std::cout << batch.inputs.value.type_string() << " from epoch " << loader.progress().epoch << "\n";
  }
  std::ofstream("input.json") << loader.state().to_json();  // the next run goes on with batch 100
}
