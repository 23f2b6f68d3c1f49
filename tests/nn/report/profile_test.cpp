// Profile: parts that add up to the step, passes and modules, waits, and the slices and flows of the trace.
#include "nn/report/profile.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <chrono>
#include <cstdlib>
#include <map>
#include <numeric>
#include <thread>

#include "nn/layers/mlp.h"
#include "nn/placement/filter_shard.h"
#include "nn/report/report.h"
#include "nn/transformations/remat.h"
#include "nn/transformations/value_and_grad.h"
#include "sharding/events/observer.h"
#include "sharding/operations.h"
#include "sharding/random/random.h"
#include "sharding/redistribution/device_put.h"
#include "tests/nn/support.h"

namespace tessera::nn::profile_test {
namespace {

namespace json = boost::json;
using tessera::detail::Activity;
using tessera::detail::ActivityScope;

const bool waits_for_a_device = std::getenv("TESSERA_DEVICE") != nullptr;
constexpr int64_t rows = 64, embed = 128, hidden = 256;

// A step with every category of a profile. The hidden layers are sharded over "model", the batch over "data".
struct Program {
  MeshRules mesh_rules{make_mesh({{"data", 2}, {"model", 2}}),
                       {{"batch", "data"}, {"hidden", "model"}, {"embed", replicated}}};
  DeepMlp model =
      filter_shard(DeepMlp::init(Key(0), {"embed", embed}, {"hidden", hidden}, {"embed", embed}, 1), mesh_rules);
  Array x = device_put(normal(Key(1), {rows, embed}), {"batch", "embed"}, mesh_rules);

  auto gradients() const {
    return value_and_grad([](const DeepMlp& m, const Array& input) {
      const auto block = [](const DeepMlp& mlp, const Array& in) { return mlp(in); };
      return mean(square(remat(block)(m, m(input))));
    })(model, x);
  }
  void step() const {
    {
      const ActivityScope waiting(Activity::input);
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
    }
    const auto [loss, grads] = gradients();
    const ActivityScope updating(Activity::update);
    exp(grads.layers[0].bias->value);
  }
};

ProfileReport profile_of_steps(int steps) {
  const Program program;
  program.step();
  Profile profile;
  for (int i = 0; i < steps; ++i) {
    program.step();
    profile.step();
  }
  return profile.report();
}

double sum_of(const std::vector<ProfileRow>& all) {
  return std::accumulate(all.begin(), all.end(), 0.0, [](double sum, const auto& row) { return sum + row.seconds; });
}

ProfileRow row(const std::vector<ProfileRow>& all, const std::string& name) {
  for (const ProfileRow& r : all)
    if (r.name == name) return r;
  ADD_FAILURE() << "no row " << name;
  return {};
}

TEST(Profile, PartsAddUpToTheStepByTheClockOutside) {
  const Program program;
  program.step();
  Profile profile;
  constexpr int steps = 5;
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < steps; ++i) {
    program.step();
    profile.step();
  }
  const double outside = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  const ProfileReport report = profile.report();
  EXPECT_EQ(report.steps(), steps);
  EXPECT_EQ(report.residual_seconds(), 0);
  for (const ProfileBy key :
       {ProfileBy::part, ProfileBy::pass, ProfileBy::module, ProfileBy::operation, ProfileBy::line})
    EXPECT_NEAR(sum_of(report.by(key)) * steps, outside, 0.03 * outside);
  const detail::ProcessProfile& process = report.processes()[0];
  for (const detail::StepSlices& step : process.steps) {
    int64_t sum = 0;
    for (const detail::Slice& slice : step.slices) {
      EXPECT_GE(slice.alone, 0);
      sum += slice.alone;
    }
    EXPECT_EQ(sum, step.duration());
  }
}

TEST(Profile, DistinguishesPassesModulesLinesAndWaits) {
  const ProfileReport report = profile_of_steps(3);
  const auto parts = report.by(ProfileBy::part);
  for (const char* name : {"forward", "backward", "recomputation", "update", "collectives", "program"})
    EXPECT_GT(row(parts, name).seconds, 0) << name;
  EXPECT_GE(row(parts, "input").seconds, 3e-3);
  EXPECT_EQ(row(parts, "device").seconds > 0, waits_for_a_device);
  // Two products forward, two recomputed in the backward pass, and the gradients, which are at least two products each.
  EXPECT_GE(row(report.by(ProfileBy::operation), "matmul").num_calls, 10);
  EXPECT_EQ(row(report.by(ProfileBy::operation), "exp").num_calls, 1);
  const auto modules = report.by(ProfileBy::module);
  const ProfileRow first = row(modules, "layers.0"), all = row(modules, "layers");
  EXPECT_GT(first.seconds, 0);
  EXPECT_GE(all.whole, first.whole + row(modules, "layers.1").whole - 1e-12);
  bool has_line = false;
  for (const ProfileRow& r : report.by(ProfileBy::line)) has_line |= r.name.starts_with("profile_test.cpp:");
  EXPECT_TRUE(has_line);
}

TEST(Profile, OmitsTheTimeBetweenSteps) {
  const Program program;
  Profile profile;
  testing::expect_error(ErrorKind::invalid_argument,
                        "[profile] no step has ended, expected one at least. Call step() after each.",
                        [&] { profile.report(); });
  program.step();
  profile.begin_step();
  exp(program.x);
  profile.step();
  const ProfileReport report = profile.report();
  const size_t expected = waits_for_a_device ? 3 : 2;  // exp and the program
  EXPECT_EQ(report.by(ProfileBy::operation).size(), expected) << report;
  EXPECT_EQ(report.processes()[0].steps[0].slices.size(), expected);
}

// A slice from `begin` to `end`; `is_scope`: it covers a whole pass.
detail::Slice slice(int64_t begin, int64_t end, detail::Pass pass = detail::Pass::forward, bool is_scope = false) {
  return {.begin = begin, .end = end, .pass = pass, .is_scope = is_scope};
}

TEST(Profile, SlicesAreNested) {
  using enum detail::Pass;
  const auto step = detail::nested(
      slice(0, 100),
      {slice(20, 30), slice(10, 50), slice(40, 60), slice(90, 120), slice(-5, 5), slice(60, 88, backward, true),
       slice(65, 70, recomputation), slice(75, 85, backward), slice(76, 80, recomputation)},
      {});
  std::string words;
  for (const detail::Slice& s : step.slices)
    words += std::to_string(s.begin) + "-" + std::to_string(s.end) + " in " + std::to_string(s.parent) + " alone " +
             std::to_string(s.alone) + " " + detail::name_of(s.pass) + "\n";
  EXPECT_EQ(words,
            "0-100 in -1 alone 7 forward\n0-5 in 0 alone 5 forward\n10-50 in 0 alone 30 forward\n"
            "20-30 in 2 alone 10 forward\n50-60 in 0 alone 10 forward\n60-88 in 0 alone 13 backward\n"
            "65-70 in 5 alone 5 recomputation\n75-85 in 5 alone 6 backward\n76-80 in 7 alone 4 backward\n"
            "90-100 in 0 alone 10 forward\n");
}

TEST(Profile, GoesToAnotherProcessAndBackAsItIs) {
  const ProfileReport report = profile_of_steps(2);
  const std::string text = detail::packed(report.processes()[0]);
  const detail::ProcessProfile back = detail::unpacked(text, 0);
  EXPECT_EQ(detail::packed(back), text);
  EXPECT_EQ(ProfileReport({back}, {}).to_json(), report.to_json());
  EXPECT_EQ(ProfileReport({back}, {}).chrome_trace(), report.chrome_trace());
}

TEST(Profile, AMalformedOneOfAnotherProcessIsAnError) {
  const std::string good = R"({"process":3,"clock_ahead":0,"clock_error":0,"texts":["","matmul"],"steps":[{)"
                           R"("slices":[[0,10,4,0,0,0,0,0,false,-1,5],[1,6,0,0,1,0,0,7,false,0,5]],)"
                           R"("transfers":[[1,2,3,0,1,0,0,0,0,0,7,64,2]],"waits":[1],"consumers":[-1]}]})";
  EXPECT_EQ(detail::packed(detail::unpacked(good, 3)), good);
  const std::pair<std::string, std::string> changes[]{
      {R"("process":3)", R"("process":2)"},
      {R"("steps")", R"("step")"},
      {R"([0,10,4,0,0,0,0,0,false,-1,5],)", ""},                         // the first slice is inside another one
      {"false,0,5", "false,1,5"},                                        // inside itself
      {"false,0,5", "false,-1,5"},                                       // inside no slice
      {"false,-1,5", "false,0,5"},                                       // the step inside itself
      {"false,0,5", "false,0"},                                          // too short
      {"false,0,5", "false,0,5,5"},                                      // too long
      {"false,0,5", "0,0,5"},                                            // not a bool
      {"[1,6,0,0,1,", "[1,6,0,0,2,"},                                    // no such string
      {"[1,6,0,0,1,", "[1,6,0,0,-1,"},                                   // no such string
      {"[1,6,0,0,1,", "[1,6,5,0,1,"},                                    // no such part
      {"[1,6,0,0,1,", "[1,6,0,4,1,"},                                    // no such pass
      {"[1,6,0,0,1,", "[1,6.5,0,0,1,"},                                  // not an integer
      {"[1,6,0,0,1,", "[1,9223372036854775807,0,0,1,"},                  // out of range
      {"[1,2,3,0,1,0,0,0,0,0,7,64,2]", "[1,2,3,0,1,0,0,0,0,2,7,64,2]"},  // no such file
      {"[1,2,3,0,1,0,0,0,0,0,7,64,2]", "7"},
      {R"("waits":[1])", R"("waits":[2])"},
      {R"("waits":[1])", R"("waits":[])"},
      {R"("consumers":[-1])", R"("consumers":[-2])"},
      {"}]}", "}]"},
  };
  for (const auto& [from, to] : changes) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    const std::string message = tessera::testing::error_of(ErrorKind::other, [&] { detail::unpacked(text, 3); });
    EXPECT_TRUE(message.starts_with("[profile] process 3 sends ")) << from << " -> " << to << ": " << message;
  }
}

// ---- the trace

struct Event {
  std::string phase, name;
  double begin, end;
};

// Events of each track, and the flows' points by their ids.
struct Trace {
  std::map<int64_t, std::vector<Event>> slices;
  std::map<int64_t, std::string> tracks;
  std::map<int64_t, std::vector<std::pair<std::string, std::pair<int64_t, double>>>> flows;

  explicit Trace(const std::string& text) {
    const json::value root = json::parse(text);
    for (const json::value& e : root.at("traceEvents").as_array()) {
      const std::string phase(e.at("ph").as_string()), name(e.at("name").as_string());
      const int64_t track = e.at("tid").as_int64();
      if (phase == "M") {
        if (name == "thread_name") tracks[track] = e.at("args").at("name").as_string();
        continue;
      }
      const double begin = e.at("ts").to_number<double>();
      if (phase == "X")
        slices[track].push_back({phase, name, begin, begin + e.at("dur").to_number<double>()});
      else
        flows[e.at("id").as_int64()].push_back({phase, {track, begin}});
    }
  }

  const Event* slice_at(int64_t track, double begin) const {
    for (const Event& e : slices.at(track))
      if (std::abs(e.begin - begin) < 1e-6) return &e;
    return nullptr;
  }
};

TEST(Profile, TheSlicesOfATrackAreNested) {
  const Trace trace(profile_of_steps(2).chrome_trace());
  ASSERT_GT(trace.slices.size(), 2u);
  for (const auto& [track, events] : trace.slices) {
    std::vector<double> open;
    double last = 0;
    for (const Event& e : events) {
      EXPECT_GE(e.begin, last) << e.name;
      last = e.begin;
      while (!open.empty() && open.back() <= e.begin + 5e-4) open.pop_back();
      if (!open.empty()) {
        EXPECT_LE(e.end, open.back() + 5e-4) << trace.tracks.at(track) << " " << e.name;
      }
      open.push_back(e.end);
    }
  }
}

TEST(Profile, AFlowLeadsFromEachCollectiveToWhatWaitedForIt) {
  const Trace trace(profile_of_steps(2).chrome_trace());
  size_t collectives = 0, to_operations = 0;
  for (const auto& [track, events] : trace.slices)
    if (trace.tracks.at(track).starts_with("mesh axes")) collectives += events.size();
  ASSERT_GT(collectives, 0u);
  EXPECT_EQ(trace.flows.size(), collectives);
  for (const auto& [id, points] : trace.flows) {
    ASSERT_GE(points.size(), 2u);
    EXPECT_EQ(points.front().first, "s");
    EXPECT_EQ(points.back().first, "f");
    for (size_t i = 0; i < points.size(); ++i) {
      const auto& [track, begin] = points[i].second;
      const Event* slice = trace.slice_at(track, begin);
      ASSERT_TRUE(slice) << id;
      EXPECT_EQ(trace.tracks.at(track), i == 0 ? "mesh axes " + trace.tracks.at(track).substr(10) : "program");
      if (i == 0) continue;
      EXPECT_GE(begin, points[i - 1].second.second);
      EXPECT_TRUE(i > 1 || slice->name.starts_with("wait for ")) << slice->name;
    }
    to_operations += points.size() == 3;
  }
  EXPECT_GT(to_operations, 0u);
}

// ---- figures other than times

TEST(Profile, CountsTheOperationsOfAStepOnOneDevice) {
  const Program program;
  const auto loss = [](const DeepMlp& m, const Array& input) { return mean(square(m(input))); };
  // Two layers forward; backward twice as much, except for the gradient of the input; divided by four devices.
  const double once = 2.0 * rows * embed * hidden;
  EXPECT_EQ(flops_per_device(value_and_grad(loss), program.model, program.x), (2 + 2 * 2 - 1) * once / 4);
  EXPECT_FALSE(program.model.layers[0].kernel.value.sharding().mesh().is_abstract());
}

TEST(Profile, TheUtilizationIsThatOfThePeak) {
  Profile profile({.flops = 1e6, .peak_flops_per_second = 1e9});
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  profile.step();
  const ProfileReport report = profile.report();
  EXPECT_DOUBLE_EQ(report.mfu(), 1e-3 / report.step_seconds());
  EXPECT_NE(report.to_text().find("MFU"), std::string::npos);
  EXPECT_DOUBLE_EQ(json::parse(report.to_json()).at("mfu").as_double(), report.mfu());
}

TEST(Profile, ThePageHasAStepOfIt) {
  const ProfileReport report = profile_of_steps(3);
  const std::string page = Report{.title = "a", .profile = report}.to_html();
  EXPECT_NE(page.find(R"("profile":{"seconds":)"), std::string::npos);
  EXPECT_LT(page.size(), 400'000u);
  EXPECT_NE(report.to_markdown().find("| module | calls/step |"), std::string::npos) << report.to_markdown();
}

}  // namespace
}  // namespace tessera::nn::profile_test
