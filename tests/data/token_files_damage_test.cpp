// Token files written by numpy, with random damage: reading returns only tokens of the file, or throws one Error.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "data/sources/token_files.h"
#include "sharding/base/error.h"
#include "tests/data/scratch_folder.h"

namespace tessera::data::token_files_damage_test {
namespace {

std::string bytes_of(const std::string& name) {
  std::ifstream in(TESSERA_REFERENCE_DIR "/token_files/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Changes or removes a few bytes, most of them among the first `header` bytes.
std::string damaged(std::string bytes, size_t header, std::mt19937& random) {
  for (int changes = 1 + static_cast<int>(random() % 3); changes > 0; --changes) {
    const size_t at = random() % std::min(random() % 8 ? header : bytes.size(), bytes.size());
    if (random() % 2)
      bytes[at] = static_cast<char>(random());
    else
      bytes.erase(at, random() % 4);
  }
  return bytes;
}

TEST(DamagedTokenFiles, AreReadRightlyOrErrors) {
  const ScratchFolder folder;
  const std::string tokens = bytes_of("megatron.bin");
  const struct {
    std::string bytes;
    size_t header;
    bool is_index;
  } cases[] = {{bytes_of("llm_c_gpt2.bin"), 14, false},
               {bytes_of("u2_version_1.npy"), 128, false},
               {bytes_of("megatron.idx"), 134, true}};
  std::mt19937 random(1);
  int opened = 0;
  for (int i = 0; i < 3000; ++i) {
    const auto& [bytes, header, is_index] = cases[i % 3];
    const std::string changed = damaged(bytes, header, random);
    folder.write("x.bin", is_index ? tokens : changed);
    if (is_index) folder.write("x.idx", changed);
    try {
      const auto files = TokenFiles::open({folder.path("x.bin")});
      ++opened;
      std::vector<int32_t> all(static_cast<size_t>(files.size()));
      files.read(0, all);
      EXPECT_LE(all.size(), std::max(tokens.size(), changed.size()));
      if (!files.knows_documents()) continue;
      std::vector<int32_t> joined;
      const TokenDocuments documents(files);
      for (int64_t d = 0; d < documents.size(); ++d)
        for (const int32_t token : documents[d]) joined.push_back(token);
      EXPECT_EQ(joined, all);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_file) << error.what();
    }
    std::filesystem::remove(folder.path("x.idx"));
  }
  EXPECT_GT(opened, 100);
  EXPECT_LT(opened, 2900);
}

}  // namespace
}  // namespace tessera::data::token_files_damage_test
