// The code of docs/data.md: records of a custom type, and text in windows on a mesh.
#include <filesystem>
#include <fstream>
#include <iostream>

#include <tessera/data/batches.h>
#include <tessera/data/sources.h>

using namespace tessera;

void write_books() {
  std::filesystem::create_directory("books");
  for (const char* name : {"books/a.txt", "books/b.txt"}) {
    std::ofstream book(name);
    for (int line = 0; line < 400; ++line) book << "It was line " << line << " of " << name << ".\n";
  }
}

void text(uint64_t seed) {
  // TokenBatch names its dims batch and seq.
  const MeshRules mesh_rules{make_mesh({{"data", 8}}), {{"batch", "data"}, {"seq", replicated}}};

  const auto source = data::ByteSource::open({"books"}, {.extensions = {".txt"}});
  const auto tokens = data::windows(source, 257).shuffle(seed).repeat();
  data::Loader loader = data::shard_batches(
      data::Loader(tokens, data::token_batch, {.batch_size = 32, .shard = data::ShardByProcess(mesh_rules)}),
      mesh_rules);
  for (const data::TokenBatch& batch : loader) {  // int32[32@data,256], placed ahead of use
    std::cout << batch.inputs.value.type_string() << '\n';
    if (loader.state().global_next_index >= 96) break;
  }
  std::cout << loader.state().to_json() << '\n';
}

namespace own {

using namespace data;

struct Example {
  std::vector<float> pixels;
  int32_t digit;
};
struct Batch {
  NamedArray pixels{"batch", "pixel"};
  NamedArray digit{"batch"};
};

Example read_example(int64_t i) { return {{0, 1, 2}, static_cast<int32_t>(i % 10)}; }

void records() {
  const auto examples = data::range(128).map(read_example).shuffle(0);
  Loader loader(examples, stack_as<Batch>, {.batch_size = 64});
  for (const Batch& batch : loader)
    std::cout << batch.pixels.value.type_string() << ' ' << batch.digit.value.type_string() << '\n';
}

}  // namespace own

int main() {
  write_books();
  text(5);
  own::records();
}
