// Checkpoints under failures: damaged files, full disks, and folders changed by others.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <optional>
#include <system_error>
#include <thread>

#include "tests/nn/checkpoint/support.h"

namespace tessera::nn::testing::damage_test {
namespace {

// fsync of this folder fails; other calls reach the system.
ino_t lost_folder = 0;

bool is_lost(int fd) {
  struct stat status {};
  return lost_folder && ::fstat(fd, &status) == 0 && status.st_ino == lost_folder;
}

}  // namespace
}  // namespace tessera::nn::testing::damage_test

extern "C" int fsync(int fd) {
  if (!tessera::nn::testing::damage_test::is_lost(fd)) return static_cast<int>(::syscall(SYS_fsync, fd));
  errno = EIO;
  return -1;
}

namespace tessera::nn::testing::damage_test {
namespace {

struct Small {
  Param kernel, bias;
  int64_t count = 0;

  static Small init(const Key& key) {
    return {.kernel = {normal(key, {30, 20}), {"embed", "hidden"}}, .bias = {normal(key, {20}), {"hidden"}}};
  }
};

class DamageTest : public ::testing::Test {
 protected:
  fs::path folder() const { return folder_.path("run"); }

  void save_small(int64_t step = 1) {
    model_.count = step;
    save(folder(), step, named_state("model", model_));
  }

  // Restores into another model. Either restore throws one Error and leaves the model unchanged, or the model has
  // exactly the saved values.
  void expect_refused_or_whole(const std::string& what, bool may_be_whole) {
    Small other = Small::init(Key(9));
    const Array kernel = other.kernel.value, bias = other.bias.value;
    try {
      restore(folder() / "1", named_state("model", other));
      EXPECT_TRUE(may_be_whole) << what << ": restored";
      expect_same_values(leaves(other), leaves(model_), what);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_file) << what << ": " << error.what();
      EXPECT_TRUE(other.kernel.value.is_same(kernel) && other.bias.value.is_same(bias) && other.count == 0) << what;
    }
  }

  Small model_ = Small::init(Key(1));
  data::ScratchFolder folder_;
};

TEST_F(DamageTest, EveryFlippedBitIsFound) {
  save_small();
  for (const auto& [name, bytes] : files_of(folder() / "1")) {
    const fs::path file = folder() / "1" / name;
    // Restoring does not read the index, which is for other programs, nor the strings of a header, which end with its
    // first brace.
    const size_t not_read = name.ends_with(".index.json")    ? bytes.size()
                            : name.ends_with(".safetensors") ? bytes.find('}')
                                                             : 0;
    const size_t step = std::max<size_t>(1, bytes.size() / 150);
    for (size_t i = 0; i < bytes.size(); i += step) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
      overwrite(file, damaged);
      expect_refused_or_whole(name + " byte " + std::to_string(i), i < not_read);
    }
    overwrite(file, bytes);
  }
  expect_refused_or_whole("put right again", true);
}

TEST_F(DamageTest, TruncatedSwappedAndMissingFilesAreRefused) {
  save_small();
  const auto files = files_of(folder() / "1");
  const std::string index = "params/model.safetensors.index.json";
  for (const auto& [name, bytes] : files) {
    if (name == index) continue;
    for (const size_t size : {size_t{0}, size_t{7}, bytes.size() / 2, bytes.size() - 1}) {
      overwrite(folder() / "1" / name, bytes.substr(0, size));
      expect_refused_or_whole(name + " cut off at " + std::to_string(size), false);
    }
    for (const auto& [other, theirs] : files) {
      if (other == name) continue;
      overwrite(folder() / "1" / name, theirs);
      expect_refused_or_whole(name + " replaced by " + other, false);
    }
    fs::remove(folder() / "1" / name);
    expect_refused_or_whole(name + " removed", false);
    overwrite(folder() / "1" / name, bytes);
  }
}

// A reader that opens a pipe like a file would wait for a writer.
TEST_F(DamageTest, PipesAndFoldersInPlaceOfFilesAreRefused) {
  save_small();
  for (const auto& [name, bytes] : files_of(folder() / "1")) {
    if (name.ends_with(".index.json")) continue;
    const fs::path file = folder() / "1" / name;
    fs::remove(file);
    ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
    expect_refused_or_whole(name + " is a pipe", false);
    fs::remove(file);
    fs::create_directory(file);
    expect_refused_or_whole(name + " is a folder", false);
    fs::remove(file);
    overwrite(file, bytes);
  }
}

TEST_F(DamageTest, ManifestsThatNameOtherFilesAreRefused) {
  const std::string long_name(5000, 'x');
  const struct {
    const char *from, *to, *words;
  } cases[] = {
      {"params/model-00001-of-00001.safetensors", "../../secret", "expected a file in params/ or state/"},
      {"params/model-00001-of-00001.safetensors", "params/../../x", "expected a file in params/ or state/"},
      {"[30,20]", "[4611686018427387904,20]", "expected a shape of at most 2^63 - 1 bytes"},
      {"[30,20]", "[-1,20]", "expected a whole number from 0 on"},
      {"[30,20]", "[3000000000,20]", "expected a checksum for each 1048576 of 240000000000 bytes"},
      {"\"version\": 1", "\"version\": 2", "manifest.version: 2 given, expected 1, the one this program reads"},
      {"float32", "float3", "expected an element type, such as float32"},
      {"tessera", "Tessera", "expected \"tessera checkpoint\""},
      {"\"step\": 1", "\"step\": -1", "expected a whole number from 0 to 1000000000000000"},
      {"\"step\": 1", "\"step\": 4611686018427387904", "expected a whole number from 0 to 1000000000000000"},
      {"[30,20]",
       "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
       "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]",
       "65 dimensions, expected at most 64."},
      {"model.kernel", long_name.c_str(), "...\", expected at most 4096."},
      {"\"embed\",\"hidden\"", "\"embed\"", "expected a name for each dim"}};
  save_small();
  const std::string manifest = text_of(folder() / "1/manifest.json");
  for (const auto& [from, to, words] : cases) {
    std::string changed = manifest;
    const size_t at = changed.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    changed.replace(at, std::string(from).size(), to);
    expect_error_with(ErrorKind::invalid_file, {"[restore] a manifest: ", words},
                      [&] { Manifest::from_json(changed, "a manifest"); });
  }
}

// Damaged manifests with a correct commit mark: only their contents reveal the damage.
TEST_F(DamageTest, WrongTextsWithAValidChecksumAreRefused) {
  const std::string params = "params/model-00001-of-00001.safetensors", state = "state" + params.substr(6);
  const struct {
    const char *file, *from;
    std::string to;
  } cases[] = {
      {"manifest.json", "[30,20]", "[20,30]"},
      {"manifest.json", "[30,20]", "[600]"},
      {"manifest.json", "[30,20]", "[]"},
      {"manifest.json", "float32", "int32"},
      {"manifest.json", "float32", "float16"},
      {"manifest.json", params.c_str(), state},
      {"manifest.json", params.c_str(), "params/model.safetensors.index.json"},
      {"manifest.json", params.c_str(), "params/.."},
      {"manifest.json", "model.kernel", "model.kernel2"},
      {"manifest.json", "model.kernel", "model.bias"},
      {"manifest.json", "model.kernel", "model.\\u001b[2Jkernel"},
      {"manifest.json", "\"crc32c\":[\"", "\"crc32c\":[\"00000000\",\""},
      {"manifest.json", "\"crc32c\":[\"", "\"crc32c\":[\"x"},
      {"manifest.json", "\"tensors\": {", "\"tensors\": {}, \"others\": {"},
      {"manifest.json", "{", ""},
      {"state.json", "\"model.count\": 1", "\"model.count\": \"one\""},
      {"state.json", "\"model.count\": 1", "\"model.count\": 1e400"},
      {"state.json", "\"model.count\": 1", "\"model.count\": null"},
      {"state.json", "\"model.count\": 1", "\"model.many\": 1"},
      {"state.json", "\"model.count\": 1", ""},
      {"state.json", "\"metrics\": {}", "\"metrics\": {\"loss\": \"low\"}"},
  };
  save_small();
  const auto files = files_of(folder() / "1");
  for (const auto& [file, from, to] : cases) {
    std::string changed = files.at(file);
    const size_t at = changed.find(from);
    ASSERT_NE(at, std::string::npos) << from << " in " << changed;
    changed.replace(at, std::string(from).size(), to);
    const bool is_manifest = file == std::string("manifest.json");
    overwrite(folder() / "1" / file, changed);
    overwrite(folder() / "1/commit_success.txt", commit_mark(is_manifest ? changed : files.at("manifest.json"),
                                                             is_manifest ? files.at("state.json") : changed));
    expect_refused_or_whole(std::string(from) + " as " + to, false);
    for (const auto& [name, bytes] : files) overwrite(folder() / "1" / name, bytes);
  }
  expect_refused_or_whole("put right again", true);
}

// ---- writing

// Prevents files from growing beyond this many bytes while the object exists.
class SizeLimit {
 public:
  explicit SizeLimit(rlim_t bytes)
      : handler_(std::signal(SIGXFSZ, SIG_IGN)), limit_(std::in_place, RLIMIT_FSIZE, bytes) {}
  ~SizeLimit() {
    limit_.reset();
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  std::optional<Limit> limit_;
};

TEST_F(DamageTest, AFullDiskLosesNothing) {
  save_small(1);
  Saved large = Saved::init(Key(3));
  Checkpointer checkpoints(folder());
  {
    const SizeLimit limit(1 << 20);
    checkpoints.save(2, named_state("model", large));
    expect_error_with(ErrorKind::invalid_file,
                      {"[save] ", "2.tmp/params/model-00001-of-00001.safetensors", "ulimit -f"},
                      [&] { checkpoints.wait(); });
    checkpoints.save(3, named_state("model", large));
    expect_error_with(ErrorKind::invalid_file, {"[save] ", "3.tmp/"},  // thrown by the next call
                      [&] { checkpoints.save(4, named_state("model", large)); });
  }
  EXPECT_EQ(names_in(folder()), (std::vector<std::string>{".lock", "1"}));
  checkpoints.save(4, named_state("model", large));
  checkpoints.wait();
  EXPECT_EQ(checkpoint_steps(folder()), (std::vector<int64_t>{1, 4}));
}

// Prevents the system from starting threads while the object exists: no memory suffices for such a stack.
class NoThreads {
 public:
  NoThreads() {
    ::pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    ::pthread_attr_init(&huge);
    ::pthread_attr_setstacksize(&huge, size_t{1} << 47);
    ::pthread_setattr_default_np(&huge);
    ::pthread_attr_destroy(&huge);
  }
  ~NoThreads() {
    ::pthread_setattr_default_np(&before_);
    ::pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_;
};

// The last fsync is applied to the folder, after the rename.
TEST_F(DamageTest, ACheckpointThatDidNotReachTheDiskIsRemoved) {
  save_small(1);
  struct stat status {};
  ASSERT_EQ(::stat(folder().c_str(), &status), 0);
  lost_folder = status.st_ino;
  expect_error_with(ErrorKind::invalid_file, {"[save] ", "it cannot be flushed to the disk"}, [&] { save_small(2); });
  lost_folder = 0;
  EXPECT_EQ(checkpoint_steps(folder()), (std::vector<int64_t>{1}));
  EXPECT_EQ(names_in(folder()), (std::vector<std::string>{".lock", "1"}));
  save_small(2);
  EXPECT_EQ(checkpoint_steps(folder()), (std::vector<int64_t>{1, 2}));
}

TEST_F(DamageTest, WithoutAThreadItIsSavedByWhoWaits) {
  Saved large = Saved::init(Key(3));
  Checkpointer checkpoints(folder());
  const NoThreads none;
  EXPECT_THROW(std::thread([] {}), std::system_error);
  checkpoints.save(2, named_state("model", large));
  EXPECT_EQ(checkpoint_steps(folder()), (std::vector<int64_t>{}));
  checkpoints.wait();
  EXPECT_EQ(checkpoint_steps(folder()), (std::vector<int64_t>{2}));
}

TEST_F(DamageTest, WithoutADescriptorNoCheckpointIsOverlooked) {
  save_small(1);
  const auto list = [&] {
    const NoDescriptors none;
    checkpoint_steps(folder());
  };
  expect_error_with(ErrorKind::invalid_file, {"[checkpoint_steps] ", "this folder cannot be listed", "ulimit -n"},
                    list);
  EXPECT_EQ(checkpoint_steps(folder()), (std::vector<int64_t>{1}));
  EXPECT_EQ(checkpoint_steps(folder() / "none"), (std::vector<int64_t>{}));
  EXPECT_EQ(checkpoint_steps(folder() / "1/manifest.json"), (std::vector<int64_t>{}));
}

TEST_F(DamageTest, AnErrorThatNobodyHasSeenIsThrownAtTheEnd) {
  Saved large = Saved::init(Key(3));
  EXPECT_THROW(
      {
        const SizeLimit limit(1 << 20);
        Checkpointer checkpoints(folder());
        checkpoints.save(2, named_state("model", large));
      },
      Error);
  ::testing::internal::CaptureStderr();
  EXPECT_THROW(
      {
        const SizeLimit limit(1 << 20);
        Checkpointer checkpoints(folder());
        checkpoints.save(2, named_state("model", large));
        throw std::string("something else");
      },
      std::string);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("error: [save] "), std::string::npos);
}

TEST_F(DamageTest, AFolderThatCannotBeWrittenToIsRefusedAtOnce) {
  save_small(1);
  fs::permissions(folder(), fs::perms::owner_read | fs::perms::owner_exec);
  fs::permissions(folder() / ".lock", fs::perms::owner_read);
  fs::permissions(fs::path(folder_.path()), fs::perms::owner_all);
  const bool was_root = ::geteuid() == 0;
  if (was_root) {  // root may write anywhere
    for (const fs::path& path : {fs::path(folder_.path()), fs::path(folder()), fs::path(folder()) / ".lock"})
      ASSERT_EQ(::chown(path.c_str(), 65534, 65534), 0);
    ASSERT_EQ(::seteuid(65534), 0);
  }
  expect_error_with(ErrorKind::invalid_file,
                    {"[save] ", ".lock: it cannot be written to (Permission denied)",
                     "Change its permissions, or give another folder."},
                    [&] { Checkpointer checkpoints(folder()); });
  if (was_root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  fs::permissions(folder(), fs::perms::owner_all);
  expect_error_with(ErrorKind::invalid_file, {"[save] /proc/no/such", "this folder cannot be made"},
                    [] { Checkpointer checkpoints("/proc/no/such"); });
}

TEST_F(DamageTest, TwoRunsDoNotShareAFolder) {
  save_small(1);
  Checkpointer first(folder());
  expect_error(ErrorKind::invalid_file,
               "[save] " + folder().string() +
                   ": another run saves here. Give each run its own folder, or wait for the other to end.",
               [&] { Checkpointer second(folder()); });
  first.save(2, named_state("model", model_));
  first.wait();
  expect_error(
      ErrorKind::invalid_file,
      "[save] " + (folder() / "2").string() +
          ": a checkpoint of this step is there already. Resume from it, delete it, or save to another folder.",
      [&] { first.save(2, named_state("model", model_)); });
  EXPECT_EQ(checkpoint_steps(folder()), (std::vector<int64_t>{1, 2}));
}

TEST_F(DamageTest, AnIncompleteStepIsRefusedBeforeTheNextRunTrains) {
  save_small(1), save_small(2);
  fs::remove(folder() / "2" / "commit_success.txt");
  expect_error(ErrorKind::invalid_file,
               "[save] " + (folder() / "2").string() +
                   ": it has no commit_success.txt, so it is not a complete checkpoint. Copy the checkpoint again, "
                   "move the folder away, or save to another folder.",
               [&] { Checkpointer again(folder()); });
  EXPECT_TRUE(fs::exists(folder() / "2" / "manifest.json"));
}

TEST_F(DamageTest, WhatInterruptedSavesLeftIsRemovedByTheNextRun) {
  save_small(1);
  for (const char* left : {"2.tmp", "3.deleted"})
    fs::copy(folder() / "1", folder() / left, fs::copy_options::recursive);
  fs::create_directory(folder() / "notes.tmp");
  EXPECT_EQ(checkpoint_steps(folder()), std::vector<int64_t>{1});
  for (const char* left : {"2.tmp", "2.tmp/", "3.deleted"})  // for any path into it
    expect_error_with(ErrorKind::invalid_file, {"[restore] ", left, "no complete checkpoint is here"},
                      [&] { find_checkpoint(folder() / left); });
  Checkpointer checkpoints(folder());
  EXPECT_EQ(names_in(folder()), (std::vector<std::string>{".lock", "1", "notes.tmp"}));
}

TEST_F(DamageTest, WhatCouldNotBeReadBackIsNotSaved) {
  Checkpointer checkpoints(folder(), {.keep = {.latest = 1}});
  const auto nested = [](size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); };
  checkpoints.save(1, named_state("model", model_), {.extra = {{"x", nested(30)}}});
  for (const size_t levels : {31, 32})
    expect_error(ErrorKind::invalid_file,
                 "[save] extra \"x\": " + std::to_string(levels) +
                     " levels of nesting given, expected at most 30. Save it flatter.",
                 [&] { checkpoints.save(2, named_state("model", model_), {.extra = {{"x", nested(levels)}}}); });
  Small other = model_;
  other.bias.axes = Axes{"hidd\xe9n"};
  const struct {
    NamedState state;
    SaveExtra extra;
    const char* what;
  } cases[] = {{named_state("model", model_), {.extra = {{"caf\xe9", "1"}}}, "extra \"caf"},
               {named_state("model", model_), {.extra = {}, .metrics = {{"caf\xe9", 1}}}, "metric \"caf"},
               {named_state("caf\xe9", model_), {}, "number \"caf"},
               {named("caf\xe9", model_), {}, "array \"caf"},
               {named("model", other), {}, "model.bias axis \"hidd"}};
  for (const auto& [state, extra, what] : cases)
    expect_error_with(ErrorKind::invalid_argument, {"[save] ", what, "\\xe9", "\": expected a name in UTF-8."},
                      [&, &state = state, &extra = extra] { checkpoints.save(2, state, extra); });
  EXPECT_EQ(restore(folder(), named_state("model", model_)).extra.at("x"), nested(30));
}

TEST_F(DamageTest, AnOldDamagedOneStaysAndStopsNoSave) {
  save(folder(), 1, named_state("model", model_), {.extra = {}, .metrics = {{"loss", 1}}});
  overwrite(folder() / "1/state.json", "{}");
  Checkpointer checkpoints(folder(), {.keep = {.best = 1, .metric = "loss"}});
  for (int64_t step = 2; step < 6; ++step)
    checkpoints.save(step, named_state("model", model_), {.extra = {}, .metrics = {{"loss", step == 3 ? 1 : 2}}});
  checkpoints.wait();
  EXPECT_EQ(checkpoint_steps(folder()), (std::vector<int64_t>{1, 3, 5}));
}

TEST_F(DamageTest, BadArgumentsSaveNothing) {
  Checkpointer checkpoints(folder());
  for (const int64_t step : {int64_t{-1}, int64_t{1} << 62})
    expect_error(ErrorKind::invalid_argument,
                 "[save] step " + std::to_string(step) + " given, expected a number from 0 to 1000000000000000.",
                 [&] { checkpoints.save(step, named_state("model", model_)); });
  expect_error(ErrorKind::invalid_argument, "[save] metric \"loss\": nan given, expected a finite number.",
               [&] { checkpoints.save(1, named_state("model", model_), {.extra = {}, .metrics = {{"loss", NAN}}}); });
  expect_error_with(ErrorKind::invalid_file, {"[save] extra \"loader\": line 1, column 1"},
                    [&] { checkpoints.save(1, named_state("model", model_), {.extra = {{"loader", "three"}}}); });
  expect_error_with(
      ErrorKind::invalid_argument, {"[save] extra: a name of 4097 bytes, \"xxx", "...\", expected at most 4096."},
      [&] { checkpoints.save(1, named_state("model", model_), {.extra = {{std::string(4097, 'x'), "1"}}}); });
  for (const RetentionPolicy& keep :
       {RetentionPolicy{.latest = -1}, RetentionPolicy{.every = -2}, RetentionPolicy{.best = -3, .metric = "loss"}})
    expect_error_with(ErrorKind::invalid_argument, {"[save] keep: latest ", "given, expected numbers from 0 on."},
                      [&] { Checkpointer(folder_.path("other"), {.keep = keep}); });
  expect_error(ErrorKind::invalid_argument,
               "[save] keep: the best 2 are to be kept, but no metric is given. Name one in RetentionPolicy::metric.",
               [&] { Checkpointer(folder_.path("other"), {.keep = {.best = 2}}); });
  expect_error(ErrorKind::invalid_argument, "[save] max_file_bytes: 0 given, expected a number from 1 on.",
               [&] { Checkpointer(folder_.path("other"), {.max_file_bytes = 0}); });
  expect_error(ErrorKind::invalid_argument, "[save] max_pending_bytes: -1 given, expected a number from 0 on.",
               [&] { Checkpointer(folder_.path("other"), {.max_pending_bytes = -1}); });
  EXPECT_FALSE(fs::exists(folder_.path("other")));
  Leaves twice = named("model", model_);
  twice.push_back(twice[0]);
  expect_error(ErrorKind::invalid_argument,
               "[save] model.kernel: two arrays have this path. Give each tree its own name.",
               [&] { checkpoints.save(1, twice); });
  EXPECT_EQ(names_in(folder()), std::vector<std::string>{".lock"});
}

}  // namespace
}  // namespace tessera::nn::testing::damage_test
