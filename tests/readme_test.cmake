# Runs the commands of the README, and compares the README's tables with the output.
#
#   cmake -DROOT=<repository> -DEXAMPLES=<folder of the built examples> -P <this>
cmake_minimum_required(VERSION 3.25)

file(READ "${ROOT}/README.md" readme)

# Reads each "$ command" with the lines below it, up to the next command or the end of the block. Skips the workflow
# `test`, which runs this test, and package installation. For the workflow `train` it runs the training without
# arguments. A training makes two steps.
string(REPLACE ";" "," text "${readme}")
string(REGEX REPLACE "[][]" "|" text "${text}")
string(REPLACE "\n" ";" lines "${text}")
set(output "")
foreach(line IN LISTS lines)
  if(line MATCHES "^\\$ (.*)$")
    set(command "${CMAKE_MATCH_1}")
    set(output "")
    if(command STREQUAL "cmake --workflow --preset train")
      set(command "build/release/examples/train_transformer")
    endif()
    if(command MATCHES "^build/release/examples/(.*)$")
      set(command "${EXAMPLES}/${CMAKE_MATCH_1}")
      if(command MATCHES "train_transformer " OR command MATCHES "train_transformer$")
        string(APPEND command " --steps 2 --warmup 0")
      endif()
      execute_process(COMMAND sh -c "${command}" WORKING_DIRECTORY "${ROOT}"
                      RESULT_VARIABLE failed OUTPUT_VARIABLE output ERROR_VARIABLE output)
      if(failed)
        message(SEND_ERROR "README.md: $ ${command}\n${output}")
      endif()
    elseif(NOT command MATCHES "^(cmake --workflow --preset test|sudo apt update && sudo apt install [-+0-9a-z ]+)$")
      message(SEND_ERROR "README.md: $ ${command}\nThis test cannot run it. Add it to tests/readme_test.cmake.")
    endif()
  elseif(line MATCHES "^```")
    set(output "")
  elseif(output AND line MATCHES " P\\(|^(all_|reduce_scatter|total )")
    string(FIND "${output}" "${line}" position)
    if(position EQUAL -1)
      message(SEND_ERROR "README.md shows a line that its command does not print:\n${line}")
    endif()
  endif()
endforeach()
