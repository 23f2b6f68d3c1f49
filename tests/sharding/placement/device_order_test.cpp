// The order of a mesh's devices on simulated machines: contiguous, round-robin and unequal processes, axes across.
#include <gtest/gtest.h>

#include "sharding/placement/mesh.h"
#include "sharding/placement/mesh_impl.h"
#include "tests/sharding/expect_error.h"
#include "tests/sharding/expressions.h"

namespace tessera::device_order_test {
namespace {

using namespace tessera::testing;

using Axes = std::vector<MeshAxis>;
using Numbers = std::vector<int>;

// The machine of each mesh position. Each process has `each` devices, all of them in the mesh.
Numbers machines_of(const Axes& axes, const Numbers& machines, int64_t each) {
  Numbers found;
  for (const int id : detail::device_order(axes, machines, each)) found.push_back(machines[id / each]);
  return found;
}

TEST(DeviceOrder, ProcessesOnOneMachineStayInTheirOrder) {
  const Numbers ascending{0, 1, 2, 3, 4, 5, 6, 7};
  for (const Numbers& machines : {Numbers{0, 0, 0, 0}, Numbers{0, 0, 1, 1}, Numbers{0, 1, 1, 2}, Numbers{0, 1, 2, 3}})
    EXPECT_EQ(detail::device_order({{"a", 4}, {"b", 2}}, machines, 2), ascending);
  EXPECT_EQ(detail::device_order({{"a", 2}, {"b", 2}}, {0}, 1 << 22), (Numbers{0, 1, 2, 3}));
}

TEST(DeviceOrder, TheLastAxesAreWithinAMachine) {
  const Numbers dealt{0, 1, 0, 1};
  EXPECT_EQ(detail::device_order({{"data", 2}, {"model", 2}}, dealt, 1), (Numbers{0, 2, 1, 3}));
  EXPECT_EQ(machines_of({{"data", 2}, {"model", 2}}, dealt, 1), (Numbers{0, 0, 1, 1}));
  EXPECT_EQ(machines_of({{"data", 4}, {"seq", 1}, {"model", 2}}, dealt, 2), (Numbers{0, 0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(machines_of({{"data", 3}, {"model", 2}}, {0, 1, 2, 2, 1, 0}, 1), (Numbers{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(machines_of({{"data", 4}}, {0, 1, 0, 0}, 1), (Numbers{0, 0, 0, 1}));  // as far as the machines permit
}

// Each process has three devices, and a mesh of four or eight takes the first ones.
TEST(DeviceOrder, AGridTakesTheFirstDevicesOfEachProcess) {
  EXPECT_EQ(detail::device_order({{"a", 4}}, {0, 1, 0, 1}, 3), (Numbers{0, 6, 3, 9}));
  EXPECT_EQ(detail::device_order({{"a", 8}}, {0, 1, 0, 1}, 3), (Numbers{0, 1, 6, 7, 3, 4, 9, 10}));
}

TEST(DeviceOrder, AdjacentDevicesAlongAnAxisAcrossAreOnDifferentMachines) {
  for (const Numbers& machines : {Numbers{0, 0, 1, 1}, Numbers{0, 1, 0, 1}}) {
    EXPECT_EQ(machines_of({{"model", 2}, {"data", 2, across}}, machines, 1), (Numbers{0, 1, 0, 1}));
    EXPECT_EQ(machines_of({{"data", 2, across}, {"model", 2}}, machines, 1), (Numbers{0, 0, 1, 1}));
    EXPECT_EQ(machines_of({{"data", 4, across}}, machines, 1), (Numbers{0, 1, 0, 1}));
    EXPECT_EQ(machines_of({{"data", 4, across}, {"model", 2}}, machines, 2), (Numbers{0, 0, 1, 1, 0, 0, 1, 1}));
    EXPECT_EQ(machines_of({{"model", 4}, {"data", 2, across}}, machines, 2), (Numbers{0, 1, 0, 1, 0, 1, 0, 1}));
  }
  EXPECT_EQ(detail::device_order({{"model", 2}, {"data", 2, across}}, {0, 0, 1, 1}, 1), (Numbers{0, 2, 1, 3}));
}

TEST(DeviceOrder, SeveralAxesAcrossShareTheMachines) {
  const Numbers eight{0, 1, 2, 3, 0, 1, 2, 3};
  EXPECT_EQ(machines_of({{"pipe", 2, across}, {"data", 2, across}, {"model", 2}}, eight, 1),
            (Numbers{0, 0, 1, 1, 2, 2, 3, 3}));
  EXPECT_EQ(machines_of({{"pipe", 4, across}, {"data", 2, across}}, eight, 1), (Numbers{0, 1, 2, 3, 0, 1, 2, 3}));
  EXPECT_EQ(machines_of({{"one", 1, across}, {"data", 4, across}, {"model", 2}}, eight, 1),
            (Numbers{0, 0, 1, 1, 2, 2, 3, 3}));
}

TEST(DeviceOrder, OnOneMachineTheMarkChangesNothing) {
  EXPECT_EQ(detail::device_order({{"model", 2}, {"data", 3, across}}, {0, 0}, 3), (Numbers{0, 1, 2, 3, 4, 5}));
  const Mesh mesh = make_mesh({{"model", 2}, {"data", 4, across}});
  EXPECT_EQ(mesh, make_mesh({{"model", 2}, {"data", 4}}));
  EXPECT_EQ(mesh.axes(), (Axes{{"model", 2}, {"data", 4}}));
  EXPECT_EQ(mesh.machines(), Numbers(8, 0));
  EXPECT_EQ(mesh.to_string(), "model=2, data=4");
  EXPECT_EQ(make_mesh({{"data", 2, across}}, {.abstract = true}), make_mesh({{"data", 2}}, {.abstract = true}));
}

TEST(DeviceOrder, ImpossibleOrdersAreReported) {
  expect_error(ErrorKind::device_mismatch,
               "[make_mesh] mesh axis \"data\" = 3 is `across`, and 2 machines do not divide it. Give a multiple of "
               "the number of machines (for several axes: split this number into factors above one, and make each axis "
               "a multiple of its factor), or leave `across` out.",
               CALL(detail::device_order({{"model", 2}, {"data", 3, across}}, {0, 1}, 3)));
  expect_error(
      ErrorKind::device_mismatch,
      "[make_mesh] mesh axes \"pipe\" = 2 x \"data\" = 2 are `across`, and 2 machines do not divide all of them. Give",
      CALL(detail::device_order({{"pipe", 2, across}, {"data", 2, across}}, {0, 1}, 2)));
  expect_error(
      ErrorKind::device_mismatch,
      "[make_mesh] mesh axis \"data\" = 2 is `across`, and machine 0 has 3 processes, machine 1 has 1, expected "
      "as many on each. Start as many on each, or leave `across` out.",
      CALL(detail::device_order({{"data", 2, across}, {"model", 2}}, {0, 0, 1, 0}, 1)));
  expect_error(ErrorKind::device_mismatch, "[make_mesh] 3 devices cannot be divided equally among 2 processes.",
               CALL(detail::device_order({{"data", 3}}, {0, 1}, 4)));
  expect_error(
      ErrorKind::invalid_argument,
      "[make_mesh] `devices` are given, and mesh axis \"data\" is `across`: both set the order. Leave one of them out.",
      CALL(make_mesh({{"data", 2, across}}, {.devices = {1, 0}})));
}

}  // namespace
}  // namespace tessera::device_order_test
