// Expressions as functions: OURS of arrays x, THEIRS of LibTorch tensors x, BOTH of either, and CALL without arguments.
#pragma once

#define OURS(...) [=](const std::vector<tessera::Array>& x) { return __VA_ARGS__; }
#define THEIRS(...) [=](const std::vector<at::Tensor>& x) { return __VA_ARGS__; }
#define BOTH(...) OURS(__VA_ARGS__), THEIRS(__VA_ARGS__)
// A call to be made later, usually one that must throw.
#define CALL(...) [&] { __VA_ARGS__; }
