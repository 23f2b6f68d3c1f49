# Tests compile_fail.cmake: it must detect code that compiles, and an error with another message.
cmake_minimum_required(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/support.cmake")

function(check message text)
  file(WRITE "${SCRATCH}/case.cpp" "${text}")
  expect("${message}" "-DCOMPILER=${COMPILER}" "-DINCLUDE=${SCRATCH}" "-DSOURCE=${SCRATCH}/case.cpp"
         -P "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/compile_fail.cmake")
endfunction()

set(too_big "template <class T> int f(T) { static_assert(sizeof(T) < 4, \"too big\"); return 0; }\n")
check("" "// expect: too big\n${too_big}int main() { return f(1); }\n")
check("compiles; it must be refused with: too big" "// expect: too big\n${too_big}int main() { return f('a'); }\n")
check("is refused, but not with: too small" "// expect: too small\n${too_big}int main() { return f(1); }\n")
check("is refused, but not with: too big" "// expect: too big\nint main() { return \"too big\"; }\n")
check("the first line must be" "int main() {}\n")
