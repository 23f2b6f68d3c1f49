// CommLedger: the user's line, the reason, and the output formats of its records.
#include "sharding/accounting/ledger.h"

#include <fmt/format.h>

#include <boost/json/value.hpp>

#include "sharding/accounting/trace_events.h"
#include "sharding/base/caller.h"
#include "sharding/files/json.h"
#include "tests/sharding/expect_error.h"
#include "tests/sharding/law.h"

namespace tessera::ledger_test {
namespace {

using namespace tessera::testing;

std::string file_of(const CommRecord& r) {
  const std::string file = r.where.file_name();
  return file.substr(file.rfind('/') + 1);
}

// ---- lines

TEST(Lines, OfFunctionsAndOperatorsAreTheCallers) {
  const Array x = lying({8, 8}, P{"data"}), y = lying({8, 8}, P{none, "data"}), z = lying({8}, P{"data"});
  const Array ids = array<int32_t>({0, 1, 2, 3, 4, 5, 6, 7});
  // clang-format off
  const std::vector<std::pair<std::function<Array()>, uint32_t>> calls{
      {[&] { return matmul(x, x); }, __LINE__},
      {[&] { return x + y; }, __LINE__},
      {[&] { return x - y * 2.0; }, __LINE__},
      {[&] { return softmax(y); }, __LINE__},
      {[&] { return gelu(sum(x, {0})); }, __LINE__},
      {[&] { return cross_entropy(y, ids); }, __LINE__},
      {[&] { return layer_norm(y, z, z); }, __LINE__},
      {[&] { return embedding(x, ids) * y; }, __LINE__},
      {[&] { return concatenate({x, y}); }, __LINE__},
      {[&] { return slice_in_dim(x, 1, 3, 0); }, __LINE__},
      {[&] { return redistribute(x * 1.0, y.sharding()); }, __LINE__},
      {[&] { return with_sharding_constraint(x * 1.0, P{none, "data"}); }, __LINE__},
      {[&] { return device_put(x * 1.0, y.sharding()); }, __LINE__},
  };
  // clang-format on
  for (const auto& [call, line] : calls) {
    SCOPED_TRACE(line);
    CommLedger ledger;
    call();
    ASSERT_GE(ledger.records().size(), 1u);
    for (const CommRecord& r : ledger.records()) {
      EXPECT_EQ(file_of(r), "ledger_test.cpp") << r.operation;
      EXPECT_EQ(r.where.line(), line) << r.operation;
    }
  }
}

TEST(Lines, OfTheBackwardPassAreTheForwardOperations) {
  const Array x = lying({8, 8}, P{"data"});
  CommLedger ledger;
  uint32_t line = 0;
  {
    Tape tape({lying({8, 8}, P{"data"})});
    const Array y = matmul(x, tape.shadows()[0]);
    line = __LINE__ - 1;
    tape.gradients(sum(y));
  }
  int backward = 0;
  for (const CommRecord& r : ledger.records())
    if (r.backward) {
      EXPECT_EQ(r.where.line(), line) << r.kind;
      ++backward;
    }
  EXPECT_GE(backward, 1);
}

// A line in this file, which a CallerScope may treat as the library's.
std::source_location line_of_this_file() { return std::source_location::current(); }

TEST(Lines, AScopePutsItsOwnFilesLinesDownToItsCaller) {
  const std::source_location mine = line_of_this_file(), none_known = {};
  EXPECT_EQ(std::source_location(CallerLine(mine)).line(), mine.line());
  std::source_location users = mine;
  {
    const CallerScope outer(users);  // its file is this file, so lines of this file are now the library's
    EXPECT_EQ(std::source_location(CallerLine(none_known)).line(), users.line());
    const CallerScope inner(none_known);
    EXPECT_EQ(std::source_location(CallerLine(line_of_this_file())).line(), users.line());
  }
  EXPECT_STREQ(std::source_location(CallerLine(none_known)).file_name(), "");
}

std::source_location line_of_an_included_header();

TEST(Lines, HeadersAreTheLibrarysByTheirPathUnderInclude) {
  const std::source_location users = line_of_this_file();
  const CallerScope scope(users, {});
  EXPECT_EQ(std::source_location(CallerLine(line_of_an_included_header())).line(), users.line());
}

// ---- reasons

std::string reason_of(const std::function<Array()>& call) {
  CommLedger ledger;
  call();
  return ledger.records().empty() ? "nothing moved" : ledger.records()[0].reason;
}

TEST(Reasons, SayWhatDisagrees) {
  const Array x = lying({8, 8}, P{"data"}), y = lying({8, 8}, P{none, "data"}), m = lying({8, 8}, P{"model"});
  EXPECT_EQ(reason_of([&] { return matmul(x, x); }),
            "lhs float32[8@data,8] and rhs float32[8@data,8] disagree: data shards dim 0 of lhs and dim 0 of rhs, so "
            "rhs is resharded to float32[8,8]; the work is split over data");
  EXPECT_EQ(
      reason_of([&] { return x + m; }),
      "lhs float32[8@data,8] and rhs float32[8@model,8] disagree: data shards dim 0 of lhs, model the same dim of rhs, "
      "so rhs is resharded to float32[8@data,8]; the work is split over data");
  EXPECT_EQ(reason_of([&] { return softmax(y); }), "softmax reduces over data itself; the work is split over data");
  EXPECT_EQ(reason_of([&] { return exp(sum(x, {0})); }),
            "the operand float32[8]{U:data} is a partial sum over data, and exp needs its value: the operand is "
            "resharded to float32[8]");
  EXPECT_EQ(reason_of([&] { return with_sharding_constraint(x * 1.0, P{}); }), "explicit");
}

// ---- output formats

struct Program {
  CommLedger ledger;
  uint32_t first = 0, second = 0;

  Program() {
    const Array x = lying({8, 8}, P{"data", "model"});
    first = __LINE__ + 1;
    const Array whole = with_sharding_constraint(x, P{});
    second = __LINE__ + 1;
    const Array y = exp(sum(x, {0}));
  }
};

TEST(Ledger, ATableByMeshAxisAndOneByLine) {
  const Program p;
  EXPECT_EQ(p.ledger.to_text(),
            "collective     mesh axes      devices  count  bytes/device  pass      caused by\n"
            "all_gather     data                 4      1           256  forward   with_sharding_constraint\n"
            "all_reduce     data                 4      1            16  forward   exp\n"
            "all_gather     model                2      1            64  forward   with_sharding_constraint\n"
            "total                                      3           336\n");
  EXPECT_NE(
      p.ledger.to_markdown().find("|---|---|---:|---:|---:|---|---|\n| all_gather | data | 4 | 1 | 256 | forward |"),
      std::string::npos)
      << p.ledger.to_markdown();
  EXPECT_EQ(p.ledger.to_text_by_mesh_axis(),
            "mesh axes      devices   forward  bytes/device   backward  bytes/device\n"
            "data                 4         2           272          0             0\n"
            "model                2         1            64          0             0\n");
  EXPECT_EQ(p.ledger.to_text_by_line(),
            fmt::format("line                 count  bytes/device  what\n"
                        "ledger_test.cpp:{}      2           320  all_gather over data for with_sharding_constraint, "
                        "all_gather over model for with_sharding_constraint\n"
                        "ledger_test.cpp:{}      1            16  all_reduce over data for exp\n",
                        p.first, p.second));
  EXPECT_EQ(CommLedger().to_text_by_mesh_axis(), "no communication\n");
  EXPECT_EQ(CommLedger().to_text_by_line(), "no communication\n");
  EXPECT_EQ(CommLedger().to_markdown(), "no communication\n");
}

TEST(Ledger, FilesOfOneNameAreDistinguished) {
  const auto names = detail::short_names({"/a/x/model.cpp", "/a/y/model.cpp", "/a/loss.cpp", ""});
  EXPECT_EQ(names.at("/a/x/model.cpp"), "x/model.cpp");
  EXPECT_EQ(names.at("/a/y/model.cpp"), "y/model.cpp");
  EXPECT_EQ(names.at("/a/loss.cpp"), "loss.cpp");
  EXPECT_EQ(detail::line_name(names.at(""), 0), "an unknown line");
}

TEST(Ledger, JsonHasEveryField) {
  const Program p;
  const boost::json::value root = parse_json(p.ledger.to_json(), "test", "ledger");
  EXPECT_EQ(root.at("count").as_int64(), 3);
  EXPECT_EQ(root.at("bytes").as_int64(), p.ledger.bytes());
  const boost::json::value& last = root.at("collectives").as_array().at(2);
  EXPECT_EQ(last.at("kind").as_string(), "all_reduce");
  EXPECT_EQ(last.at("axes").as_string(), "data");
  EXPECT_EQ(last.at("devices").as_int64(), 4);
  EXPECT_EQ(last.at("bytes").as_int64(), 16);
  EXPECT_EQ(last.at("operation").as_string(), "exp");
  EXPECT_EQ(last.at("operand").as_string(), "float32[8@model]{U:data}");
  EXPECT_EQ(last.at("result").as_string(), "float32[8@model]");
  EXPECT_EQ(last.at("path").as_string(), "");
  EXPECT_EQ(last.at("pass").as_string(), "forward");
  EXPECT_EQ(last.at("line").as_int64(), p.second);
  EXPECT_NE(last.at("reason").as_string().find("partial sum"), std::string::npos);
  EXPECT_TRUE(last.at("file").as_string().ends_with("ledger_test.cpp"));
}

TEST(Ledger, ATraceHasOneTrackForEachSetOfAxes) {
  const Program p;
  std::vector<CommRecord> records = p.ledger.records();
  double now = 0;
  for (CommRecord& r : records) {  // one after another, a microsecond per byte
    r.begun.seconds = r.awaited.seconds = now;
    r.arrived.seconds = now += 1e-6 * static_cast<double>(r.bytes);
  }
  const boost::json::value root = parse_json(detail::chrome_trace_of(records), "test", "trace");
  std::map<int64_t, std::string> tracks;
  std::vector<std::pair<int64_t, double>> seen;
  double end = 0;
  for (const boost::json::value& e : root.at("traceEvents").as_array()) {
    if (e.at("ph").as_string() == "M") {
      if (e.at("name").as_string() == "thread_name")
        tracks[e.at("tid").as_int64()] = e.at("args").at("name").as_string().c_str();
      continue;
    }
    EXPECT_EQ(e.at("ph").as_string(), "X");
    EXPECT_EQ(e.at("cat").as_string(), "forward");
    EXPECT_NEAR(e.at("ts").to_number<double>(), end, 1e-6);
    EXPECT_NEAR(e.at("args").at("awaited").to_number<double>(), end, 1e-6);
    end += e.at("dur").to_number<double>();
    EXPECT_NEAR(e.at("dur").to_number<double>(), e.at("args").at("bytes").to_number<double>(), 1e-6);
    EXPECT_EQ("mesh axes " + std::string(e.at("args").at("axes").as_string()), tracks[e.at("tid").as_int64()]);
    seen.push_back({e.at("tid").as_int64(), e.at("dur").to_number<double>()});
  }
  EXPECT_EQ(tracks.size(), 2u);
  EXPECT_EQ(seen.size(), p.ledger.records().size());
  EXPECT_NEAR(end, static_cast<double>(p.ledger.bytes()), 1e-6);
}

// Returns a record in which each of these numbers is both the seconds and the FLOPs of a moment.
CommRecord record_at(const char* axes, double begun, double awaited, double arrived) {
  return {.kind = "all_gather",
          .mesh_axes = axes,
          .begun = {begun, begun},
          .awaited = {awaited, awaited},
          .arrived = {arrived, arrived}};
}

TEST(Timelines, ComputeWhereNothingIsAwaited) {
  // The second record was prefetched, and arrived during the computation. The third was awaited for longer than the
  // program computed meanwhile.
  const std::vector<CommRecord> records{record_at("data", 1, 1, 2), record_at("data", 2, 7, 7),
                                        record_at("data", 7, 8, 10)};
  const boost::json::value root = parse_json(detail::chrome_trace_of(records), "test", "trace");
  std::map<std::string, std::string> spans;
  for (const boost::json::value& e : root.at("traceEvents").as_array()) {
    if (e.at("ph").as_string() == "M") continue;
    const double begin = 1e-6 * e.at("ts").to_number<double>(), duration = 1e-6 * e.at("dur").to_number<double>();
    spans[e.at("cat").as_string().c_str()] += fmt::format(" {:g}-{:g}", begin, begin + duration);
  }
  EXPECT_EQ(spans["forward"], " 1-2 2-7 7-10");
  EXPECT_EQ(spans["computation"], " 0-1 2-7 7-8");
}

TEST(Timelines, HaveTracksOfTheirOwnInATraceWhereTheyOverlap) {
  const std::vector<CommRecord> records{record_at("data", 0, 4, 5), record_at("data", 1, 5, 6),
                                        record_at("data", 5, 6, 7)};
  const boost::json::value root = parse_json(detail::chrome_trace_of(records), "test", "trace");
  std::vector<std::string> tracks, seen;
  for (const boost::json::value& e : root.at("traceEvents").as_array())
    if (e.at("name").as_string() == "thread_name")
      tracks.emplace_back(e.at("args").at("name").as_string());
    else if (e.at("ph").as_string() != "M")
      seen.push_back(fmt::format("{} {} {}", e.at("tid").as_int64(), e.at("cat").as_string().c_str(),
                                 e.at("ts").to_number<double>()));
  EXPECT_EQ(tracks, (std::vector<std::string>{"computation", "mesh axes data", "mesh axes data"}));
  EXPECT_EQ(seen, (std::vector<std::string>{"10000 computation 0", "10001 forward 0", "10002 forward 1000000",
                                            "10001 forward 5000000"}));
}

TEST(Ledger, ARingsTime) {
  CommRecord r{.kind = "all_gather", .mesh_axes = "data", .num_devices = 4, .bytes = 4000};
  EXPECT_DOUBLE_EQ(ring_time(1000)(r), 3);
  EXPECT_DOUBLE_EQ(ring_time(1000, 1)(r), 6);
  r.kind = "all_reduce";
  EXPECT_DOUBLE_EQ(ring_time(1000)(r), 6);
  r.kind = "reduce_scatter";
  EXPECT_DOUBLE_EQ(ring_time(1000)(r), 12);
}

TEST(Ledger, ScopesWithinOneAnotherSeeWhatHappensInside) {
  const Array x = lying({8, 8}, P{"data"});
  CommLedger outer;
  with_sharding_constraint(x, P{});
  {
    CommLedger inner;
    exp(sum(x, {0}));
    EXPECT_EQ(inner.count(), 1);
    EXPECT_EQ(inner.records()[0].kind, "all_reduce");
  }
  EXPECT_EQ(outer.count(), 2);
  outer.clear();
  EXPECT_EQ(outer.count(), 0);
  with_sharding_constraint(x, P{none, "data"});
  EXPECT_EQ(outer.count("all_to_all"), 1);
}

TEST(Ledger, LongNamesKeepTheirColumns) {
  const Mesh mesh = make_mesh({{"a_long_name", 2}, {"another_one", 2}});
  const Array x = device_put(ones({4, 4}), NamedSharding(mesh, P{{"a_long_name", "another_one"}}));
  CommLedger ledger;
  prod(x, {0});
  const std::string table = ledger.to_text();
  EXPECT_NE(table.find("all_reduce_product a_long_name,another_one        4"), std::string::npos) << table;
}

#line 1 "/usr/local/include/tessera/nn/layers/linear.h"
std::source_location line_of_an_included_header() { return std::source_location::current(); }

}  // namespace
}  // namespace tessera::ledger_test
