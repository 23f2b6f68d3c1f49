// Event files: an independent reader reads back the written events, and damage is detected.
#include "examples/train/event_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <span>

#include "sharding/files/file.h"
#include "tests/data/scratch_folder.h"
#include "tests/examples/event_reader.h"
#include "tests/sharding/expect_error.h"

namespace tessera::train::event_file_test {
namespace {

using namespace examples;

using data::ScratchFolder;

std::string only_file_in(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  EXPECT_EQ(files.size(), 1u);
  return files.at(0);
}

// Known values: the standard test vector, and RFC 3720, appendix B.4.
TEST(Crc32c, IsCastagnolis) {
  std::string up, down;
  for (int i = 0; i < 32; ++i) up += static_cast<char>(i), down += static_cast<char>(31 - i);
  for (const auto& [bytes, crc] : std::map<std::string, uint32_t>{{"", 0},
                                                                  {"123456789", 0xe3069283},
                                                                  {std::string(32, '\0'), 0x8a9136aa},
                                                                  {std::string(32, '\xff'), 0x62a8ab43},
                                                                  {up, 0x46dd794e},
                                                                  {down, 0x113fdb5c}}) {
    EXPECT_EQ(crc32c(std::as_bytes(std::span(bytes))), crc);
    EXPECT_EQ(bitwise_crc32c(bytes), crc);
  }
}

TEST(TfRecord, FramesItsData) {
  const std::string record = tf_record("data");
  ASSERT_EQ(record.size(), 8u + 4 + 4 + 4);
  EXPECT_EQ(record.substr(0, 8), std::string("\4\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(record.substr(12, 4), "data");
}

TEST(EventFile, IsReadBackAsItWasWritten) {
  ScratchFolder scratch;
  const std::string folder = scratch.path("runs/first");
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  };
  const double before = now();
  EventFile file(folder);
  file.write(0, {{"nothing", 0.0}});
  file.write(7, {{"train/loss", 4.125}, {"train/grad_norm", -1e-8}});
  file.write(int64_t{1} << 40, {{std::string(300, 't'), 3e38}});

  const std::vector<Event> events = read_events(only_file_in(folder));  // read before the writer closes
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_TRUE(events[0].scalars.empty());
  EXPECT_EQ(events[1].step, 0);
  EXPECT_EQ(events[1].scalars, (std::map<std::string, float>{{"nothing", 0.0f}}));
  EXPECT_EQ(events[2].step, 7);
  EXPECT_EQ(events[2].scalars, (std::map<std::string, float>{{"train/loss", 4.125f}, {"train/grad_norm", -1e-8f}}));
  EXPECT_EQ(events[3].step, int64_t{1} << 40);
  EXPECT_EQ(events[3].scalars, (std::map<std::string, float>{{std::string(300, 't'), 3e38f}}));
  for (const Event& event : events) {
    EXPECT_GE(event.wall_time, before);
    EXPECT_LE(event.wall_time, now());
  }
}

TEST(EventFile, IsNamedAsTensorBoardLooksForIt) {
  ScratchFolder folder;
  EventFile file(folder.path());
  const std::string name = std::filesystem::path(only_file_in(folder.path())).filename();
  EXPECT_TRUE(name.starts_with("events.out.tfevents.")) << name;
  EXPECT_TRUE(name.ends_with("." + std::to_string(::getpid()))) << name;
}

TEST(EventFile, ADamagedByteIsFound) {
  ScratchFolder folder;
  EventFile(folder.path()).write(1, {{"loss", 2.5}});
  const std::string path = only_file_in(folder.path());
  const std::string whole = folder.read(std::filesystem::path(path).filename());
  ASSERT_EQ(read_events(path).size(), 2u);
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] ^= 0x10;
    EXPECT_THROW(read_events(folder.write("damaged", damaged)), std::runtime_error) << "byte " << i;
  }
}

TEST(EventFile, AFolderThatCannotBeMadeIsAnError) {
  ScratchFolder folder;
  folder.write("taken", "a file");
  tessera::testing::expect_error(ErrorKind::invalid_file, "[metrics] " + folder.path("taken/runs"),
                                 [&] { EventFile(folder.path("taken/runs")); });
}

}  // namespace
}  // namespace tessera::train::event_file_test
